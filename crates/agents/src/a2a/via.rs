//! Messages that come back: agents that call each other in a circle would do so for ever.
//!
//! A message carries the names of the turns it has come through in its metadata. One that comes
//! back names a turn that still waits for its end.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard},
};

use herald_engine::Turn;
use herald_protocol::{Json, Metadata};
use serde_json::Value;

/// Its name in a message's metadata.
const VIA: &str = "herald.via";

/// How many agents of this kind a message may come through.
const HOPS: usize = 16;

/// The turns that wait for the agent.
#[derive(Debug, Default)]
pub(super) struct Passages(Mutex<HashSet<String>>);

/// One of them, until dropped.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    passages: &'a Passages,
    turn: &'a Turn,
}

impl Passages {
    /// Lets a turn pass, or says why it may not.
    pub(super) fn enter<'a>(&'a self, turn: &'a Turn) -> Result<Passage<'a>, String> {
        let mut waiting = self.lock();
        if trail(turn).any(|name| waiting.contains(&name)) {
            return Err(
                "gives its messages to an agent that gives them back: they would go round \
                        in a circle"
                    .to_owned(),
            );
        }
        if trail(turn).count() >= HOPS {
            return Err(format!("does not pass on what has come through {HOPS} agents already"));
        }
        waiting.insert(turn.id().to_owned());
        Ok(Passage { passages: self, turn })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

impl Passage<'_> {
    /// The metadata of the message as it goes on from here.
    pub(super) fn metadata(&self) -> Metadata {
        let own = self.turn.id().to_owned();
        let names: Value = trail(self.turn).chain([own]).map(Value::from).collect();
        let mut metadata = self.turn.message().metadata.clone().unwrap_or_default();
        metadata.insert(VIA, names);
        metadata
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.passages.lock().remove(self.turn.id());
    }
}

/// The turns that a message has come through.
fn trail(turn: &Turn) -> impl Iterator<Item = String> {
    let metadata = turn.message().metadata.as_ref();
    let names: Option<Vec<Json>> = metadata.and_then(|metadata| metadata.get(VIA));
    names.into_iter().flatten().filter_map(|name| name.read().ok())
}
