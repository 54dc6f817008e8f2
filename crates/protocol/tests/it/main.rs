//! The protocol's wires, seen from outside: golden documents, round trips, fuzzing.

#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they send")]
#![expect(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what is wrong by panicking"
)]

mod card;
mod client;
mod descriptors;
mod difference;
mod errors;
mod fuzz;
mod golden;
mod grpc;
mod replaced;
mod rest;
mod roundtrip;
mod signature;
mod support;
mod v01;
mod v03;
mod v1;
mod words;
