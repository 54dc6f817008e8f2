//! Builder of the engine.

use std::sync::Arc;

use herald_protocol::AgentName;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agents::{
        profile::{Agent, Profile},
        registry::{Registry, RegistryError},
        runtime::Runner,
    },
    audit::ActBuffer,
    budget::{MemoryBudget, Payer, Quota},
    cache::TaskCache,
    clock::Clock,
    core::{BYTES_PER_READ_BYTE, Core, DeliveryMemory},
    directory::{Directory, RoleBase},
    engine::Engine,
    keys::KeyUses,
    membership::Membership,
    observer::Observer,
    settings::Settings,
    store::Store,
    webhooks::{sender::WebhookSender, shared::Webhooks},
    workers::role::RoleSettings,
};

/// The number of callers that must exhaust their quotas before the budget of requests is exhausted.
const SENDERS: usize = 4;

/// Builder of an engine: its store, agents, settings, clock and observer.
#[derive(Debug)]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    agents: Vec<(Profile, Runner)>,
    default: Option<AgentName>,
    settings: Settings,
    clock: Clock,
    observer: Option<Arc<dyn Observer>>,
    sender: Option<Arc<dyn WebhookSender>>,
}

impl EngineBuilder {
    /// Adds an agent. The first agent is the default unless [`EngineBuilder::default_agent`] names
    /// another.
    #[must_use]
    pub fn agent(mut self, profile: Profile, agent: impl Agent) -> Self {
        self.agents.push((profile, Runner::Agent(Arc::new(agent))));
        self
    }

    /// Adds an agent that is already in an `Arc`.
    #[must_use]
    pub fn shared_agent(mut self, profile: Profile, agent: Arc<dyn Agent>) -> Self {
        self.agents.push((profile, Runner::Agent(agent)));
        self
    }

    /// Adds a role: an agent whose turns run on workers elsewhere, which join with
    /// [`Workers::join`](crate::Workers::join).
    #[must_use]
    pub fn role(mut self, profile: Profile, settings: RoleSettings) -> Self {
        self.agents.push((profile, Runner::Workers(settings)));
        self
    }

    /// Sets the agent that gets the new tasks of requests that name no agent.
    #[must_use]
    pub fn default_agent(mut self, name: impl Into<AgentName>) -> Self {
        self.default = Some(name.into());
        self
    }

    /// Sets the settings.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the observer, which is told of each step of a task.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Sets the HTTP client for webhooks. Without one no agent supports push notifications.
    #[must_use]
    pub fn webhooks(mut self, sender: Arc<dyn WebhookSender>) -> Self {
        self.sender = Some(sender);
        self
    }

    /// Builds the engine. Returns an error if the agents are missing or invalid.
    pub fn build(self) -> Result<Engine, BuildError> {
        let first = self.agents.first().map(|(profile, _)| profile.name.clone());
        let default = self.default.or(first).ok_or(BuildError::NoAgent)?;
        let directory = Directory::default();
        for (profile, runner) in &self.agents {
            if let Runner::Workers(_) = runner {
                let base = profile.clone();
                directory.add_role(base.name.clone(), RoleBase { base, is_declared: true });
            }
        }
        let registry = Registry::new(self.agents, default)?;
        let mut settings = self.settings;
        // A task must fit into the memory budget of reads, or it could never be read again.
        let readable = settings.memory / BYTES_PER_READ_BYTE;
        settings.limits.bytes = settings.limits.bytes.min(readable);
        let secret = self.store.secret();
        let memory = usize::try_from(settings.memory).unwrap_or(usize::MAX);
        Ok(Engine::new(Core {
            store: self.store,
            registry,
            cache: Arc::new(TaskCache::new(settings.memory / 8)),
            requests: MemoryBudget::with_small_pool(memory / 4, SENDERS),
            turns: all_of(&MemoryBudget::with_small_pool(memory / 4, 1)),
            histories: all_of(&MemoryBudget::with_small_pool(memory / 8, 1)),
            reads: all_of(&MemoryBudget::new(memory / 8, 1)),
            deliveries: DeliveryMemory {
                proven: all_of(&MemoryBudget::new(memory / 32, 1)),
                unproven: all_of(&MemoryBudget::new(memory / 32, 1)),
            },
            wakers: Arc::default(),
            catch_up: Semaphore::new(1),
            settings,
            clock: self.clock,
            observer: self.observer,
            membership: Membership::default(),
            started: Instant::now(),
            work: TaskTracker::new(),
            draining: CancellationToken::new(),
            left: CancellationToken::new(),
            acts: ActBuffer::default(),
            key_uses: KeyUses::default(),
            directory,
            webhooks: Webhooks::new(self.sender),
            key_changes: watch::Sender::default(),
            secret,
        }))
    }
}

/// The quota of a budget that has one payer: the engine.
fn all_of(budget: &Arc<MemoryBudget>) -> Arc<Quota> {
    budget.quota(Payer::Process)
}

/// The reason why an engine cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The engine has no agent.
    #[error("no agent is configured")]
    NoAgent,
    /// The agents cannot be registered, or the default agent is not among them.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Engine {
    /// A builder of an engine on this store.
    pub fn builder(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder {
            store,
            agents: Vec::new(),
            default: None,
            settings: Settings::default(),
            clock: Clock::system(),
            observer: None,
            sender: None,
        }
    }
}
