//! Tests of the engine without HTTP: a real store, real turns, and agents made of closures.

#![expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a failed test panics")]

mod admission;
mod answers;
mod damage;
mod feeds;
mod idempotency;
mod lifecycle;
mod limits;
mod lists;
mod memory;
mod observer;
mod operators;
mod outage;
mod outcomes;
mod own_ids;
mod pauses;
mod recovery;
mod registry;
mod responses;
mod rules;
mod serial;
mod shared;
mod streams;
mod support;
mod traces;
mod visibility;
mod webhooks;
mod workers;
