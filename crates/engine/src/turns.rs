//! Turns: claims, supervised runs of agents, and recovery after a crash.

pub(crate) mod history;
pub(crate) mod sink;
pub(crate) mod supervisor;
pub mod turn;
