//! Errors of calls that several operations return, and the error of a call for an error of the store.

use herald_protocol::{Error, ErrorKind};

use crate::store::{Owner, StoreError};

/// The error for a new task whose id already names a task of another agent.
pub(crate) fn taken() -> Error {
    Error::field("id", "already names a task of another agent; choose another id")
}

pub(crate) fn no_push() -> Error {
    let text = "push notifications are not supported by this agent";
    Error::new(ErrorKind::PushNotificationNotSupported, text)
}

/// The error for a delivery that cannot be made now, because others have its memory.
pub(crate) fn no_memory() -> Error {
    let text = "other deliveries have the memory that this one needs; try again later";
    Error::new(ErrorKind::Unavailable, text)
}

/// The error for one more event to deliver again now.
pub(crate) fn too_many_replays() -> Error {
    let text = "too many events are being delivered again; try again later";
    Error::new(ErrorKind::Unavailable, text)
}

pub(crate) fn shutting_down() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is shutting down")
}

pub(crate) fn internal(cause: &str) -> Error {
    tracing::error!(cause, "internal error");
    Error::new(ErrorKind::Internal, "Internal error")
}

/// The error for an id that names tasks of several owners.
pub(crate) fn ambiguous(owners: &[Owner]) -> Error {
    let names = owners.iter().map(|owner| format!("{}/{}", owner.tenant, owner.principal));
    let text = "several owners have a task with this id; name the tenant and the principal";
    let names = names.collect::<Vec<_>>().join(", ");
    Error::new(ErrorKind::AmbiguousTask, text).with("owners", names)
}

/// True if a retry may succeed.
pub(crate) fn is_transient(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable
}

/// The caller's error for a store error. The cause goes to the log only.
pub(crate) fn refuse(error: StoreError) -> Error {
    match error {
        StoreError::Unavailable(cause) => {
            // The store has logged the first error of an outage.
            tracing::debug!(cause, "the store is unavailable");
            Error::new(
                ErrorKind::Unavailable,
                "tasks cannot be stored or read now; try again later",
            )
        }
        StoreError::NotMember => {
            tracing::warn!("this server is no longer a member of its store");
            Error::new(ErrorKind::Unavailable, "this server has left its store; try again later")
        }
        StoreError::Conflict
        | StoreError::Fenced
        | StoreError::Locked
        | StoreError::Duplicate(_) => internal(&error.to_string()),
        StoreError::Corrupt(cause) => internal(&cause),
        StoreError::TooLarge(_) => internal(&error.to_string()),
        StoreError::LimitReached(limit) => {
            Error::new(ErrorKind::LimitExceeded, format!("the limit of {limit} is reached"))
        }
    }
}
