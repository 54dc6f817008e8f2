//! The protocol's wires, seen from outside: golden documents, round trips, fuzzing.

mod card;
mod errors;
mod fuzz;
mod golden;
mod rest;
mod roundtrip;
mod support;
mod v03;
mod v1;
