//! Storage of registrations: the workers and the remote agents that discovery lists.

use async_trait::async_trait;
use herald_protocol::Timestamp;

use super::{AuditEntry, Registration, RegistrationName, StoreError};

/// A registration to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRegistration {
    /// The registration. It replaces one of the same name.
    pub registration: Registration,
    /// The time since which another owner of the name counts as alive: the registration is then refused.
    pub alive_since: Timestamp,
    /// The audit record of the registration.
    pub audit: AuditEntry,
}

/// Storage of registrations. It is read once at the start and after changes by other members.
#[async_trait]
pub trait RegistrationStore {
    /// Stores a registration and its audit record in one transaction. Returns the registration that it
    /// replaces. [`StoreError::Conflict`] if another owner has the name and is alive, or if one of them is a
    /// worker and the other a remote agent. All members, including the writer, are notified.
    async fn put_registration(
        &self,
        new: NewRegistration,
    ) -> Result<Option<Registration>, StoreError>;

    /// Removes a registration and stores the audit record in one transaction. Returns the registration; `None`
    /// if it does not exist. All members are notified.
    async fn remove_registration(
        &self,
        name: &str,
        audit: AuditEntry,
    ) -> Result<Option<Registration>, StoreError>;

    /// Notes signs of life. An earlier time than the stored one has no effect, nor has an unknown name.
    async fn record_seen(&self, seen: Vec<(RegistrationName, Timestamp)>)
    -> Result<(), StoreError>;

    /// Notes the digest of the card that is at the URL of a remote agent now, if it is not the pinned one.
    /// Returns false if the registration does not exist. All members are notified.
    async fn record_card_change(
        &self,
        name: &str,
        changed_to: Option<String>,
    ) -> Result<bool, StoreError>;

    /// One registration.
    async fn find_registration(&self, name: &str) -> Result<Option<Registration>, StoreError>;

    /// The registrations after `after`, by name, at most `limit`.
    async fn registrations(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Registration>, StoreError>;

    /// Removes up to `limit` workers that were last seen before `before`, the longest unseen first, and returns
    /// their names. Remote agents stay. All members are notified.
    async fn remove_unseen(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<RegistrationName>, StoreError>;
}
