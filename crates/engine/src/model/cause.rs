//! Cause of an append: who made it, and by which request.

use std::{borrow::Cow, sync::Arc};

/// Who caused a change of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Actor {
    /// The owner of the task.
    Caller,
    /// Its agent.
    Agent,
    /// The engine, by a timeout or after a crash.
    #[default]
    Engine,
    /// An administrator, by their principal.
    Operator(Arc<str>),
}

/// The cause of an append. Only that of callers and operators is stored; the cause of every other event
/// follows from its kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cause {
    /// Who.
    pub actor: Actor,
    /// The id of the request, if there was one.
    pub request: Option<Arc<str>>,
    /// The binding it came by.
    pub binding: Option<Cow<'static, str>>,
}

impl From<Actor> for Cause {
    fn from(actor: Actor) -> Self {
        Self { actor, ..Self::default() }
    }
}
