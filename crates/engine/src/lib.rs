//! Task engine: rules, durable log, readers and turns of agents. It has no HTTP.
//!
//! A call comes in through [`Engine::call`] with a [`Caller`]; [`rules`] decide what happens; one
//! conditional [`store::Store::append`] makes it durable; readers follow the log.

mod agents;
mod audit;
pub mod budget;
mod builder;
mod cache;
mod caller;
mod changes;
mod clock;
mod codec;
mod commit;
mod core;
mod directory;
mod engine;
mod fault;
mod heartbeat;
mod idempotency;
mod janitor;
pub mod keys;
mod membership;
pub mod metrics;
pub mod model;
mod observer;
mod operator;
mod ops;
mod read;
mod roles;
pub mod rules;
mod settings;
pub mod store;
mod telemetry;
mod token;
pub mod trace;
mod turns;
mod wakers;
pub mod webhooks;
pub mod workers;

pub use agents::{
    error::{AgentError, ErrorDetail},
    extended_card::CallerProfile,
    profile::{
        self as agent, Admission, Agent, Audience, Candidate, ExtendedCard, Profile, Recovery,
        Skill, Unavailable,
    },
    registry::RegistryError,
};
pub use audit::Act;
pub use builder::{BuildError, EngineBuilder};
pub use caller::{
    AgentRoute, Caller, CredentialKind, Identity, Scopes, UnknownScope, Validity, Visibility,
};
pub use clock::Clock;
pub use core::BYTES_PER_READ_BYTE;
pub use directory::{Listed, name::role_of};
pub use engine::Engine;
pub use observer::{Observer, TaskStep};
pub use operator::{
    Operator,
    agents::{NewRemoteAgent, RegistrationFilter, RegistrationLimits, WorkerToRegister},
    keys::NewApiKey,
    tasks::{SummaryPage, TaskFilter, TaskSummary},
    webhooks::Replay,
};
pub use ops::{
    reply::{Reply, Sent, TaskJson},
    send::StoreGuard,
};
pub use read::{
    feed::{Feed, FeedItem},
    subscription::{Item, Subscription},
};
pub use settings::{DiscoverySettings, Settings, WebhookSettings};
pub use turns::{
    answer::{ANSWER_NAME, answer_id},
    caught,
    failure::{of_agent as agent_failure, of_panic as panic_failure},
    recovery::QueuedTasks,
    turn::{self, Stop, StopReason, Turn},
};
pub use workers::{RoleSettings, Workers};
