//! Cause of an append: who made it, and by which request.

use std::{borrow::Cow, sync::Arc};

use super::member::MemberId;

/// The actor that caused a change of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Actor {
    /// The owner of the task.
    Caller,
    /// The agent of the task.
    Agent,
    /// The engine: a timeout, or recovery after a crash.
    #[default]
    Engine,
    /// A worker elsewhere that runs a turn of the agent.
    Worker {
        /// Its session.
        session: MemberId,
        /// The number that the worker gave the write. A repeated write has the same.
        number: u64,
    },
    /// Another principal than the owner: an administrator, or one that sees its whole tenant.
    Principal(Arc<str>),
}

/// The cause of an append. Only the causes of callers, other principals and workers are stored; the actor
/// of every other event follows from its kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cause {
    /// The actor.
    pub actor: Actor,
    /// The id of the request, if there was one.
    pub request: Option<Arc<str>>,
    /// The binding of the request.
    pub binding: Option<Cow<'static, str>>,
}

impl From<Actor> for Cause {
    fn from(actor: Actor) -> Self {
        Self { actor, ..Self::default() }
    }
}
