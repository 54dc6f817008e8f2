//! An operation over a binding: what is sent, and what the answer means.
//!
//! Parameters go out and answers come in as the JSON they are; nothing is read into types on the way,
//! so that no fault is mended. gRPC is the exception, since its messages are no JSON.

use std::collections::BTreeMap;

use herald_protocol::{Dialect, Operation, Version, error::GrpcCode, percent};
use http::{HeaderMap, Method};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{
    assertion::{short, shown},
    grpc,
    suite::Binding,
    target::Interface,
    wire::{Body, Patience, Received, Sent, Wire},
};

/// What came of a step.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// The HTTP status; gRPC has one of its own.
    pub(super) status: Option<u16>,
    pub(super) headers: HeaderMap,
    pub(super) outcome: Outcome,
}

/// What an answer means.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Answer(Value),
    Refused(Refusal),
    Events { events: Vec<Value>, ended: bool },
}

/// An error that the server named.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Refusal {
    /// The JSON-RPC code, the HTTP status or the gRPC status.
    pub(super) code: i64,
    /// The reason of its `ErrorInfo`.
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    /// `error.data` of JSON-RPC, `error.details` of REST, the details of gRPC.
    pub(super) data: Option<Value>,
}

/// Why there is nothing to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// The server did not answer, or not in the binding's form.
    Fault(String),
    /// It does not know who is calling, and said so outside of the binding's form.
    Denied(String),
    /// It cannot be said over this binding and version.
    Unspeakable(String),
    /// The suite is at fault.
    Broken(String),
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct Call<'a> {
    pub(super) operation: Operation,
    pub(super) params: Map<String, Value>,
    pub(super) headers: &'a BTreeMap<String, String>,
    pub(super) patience: Patience,
}

impl Interface {
    /// Calls an operation.
    pub(super) async fn call(&self, wire: &Wire, call: Call<'_>) -> Result<Seen, Lost> {
        let call = Call { params: self.prepared(call.operation, call.params), ..call };
        match self.binding {
            Binding::JsonRpc => self.call_rpc(wire, call).await,
            Binding::Rest => self.call_rest(wire, call).await,
            Binding::Grpc => grpc::call(self, wire, call).await,
        }
    }

    /// Whether the server does not take the caller's credentials. What is asked for is not there, so that
    /// nothing comes of it.
    pub(super) async fn denies(&self, wire: &Wire) -> bool {
        let params = Map::from_iter([("id".to_owned(), Uuid::new_v4().to_string().into())]);
        let headers = self.headers(&BTreeMap::new());
        let patience = Patience::default();
        let call = Call { operation: Operation::GetTask, params, headers: &headers, patience };
        match self.call(wire, call).await {
            Ok(Seen { status: Some(status), .. }) => status == 401,
            Ok(Seen { outcome: Outcome::Refused(refusal), .. }) => {
                refusal.code == GrpcCode::Unauthenticated as i64
            }
            Ok(Seen { outcome: Outcome::Answer(_) | Outcome::Events { .. }, .. }) => false,
            Err(Lost::Denied(_)) => true,
            Err(Lost::Fault(_) | Lost::Unspeakable(_) | Lost::Broken(_)) => false,
        }
    }

    /// What a response to a raw request means.
    pub(super) fn read(&self, received: Received) -> Result<Seen, Lost> {
        match self.binding {
            Binding::JsonRpc => read_rpc(received),
            Binding::Rest => read_rest(received),
            Binding::Grpc => Err(Lost::Unspeakable("gRPC has no raw requests".to_owned())),
        }
    }

    /// Parameters in the shape of the version. Suites leave out the id of a message, name the task of
    /// a message outside of it, and nest what 1.0 has flat.
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

    async fn call_rpc(&self, wire: &Wire, call: Call<'_>) -> Result<Seen, Lost> {
        let dialect = if self.version == Version::V1_0 { Dialect::V1 } else { Dialect::V03 };
        let method =
            dialect.method(call.operation).ok_or_else(|| self.unspeakable(call.operation))?;
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
        let sent = Sent {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body: Value::Object(body).to_string().into_bytes(),
            http2: false,
        };
        let received = wire.exchange(sent, call.patience).await.map_err(Lost::Fault)?;
        read_rpc(received)
    }

    async fn call_rest(&self, wire: &Wire, call: Call<'_>) -> Result<Seen, Lost> {
        let operation = call.operation;
        let (method, path) =
            self.route(operation, &call.params).ok_or_else(|| self.unspeakable(operation))?;
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
        let mut sent = Sent { method, url, headers, body, http2: false };
        let received = wire.exchange(sent.clone(), call.patience).await.map_err(Lost::Fault)?;
        // The protobuf says GET where the text says POST, and some servers know only one.
        let unknown = matches!(received.status, 404 | 405) && refusal_of(&received).is_none();
        if operation != Operation::SubscribeToTask || !unknown {
            return read_rest(received);
        }
        sent.method = Method::POST;
        read_rest(wire.exchange(sent, call.patience).await.map_err(Lost::Fault)?)
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

    /// A place below the interface's URL, which stays as it is for `/`.
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

    pub(super) fn unspeakable(&self, operation: Operation) -> Lost {
        let name = operation.name();
        Lost::Unspeakable(format!("{name} is no operation of A2A {} there", self.version))
    }
}

fn accept(operation: Operation) -> &'static str {
    match operation.is_streaming() {
        true => "text/event-stream, application/json;q=0.5",
        false => "application/json, application/a2a+json",
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

/// What a JSON-RPC answer means.
fn read_rpc(received: Received) -> Result<Seen, Lost> {
    let Received { status, headers, body, .. } = received;
    let outcome = match body {
        Body::Whole(bytes) => read_envelope(status, &bytes)?,
        Body::Pieces { pieces, ended } => {
            let mut events = Vec::new();
            let mut refused = None;
            for piece in pieces {
                match read_envelope(status, &piece)? {
                    Outcome::Refused(refusal) => refused = Some(refusal),
                    Outcome::Answer(event) => events.push(event),
                    Outcome::Events { .. } => {}
                }
            }
            refused.map_or(Outcome::Events { events, ended }, Outcome::Refused)
        }
    };
    Ok(Seen { status: Some(status), headers, outcome })
}

fn read_envelope(status: u16, bytes: &[u8]) -> Result<Outcome, Lost> {
    let mut envelope = read_json(status, bytes)?;
    let taken = |envelope: &mut Value, name| envelope.get_mut(name).map(Value::take);
    if let Some(error) = taken(&mut envelope, "error") {
        let code = error.get("code").and_then(Value::as_i64);
        let code =
            code.ok_or_else(|| Lost::Fault(format!("the error has no code: {}", shown(&error))))?;
        return Ok(Outcome::Refused(Refusal::new(code, &error, error.get("data"))));
    }
    taken(&mut envelope, "result").map(Outcome::Answer).ok_or_else(|| {
        let seen = shown(&envelope);
        Lost::answered(status, format!("HTTP {status} with no JSON-RPC answer: {seen}"))
    })
}

/// What a REST answer means.
fn read_rest(received: Received) -> Result<Seen, Lost> {
    if let Some(refusal) = refusal_of(&received) {
        let Received { status, headers, .. } = received;
        return Ok(Seen { status: Some(status), headers, outcome: Outcome::Refused(refusal) });
    }
    let Received { status, headers, body, .. } = received;
    let outcome = match body {
        Body::Whole(bytes) if !(200..300).contains(&status) => {
            let seen = short(&String::from_utf8_lossy(&bytes));
            return Err(Lost::Fault(format!("HTTP {status} without an A2A error: {seen}")));
        }
        Body::Whole(bytes) if bytes.trim_ascii().is_empty() => Outcome::Answer(Value::Null),
        Body::Whole(bytes) => Outcome::Answer(read_json(status, &bytes)?),
        Body::Pieces { pieces, ended } => {
            let events = pieces.iter().map(|piece| read_json(status, piece));
            Outcome::Events { events: events.collect::<Result<_, _>>()?, ended }
        }
    };
    Ok(Seen { status: Some(status), headers, outcome })
}

/// The error in a REST answer: the `error` of 1.0, or the bare members that 0.3 has.
fn refusal_of(received: &Received) -> Option<Refusal> {
    let bytes = match &received.body {
        Body::Whole(_) if (200..300).contains(&received.status) => return None,
        Body::Whole(bytes) => bytes,
        Body::Pieces { pieces, .. } => pieces.iter().find(|piece| {
            let event = serde_json::from_slice::<Value>(piece);
            event.is_ok_and(|event| event.get("error").is_some())
        })?,
    };
    let body: Value = serde_json::from_slice(bytes).ok()?;
    let error = body.get("error").filter(|error| error.is_object()).unwrap_or(&body);
    let said = ["message", "code", "title"].iter().any(|name| error.get(name).is_some());
    let code = match &received.body {
        Body::Whole(_) => i64::from(received.status),
        Body::Pieces { .. } => error.get("code").and_then(Value::as_i64).unwrap_or_default(),
    };
    said.then(|| Refusal::new(code, error, error.get("details").or(error.get("data"))))
}

fn read_json(status: u16, bytes: &[u8]) -> Result<Value, Lost> {
    serde_json::from_slice(bytes).map_err(|_| {
        let seen = short(&String::from_utf8_lossy(bytes));
        Lost::answered(status, format!("HTTP {status} with something that is no JSON: {seen}"))
    })
}

impl Lost {
    /// An answer that is not in the binding's form.
    pub(super) fn answered(status: u16, what: String) -> Self {
        if status == 401 { Self::Denied(what) } else { Self::Fault(what) }
    }
}

impl Refusal {
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

    /// As a value, for assertions.
    pub(super) fn as_value(&self) -> Value {
        let mut value = Map::new();
        value.insert("code".to_owned(), self.code.into());
        let message = self.message.clone().map(Value::String);
        value.extend(message.map(|message| ("message".to_owned(), message)));
        value.extend(self.data.clone().map(|data| ("data".to_owned(), data)));
        Value::Object(value)
    }
}

impl std::fmt::Display for Refusal {
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
