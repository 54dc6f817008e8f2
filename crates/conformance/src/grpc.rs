//! gRPC calls: JSON parameters as protobuf messages, and responses as JSON.
//!
//! Parameters that the protobuf messages cannot hold, such as a message without its required fields, are not
//! sent, since a suite cannot write bytes.

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
    operation::{CallFailure, CallOutcome, CallRecord, ErrorResponse, OperationCall},
    raw_http::{RawBody, RawHttp, RawRequest, RawResponse, text_of},
    target::Interface,
};

/// Calls an operation.
pub(super) async fn call(
    interface: &Interface,
    http: &RawHttp,
    call: OperationCall<'_>,
) -> Result<CallRecord, CallFailure> {
    let service = if interface.version == Version::V1_0 { Service::V1 } else { Service::V03 };
    let operation = call.operation;
    let method = service.method(operation).ok_or_else(|| interface.unsupported(operation))?;
    let params = Value::Object(call.params).to_string();
    let request =
        service.dialect().decode(operation, Some(params.as_bytes())).map_err(|error| {
            CallFailure::Unsupported(format!(
                "the parameters have no gRPC message: {}",
                error.message
            ))
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
    let sent = RawRequest { method: Method::POST, url, headers, body, http2 };
    let received = http.exchange(sent, call.read_limit).await?;
    read(service, operation, received)
}

fn read(
    service: Service,
    operation: Operation,
    received: RawResponse,
) -> Result<CallRecord, CallFailure> {
    let RawResponse { status, headers, trailers, body } = received;
    let (pieces, ended) = match body {
        RawBody::Pieces { pieces, ended } => (pieces, ended),
        RawBody::Whole(_) => {
            let what = format!("HTTP {status} without a gRPC response");
            return Err(CallFailure::answered(status, what));
        }
    };
    // Without a message the status may be in the headers.
    let last = if trailers.contains_key("grpc-status") { &trailers } else { &headers };
    let code = text_of(last, "grpc-status").and_then(|code| code.parse::<i64>().ok());
    let outcome = match code {
        Some(0) | None if operation.is_streaming() => {
            let events = pieces.iter().map(|piece| read_event(service, piece));
            CallOutcome::Events { events: events.collect::<Result<_, _>>()?, ended }
        }
        Some(0) => {
            let message = pieces.first().ok_or_else(|| {
                CallFailure::Fault("the call succeeded without a message".to_owned())
            })?;
            CallOutcome::Answer(read_answer(service, operation, message)?)
        }
        Some(code) => CallOutcome::Refused(refusal(code, last)),
        None => return Err(CallFailure::Fault("the response has no gRPC status".to_owned())),
    };
    Ok(CallRecord { status: None, headers, outcome })
}

fn read_event(service: Service, message: &[u8]) -> Result<Value, CallFailure> {
    let event = service.decode_event(message).map_err(|error| unreadable(&error))?;
    value(&service.dialect().encode_event(&event, false))
}

fn read_answer(
    service: Service,
    operation: Operation,
    message: &[u8],
) -> Result<Value, CallFailure> {
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
            return Err(CallFailure::Fault("a stream was answered with one message".to_owned()));
        }
    };
    value(&bytes.map_err(|error| unreadable(&error))?)
}

fn unreadable(error: &herald_protocol::Error) -> CallFailure {
    CallFailure::Fault(format!("the response cannot be read: {}", error.message))
}

fn value(bytes: &[u8]) -> Result<Value, CallFailure> {
    serde_json::from_slice(bytes).map_err(|fault| CallFailure::Fault(fault.to_string()))
}

/// The error in the trailers, with its typed details in the form of REST. Of details other than
/// `ErrorInfo` only the type is read.
fn refusal(code: i64, trailers: &HeaderMap) -> ErrorResponse {
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
    ErrorResponse::new(code, &Value::Object(message.into_iter().collect()), details.as_ref())
}
