//! API keys of operators: create, list, revoke. All need `admin`, and no key has more rights than its creator.

use std::fmt::Display;

use herald_protocol::{AgentName, Error, ErrorKind, Timestamp};

use crate::{
    caller::{Identity, Scopes, Visibility},
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

    /// Refuses rights that the creator lacks. Otherwise a limited administrator could remove its own limits with
    /// a second key.
    fn check_rights(&self, creator: &Identity) -> Result<(), Error> {
        if let Some(scope) = self.scopes.first_missing_from(creator.scopes) {
            return Err(beyond(format_args!("the scope {scope}")));
        }
        let tenant = &creator.owner.tenant;
        if !tenant.is_empty() && *tenant != self.owner.tenant {
            return Err(beyond(format_args!("tenants other than {tenant}")));
        }
        if lacks(creator.agents.as_deref(), self.agents.as_deref()) {
            return Err(beyond("all agents of the new key"));
        }
        if lacks(creator.skills.as_deref(), self.skills.as_deref()) {
            return Err(beyond("all skills of the new key"));
        }
        Ok(())
    }

    fn check(&self, now: Timestamp) -> Result<(), Error> {
        let (tenant, principal) = (self.owner.tenant.as_str(), &*self.owner.principal);
        if principal.is_empty() {
            return Err(Error::field("principal", "must not be empty"));
        }
        let texts = [("tenant", tenant), ("principal", principal), ("label", &*self.label)];
        for (field, text) in texts {
            check_text(field, text)?;
        }
        let agents: Vec<_> = self.agents.iter().flatten().map(AgentName::as_str).collect();
        let skills: Vec<_> = self.skills.iter().flatten().map(String::as_str).collect();
        for (field, names) in [("agents", agents), ("skills", skills)] {
            if names.len() > MAX_NAMES {
                return Err(Error::field(field, format!("must have at most {MAX_NAMES} names")));
            }
            for name in names {
                if name.is_empty() {
                    return Err(Error::field(field, "must not have an empty name"));
                }
                check_text(field, name)?;
            }
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            return Err(Error::field("expires", "must be in the future"));
        }
        Ok(())
    }
}

/// True if `wanted` has a name that is not in `allowed`. `None` is all names.
fn lacks<T: PartialEq>(allowed: Option<&[T]>, wanted: Option<&[T]>) -> bool {
    match (allowed, wanted) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(allowed), Some(wanted)) => wanted.iter().any(|name| !allowed.contains(name)),
    }
}

/// The error for a key with more rights than its creator.
fn beyond(right: impl Display) -> Error {
    let text = format!("permission denied: these credentials do not allow {right}");
    let hint = "a key has at most the rights of the credentials that create it; create this one with --data as \
                the operator of the server";
    Error::new(ErrorKind::Forbidden, text).with("hint", hint)
}

/// Refuses a text that is too long, or that could change the lines of a terminal or of a log.
fn check_text(field: &str, text: &str) -> Result<(), Error> {
    if text.len() > MAX_NAME_BYTES {
        return Err(Error::field(field, format!("must have at most {MAX_NAME_BYTES} bytes")));
    }
    if text.contains(is_unprintable) {
        return Err(Error::field(field, "must not have control characters"));
    }
    Ok(())
}

/// True for control characters, and for characters that reorder or hide the text around them.
fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl Operator<'_> {
    /// Creates an API key with at most the rights of the caller. The secret is returned once and cannot be
    /// read later.
    pub async fn create_key(&self, new: NewApiKey) -> Result<(ApiKey, ApiKeySecret), Error> {
        self.require_admin("creating API keys")?;
        new.check_rights(self.caller.identity())?;
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
