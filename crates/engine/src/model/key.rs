//! Keys of tasks: the owner, the id, and the scope of a query.

use herald_protocol::{ContextId, TaskId, TenantId};

/// Owner of a task. Other callers cannot name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The tenant, from authentication. Without credentials, the namespace that the caller named.
    pub tenant: TenantId,
    /// The authenticated principal within the tenant; empty without credentials.
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

/// The owners whose tasks a query covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One owner.
    Own(Owner),
    /// All principals of a tenant.
    Tenant(TenantId),
    /// All owners.
    All,
}

/// A conversation of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// The owner of its tasks.
    pub owner: Owner,
    /// The context id.
    pub context: ContextId,
}
