//! Turns: claims, supervised runs of agents, and recovery after a crash.

pub(crate) mod admission;
pub(crate) mod answer;
pub mod caught;
pub(crate) mod claim;
pub(crate) mod conversation_lock;
pub(crate) mod dispatcher;
pub(crate) mod ending;
pub(crate) mod failure;
pub(crate) mod history;
pub(crate) mod last_pause;
pub(crate) mod recovery;
pub(crate) mod sink;
pub(crate) mod state;
pub(crate) mod supervisor;
pub mod turn;
