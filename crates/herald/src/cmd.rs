//! One file per family of verbs.

pub(crate) mod card;
pub(crate) mod config;
pub(crate) mod send;
pub(crate) mod serve;
