//! Scopes: the set of permissions of a credential.

use std::{fmt, str::FromStr};

use herald_protocol::Operation;

/// A set of permissions.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scopes(u16);

/// A name that is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown scope {0:?}; the scopes are send, read, cancel, push, register, work, work-all, inspect and admin"
)]
pub struct UnknownScope(String);

impl Scopes {
    /// Send messages.
    pub const SEND: Self = Self(1);
    /// Read and follow tasks.
    pub const READ: Self = Self(1 << 1);
    /// Cancel tasks.
    pub const CANCEL: Self = Self(1 << 2);
    /// Configure push notifications.
    pub const PUSH: Self = Self(1 << 3);
    /// Register agents.
    pub const REGISTER: Self = Self(1 << 4);
    /// Work on tasks of the own tenant as a worker.
    pub const WORK: Self = Self(1 << 5);
    /// Call other servers through this one.
    pub const INSPECT: Self = Self(1 << 6);
    /// Administer the server, and act for every owner.
    pub const ADMIN: Self = Self(1 << 7);
    /// Work on tasks of every tenant. Needs [`Scopes::WORK`] beside it.
    pub const WORK_ALL: Self = Self(1 << 8);

    /// Every scope.
    pub const ALL: Self = Self((1 << 9) - 1);
    /// No scope.
    pub const NONE: Self = Self(0);
    /// The scopes of a credential that names none: those of an ordinary caller.
    pub const CALLER: Self = Self(Self::SEND.0 | Self::READ.0 | Self::CANCEL.0 | Self::PUSH.0);

    /// Each scope with its name.
    const NAMED: [(Self, &'static str); 9] = [
        (Self::SEND, "send"),
        (Self::READ, "read"),
        (Self::CANCEL, "cancel"),
        (Self::PUSH, "push"),
        (Self::REGISTER, "register"),
        (Self::WORK, "work"),
        (Self::WORK_ALL, "work-all"),
        (Self::INSPECT, "inspect"),
        (Self::ADMIN, "admin"),
    ];

    /// The scopes that an operation of the protocol needs.
    pub(crate) const fn of(operation: Operation) -> Self {
        match operation {
            Operation::SendMessage | Operation::SendStreamingMessage => Self::SEND,
            Operation::CancelTask => Self::CANCEL,
            Operation::GetTask
            | Operation::ListTasks
            | Operation::SubscribeToTask
            | Operation::GetExtendedAgentCard => Self::READ,
            Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig => Self::PUSH,
        }
    }

    /// The scopes of either set.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The scopes that are in both sets.
    #[must_use]
    pub const fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if every scope of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of the scopes.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMED.into_iter().filter(move |(scope, _)| self.contains(*scope));
        named.map(|(_, name)| name)
    }

    /// The name of a scope of this set that `given` lacks.
    pub(crate) fn first_missing_from(self, given: Self) -> Option<&'static str> {
        Self(self.0 & !given.0).names().next()
    }
}

/// The scopes of an ordinary caller.
impl Default for Scopes {
    fn default() -> Self {
        Self::CALLER
    }
}

/// One scope by its name.
impl FromStr for Scopes {
    type Err = UnknownScope;

    fn from_str(name: &str) -> Result<Self, UnknownScope> {
        let found = Self::NAMED.into_iter().find(|(_, known)| *known == name);
        found.map(|(scope, _)| scope).ok_or_else(|| UnknownScope(name.to_owned()))
    }
}

impl FromIterator<Self> for Scopes {
    fn from_iter<I: IntoIterator<Item = Self>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_by_name_and_written_back() {
        let all: Scopes = Scopes::ALL.names().map(|name| name.parse::<Scopes>().unwrap()).collect();
        assert_eq!(all, Scopes::ALL);
        assert_eq!(Scopes::CALLER.names().collect::<Vec<_>>(), ["send", "read", "cancel", "push"]);
        assert!("sudo".parse::<Scopes>().is_err());
        assert!(!Scopes::CALLER.contains(Scopes::ADMIN));
        assert_eq!(Scopes::ADMIN.first_missing_from(Scopes::CALLER), Some("admin"));
        assert_eq!(Scopes::SEND.first_missing_from(Scopes::CALLER), None);
    }
}
