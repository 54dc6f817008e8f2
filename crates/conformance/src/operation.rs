//! Operations over each binding: requests from a suite's parameters, and outcomes from responses.
//!
//! Parameters and responses stay plain JSON, because our own types would repair faults. gRPC is the exception,
//! since its messages are not JSON.

use std::collections::BTreeMap;

use herald_protocol::{Dialect, Operation, Version, error::GrpcCode, percent};
use http::{HeaderMap, Method};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    assertion::{short, shown},
    grpc,
    raw_http::{ExchangeError, RawBody, RawHttp, RawRequest, RawResponse, ReadLimit},
    suite::CheckedBinding,
    target::Interface,
};

/// The response to the call of a step.
#[derive(Debug, Clone)]
pub(super) struct CallRecord {
    /// The HTTP status; `None` for gRPC, which has a status of its own.
    pub(super) status: Option<u16>,
    pub(super) headers: HeaderMap,
    pub(super) outcome: CallOutcome,
}

/// The meaning of a response.
#[derive(Debug, Clone)]
pub(super) enum CallOutcome {
    Answer(Value),
    Refused(ErrorResponse),
    Events { events: Vec<Value>, ended: bool },
}

/// An error of the protocol in a response.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ErrorResponse {
    /// The JSON-RPC code, the HTTP status or the gRPC status.
    pub(super) code: i64,
    /// The reason of its `ErrorInfo`.
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    /// `error.data` of JSON-RPC, `error.details` of REST, the details of gRPC.
    pub(super) data: Option<Value>,
}

/// A call without a response that can be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallFailure {
    /// The server did not answer, or not in the format of the binding.
    Fault(String),
    /// The server answered with 401 in another format than that of the binding.
    Denied(String),
    /// The binding or the version does not have the operation or the parameters.
    Unsupported(String),
    /// The suite is invalid.
    Broken(String),
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct OperationCall<'a> {
    pub(super) operation: Operation,
    pub(super) params: Map<String, Value>,
    pub(super) headers: &'a BTreeMap<String, String>,
    pub(super) read_limit: ReadLimit,
}

impl Interface {
    /// Calls an operation.
    pub(super) async fn call(
        &self,
        http: &RawHttp,
        call: OperationCall<'_>,
    ) -> Result<CallRecord, CallFailure> {
        let call = OperationCall { params: self.prepared(call.operation, call.params), ..call };
        match self.binding {
            CheckedBinding::JsonRpc => self.call_rpc(http, call).await,
            CheckedBinding::Rest => self.call_rest(http, call).await,
            CheckedBinding::Grpc => grpc::call(self, http, call).await,
        }
    }

    /// True if the server refuses the credentials. The call reads a task that does not exist, so that it has no
    /// effect.
    pub(super) async fn denies(&self, http: &RawHttp) -> bool {
        let params = Map::from_iter([("id".to_owned(), Uuid::new_v4().to_string().into())]);
        let headers = self.headers(&BTreeMap::new());
        let read_limit = ReadLimit::default();
        let call =
            OperationCall { operation: Operation::GetTask, params, headers: &headers, read_limit };
        match self.call(http, call).await {
            Ok(CallRecord { status: Some(status), .. }) => status == 401,
            Ok(CallRecord { outcome: CallOutcome::Refused(refusal), .. }) => {
                refusal.code == GrpcCode::Unauthenticated as i64
            }
            Ok(CallRecord {
                outcome: CallOutcome::Answer(_) | CallOutcome::Events { .. }, ..
            }) => false,
            Err(CallFailure::Denied(_)) => true,
            Err(CallFailure::Fault(_) | CallFailure::Unsupported(_) | CallFailure::Broken(_)) => {
                false
            }
        }
    }

    /// The outcome of a raw request.
    pub(super) fn read(&self, received: RawResponse) -> Result<CallRecord, CallFailure> {
        match self.binding {
            CheckedBinding::JsonRpc => read_rpc(received),
            CheckedBinding::Rest => read_rest(received),
            CheckedBinding::Grpc => {
                Err(CallFailure::Unsupported("gRPC has no raw requests".to_owned()))
            }
        }
    }

    /// Parameters in the shape of the version. Suites leave out the id of a message, put its task beside it, and
    /// nest members that are flat in 1.0.
    fn prepared(&self, operation: Operation, mut params: Map<String, Value>) -> Map<String, Value> {
        let sends = matches!(operation, Operation::SendMessage | Operation::SendStreamingMessage);
        if sends {
            let outside = ["taskId", "contextId"].map(|name| (name, params.remove(name)));
            if let Some(message) = params.get_mut("message").and_then(Value::as_object_mut) {
                let id = || Value::String(Uuid::new_v4().to_string());
                message.entry("messageId").or_insert_with(id);
                for (name, value) in outside {
                    message.extend(value.map(|value| (name.to_owned(), value)));
                }
            }
        }
        if let Some(token) = params.remove("cursor") {
            params.insert("pageToken".to_owned(), token);
        }
        if self.version == Version::V1_0 {
            if let Some(Value::Object(config)) = params.remove("pushNotificationConfig") {
                params.extend(config);
            }
            if let Some(tenant) = &self.tenant {
                params.insert("tenant".to_owned(), Value::String(tenant.clone()));
            }
        }
        params
    }

    async fn call_rpc(
        &self,
        http: &RawHttp,
        call: OperationCall<'_>,
    ) -> Result<CallRecord, CallFailure> {
        let dialect = if self.version == Version::V1_0 { Dialect::V1 } else { Dialect::V03 };
        let method =
            dialect.method(call.operation).ok_or_else(|| self.unsupported(call.operation))?;
        let id = Uuid::new_v4().to_string();
        let body = Map::from_iter([
            ("jsonrpc".to_owned(), Value::from("2.0")),
            ("id".to_owned(), Value::String(id)),
            ("method".to_owned(), Value::from(method)),
            ("params".to_owned(), Value::Object(call.params)),
        ]);
        let mut headers = self.headers(call.headers);
        headers.insert("content-type".to_owned(), "application/json".to_owned());
        headers.insert("accept".to_owned(), accept(call.operation).to_owned());
        let sent = RawRequest {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: Value::Object(body).to_string().into_bytes(),
            http2: false,
        };
        let received = http.exchange(sent, call.read_limit).await?;
        read_rpc(received)
    }

    async fn call_rest(
        &self,
        http: &RawHttp,
        call: OperationCall<'_>,
    ) -> Result<CallRecord, CallFailure> {
        let operation = call.operation;
        let (method, path) =
            self.route(operation, &call.params).ok_or_else(|| self.unsupported(operation))?;
        let mut headers = self.headers(call.headers);
        headers.insert("accept".to_owned(), accept(operation).to_owned());
        let mut params = call.params;
        params.remove("tenant");
        for name in in_path(operation) {
            params.remove(*name);
        }
        let mut url = self.below(&path);
        let body = match method {
            Method::POST => {
                headers.insert("content-type".to_owned(), "application/json".to_owned());
                Value::Object(params).to_string().into_bytes()
            }
            _ => {
                let query = query(&params);
                url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
                Vec::new()
            }
        };
        let mut sent = RawRequest { method, url, headers, body, http2: false };
        let received = http.exchange(sent.clone(), call.read_limit).await?;
        // The protobuf of the specification has GET, its text POST, and some servers support only one.
        let unknown = matches!(received.status, 404 | 405) && refusal_of(&received).is_none();
        if operation != Operation::SubscribeToTask || !unknown {
            return read_rest(received);
        }
        sent.method = Method::POST;
        read_rest(http.exchange(sent, call.read_limit).await?)
    }

    /// The method and the path of an operation.
    fn route(&self, operation: Operation, params: &Map<String, Value>) -> Option<(Method, String)> {
        let encoded = |text: &str| {
            let mut out = String::new();
            percent::encode(&mut out, text);
            out
        };
        let id = |name: &str| encoded(params.get(name).and_then(Value::as_str).unwrap_or_default());
        let old = self.version != Version::V1_0;
        let configs = || format!("/tasks/{}/pushNotificationConfigs", id("taskId"));
        let (method, path) = match operation {
            Operation::SendMessage => (Method::POST, "/message:send".to_owned()),
            Operation::SendStreamingMessage => (Method::POST, "/message:stream".to_owned()),
            Operation::GetTask => (Method::GET, format!("/tasks/{}", id("id"))),
            Operation::ListTasks if old => return None,
            Operation::ListTasks => (Method::GET, "/tasks".to_owned()),
            Operation::CancelTask => (Method::POST, format!("/tasks/{}:cancel", id("id"))),
            Operation::SubscribeToTask => (Method::GET, format!("/tasks/{}:subscribe", id("id"))),
            Operation::CreateTaskPushNotificationConfig => (Method::POST, configs()),
            Operation::ListTaskPushNotificationConfigs => (Method::GET, configs()),
            Operation::GetTaskPushNotificationConfig => {
                (Method::GET, format!("{}/{}", configs(), id("id")))
            }
            Operation::DeleteTaskPushNotificationConfig => {
                (Method::DELETE, format!("{}/{}", configs(), id("id")))
            }
            Operation::GetExtendedAgentCard if old => (Method::GET, "/card".to_owned()),
            Operation::GetExtendedAgentCard => (Method::GET, "/extendedAgentCard".to_owned()),
        };
        let tenant = self.tenant.as_deref().map(|tenant| format!("/{}", encoded(tenant)));
        let prefix = if old { "/v1" } else { tenant.as_deref().unwrap_or_default() };
        Some((method, format!("{prefix}{path}")))
    }

    /// A URL below that of the interface. `/` is the interface's URL itself.
    pub(super) fn below(&self, path: &str) -> reqwest::Url {
        let mut url = self.url.clone();
        let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q)));
        if path != "/" {
            let path = format!("{}{path}", self.url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        url.set_query(query);
        url
    }

    pub(super) fn unsupported(&self, operation: Operation) -> CallFailure {
        let (name, binding) = (operation.name(), self.binding.name());
        CallFailure::Unsupported(format!("A2A {} has no {name} over {binding}", self.version))
    }
}

fn accept(operation: Operation) -> &'static str {
    if operation.is_streaming() {
        "text/event-stream, application/json;q=0.5"
    } else {
        "application/json, application/a2a+json"
    }
}

/// The parameters that are in the path.
fn in_path(operation: Operation) -> &'static [&'static str] {
    match operation {
        Operation::GetTask | Operation::SubscribeToTask | Operation::CancelTask => &["id"],
        Operation::GetTaskPushNotificationConfig | Operation::DeleteTaskPushNotificationConfig => {
            &["id", "taskId"]
        }
        Operation::ListTaskPushNotificationConfigs
        | Operation::CreateTaskPushNotificationConfig => &["taskId"],
        Operation::SendMessage
        | Operation::SendStreamingMessage
        | Operation::ListTasks
        | Operation::GetExtendedAgentCard => &[],
    }
}

fn query(params: &Map<String, Value>) -> String {
    let mut query = String::new();
    for (name, value) in params {
        if !query.is_empty() {
            query.push('&');
        }
        percent::encode(&mut query, name);
        query.push('=');
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        percent::encode(&mut query, &text);
    }
    query
}

/// The outcome of a JSON-RPC response.
fn read_rpc(received: RawResponse) -> Result<CallRecord, CallFailure> {
    let RawResponse { status, headers, body, .. } = received;
    let outcome = match body {
        RawBody::Whole(bytes) => read_envelope(status, &bytes)?,
        RawBody::Pieces { pieces, ended } => {
            let mut events = Vec::new();
            let mut refused = None;
            for piece in pieces {
                match read_envelope(status, &piece)? {
                    CallOutcome::Refused(refusal) => refused = Some(refusal),
                    CallOutcome::Answer(event) => events.push(event),
                    CallOutcome::Events { .. } => {}
                }
            }
            refused.map_or(CallOutcome::Events { events, ended }, CallOutcome::Refused)
        }
    };
    Ok(CallRecord { status: Some(status), headers, outcome })
}

fn read_envelope(status: u16, bytes: &[u8]) -> Result<CallOutcome, CallFailure> {
    let mut envelope = read_json(status, bytes)?;
    let taken = |envelope: &mut Value, name| envelope.get_mut(name).map(Value::take);
    if let Some(error) = taken(&mut envelope, "error") {
        let code = error.get("code").and_then(Value::as_i64);
        let code = code.ok_or_else(|| {
            CallFailure::Fault(format!("the error has no code: {}", shown(&error)))
        })?;
        return Ok(CallOutcome::Refused(ErrorResponse::new(code, &error, error.get("data"))));
    }
    taken(&mut envelope, "result").map(CallOutcome::Answer).ok_or_else(|| {
        let seen = shown(&envelope);
        CallFailure::answered(status, format!("HTTP {status} without a JSON-RPC response: {seen}"))
    })
}

/// The outcome of a REST response.
fn read_rest(received: RawResponse) -> Result<CallRecord, CallFailure> {
    if let Some(refusal) = refusal_of(&received) {
        let RawResponse { status, headers, .. } = received;
        return Ok(CallRecord {
            status: Some(status),
            headers,
            outcome: CallOutcome::Refused(refusal),
        });
    }
    let RawResponse { status, headers, body, .. } = received;
    let outcome = match body {
        RawBody::Whole(bytes) if !(200..300).contains(&status) => {
            let seen = short(&String::from_utf8_lossy(&bytes));
            return Err(CallFailure::Fault(format!("HTTP {status} without an A2A error: {seen}")));
        }
        RawBody::Whole(bytes) if bytes.trim_ascii().is_empty() => CallOutcome::Answer(Value::Null),
        RawBody::Whole(bytes) => CallOutcome::Answer(read_json(status, &bytes)?),
        RawBody::Pieces { pieces, ended } => {
            let events = pieces.iter().map(|piece| read_json(status, piece));
            CallOutcome::Events { events: events.collect::<Result<_, _>>()?, ended }
        }
    };
    Ok(CallRecord { status: Some(status), headers, outcome })
}

/// The error in a REST response: the `error` of 1.0, or the bare members of 0.3.
fn refusal_of(received: &RawResponse) -> Option<ErrorResponse> {
    let bytes = match &received.body {
        RawBody::Whole(_) if (200..300).contains(&received.status) => return None,
        RawBody::Whole(bytes) => bytes,
        RawBody::Pieces { pieces, .. } => pieces.iter().find(|piece| {
            let event = serde_json::from_slice::<Value>(piece);
            event.is_ok_and(|event| event.get("error").is_some())
        })?,
    };
    let body: Value = serde_json::from_slice(bytes).ok()?;
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(&body);
    let said = ["message", "code", "title"].iter().any(|name| error.get(name).is_some());
    let code = match &received.body {
        RawBody::Whole(_) => i64::from(received.status),
        RawBody::Pieces { .. } => error.get("code").and_then(Value::as_i64).unwrap_or_default(),
    };
    said.then(|| ErrorResponse::new(code, error, error.get("details").or(error.get("data"))))
}

fn read_json(status: u16, bytes: &[u8]) -> Result<Value, CallFailure> {
    serde_json::from_slice(bytes).map_err(|_| {
        let seen = short(&String::from_utf8_lossy(bytes));
        CallFailure::answered(status, format!("HTTP {status} with a body that is not JSON: {seen}"))
    })
}

impl From<ExchangeError> for CallFailure {
    fn from(error: ExchangeError) -> Self {
        Self::Fault(error.to_string())
    }
}

impl CallFailure {
    /// A response in another format than that of the binding.
    pub(super) fn answered(status: u16, what: String) -> Self {
        if status == 401 { Self::Denied(what) } else { Self::Fault(what) }
    }
}

impl ErrorResponse {
    pub(super) fn new(code: i64, error: &Value, data: Option<&Value>) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let message = text("message").or(text("detail")).or(text("title")).map(str::to_owned);
        let info = data.and_then(info);
        let reason = info.and_then(|info| info.get("reason")?.as_str()).map(str::to_owned);
        Self { code, reason, message, data: data.cloned() }
    }

    /// The metadata of its `ErrorInfo`.
    pub(super) fn metadata(&self) -> Option<&Value> {
        info(self.data.as_ref()?)?.get("metadata")
    }

    /// The error as a JSON value, for assertions.
    pub(super) fn as_value(&self) -> Value {
        let mut value = Map::new();
        value.insert("code".to_owned(), self.code.into());
        let message = self.message.clone().map(Value::String);
        value.extend(message.map(|message| ("message".to_owned(), message)));
        value.extend(self.data.clone().map(|data| ("data".to_owned(), data)));
        Value::Object(value)
    }
}

impl std::fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "error {}", self.code)?;
        if let Some(reason) = &self.reason {
            write!(f, " {}", short(reason))?;
        }
        match &self.message {
            Some(message) => write!(f, " ({})", short(message)),
            None => Ok(()),
        }
    }
}

/// The `ErrorInfo` among typed details.
fn info(data: &Value) -> Option<&Value> {
    let is_info = |one: &&Value| {
        let kind = one.get("@type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.ends_with("google.rpc.ErrorInfo"))
    };
    data.as_array()?.iter().find(is_info)
}
