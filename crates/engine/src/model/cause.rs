//! Cause of an append: who made it, and by which request.

use std::{borrow::Cow, sync::Arc};

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
    /// Another principal than the owner: an administrator, or one that sees its whole tenant.
    Principal(Arc<str>),
}

/// The cause of an append. Only the causes of callers and other principals are stored; the actor of every
/// other event follows from its kind.
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
