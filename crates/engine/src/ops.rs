//! Operations of callers, one file each.

pub(crate) mod cancel;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod push;
pub(crate) mod reply;
pub(crate) mod routing;
pub(crate) mod send;
pub(crate) mod subscribe;
