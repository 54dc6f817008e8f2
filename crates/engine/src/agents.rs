//! Agents: their declaration, the registry of this process, and their runtimes.

pub(crate) mod error;
pub(crate) mod extended_card;
pub mod profile;
pub(crate) mod registry;
pub(crate) mod runtime;
