//! gRPC: JSON becomes the messages of the protobuf, and the answers JSON again.
//!
//! Parameters that this cannot be said with, such as a message without its required fields, are not
//! sent: a suite has no way to write bytes.

use herald_protocol::{
    Dialect, Operation, Version,
    grpc::{
        Service,
        status::{ErrorInfo, RpcStatus},
    },
    percent,
};
use http::{HeaderMap, Method};
use prost::Message;
use serde_json::{Map, Value};

use super::{
    operation::{Call, Lost, Outcome, Refusal, Seen},
    target::Interface,
    wire::{Body, Received, Sent, Wire, text_of},
};

/// Calls an operation.
pub(super) async fn call(interface: &Interface, wire: &Wire, call: Call<'_>) -> Result<Seen, Lost> {
    let service = if interface.version == Version::V1_0 { Service::V1 } else { Service::V03 };
    let operation = call.operation;
    let method = service.method(operation).ok_or_else(|| interface.unspeakable(operation))?;
    let params = Value::Object(call.params).to_string();
    let request =
        service.dialect().decode(operation, Some(params.as_bytes())).map_err(|error| {
            Lost::Unspeakable(format!("gRPC cannot be asked so: {}", error.message))
        })?;
    let message = service.encode_request(request);
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut body = vec![0];
    body.extend(length.to_be_bytes());
    body.extend(message);
    let mut headers = interface.headers(call.headers);
    headers.insert("content-type".to_owned(), "application/grpc".to_owned());
    headers.insert("te".to_owned(), "trailers".to_owned());
    let mut url = interface.url.clone();
    url.set_path(&format!("/{}/{method}", service.name()));
    let http2 = url.scheme() == "http";
    let sent = Sent { method: Method::POST, url, headers, body, http2 };
    let received = wire.exchange(sent, call.patience).await.map_err(Lost::Fault)?;
    read(service, operation, received)
}

fn read(service: Service, operation: Operation, received: Received) -> Result<Seen, Lost> {
    let Received { status, headers, trailers, body } = received;
    let (pieces, ended) = match body {
        Body::Pieces { pieces, ended } => (pieces, ended),
        Body::Whole(_) => {
            let what = format!("HTTP {status} with no gRPC answer");
            return Err(Lost::answered(status, what));
        }
    };
    // Without any message the status may stand in the headers.
    let last = if trailers.contains_key("grpc-status") { &trailers } else { &headers };
    let code = text_of(last, "grpc-status").and_then(|code| code.parse::<i64>().ok());
    let outcome = match code {
        Some(0) | None if operation.is_streaming() => {
            let events = pieces.iter().map(|piece| read_event(service, piece));
            Outcome::Events { events: events.collect::<Result<_, _>>()?, ended }
        }
        Some(0) => {
            let message = pieces
                .first()
                .ok_or_else(|| Lost::Fault("the call succeeded without an answer".to_owned()))?;
            Outcome::Answer(read_answer(service, operation, message)?)
        }
        Some(code) => Outcome::Refused(refusal(code, last)),
        None => return Err(Lost::Fault("the answer has no gRPC status".to_owned())),
    };
    Ok(Seen { status: None, headers, outcome })
}

fn read_event(service: Service, message: &[u8]) -> Result<Value, Lost> {
    let event = service.decode_event(message).map_err(|error| unreadable(&error))?;
    value(&service.dialect().encode_event(&event, false))
}

fn read_answer(service: Service, operation: Operation, message: &[u8]) -> Result<Value, Lost> {
    let dialect = service.dialect();
    let bytes = match operation {
        Operation::SendMessage => {
            service.decode_send_result(message).map(|result| dialect.encode_send_result(&result))
        }
        Operation::GetTask | Operation::CancelTask => {
            service.decode_task(message).map(|task| dialect.encode_task(&task))
        }
        Operation::ListTasks => {
            service.decode_page(message).map(|page| Dialect::V1.encode_page(&page))
        }
        Operation::CreateTaskPushNotificationConfig | Operation::GetTaskPushNotificationConfig => {
            service.decode_push_config(message).map(|config| dialect.encode_push_config(&config))
        }
        Operation::ListTaskPushNotificationConfigs => {
            service.decode_push_page(message).map(|page| dialect.encode_push_page(&page))
        }
        Operation::DeleteTaskPushNotificationConfig => Ok(b"null".to_vec()),
        Operation::GetExtendedAgentCard => {
            service.decode_card(message).map(|card| dialect.encode_card(&card))
        }
        Operation::SendStreamingMessage | Operation::SubscribeToTask => {
            return Err(Lost::Fault("a stream was answered with one message".to_owned()));
        }
    };
    value(&bytes.map_err(|error| unreadable(&error))?)
}

fn unreadable(error: &herald_protocol::Error) -> Lost {
    Lost::Fault(format!("the answer cannot be read: {}", error.message))
}

fn value(bytes: &[u8]) -> Result<Value, Lost> {
    serde_json::from_slice(bytes).map_err(|fault| Lost::Fault(fault.to_string()))
}

/// The error in the trailers, with its typed details as REST would show them. Of those that are no
/// `ErrorInfo` only the type is read.
fn refusal(code: i64, trailers: &HeaderMap) -> Refusal {
    let message = text_of(trailers, "grpc-message").and_then(percent::decode);
    let message = message.map(|text| ("message".to_owned(), Value::from(text)));
    let status = text_of(trailers, "grpc-status-details-bin").and_then(RpcStatus::from_details_bin);
    let details = status.map(|status| {
        let details = status.details.iter().map(|detail| {
            let mut shown = Map::new();
            shown.insert("@type".to_owned(), Value::from(detail.type_url.as_str()));
            let info = ErrorInfo::decode(detail.value.as_slice()).ok();
            if let Some(info) = info.filter(|_| detail.type_url.ends_with("google.rpc.ErrorInfo")) {
                let facts = info.metadata.into_iter().map(|(name, fact)| (name, fact.into()));
                shown.insert("reason".to_owned(), info.reason.into());
                shown.insert("domain".to_owned(), info.domain.into());
                shown.insert("metadata".to_owned(), Value::Object(facts.collect()));
            }
            Value::Object(shown)
        });
        Value::Array(details.collect())
    });
    Refusal::new(code, &Value::Object(message.into_iter().collect()), details.as_ref())
}
