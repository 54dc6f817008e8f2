//! The engine without a socket: a real store, real turns, and agents made of closures.

mod idempotency;
mod lifecycle;
mod limits;
mod lists;
mod recovery;
mod rules;
mod streams;
mod support;
