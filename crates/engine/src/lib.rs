//! Task engine: rules, durable log, readers and turns of agents. It has no HTTP.
//!
//! A call comes in through [`Engine::call`] with a [`Caller`]; [`rules`] decide what happens; one
//! conditional [`store::Store::append`] makes it durable; readers follow the log.

mod accept;
pub mod agent;
mod agent_runtime;
mod answer;
pub mod budget;
mod builder;
mod cache;
mod caller;
mod clock;
mod codec;
mod compat_log;
mod engine;
mod feed;
mod history;
mod idempotency;
mod janitor;
mod local_sink;
pub mod metrics;
pub mod rules;
mod runner;
pub mod store;
mod subscription;
mod token;
pub mod trace;
pub mod turn;
mod write;

pub use agent::{Agent, AgentError, Profile, Recovery, Skill};
pub use answer::{Reply, Sent, TaskJson};
pub use builder::{BuildError, EngineBuilder, Settings};
pub use caller::{AgentRoute, Caller, Scopes};
pub use clock::Clock;
pub use engine::{BYTES_PER_READ_BYTE, Engine};
pub use feed::{Feed, FeedItem};
pub use subscription::{Item, Subscription};
pub use turn::{Stop, Turn};
