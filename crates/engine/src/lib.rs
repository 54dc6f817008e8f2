//! Decides, stores and replays what happens to tasks, and runs agents under leases. No HTTP.
//!
//! A call comes in through [`Engine::call`] with a [`Caller`]; [`rules`] decide what happens; one
//! conditional [`store::Store::append`] makes it durable; readers follow the log.

pub mod agent;
mod caller;
mod clock;
mod engine;
mod idempotency;
mod live;
mod log;
mod post;
pub mod rules;
mod runner;
pub mod store;
mod subscription;
mod token;
pub mod turn;
mod upkeep;

pub use agent::{Agent, AgentError, Profile, Recovery};
pub use caller::{Caller, Scopes, Via};
pub use clock::Clock;
pub use engine::{BuildError, Engine, EngineBuilder, Reply, Settings, TaskJson};
pub use subscription::{Item, Subscription};
pub use turn::{Stop, Turn};
