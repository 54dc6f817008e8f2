//! Operators: reads and writes beyond the protocol, such as tasks of other owners, API keys, the audit
//! log and the store.
//!
//! Every method checks the scopes of the caller. One that reaches tasks of other owners, or data of the
//! server, needs `admin`, and is recorded in the audit log.

pub(crate) mod agents;
pub(crate) mod keys;
pub(crate) mod tasks;
pub(crate) mod webhooks;

use std::{borrow::Cow, sync::Arc};

use herald_protocol::{Error, TaskId};

use crate::{
    audit::Act,
    caller::{Caller, Scopes},
    core::Core,
    fault::refuse,
    settings::Settings,
    store::{
        AuditEnds, AuditEntry, AuditPage, AuditQuery, AuditSubject, ChainFault, ChainLink, Owner,
        OwnerQuery, Scope, StoreStatus, Usage, verify_audit,
    },
    token,
};

/// Reads and writes of one operator.
#[derive(Debug)]
pub struct Operator<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) caller: &'a Caller,
}

impl Operator<'_> {
    /// Reads a page of the audit log. Needs `admin`.
    pub async fn audit(&self, query: AuditQuery) -> Result<AuditPage, Error> {
        self.require_admin("reading the audit log")?;
        self.core.store.read_audit(query).await.map_err(refuse)
    }

    /// Both ends of the audit log. Needs `admin`.
    pub async fn audit_ends(&self) -> Result<AuditEnds, Error> {
        self.require_admin("reading the audit log")?;
        self.core.store.audit_ends().await.map_err(refuse)
    }

    /// Verifies the audit log and returns its head, or the first fault. `kept` is a head that was
    /// kept outside of the store. Needs `admin`.
    pub async fn verify_audit(
        &self,
        kept: Option<ChainLink>,
    ) -> Result<Result<ChainLink, ChainFault>, Error> {
        self.require_admin("verifying the audit log")?;
        verify_audit(&*self.core.store, kept, |_, _| {}).await.map_err(refuse)
    }

    /// Adds an act of this operator to the audit log, durably.
    pub async fn record(
        &self,
        action: impl Into<Cow<'static, str>>,
        subject: Option<AuditSubject>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Result<(), Error> {
        let entry = AuditEntry { subject, detail: detail.into(), ..self.entry(action) };
        self.core.store.append_audit(vec![entry]).await.map_err(refuse)
    }

    /// Reads a page of the owners that have tasks, each with its usage. Needs `admin`.
    pub async fn owners(&self, query: OwnerQuery) -> Result<Vec<(Owner, Usage)>, Error> {
        self.require_admin("listing tenants")?;
        self.core.store.owners(query).await.map_err(refuse)
    }

    /// The usage of the owners in a scope. Needs `admin` unless the caller sees the scope.
    pub async fn usage(&self, scope: &Scope) -> Result<Usage, Error> {
        self.require_scope(scope, "usage.read", None)?;
        self.core.store.usage(scope).await.map_err(refuse)
    }

    /// The state of the store and the settings of the engine, which include its retention. Needs
    /// `admin`.
    pub async fn store(&self) -> Result<(StoreStatus, &Settings), Error> {
        self.require_admin("reading the state of the store")?;
        let status = self.core.store.status().await.map_err(refuse)?;
        Ok((status, &self.core.settings))
    }

    /// True if the data of the store survives the end of the process, and true if other nodes use it.
    pub fn store_kind(&self) -> (bool, bool) {
        (self.core.store.is_durable(), self.core.store.is_shared())
    }

    /// The page token of a cursor in a list, which its name and filters identify.
    pub fn token(&self, list: &str, cursor: &str) -> String {
        token::seal(&self.core.secret, list, cursor)
    }

    /// The cursor in a page token of this list.
    pub fn open_token(&self, list: &str, token: Option<&str>) -> Result<Option<String>, Error> {
        token.map(|token| token::open(&self.core.secret, list, token)).transpose()
    }

    pub(crate) fn require_admin(&self, action: &str) -> Result<(), Error> {
        self.caller.require(Scopes::ADMIN, action)
    }

    /// Refuses a scope that the caller neither sees nor administers. The use of a scope that only an
    /// administrator reaches is recorded, with the task if the act names one.
    pub(crate) fn require_scope(
        &self,
        scope: &Scope,
        action: &'static str,
        task: Option<&TaskId>,
    ) -> Result<(), Error> {
        self.caller.require(Scopes::READ, action)?;
        if self.caller.scope().covers(scope) {
            return Ok(());
        }
        self.require_admin("reading tasks of other owners")?;
        let owner = match scope {
            Scope::Own(owner) => Some(owner.clone()),
            Scope::Tenant(_) | Scope::All => None,
        };
        let (kind, id) = match (task, scope) {
            (Some(task), _) => ("task", task.as_str()),
            (None, Scope::Own(owner)) => ("tenant", owner.tenant.as_str()),
            (None, Scope::Tenant(tenant)) => ("tenant", tenant.as_str()),
            (None, Scope::All) => ("tenant", "*"),
        };
        let subject = AuditSubject { kind: kind.into(), id: id.into(), owner };
        self.core.acts.add(Act { subject: Some(subject), ..self.act(action) });
        Ok(())
    }

    /// A read or a refused act of this operator.
    pub(crate) fn act(&self, action: &'static str) -> Act {
        Act {
            address: self.caller.address(),
            request: self.caller.request_id().map(|id| id.to_string().into()),
            ..Act::new(self.caller.actor(), action)
        }
    }

    /// An act of this operator, as an audit record.
    pub(crate) fn entry(&self, action: impl Into<Cow<'static, str>>) -> AuditEntry {
        AuditEntry {
            address: self.caller.address().map(|it| it.to_canonical().to_string().into()),
            request: self.caller.request_id().map(|id| id.to_string().into()),
            ..AuditEntry::new(self.caller.actor(), action)
        }
    }
}
