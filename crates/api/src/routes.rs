//! Route table of `/api`: method, path, scope, types and summary of every route, declared once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    agents::{
        AgentHeartbeat, AgentHeartbeatReply, AgentList, AgentView, AgentsQuery, RegisterAgent,
        RegisteredAgent, RemovedAgents,
    },
    audit::{AuditFilter, AuditLogPage, AuditVerification, AuditVerifyQuery},
    deliveries::{DeliveriesQuery, DeliveryDetail, DeliveryPage, ReplayDeliveries},
    keys::{CreateKey, CreatedKey, KeyPage, KeyView, KeysQuery, TenantPage, TenantsQuery},
    schema::OpenApiDocument,
    status::ServerStatus,
    store::StoreView,
    tasks::{
        AnswerQuestion, FailTask, TaskDetail, TaskHeadPage, TaskLog, TaskLogQuery, TaskOwnerQuery,
        TasksQuery,
    },
    workers::{
        self, PollRequest, PollResponse, TakeAnswer, TakenAnswer, WriteCommands, WrittenCommands,
    },
};

/// A route with the types of its request and its reply.
pub trait ApiCall {
    /// The route.
    const ROUTE: ApiRoute;
    /// The parameters in the query.
    type Query: Serialize + DeserializeOwned + JsonSchema;
    /// The body; [`Nothing`] if there is none.
    type Body: Serialize + DeserializeOwned + JsonSchema;
    /// The reply; [`Download`] if it is not JSON.
    type Reply: JsonSchema;
}

/// A function of the types of a route.
pub(crate) trait RouteVisitor {
    /// The result.
    type Output;
    /// The function.
    fn visit<C: ApiCall>(self) -> Self::Output;
}

/// A request without parameters, or without a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A reply of any media type, as a file to save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
pub struct Download;

/// The scope that a route needs. Tasks of other owners need `admin` beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiScope {
    /// None beside valid credentials.
    Any,
    /// `read`.
    Read,
    /// `send`.
    Send,
    /// `cancel`.
    Cancel,
    /// `push`.
    Push,
    /// `work`.
    Work,
    /// `work` for a worker, `register` for a new role and for a remote agent.
    WorkOrRegister,
    /// `admin`.
    Admin,
}

impl ApiScope {
    /// The name; `None` for [`ApiScope::Any`].
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::Read => Some("read"),
            Self::Send => Some("send"),
            Self::Cancel => Some("cancel"),
            Self::Push => Some("push"),
            Self::Work => Some("work"),
            Self::WorkOrRegister => Some("work or register"),
            Self::Admin => Some("admin"),
        }
    }
}

/// Declares the routes: the enum with its table, and a type per route for its [`ApiCall`].
macro_rules! routes {
    ($(
        #[doc = $summary:literal]
        $name:ident: $method:ident $path:literal, $scope:ident, $query:ty, $body:ty => $reply:ty;
    )*) => {
        /// The routes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ApiRoute {
            $(#[doc = $summary] $name,)*
        }

        impl ApiRoute {
            /// Every route. A path with a verb comes before the path whose id would match the verb too.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The method.
            pub const fn method(self) -> &'static str {
                match self { $(Self::$name => stringify!($method),)* }
            }

            /// The path. Names in braces are parameters.
            pub const fn path(self) -> &'static str {
                match self { $(Self::$name => $path,)* }
            }

            /// The scope.
            pub const fn scope(self) -> ApiScope {
                match self { $(Self::$name => ApiScope::$scope,)* }
            }

            /// The status of a reply.
            pub const fn status(self) -> u16 {
                if matches!(self, Self::RegisterAgent) { 201 } else { 200 }
            }

            /// One line for people.
            pub fn summary(self) -> &'static str {
                match self { $(Self::$name => $summary.trim(),)* }
            }

            /// The name of the route, as in the OpenAPI document.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Calls a generic function with the types of the route.
            pub(crate) fn visit<V: RouteVisitor>(self, visitor: V) -> V::Output {
                match self { $(Self::$name => visitor.visit::<calls::$name>(),)* }
            }
        }

        /// The types of the routes, one per route.
        pub mod calls {
            use super::*;

            $(
                #[doc = $summary]
                #[derive(Debug, Clone, Copy)]
                pub struct $name;

                impl ApiCall for $name {
                    const ROUTE: ApiRoute = ApiRoute::$name;
                    type Query = $query;
                    type Body = $body;
                    type Reply = $reply;
                }
            )*
        }
    };
}

routes! {
    /// The caller's identity, the server's version, features and limits.
    GetStatus: GET "/api", Any, Nothing, Nothing => ServerStatus;
    /// This interface as an OpenAPI 3.1 document.
    GetOpenApi: GET "/api/openapi.json", Any, Nothing, Nothing => OpenApiDocument;
    /// The agents that the caller may use, and the workers that serve them.
    ListAgents: GET "/api/agents", Read, AgentsQuery, Nothing => AgentList;
    /// Registers a worker of a role, or a remote agent by its card.
    RegisterAgent: POST "/api/agents", WorkOrRegister, Nothing, super::RegisterAgent => RegisteredAgent;
    /// Keeps the registration of a worker alive. Reason `WORKER_UNKNOWN`: register again.
    HeartbeatAgent: POST "/api/agents/{name}/heartbeat", Work, Nothing, AgentHeartbeat => AgentHeartbeatReply;
    /// One agent, or one worker.
    GetAgent: GET "/api/agents/{name}", Read, Nothing, Nothing => AgentView;
    /// Long poll of a worker: its heartbeat, its state, and the wait for something to do.
    PollWorker: POST "/api/agents/{name}/poll", Work, Nothing, PollRequest => PollResponse;
    /// Writes commands of a worker to its turn.
    WriteTurn: POST "/api/agents/{name}/turns/{id}/commands", Work, Nothing, WriteCommands => WrittenCommands;
    /// Takes the caller's answer to the question of a turn.
    TakeTurnAnswer: POST "/api/agents/{name}/turns/{id}/answer", Work, Nothing, TakeAnswer => TakenAnswer;
    /// Ends a turn of a worker.
    EndTurn: POST "/api/agents/{name}/turns/{id}/end", Work, Nothing, workers::EndTurn => Nothing;
    /// Removes a worker, a remote agent, or all workers of a role.
    RemoveAgent: DELETE "/api/agents/{name}", WorkOrRegister, Nothing, Nothing => RemovedAgents;
    /// One page of tasks, the newest status first.
    ListTasks: GET "/api/tasks", Read, TasksQuery, Nothing => TaskHeadPage;
    /// Answers the open question of a task.
    AnswerTask: POST "/api/tasks/{id}:answer", Send, TaskOwnerQuery, AnswerQuestion => TaskDetail;
    /// Cancels a task. A task that is cancelled already stays so.
    CancelTask: POST "/api/tasks/{id}:cancel", Cancel, TaskOwnerQuery, Nothing => TaskDetail;
    /// Fails a task that has not ended: queued, paused or running.
    FailTask: POST "/api/tasks/{id}:fail", Cancel, TaskOwnerQuery, super::FailTask => TaskDetail;
    /// Sends the message of a failed or rejected task again, as a new task. Repeated, it returns that task.
    RetryTask: POST "/api/tasks/{id}:retry", Send, TaskOwnerQuery, Nothing => TaskDetail;
    /// One task, with its open question.
    GetTask: GET "/api/tasks/{id}", Read, TaskOwnerQuery, Nothing => TaskDetail;
    /// The log of a task, with times and causes.
    GetTaskLog: GET "/api/tasks/{id}/log", Read, TaskLogQuery, Nothing => TaskLog;
    /// One part of an artifact, as a file.
    GetArtifactPart: GET "/api/tasks/{id}/artifacts/{artifact}/parts/{number}", Read, TaskOwnerQuery, Nothing => Download;
    /// One page of the webhooks of tasks, the newest first.
    ListDeliveries: GET "/api/deliveries", Read, DeliveriesQuery, Nothing => DeliveryPage;
    /// Delivers events to a webhook again.
    ReplayDelivery: POST "/api/deliveries/{id}:replay", Push, Nothing, ReplayDeliveries => DeliveryDetail;
    /// Enables a webhook that was parked or disabled. It continues after its last delivery.
    EnableDelivery: POST "/api/deliveries/{id}:enable", Push, Nothing, Nothing => DeliveryDetail;
    /// One webhook, with its latest attempts.
    GetDelivery: GET "/api/deliveries/{id}", Read, Nothing, Nothing => DeliveryDetail;
    /// The API keys, without their secrets.
    ListKeys: GET "/api/keys", Admin, KeysQuery, Nothing => KeyPage;
    /// Creates an API key. The reply is the only one that contains the secret.
    CreateKey: POST "/api/keys", Admin, Nothing, super::CreateKey => CreatedKey;
    /// One API key, without its secret.
    GetKey: GET "/api/keys/{id}", Admin, Nothing, Nothing => KeyView;
    /// Revokes an API key. Its open streams end within 5 seconds.
    RevokeKey: DELETE "/api/keys/{id}", Admin, Nothing, Nothing => KeyView;
    /// The tenants and principals that have tasks, with their usage.
    ListTenants: GET "/api/tenants", Admin, TenantsQuery, Nothing => TenantPage;
    /// One page of the audit log, the newest record first.
    ListAudit: GET "/api/audit", Admin, AuditFilter, Nothing => AuditLogPage;
    /// Verifies the hash chain of the audit log.
    VerifyAudit: GET "/api/audit:verify", Admin, AuditVerifyQuery, Nothing => AuditVerification;
    /// The state of the store.
    GetStore: GET "/api/store", Admin, Nothing, Nothing => StoreView;
}
