//! Task engine: rules, durable log, readers and turns of agents. It has no HTTP.
//!
//! A call comes in through [`Engine::call`] with a [`Caller`]; [`rules`] decide what happens; one
//! conditional [`store::Store::append`] makes it durable; readers follow the log.

mod agents;
pub mod budget;
mod builder;
mod cache;
mod caller;
mod clock;
mod codec;
mod commit;
mod compat_log;
mod engine;
mod idempotency;
mod janitor;
pub mod metrics;
mod ops;
mod read;
pub mod rules;
pub mod store;
mod token;
pub mod trace;
mod turns;

pub use agents::profile::{self as agent, Agent, AgentError, Profile, Recovery, Skill};
pub use builder::{BuildError, EngineBuilder, Settings};
pub use caller::{AgentRoute, Caller, Scopes};
pub use clock::Clock;
pub use engine::{BYTES_PER_READ_BYTE, Engine};
pub use ops::reply::{Reply, Sent, TaskJson};
pub use read::{
    feed::{Feed, FeedItem},
    subscription::{Item, Subscription},
};
pub use turns::turn::{self, Stop, Turn};
