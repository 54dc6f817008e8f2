//! API keys: the stored part of a credential. The secret is shown once and never stored.

use std::sync::Arc;

use herald_protocol::{AgentName, Timestamp};

use super::{
    key::{Owner, Visibility},
    scopes::Scopes,
};

/// Id of an API key. Ids grow with the time of creation.
pub type ApiKeyId = Arc<str>;

/// An API key. A revoked or expired key stays in the store, so that records that name it can be
/// explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The id, which may be shown and logged.
    pub id: ApiKeyId,
    /// The hash of the secret.
    pub hash: [u8; 32],
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
    /// The time of creation.
    pub created: Timestamp,
    /// The principal that created the key.
    pub created_by: Arc<str>,
    /// The time from which the key is refused.
    pub expires: Option<Timestamp>,
    /// The time of the last use, at most a minute late.
    pub last_used: Option<Timestamp>,
    /// The time at which the key was revoked.
    pub revoked: Option<Timestamp>,
    /// A name for people.
    pub label: String,
}

impl ApiKey {
    /// True if the key is neither revoked nor expired.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }
}
