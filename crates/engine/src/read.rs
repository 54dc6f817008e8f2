//! Readers of the log: of one task, and of all tasks of a caller.

pub(crate) mod feed;
pub(crate) mod subscription;
pub(crate) mod view;
