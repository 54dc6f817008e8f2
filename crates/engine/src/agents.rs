//! Agents: their declaration, and their runtimes in this process.

pub mod profile;
pub(crate) mod registry;
pub(crate) mod runtime;
