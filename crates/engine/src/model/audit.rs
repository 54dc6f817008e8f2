//! Audit records: refusals and administrative acts, each linked to the record before it by a hash.

use std::{borrow::Cow, sync::Arc};

use herald_protocol::{TenantId, Timestamp};

use super::key::Owner;

/// The actor of an audit record: the identity that a credential proved.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct AuditActor {
    /// The tenant; empty if the call was refused before it was known.
    pub tenant: TenantId,
    /// The principal; empty if it is unknown or anonymous.
    pub principal: Arc<str>,
    /// The kind of the credential, such as `key`, `token` or `anonymous`.
    pub credential: Cow<'static, str>,
    /// The id of the credential, if its kind has ids. Never a secret.
    pub credential_id: Option<Arc<str>>,
}

/// The object of an act.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuditSubject {
    /// The kind, such as `task` or `key`.
    pub kind: Cow<'static, str>,
    /// The id.
    pub id: Arc<str>,
    /// The owner, if the subject has one.
    pub owner: Option<Owner>,
}

/// An act to record. The store adds the number, the time and the hashes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AuditEntry {
    /// The actor.
    pub actor: AuditActor,
    /// The network address of the call, if it came over a network.
    pub address: Option<Arc<str>>,
    /// The act, as a dotted name: `key.create`, `task.cancel`, `auth.refused`.
    pub action: Cow<'static, str>,
    /// The object of the act.
    pub subject: Option<AuditSubject>,
    /// The reason of a refusal; `None` if the act was done.
    pub refused: Option<Arc<str>>,
    /// Further facts, as a small JSON object; empty if there are none.
    pub detail: Cow<'static, str>,
    /// The id of the request.
    pub request: Option<Arc<str>>,
}

/// A stored record of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// The number. Numbers have no gaps.
    pub number: u64,
    /// The time at which it was stored. It never decreases from one record to the next.
    pub at: Timestamp,
    /// The act.
    pub entry: AuditEntry,
    /// The hash of the record before it.
    pub previous: [u8; 32],
    /// The hash of this record, which covers `previous`.
    pub hash: [u8; 32],
}

/// A place in the chain of records: a number and the hash of the record with that number. Before
/// the first record both are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainLink {
    /// The number of the record.
    pub number: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// Both ends of the stored chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditEnds {
    /// The last record that retention removed.
    pub checkpoint: ChainLink,
    /// The last record.
    pub head: ChainLink,
}

impl AuditEntry {
    /// An act of this actor that was done, without further facts.
    pub fn new(actor: AuditActor, action: impl Into<Cow<'static, str>>) -> Self {
        Self {
            actor,
            address: None,
            action: action.into(),
            subject: None,
            refused: None,
            detail: Cow::Borrowed(""),
            request: None,
        }
    }

    /// The same act with its object.
    #[must_use]
    pub fn on(
        self,
        kind: impl Into<Cow<'static, str>>,
        id: impl Into<Arc<str>>,
        owner: Option<Owner>,
    ) -> Self {
        let subject = AuditSubject { kind: kind.into(), id: id.into(), owner };
        Self { subject: Some(subject), ..self }
    }
}
