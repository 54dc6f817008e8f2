//! Keys of tasks: the owner, the id, the scope of a query, and the visibility for a caller.

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

/// The tasks that a caller sees, beside those that it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Visibility {
    /// No others.
    #[default]
    Owner,
    /// Those of all principals of its tenant.
    Tenant,
}

/// A conversation of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Conversation {
    /// The owner of its tasks.
    pub owner: Owner,
    /// The context id.
    pub context: ContextId,
}

impl Scope {
    /// True if every owner in `other` is in this scope.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::Own(_) | Self::Tenant(_) | Self::All) => true,
            (Self::Tenant(tenant), Self::Own(owner)) => *tenant == owner.tenant,
            (Self::Tenant(tenant), Self::Tenant(other)) => tenant == other,
            (Self::Own(owner), Self::Own(other)) => owner == other,
            (Self::Own(_), Self::Tenant(_) | Self::All) | (Self::Tenant(_), Self::All) => false,
        }
    }
}

impl Visibility {
    /// The name, as in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Tenant => "tenant",
        }
    }

    /// The visibility with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Owner, Self::Tenant].into_iter().find(|one| one.name() == name)
    }
}
