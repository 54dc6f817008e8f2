//! Builder and settings of the engine.

use std::{collections::HashMap, sync::Arc, time::Duration};

use herald_protocol::AgentName;
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agent::{Agent, Profile},
    agent_runtime::AgentRuntime,
    budget::{MemoryBudget, Payer, Quota},
    cache::TaskCache,
    clock::Clock,
    engine::{BYTES_PER_READ_BYTE, Engine, Inner},
    rules::Limits,
    store::{MemberId, Store},
};

/// Callers that would have to exhaust their quotas before the budget of requests is exhausted.
const SENDERS: usize = 4;

/// How the engine behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How large one task may grow. Its bytes are at most a third of `memory`, so that every task can
    /// be read again.
    pub limits: Limits,
    /// About how many bytes of tasks are held in memory: a fourth by requests on their way into the
    /// log, a fourth by turns, an eighth by the earlier tasks that they are given, an eighth by large
    /// tasks while they are read, and a fourth for the tasks that were used last. Requests and turns
    /// beyond that wait; everything else is read when it is needed.
    pub memory: u64,
    /// How long a blocking send waits before it returns the unsettled task.
    pub send_wait: Duration,
    /// Whether cancelling a cancelled task returns it instead of refusing.
    pub repeat_cancel: bool,
    /// Remove tasks that ended so long ago.
    pub keep_for: Option<Duration>,
    /// Keep at most so many tasks per tenant.
    pub keep_tasks: Option<u64>,
    /// Keep at most so many bytes of log per tenant.
    pub keep_bytes: Option<u64>,
    /// How often to look for what has expired.
    pub sweep_every: Duration,
    /// Whether the debug log shows what callers and agents say, or only how much.
    pub log_content: bool,
    /// The share of new traces that is recorded, from 0 to 1. Without it there are no spans of our
    /// own, and agents get the trace that callers sent.
    pub trace: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            memory: 256 << 20,
            send_wait: Duration::from_secs(600),
            repeat_cancel: false,
            keep_for: Some(Duration::from_secs(30 * 24 * 3600)),
            keep_tasks: Some(1_000_000),
            keep_bytes: Some(10 << 30),
            sweep_every: Duration::from_secs(30),
            log_content: false,
            trace: None,
        }
    }
}

/// Collects what an engine is made of.
#[derive(Debug)]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    agents: Vec<(Profile, Arc<dyn Agent>)>,
    default: Option<AgentName>,
    settings: Settings,
    clock: Clock,
}

impl EngineBuilder {
    /// Adds an agent. The first one is the default unless another is named.
    #[must_use]
    pub fn agent(mut self, profile: Profile, agent: impl Agent) -> Self {
        self.agents.push((profile, Arc::new(agent)));
        self
    }

    /// Adds an agent that is already shared.
    #[must_use]
    pub fn shared_agent(mut self, profile: Profile, agent: Arc<dyn Agent>) -> Self {
        self.agents.push((profile, agent));
        self
    }

    /// Names the agent that new tasks at the root go to.
    #[must_use]
    pub fn default_agent(mut self, name: impl Into<AgentName>) -> Self {
        self.default = Some(name.into());
        self
    }

    /// Changes how the engine behaves.
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

    /// The engine. Every mistake in its make-up is found here.
    pub fn build(self) -> Result<Engine, BuildError> {
        let first = self.agents.first().map(|(profile, _)| profile.name.clone());
        let default = self.default.or(first).ok_or(BuildError::NoAgent)?;
        let mut agents = HashMap::new();
        for (profile, agent) in self.agents {
            let name = profile.name.clone();
            if !name.is_segment() {
                return Err(BuildError::BadName(name));
            }
            if agents.insert(name.clone(), Arc::new(AgentRuntime::new(profile, agent))).is_some() {
                return Err(BuildError::Twice(name));
            }
        }
        let Some(default) = agents.get(&default).cloned() else {
            return Err(BuildError::Unknown(default));
        };
        let mut settings = self.settings;
        // A task that could not be read again would be lost to its caller.
        let readable = settings.memory / BYTES_PER_READ_BYTE;
        settings.limits.bytes = settings.limits.bytes.min(readable);
        let secret = self.store.secret();
        let memory = usize::try_from(settings.memory).unwrap_or(usize::MAX);
        Ok(Engine {
            inner: Arc::new(Inner {
                store: self.store,
                agents,
                default,
                cache: Arc::new(TaskCache::new(settings.memory / 4)),
                requests: MemoryBudget::with_small_pool(memory / 4, SENDERS),
                turns: all_of(&MemoryBudget::with_small_pool(memory / 4, 1)),
                histories: all_of(&MemoryBudget::with_small_pool(memory / 8, 1)),
                reads: all_of(&MemoryBudget::new(memory / 8, 1)),
                wakers: Arc::default(),
                catch_up: Semaphore::new(1),
                settings,
                clock: self.clock,
                holder: MemberId(uuid::Uuid::new_v4().as_u128()),
                joined: OnceCell::new(),
                work: TaskTracker::new(),
                draining: CancellationToken::new(),
                secret,
            }),
        })
    }
}

/// The quota of a budget that has one payer: the engine.
fn all_of(budget: &Arc<MemoryBudget>) -> Arc<Quota> {
    budget.quota(Payer::Connection(0))
}

/// What is wrong with an engine's make-up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// Nothing would work on tasks.
    #[error("no agent is configured")]
    NoAgent,
    /// The name cannot stand in a URL.
    #[error("the agent name {0:?} must be 1 to 63 characters of a-z, 0-9 and -")]
    BadName(AgentName),
    /// The name is used twice.
    #[error("the agent name {0:?} is used twice")]
    Twice(AgentName),
    /// The default agent does not exist.
    #[error("there is no agent named {0:?} to be the default")]
    Unknown(AgentName),
}

impl Engine {
    /// Starts to collect what an engine is made of.
    pub fn builder(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder {
            store,
            agents: Vec::new(),
            default: None,
            settings: Settings::default(),
            clock: Clock::system(),
        }
    }
}
