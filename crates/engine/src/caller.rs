//! Caller and route of a call: its owner, its scopes, and the endpoint that it used.

use std::{borrow::Cow, sync::Arc};

use herald_protocol::{AgentName, Error, ErrorKind, Operation, TaskId, TenantId};

use uuid::Uuid;

use crate::store::{Actor, Cause, Key, Owner};

/// Authenticated caller. Only an authenticator creates one, and every call of the engine needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    owner: Owner,
    scopes: Scopes,
    /// Boxed, because every future of a request holds the caller. The id of the request and its binding, stored with the events that the request causes.
    request: Option<Box<(Uuid, &'static str)>>,
}

/// Operations that a caller's credentials allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes {
    /// Send messages.
    pub send: bool,
    /// Read and follow tasks.
    pub read: bool,
    /// Cancel tasks.
    pub cancel: bool,
}

/// Endpoint that a call used, and the extensions that it named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentRoute {
    /// The agent whose endpoint was called. `None` for the root endpoint, which finds all tasks of
    /// the caller and creates tasks of the default agent.
    pub agent: Option<AgentName>,
    /// The extensions that the request names.
    pub extensions: Vec<String>,
}

impl AgentRoute {
    /// True if tasks of this agent are visible on the route.
    pub(crate) fn includes(&self, agent: &AgentName) -> bool {
        self.agent.as_ref().is_none_or(|own| own == agent)
    }
}

impl Scopes {
    /// All scopes.
    pub const ALL: Self = Self { send: true, read: true, cancel: true };

    /// No scopes.
    pub const NONE: Self = Self { send: false, read: false, cancel: false };

    /// The scope that an operation needs and these scopes lack.
    fn lacking(self, operation: Operation) -> Option<&'static str> {
        let (send, read) = ((self.send, "send"), (self.read, "read"));
        let needed = match operation {
            Operation::SendMessage | Operation::SendStreamingMessage => [send; 2],
            Operation::CancelTask => [(self.cancel, "cancel"); 2],
            Operation::GetTask
            | Operation::ListTasks
            | Operation::SubscribeToTask
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::GetExtendedAgentCard => [read; 2],
            Operation::CreateTaskPushNotificationConfig
            | Operation::DeleteTaskPushNotificationConfig => [send, read],
        };
        needed.into_iter().find(|(given, _)| !given).map(|(_, name)| name)
    }
}

impl Caller {
    /// A caller with credentials.
    pub fn new(tenant: TenantId, principal: impl Into<Arc<str>>, scopes: Scopes) -> Self {
        let owner = Owner { tenant, principal: principal.into() };
        Self { owner, scopes, request: None }
    }

    /// A caller of a server without authentication. Its tenant only separates names; it protects
    /// nothing.
    pub fn anonymous(tenant: TenantId) -> Self {
        Self::new(tenant, Arc::default(), Scopes::ALL)
    }

    /// Adds the id of the request and its binding, which are stored with the events that the
    /// request causes.
    #[must_use]
    pub fn with_request(self, id: Uuid, binding: &'static str) -> Self {
        Self { request: Some(Box::new((id, binding))), ..self }
    }

    /// The cause of the caller's writes.
    pub(crate) fn cause(&self) -> Cause {
        let (request, binding) = self.request.as_deref().copied().unzip();
        Cause {
            actor: Actor::Caller,
            request: request.map(|id| id.to_string().into()),
            binding: binding.map(Cow::Borrowed),
        }
    }

    /// The owner of the caller's tasks.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// True if the caller has no credentials. All such callers of a tenant are the same owner.
    pub fn is_anonymous(&self) -> bool {
        self.owner.principal.is_empty()
    }

    /// The key of one of the caller's tasks.
    pub(crate) fn key(&self, task: TaskId) -> Key {
        Key { owner: self.owner.clone(), task }
    }

    /// Refuses an operation that the caller's credentials do not allow.
    pub(crate) fn authorise(&self, operation: Operation) -> Result<(), Error> {
        let Some(scope) = self.scopes.lacking(operation) else { return Ok(()) };
        let text = format!("these credentials do not allow {}", operation.name());
        Err(Error::new(ErrorKind::Forbidden, text)
            .with("scope", scope)
            .with("hint", format_args!("they need the scope {scope:?}")))
    }
}
