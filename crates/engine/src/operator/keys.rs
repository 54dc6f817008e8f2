//! API keys of operators: create, list, revoke. All need `admin`.

use herald_protocol::{AgentName, Error, ErrorKind, Timestamp};

use crate::{
    caller::{Scopes, Visibility},
    fault::refuse,
    keys::{ApiKeySecret, new_key_id},
    operator::Operator,
    store::{ApiKey, ApiKeyQuery, Owner},
};

/// The longest label, and the longest name of a principal or a skill, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The maximum number of agents or skills of a key.
const MAX_NAMES: usize = 64;

/// An API key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// The tenant and principal for whom the key acts.
    pub owner: Owner,
    /// The scopes.
    pub scopes: Scopes,
    /// The agents that the key may use; `None` means all.
    pub agents: Option<Vec<AgentName>>,
    /// The skills that the key may use; `None` means all.
    pub skills: Option<Vec<String>>,
    /// The visibility of tasks; `None` means that of the server.
    pub visibility: Option<Visibility>,
    /// The time from which the key is refused.
    pub expires: Option<Timestamp>,
    /// A name for people.
    pub label: String,
}

impl NewApiKey {
    /// The key with a new id and secret.
    pub fn issue(self, created_by: &str, now: Timestamp) -> Result<(ApiKey, ApiKeySecret), Error> {
        self.check(now)?;
        let Self { owner, scopes, agents, skills, visibility, expires, label } = self;
        let secret = ApiKeySecret::generate();
        let key = ApiKey {
            id: new_key_id(),
            hash: secret.hash(),
            owner,
            scopes,
            agents,
            skills,
            visibility,
            created: now,
            created_by: created_by.into(),
            expires,
            last_used: None,
            revoked: None,
            label,
        };
        Ok((key, secret))
    }

    fn check(&self, now: Timestamp) -> Result<(), Error> {
        if self.owner.principal.is_empty() {
            return Err(Error::field("principal", "must not be empty"));
        }
        let names = self.skills.iter().flatten().map(String::as_str);
        let names = names.chain(self.agents.iter().flatten().map(AgentName::as_str));
        let names = names.chain([&*self.owner.principal, self.owner.tenant.as_str(), &*self.label]);
        if names.into_iter().any(|name| name.len() > MAX_NAME_BYTES || name.contains('\0')) {
            let text = format!("names have at most {MAX_NAME_BYTES} bytes");
            return Err(Error::new(ErrorKind::InvalidParams, text));
        }
        let lists = [self.agents.as_ref().map(Vec::len), self.skills.as_ref().map(Vec::len)];
        if lists.into_iter().flatten().any(|names| names > MAX_NAMES) {
            let text = format!("a key names at most {MAX_NAMES} agents and skills");
            return Err(Error::new(ErrorKind::InvalidParams, text));
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            return Err(Error::field("expires", "must be in the future"));
        }
        Ok(())
    }
}

impl Operator<'_> {
    /// Creates an API key. The secret is returned once and cannot be read later.
    pub async fn create_key(&self, new: NewApiKey) -> Result<(ApiKey, ApiKeySecret), Error> {
        self.require_admin("creating API keys")?;
        let created_by = &self.caller.identity().owner.principal;
        let (key, secret) = new.issue(created_by, self.core.now())?;
        let scopes: Vec<_> = key.scopes.names().collect();
        let mut act = self.entry("key.create").on("key", key.id.clone(), Some(key.owner.clone()));
        act.detail = format!(r#"{{"scopes":"{}"}}"#, scopes.join(" ")).into();
        self.core.store.create_key(key.clone(), act).await.map_err(refuse)?;
        self.core.key_changes.send_replace(());
        Ok((key, secret))
    }

    /// Revokes an API key; `None` if it does not exist. A repeated revocation changes nothing.
    pub async fn revoke_key(&self, id: &str) -> Result<Option<ApiKey>, Error> {
        self.require_admin("revoking API keys")?;
        let found = self.core.store.find_key(id).await.map_err(refuse)?;
        let Some(found) = found else { return Ok(None) };
        let act = self.entry("key.revoke").on("key", found.id, Some(found.owner));
        let revoked = self.core.store.revoke_key(id, self.core.now(), act).await.map_err(refuse);
        // At once, also if the notification of the store is late.
        self.core.key_changes.send_replace(());
        revoked
    }

    /// Reads a page of API keys, including revoked and expired ones.
    pub async fn keys(&self, query: ApiKeyQuery) -> Result<Vec<ApiKey>, Error> {
        self.require_admin("listing API keys")?;
        self.core.store.list_keys(query).await.map_err(refuse)
    }

    /// One API key.
    pub async fn key(&self, id: &str) -> Result<Option<ApiKey>, Error> {
        self.require_admin("reading API keys")?;
        self.core.store.find_key(id).await.map_err(refuse)
    }
}
