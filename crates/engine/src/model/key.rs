//! Keys of tasks: the owner, the id, and the scope of a query.

use herald_protocol::{ContextId, TaskId, TenantId};

/// Owner of a task. Other callers cannot name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The tenant, from authentication; without credentials, the namespace the caller named.
    pub tenant: TenantId,
    /// The authenticated party within the tenant; empty without credentials.
    pub principal: std::sync::Arc<str>,
}

/// Key of a task. It contains the owner, so that no query can omit the owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// The owner of the task.
    pub owner: Owner,
    /// The id among the owner's tasks.
    pub task: TaskId,
}

/// Whose tasks a query is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Those of one owner.
    Own(Owner),
    /// Those of all principals of a tenant.
    Tenant(TenantId),
    /// Everybody's.
    All,
}

/// A conversation of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// Whose.
    pub owner: Owner,
    /// Its name.
    pub context: ContextId,
}
