//! Caller and route of a call: the identity behind it, its permissions, and the endpoint that it used.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use herald_protocol::{
    AgentName, Dialect, Error, ErrorKind, Json, Metadata, Operation, TaskId, TenantId,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::store::{Actor, AuditActor, Cause, Key, Owner, Scope};

pub use crate::model::{
    key::Visibility,
    scopes::{Scopes, UnknownScope},
};

/// Authenticated caller. Only an authenticator creates one, and every call of the engine needs one.
#[derive(Debug, Clone)]
pub struct Caller {
    identity: Arc<Identity>,
    /// The owner for whom an administrator acts. Boxed, because it is rare.
    acting_for: Option<Box<Owner>>,
    /// The request. Boxed, because every future of a request holds the caller.
    request: Option<Box<CallerRequest>>,
}

/// The request of a call, for the causes of events and for the audit log.
#[derive(Debug, Clone, Copy)]
struct CallerRequest {
    id: Uuid,
    binding: &'static str,
    address: Option<IpAddr>,
}

/// The result of authentication: a principal, its permissions, and the credential that proved it. All
/// calls with one credential share it.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The tenant and the principal, who own the tasks that the caller creates.
    pub owner: Owner,
    /// The operations that the credential allows.
    pub scopes: Scopes,
    /// The agents that the credential allows; `None` is all.
    pub agents: Option<Vec<AgentName>>,
    /// The skills that the credential allows; `None` is all. A message of a limited caller must name
    /// one of them in `metadata.skill`.
    pub skills: Option<Vec<String>>,
    /// The tasks that the caller sees.
    pub visibility: Visibility,
    /// The credential.
    pub credential: CredentialKind,
    /// The end of the credential.
    pub validity: Validity,
}

/// The kind of a credential, and its id if it has one, for logs and limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CredentialKind {
    /// None: the server needs no credentials.
    #[default]
    Anonymous,
    /// A bearer token of the configuration.
    Token,
    /// An API key of the store.
    ApiKey(Arc<str>),
    /// A JSON web token.
    Jwt,
    /// A client certificate.
    Certificate,
    /// The token that the server keeps in its data directory.
    Operator,
}

/// The end of a credential: a time, a revocation, or neither.
#[derive(Debug, Clone, Default)]
pub struct Validity {
    /// The end by the clock.
    pub expires: Option<Instant>,
    /// Cancelled when the credential is revoked. Shared by everything that uses the credential, so that an
    /// authenticator can tell whether a credential is in use.
    pub revoked: Option<Arc<CancellationToken>>,
}

/// Endpoint that a call used, and the extensions that it named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentRoute {
    /// The agent whose endpoint was called. `None` for the root endpoint, which finds all tasks of
    /// the caller and creates tasks of the default agent.
    pub agent: Option<AgentName>,
    /// The extensions that the request names.
    pub extensions: Vec<String>,
    /// The protocol version of the call, in which webhooks that it registers get their deliveries.
    pub dialect: Dialect,
}

impl AgentRoute {
    /// True if tasks of this agent are visible on the route.
    pub(crate) fn includes(&self, agent: &AgentName) -> bool {
        self.agent.as_ref().is_none_or(|own| own == agent)
    }
}

impl Validity {
    /// Waits until the credential has ended, for ever if it has no end. The error is for the caller.
    pub async fn ended(&self) -> Error {
        let expired = async {
            match self.expires {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let revoked = async {
            match &self.revoked {
                Some(revoked) => revoked.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let text = tokio::select! {
            () = expired => "the credentials have expired; authenticate again",
            () = revoked => "the credentials were revoked; use others",
        };
        Error::new(ErrorKind::Unauthenticated, text)
    }

    /// The result of `work`, or an error if the credential ends first.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if !self.is_limited() {
            return work.await;
        }
        tokio::select! {
            biased;
            error = self.ended() => Err(error),
            done = work => done,
        }
    }

    /// True if the credential can end.
    pub fn is_limited(&self) -> bool {
        self.expires.is_some() || self.revoked.is_some()
    }

    /// True if the credential has ended.
    pub fn is_over(&self) -> bool {
        self.expires.is_some_and(|at| at <= Instant::now())
            || self.revoked.as_ref().is_some_and(|revoked| revoked.is_cancelled())
    }
}

impl CredentialKind {
    /// The name of the kind, for the audit log.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Token => "token",
            Self::ApiKey(_) => "key",
            Self::Jwt => "jwt",
            Self::Certificate => "certificate",
            Self::Operator => "operator",
        }
    }

    /// The id, if the kind has ids.
    pub const fn id(&self) -> Option<&Arc<str>> {
        match self {
            Self::ApiKey(id) => Some(id),
            Self::Anonymous | Self::Token | Self::Jwt | Self::Certificate | Self::Operator => None,
        }
    }
}

impl Identity {
    /// The identity of a principal that may use every agent and sees its own tasks.
    pub fn new(tenant: TenantId, principal: impl Into<Arc<str>>, scopes: Scopes) -> Self {
        Self {
            owner: Owner { tenant, principal: principal.into() },
            scopes,
            agents: None,
            skills: None,
            visibility: Visibility::default(),
            credential: CredentialKind::default(),
            validity: Validity::default(),
        }
    }
}

impl From<Arc<Identity>> for Caller {
    fn from(identity: Arc<Identity>) -> Self {
        Self { identity, acting_for: None, request: None }
    }
}

impl Caller {
    /// A caller with credentials.
    pub fn new(tenant: TenantId, principal: impl Into<Arc<str>>, scopes: Scopes) -> Self {
        Arc::new(Identity::new(tenant, principal, scopes)).into()
    }

    /// A caller of a server without authentication. Its tenant only separates names; it protects
    /// nothing.
    pub fn anonymous(tenant: TenantId) -> Self {
        Self::new(tenant, Arc::default(), Scopes::ALL)
    }

    /// The caller of a request that names a tenant. Credentials must belong to that tenant; without
    /// credentials the tenant is a plain namespace.
    pub fn in_tenant(&self, tenant: &TenantId) -> Result<Self, Error> {
        if *tenant == self.owner().tenant {
            return Ok(self.clone());
        }
        if !self.is_anonymous() {
            let text = "permission denied: the credentials belong to another tenant";
            return Err(Error::new(ErrorKind::Forbidden, text));
        }
        Ok(Self { request: self.request.clone(), ..Self::anonymous(tenant.clone()) })
    }

    /// The same caller acting for another owner, whose tasks the ordinary operations then name. Needs
    /// the scope `admin`. Its writes name the administrator as their cause.
    pub fn for_owner(&self, owner: Owner) -> Result<Self, Error> {
        self.require(Scopes::ADMIN, "acting for another owner")?;
        Ok(Self { acting_for: Some(Box::new(owner)), ..self.clone() })
    }

    /// Adds the id of the request and its binding, which are stored with the events that the
    /// request causes, and its network address, for the audit log.
    #[must_use]
    pub fn with_request(self, id: Uuid, binding: &'static str, address: Option<IpAddr>) -> Self {
        Self { request: Some(Box::new(CallerRequest { id, binding, address })), ..self }
    }

    /// The cause of a write to a task of this owner.
    pub(crate) fn cause(&self, owner: &Owner) -> Cause {
        let request = self.request.as_deref();
        let actor = if self.identity.owner == *owner {
            Actor::Caller
        } else {
            Actor::Principal(Arc::clone(&self.identity.owner.principal))
        };
        Cause {
            actor,
            request: request.map(|request| request.id.to_string().into()),
            binding: request.map(|request| Cow::Borrowed(request.binding)),
        }
    }

    /// The identity behind the call.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The owner of the tasks that the call names.
    pub fn owner(&self) -> &Owner {
        self.acting_for.as_deref().unwrap_or(&self.identity.owner)
    }

    /// The actor of this caller's acts in the audit log.
    pub fn actor(&self) -> AuditActor {
        let Identity { owner: Owner { tenant, principal }, credential, .. } = &*self.identity;
        AuditActor {
            tenant: tenant.clone(),
            principal: Arc::clone(principal),
            credential: credential.kind().into(),
            credential_id: credential.id().cloned(),
        }
    }

    /// The owner for whom an administrator acts.
    pub(crate) fn acting_for(&self) -> Option<&Owner> {
        self.acting_for.as_deref().filter(|owner| **owner != self.identity.owner)
    }

    /// The id of the request.
    pub(crate) fn request_id(&self) -> Option<Uuid> {
        self.request.as_deref().map(|request| request.id)
    }

    /// The network address of the request.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.request.as_deref().and_then(|request| request.address)
    }

    /// The owners whose tasks the caller sees.
    pub fn scope(&self) -> Scope {
        match (&self.acting_for, self.identity.visibility) {
            (None, Visibility::Tenant) => Scope::Tenant(self.identity.owner.tenant.clone()),
            (None, Visibility::Owner) | (Some(_), Visibility::Owner | Visibility::Tenant) => {
                Scope::Own(self.owner().clone())
            }
        }
    }

    /// True if the caller has no credentials. All such callers of a tenant are the same owner.
    pub fn is_anonymous(&self) -> bool {
        self.identity.credential == CredentialKind::Anonymous && self.owner().principal.is_empty()
    }

    /// The key of one of the caller's tasks.
    pub(crate) fn key(&self, task: TaskId) -> Key {
        Key { owner: self.owner().clone(), task }
    }

    /// The tenant whose tasks the caller may take as a worker; `None` is every tenant.
    pub fn work_tenant(&self) -> Option<&TenantId> {
        let Identity { scopes, owner, .. } = &*self.identity;
        let takes_all = scopes.contains(Scopes::WORK_ALL) || scopes.contains(Scopes::ADMIN);
        (!takes_all).then_some(&owner.tenant)
    }

    /// True if the credentials allow the agent.
    pub fn may_use(&self, agent: &AgentName) -> bool {
        self.identity.agents.as_ref().is_none_or(|agents| agents.contains(agent))
    }

    /// Refuses an operation on a route that the credentials do not allow.
    pub(crate) fn authorise(&self, operation: Operation, route: &AgentRoute) -> Result<(), Error> {
        self.require(Scopes::of(operation), operation.name())?;
        match &route.agent {
            Some(agent) => self.require_agent(agent),
            None => Ok(()),
        }
    }

    /// Refuses an agent that the credentials do not allow.
    pub(crate) fn require_agent(&self, agent: &AgentName) -> Result<(), Error> {
        if self.may_use(agent) {
            return Ok(());
        }
        let text = format!("permission denied: these credentials do not allow the agent {agent}");
        Err(Error::new(ErrorKind::Forbidden, text).with("agent", agent))
    }

    /// Refuses a message for a skill that the credentials do not allow: a limited caller must name one of
    /// its skills, and a named skill can need further scopes, which `restricted` has.
    pub(crate) fn require_skill<'a>(
        &self,
        restricted: impl Iterator<Item = (&'a str, Scopes)>,
        metadata: Option<&Metadata>,
    ) -> Result<(), Error> {
        let (skills, mut restricted) = (self.identity.skills.as_ref(), restricted.peekable());
        if skills.is_none() && restricted.peek().is_none() {
            return Ok(());
        }
        let named: Option<String> = metadata.and_then(|metadata| metadata.get("skill"));
        if named.is_none()
            && metadata.is_some_and(|metadata| metadata.get::<Json>("skill").is_some())
        {
            return Err(Error::field("message.metadata.skill", "must be a string"));
        }
        if let Some(skills) = skills
            && !named.as_ref().is_some_and(|named| skills.contains(named))
        {
            let text = "permission denied: these credentials are limited to some skills";
            let hint = format!("name one in message.metadata.skill: {}", skills.join(", "));
            return Err(Error::new(ErrorKind::Forbidden, text).with("hint", hint));
        }
        let Some(named) = named else { return Ok(()) };
        match restricted.find(|(skill, _)| *skill == named) {
            Some((_, scopes)) => self.require(scopes, &format!("the skill {named}")),
            None => Ok(()),
        }
    }

    /// The agent whose tasks a list or a feed of this caller covers; `None` is every agent. The root
    /// endpoint covers one agent at most for a caller that is limited to some.
    pub(crate) fn listed_agent(&self, route: &AgentRoute) -> Result<Option<AgentName>, Error> {
        match (&route.agent, self.identity.agents.as_deref()) {
            (Some(agent), _) => Ok(Some(agent.clone())),
            (None, None) => Ok(None),
            (None, Some([only])) => Ok(Some(only.clone())),
            (None, Some(agents)) => {
                let names: Vec<_> = agents.iter().map(AgentName::as_str).collect();
                let text = "permission denied: these credentials are limited to some agents";
                let hint = format!("use the endpoint /agents/NAME of one of: {}", names.join(", "));
                Err(Error::new(ErrorKind::Forbidden, text).with("hint", hint))
            }
        }
    }

    /// Refuses an action that needs scopes which the credentials lack.
    pub fn require(&self, needed: Scopes, action: &str) -> Result<(), Error> {
        let Some(scope) = needed.first_missing_from(self.identity.scopes) else { return Ok(()) };
        let text = format!("permission denied: these credentials do not allow {action}");
        Err(Error::new(ErrorKind::Forbidden, text)
            .with("scope", scope)
            .with("hint", format_args!("they need the scope {scope:?}")))
    }
}
