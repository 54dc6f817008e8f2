//! Operations of callers.

pub(crate) mod reply;
pub(crate) mod send;
