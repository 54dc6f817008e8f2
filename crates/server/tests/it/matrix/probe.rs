//! Probes: one call of one operation over one binding in one version, or of one route of `/api`.

use herald_api::{ApiRoute, ApiScope, routes::Nothing};
use herald_protocol::{
    Dialect, ErrorKind, Message, Operation, Request, TenantId,
    grpc::Service,
    jsonrpc,
    push::PushConfig,
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, ListTasks, PushConfigRef,
        SendMessage, SubscribeToTask,
    },
    rest,
};
use serde_json::json;

use crate::client::Call;

/// One call.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) name: String,
    pub(super) subject: Subject,
    pub(super) wire: Wire,
}

/// The operation or the route that a probe calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Operation(Operation),
    /// `GET /events`.
    Feed,
    Api(ApiRoute),
}

/// The bytes of a call, without credentials.
#[derive(Debug, Clone)]
pub(super) enum Wire {
    JsonRpc(Dialect, Call),
    Rest(Call),
    Grpc { path: String, message: Vec<u8>, is_stream: bool },
    Socket { dialect: Dialect, path: String, message: String },
}

/// The ids that probes name.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) task: String,
    pub(super) key: String,
    /// The open question of the task.
    pub(super) question: String,
    /// The id of a webhook of the task.
    pub(super) webhook: String,
    /// The name of a worker.
    pub(super) worker: String,
    /// The session of the worker.
    pub(super) session: String,
    /// The tenant in the request, for dialects that have one there.
    pub(super) tenant: Option<String>,
}

/// The mounts of every binding: the root and one agent.
const MOUNTS: [&str; 2] = ["", "/agents/script"];

/// The JSON-RPC endpoints: the dialect, the path and the version header.
const JSON_RPC: [(Dialect, &str, Option<&str>); 5] = [
    (Dialect::V1, "/a2a/jsonrpc", Some("1.0")),
    (Dialect::V03, "/a2a/jsonrpc", Some("0.3")),
    (Dialect::V03, "/a2a", Some("0.2")),
    (Dialect::V03, "/", None),
    (Dialect::V01, "/rpc", None),
];

/// Every operation over every binding in every version, at every mount.
pub(super) fn operations(target: &Target) -> Vec<Probe> {
    let mut probes = Vec::new();
    for operation in Operation::ALL.iter().copied() {
        let subject = Subject::Operation(operation);
        let request = || request(operation, target);
        let mut add = |name: String, wire| {
            let name = format!("{} over {name}", operation.name());
            probes.push(Probe { name, subject, wire });
        };
        for mount in MOUNTS {
            for (dialect, path, version) in JSON_RPC {
                let Some(method) = dialect.method(operation) else { continue };
                let params = dialect.encode_request(&request());
                let path =
                    if mount.is_empty() { path.to_owned() } else { format!("{mount}{path}") };
                let call = Call::new("POST", &*path)
                    .header("Content-Type", "application/json")
                    .body(jsonrpc::call(1, method, &params));
                let call = version
                    .into_iter()
                    .fold(call, |call, version| call.header("A2A-Version", version));
                add(format!("JSON-RPC {dialect:?} at {path}"), Wire::JsonRpc(dialect, call));
            }
            for dialect in [Dialect::V1, Dialect::V03Rest] {
                let Some(call) = rest::call(dialect, request()) else { continue };
                for prefix in ["", "/a2a/rest"] {
                    let path = format!("{mount}{prefix}{}", call.path);
                    let mut http = Call::new(call.method, &*path);
                    if dialect == Dialect::V1 {
                        http = http.v1();
                    }
                    if let Some(body) = &call.body {
                        http = http.header("Content-Type", "application/json").body(body.clone());
                    }
                    add(format!("REST {dialect:?} {} {path}", call.method), Wire::Rest(http));
                }
            }
            for dialect in [Dialect::V1, Dialect::V03, Dialect::V01] {
                let Some(method) = dialect.method(operation) else { continue };
                // A name that 0.1 and 0.3 share is the method of 0.1 here.
                if dialect == Dialect::V03 && Dialect::V01.method(operation) == Some(method) {
                    continue;
                }
                let message = jsonrpc::call(1, method, &dialect.encode_request(&request()));
                let message = String::from_utf8(message).unwrap();
                let path = format!("{mount}/ws");
                add(
                    format!("WebSocket {dialect:?} at {path}"),
                    Wire::Socket { dialect, path, message },
                );
            }
        }
        for service in Service::ALL {
            let Some(method) = service.method(operation) else { continue };
            let wire = Wire::Grpc {
                path: format!("/{}/{method}", service.name()),
                message: service.encode_request(request()),
                is_stream: operation.is_streaming(),
            };
            add(format!("gRPC {service:?}"), wire);
        }
    }
    probes
}

/// The feed, at every mount and in every version.
pub(super) fn feeds(target: &Target) -> Vec<Probe> {
    let mut probes = Vec::new();
    for mount in MOUNTS {
        for version in [Some("1.0"), Some("0.3"), None] {
            let query = match &target.tenant {
                Some(tenant) => format!("?tenant={tenant}&task_ids={}", target.task),
                None => format!("?task_ids={}", target.task),
            };
            let call = Call::get(format!("{mount}/events{query}")).header("Last-Event-ID", "0");
            let call =
                version.into_iter().fold(call, |call, version| call.header("A2A-Version", version));
            let name = format!("the feed at {mount}/events of {version:?}");
            probes.push(Probe { name, subject: Subject::Feed, wire: Wire::Rest(call) });
        }
    }
    probes
}

/// Every route of `/api`, with and without its version.
pub(super) fn api(target: &Target) -> Vec<Probe> {
    let mut probes = Vec::new();
    for route in ApiRoute::ALL.iter().copied() {
        let parameters = parameters(route, target);
        let parameters: Vec<_> = parameters.iter().map(String::as_str).collect();
        let path = route.target(&parameters, &Nothing {});
        for path in [path.clone(), path.replacen("/api", "/api/v1", 1)] {
            let mut call = Call::new(route.method(), &*path);
            if let Some(body) = body(route, target) {
                call = call.header("Content-Type", "application/json").body(body);
            }
            let name = format!("{} {path}", route.method());
            probes.push(Probe { name, subject: Subject::Api(route), wire: Wire::Rest(call) });
        }
    }
    probes
}

/// The parameters in the path of a route.
fn parameters(route: ApiRoute, target: &Target) -> Vec<String> {
    let names = route.path().split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let values = names.map(|name| match (route.path().split('/').nth(2), name) {
        (Some("agents"), "name") if route == ApiRoute::GetAgent => "script".to_owned(),
        (Some("agents"), "name") => target.worker.clone(),
        (Some("agents"), "id") => "no-turn".to_owned(),
        (Some("tasks"), "id") => target.task.clone(),
        (Some("keys"), "id") => target.key.clone(),
        (Some("deliveries"), "id") => target.webhook.clone(),
        (Some("tasks"), "artifact") => "echo".to_owned(),
        (Some("tasks"), "number") => "0".to_owned(),
        other => panic!("{} has a parameter {other:?} that the matrix does not know", route.path()),
    });
    values.collect()
}

/// The body of a route that needs one.
fn body(route: ApiRoute, target: &Target) -> Option<String> {
    let body = match route {
        ApiRoute::AnswerTask => json!({ "question": target.question, "text": "answer" }),
        ApiRoute::CreateKey => json!({ "tenant": "acme", "principal": "new" }),
        ApiRoute::RegisterAgent => json!({ "role": "matrix", "instance_id": "host:2" }),
        ApiRoute::PollWorker => json!({ "session": target.session, "wait_seconds": 0 }),
        ApiRoute::WriteTurn => json!({
            "session": target.session, "epoch": 1, "number": 1, "after": 0,
            "commands": [{ "report": { "state": "TASK_STATE_WORKING" } }],
        }),
        ApiRoute::TakeTurnAnswer => {
            json!({ "session": target.session, "epoch": 1, "number": 1 })
        }
        ApiRoute::EndTurn => {
            json!({ "session": target.session, "epoch": 1, "outcome": { "kind": "done" } })
        }
        ApiRoute::CancelTask
        | ApiRoute::EnableDelivery
        | ApiRoute::FailTask
        | ApiRoute::RetryTask
        | ApiRoute::HeartbeatAgent => json!({}),
        ApiRoute::ReplayDelivery => json!({ "from": 1 }),
        ApiRoute::GetStatus
        | ApiRoute::GetOpenApi
        | ApiRoute::ListAgents
        | ApiRoute::GetAgent
        | ApiRoute::RemoveAgent
        | ApiRoute::ListTasks
        | ApiRoute::GetTask
        | ApiRoute::GetTaskLog
        | ApiRoute::GetArtifactPart
        | ApiRoute::ListDeliveries
        | ApiRoute::GetDelivery
        | ApiRoute::ListKeys
        | ApiRoute::GetKey
        | ApiRoute::RevokeKey
        | ApiRoute::ListTenants
        | ApiRoute::ListAudit
        | ApiRoute::VerifyAudit
        | ApiRoute::GetStore => return None,
    };
    Some(body.to_string())
}

/// A request of an operation.
fn request(operation: Operation, target: &Target) -> Request {
    let (task, tenant) = (&*target.task, target.tenant.as_deref().map(TenantId::from));
    let send = || {
        let mut message = Message::user("label", "more");
        message.task_id = Some(task.into());
        let own_task = Some(task.into());
        Box::new(SendMessage {
            tenant: tenant.clone(),
            message,
            own_task,
            ..SendMessage::default()
        })
    };
    let (task_id, id) = (task.into(), "hook".into());
    let hook = PushConfigRef { tenant: tenant.clone(), task_id, id };
    match operation {
        Operation::SendMessage => Request::SendMessage(send()),
        Operation::SendStreamingMessage => Request::SendStreamingMessage(send()),
        Operation::GetTask => {
            Request::GetTask(GetTask { tenant, id: task.into(), ..GetTask::default() })
        }
        Operation::ListTasks => Request::ListTasks(ListTasks { tenant, ..ListTasks::default() }),
        Operation::CancelTask => {
            Request::CancelTask(CancelTask { tenant, id: task.into(), ..CancelTask::default() })
        }
        Operation::SubscribeToTask => Request::SubscribeToTask(SubscribeToTask {
            tenant,
            id: task.into(),
            ..SubscribeToTask::default()
        }),
        Operation::CreateTaskPushNotificationConfig => {
            Request::CreateTaskPushNotificationConfig(PushConfig {
                tenant,
                task_id: Some(task.into()),
                url: "http://127.0.0.1:9/".to_owned(),
                ..PushConfig::default()
            })
        }
        Operation::GetTaskPushNotificationConfig => Request::GetTaskPushNotificationConfig(hook),
        Operation::DeleteTaskPushNotificationConfig => {
            Request::DeleteTaskPushNotificationConfig(hook)
        }
        Operation::ListTaskPushNotificationConfigs => {
            Request::ListTaskPushNotificationConfigs(ListPushConfigs {
                tenant,
                task_id: task.into(),
                ..ListPushConfigs::default()
            })
        }
        Operation::GetExtendedAgentCard => {
            Request::GetExtendedAgentCard(GetExtendedAgentCard { tenant })
        }
    }
}

impl Subject {
    /// The scope that the subject needs; `None` for a route that needs none.
    pub(super) fn scope(self) -> Option<&'static str> {
        match self {
            Self::Operation(operation) => Some(match operation {
                Operation::SendMessage | Operation::SendStreamingMessage => "send",
                Operation::CancelTask => "cancel",
                Operation::GetTask
                | Operation::ListTasks
                | Operation::SubscribeToTask
                | Operation::GetExtendedAgentCard => "read",
                Operation::CreateTaskPushNotificationConfig
                | Operation::GetTaskPushNotificationConfig
                | Operation::ListTaskPushNotificationConfigs
                | Operation::DeleteTaskPushNotificationConfig => "push",
            }),
            Self::Feed => Some("read"),
            // The probe registers a worker.
            Self::Api(route) if route.scope() == ApiScope::WorkOrRegister => Some("work"),
            Self::Api(route) => route.scope().name(),
        }
    }

    /// True if the call names a task.
    pub(super) fn names_task(self) -> bool {
        match self {
            Self::Operation(operation) => {
                !matches!(operation, Operation::ListTasks | Operation::GetExtendedAgentCard)
            }
            Self::Feed => true,
            Self::Api(route) => route.path().contains("/tasks/{id}"),
        }
    }
}

impl Wire {
    /// The dialect of JSON-RPC errors.
    pub(super) fn rpc_code(&self, kind: ErrorKind) -> Option<i32> {
        let codes = kind.codes();
        let dialect = match self {
            Self::JsonRpc(dialect, _) | Self::Socket { dialect, .. } => dialect,
            Self::Rest(_) | Self::Grpc { .. } => return None,
        };
        Some(match dialect {
            Dialect::V1 => codes.json_rpc,
            Dialect::V03 | Dialect::V03Rest => codes.json_rpc_v03,
            Dialect::V01 => codes.json_rpc_v01,
        })
    }
}
