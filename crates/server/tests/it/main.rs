//! A real server on port 0, a real engine over SQLite in memory, and clients that misbehave.

mod agents;
mod client;
mod hub;

mod rpc;
mod stream;
