//! Loop guard: refuses a message that has already passed through a turn of this agent, and bounds hops.
//!
//! Agents that call each other in a circle would do so for ever. The metadata of a message therefore
//! lists the ids of the turns that it has passed through; a message that comes back names a turn that
//! is still open.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
};

use herald_engine::Turn;
use herald_protocol::{Json, Metadata};
use serde_json::Value;

/// Key of the list of turn ids in a message's metadata.
const VIA: &str = "herald.via";

/// Agents of this kind that a message may pass through.
const MAX_HOPS: usize = 16;

/// Ids of the turns that are open at the agent.
#[derive(Debug, Default)]
pub(super) struct LoopGuard(Mutex<HashSet<String>>);

/// An open turn; dropping it closes the turn.
#[derive(Debug)]
pub(super) struct Hop<'a> {
    guard: &'a LoopGuard,
    turn: &'a Turn,
}

impl LoopGuard {
    /// Opens a turn, or returns the reason why its message must not be sent on.
    pub(super) fn enter<'a>(&'a self, turn: &'a Turn) -> Result<Hop<'a>, String> {
        let mut waiting = self.lock();
        if visited(turn).any(|name| waiting.contains(&name)) {
            return Err("passes messages to an agent that passes them back: this would be a loop"
                .to_owned());
        }
        if visited(turn).count() >= MAX_HOPS {
            return Err(format!(
                "does not pass on messages that have passed through {MAX_HOPS} agents"
            ));
        }
        waiting.insert(turn.id().to_owned());
        Ok(Hop { guard: self, turn })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

impl Hop<'_> {
    /// The metadata for the message to the agent: that of the caller, with this turn added.
    pub(super) fn metadata(&self) -> Metadata {
        let own = self.turn.id().to_owned();
        let names: Value = visited(self.turn).chain([own]).map(Value::from).collect();
        let mut metadata = self.turn.message().metadata.clone().unwrap_or_default();
        metadata.insert(VIA, names);
        metadata
    }
}

impl Drop for Hop<'_> {
    fn drop(&mut self) {
        self.guard.lock().remove(self.turn.id());
    }
}

/// Ids of the turns that a message has passed through.
fn visited(turn: &Turn) -> impl Iterator<Item = String> {
    let metadata = turn.message().metadata.as_ref();
    let names: Option<Vec<Json>> = metadata.and_then(|metadata| metadata.get(VIA));
    names.into_iter().flatten().filter_map(|name| name.read().ok())
}
