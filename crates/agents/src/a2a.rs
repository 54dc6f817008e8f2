//! Upstream agent: proxies each message to another A2A agent, of any version and over any binding.

mod loop_guard;
mod relay;
mod upstream_error;
mod upstream_ref;

use std::{
    fmt,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use herald_client::{
    Client, ClientBuilder, Error, Events, Retry, Secrets, SendMessage, TraceContext,
    protocol::{
        Request, TaskId,
        request::{CancelTask, SendConfiguration},
    },
};
use herald_engine::{Agent, AgentError, Profile, Recovery, Turn};
use herald_protocol::{AgentCard, AgentName, Metadata, Task};
use tokio::time::{sleep, timeout};

use self::{loop_guard::LoopGuard, relay::Relay, upstream_ref::UpstreamRef};
use crate::{ErrorDetail, ended::Ended, failure::Failure};

/// Retries of a call or a stream before the agent counts as unavailable: with backoff about 15 seconds.
const RETRIES: usize = 6;

/// Timeout of the request that cancels the agent's task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Grace of a stopped turn: time to learn the id of the agent's task and to cancel it.
const GRACE: Duration = Duration::from_secs(10);

/// Default timeout of a task.
const TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Attempts at a turn across restarts of this server. An attempt resumes the agent's task and sends
/// nothing twice.
const ATTEMPTS: u32 = 10;

/// Earlier tasks of a conversation that are searched for the agent's context id.
const MEMORY: usize = 4;

/// The log message for a cancel that failed.
const NOT_CANCELLED: &str = "the agent refused or did not receive the cancel of its task";

tokio::task_local! {
    /// Trace context of the turn that this task runs.
    static TRACE: TraceContext;
}

/// Agent that proxies each message to another A2A agent.
pub struct Upstream {
    /// The agent's name, for messages about its failures.
    pub name: AgentName,
    /// URL of the agent or its card, as [`ClientBuilder::connect`] takes it.
    pub url: String,
    /// True if the agent deduplicates messages by their id, so that a message that may have arrived
    /// can be sent again.
    pub idempotent: bool,
    /// Retries of a call or a stream.
    pub retries: usize,
    /// The part of a failure that callers see.
    pub error_detail: ErrorDetail,
    /// Our credentials, redacted in everything the agent sends: agents echo them, and neither callers
    /// nor the log may see them.
    pub secrets: Secrets,
    /// The card of the agent, if it is pinned: no other is fetched.
    pub card: Option<AgentCard>,
    builder: ClientBuilder,
    client: Mutex<Option<Client>>,
    loop_guard: LoopGuard,
}

impl Upstream {
    /// The agent at `url`, called through `builder`'s client. Only the caller's message is passed on, no
    /// credentials. The card is fetched when the first message arrives.
    pub fn new(name: &str, url: impl Into<String>, builder: ClientBuilder) -> Self {
        Self {
            name: AgentName::new(name),
            url: url.into(),
            idempotent: false,
            retries: RETRIES,
            error_detail: ErrorDetail::default(),
            secrets: Secrets::default(),
            card: None,
            builder: builder.trace_context(|| TRACE.try_with(Clone::clone).ok()),
            client: Mutex::default(),
            loop_guard: LoopGuard::default(),
        }
    }

    /// The agent's profile: card fields, limits and recovery.
    pub fn profile(&self) -> Profile {
        let description = "Forwards each message to another A2A agent and returns its result";
        let mut profile = Profile::new(self.name.clone(), description);
        profile.skills[0].tags = vec!["a2a".to_owned()];
        // The upstream's modes are unknown here; it refuses by itself what it does not accept.
        profile.input_modes = vec!["text/plain".to_owned(), "*/*".to_owned()];
        profile.output_modes = profile.input_modes.clone();
        profile.recovery = Recovery::Resume(ATTEMPTS);
        profile.memory = MEMORY;
        profile.timeout = Some(TIMEOUT);
        profile.grace = GRACE;
        profile
    }

    fn cached_client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().expect("nothing panics while it holds this lock")
    }

    /// The cached client, or a new one once the agent's card has been fetched.
    async fn client(&self) -> Result<Client, Error> {
        if let Some(client) = self.cached_client().clone() {
            return Ok(client);
        }
        let retry = Retry { repeats: self.retries, sends: self.idempotent, ..Retry::default() };
        let builder = self.builder.clone().retry(retry.clone());
        let (mut left, mut pause) = (self.retries, retry.first);
        loop {
            let connected = match &self.card {
                Some(card) => builder.clone().card(card.clone()),
                None => builder.clone().connect(&self.url).await,
            };
            let error = match connected {
                Ok(client) => {
                    *self.cached_client() = Some(client.clone());
                    return Ok(client);
                }
                Err(error) if error.is_temporary() && left > 0 => error,
                Err(error) => return Err(error),
            };
            let fault = self.secrets.redact_sentence(&error.to_string());
            tracing::debug!(agent = %self.name, fault, ?pause, "the card of the upstream agent cannot be fetched yet");
            sleep(pause).await;
            (left, pause) = (left - 1, (pause * 2).min(retry.longest));
        }
    }

    /// Classifies a failed call. The client is dropped, so that the next turn fetches the card again: an
    /// outdated card may be why the call failed.
    fn failed(&self, error: &Error) -> Ended {
        *self.cached_client() = None;
        upstream_error::classify(error)
    }

    /// Runs a turn at the agent.
    async fn work(&self, turn: &Turn) -> Result<(), AgentError> {
        let hop = match self.loop_guard.enter(turn) {
            Ok(hop) => hop,
            Err(reason) => {
                tracing::warn!(agent = %self.name, task = %turn.task_id(), reason, "refusing a message");
                turn.reject(format!("agent {} {reason}", self.name)).await?;
                return Ok(());
            }
        };
        let client = tokio::select! {
            client = self.client() => client.map_err(|error| self.failed(&error)),
            () = turn.cancelled().cancelled() => Err(Ended::Turn(AgentError::Stopped)),
        };
        let client = client.map_err(|ended| self.report(turn, ended))?;
        let mut relay = Relay::new(&self.name, &self.secrets, turn);
        let result = self.converse(turn, &client, hop.metadata(), &mut relay).await;
        let Err(ended) = result else { return Ok(()) };
        if let Some(task) =
            relay.unfinished().filter(|_| !matches!(ended, Ended::Turn(AgentError::Suspended)))
        {
            self.cancel_upstream(&client, turn.task_id(), task, turn.cancel_metadata()).await;
        }
        Err(self.report(turn, ended))
    }

    /// Relays the agent's events until its stream ends or it waits for input.
    async fn converse(
        &self,
        turn: &Turn,
        client: &Client,
        metadata: Metadata,
        relay: &mut Relay<'_>,
    ) -> Result<(), Ended> {
        let mut events = self.open(turn, client, metadata, relay).await?;
        loop {
            let event = tokio::select! {
                biased;
                // Before the agent has sent the id of its task, there is nothing to cancel.
                () = turn.cancelled().cancelled(), if relay.unfinished().is_some() => {
                    return Err(Ended::Turn(AgentError::Stopped));
                }
                () = turn.leaving(), if relay.can_be_suspended() => return Err(Ended::Turn(AgentError::Suspended)),
                event = events.next() => event,
                // Credentials may also come out of band, and the agent then continues by itself.
                _ = turn.answered(), if relay.awaits_credentials() => return Ok(()),
            };
            match event {
                Ok(Some(event)) => relay.handle_event(event).await?,
                Ok(None) => return relay.finish().await,
                // The next turn subscribes again.
                Err(_) if relay.awaits_credentials() => return Ok(()),
                Err(error) => events = self.recover(client, error, relay).await?,
            }
            // The answer goes to the same task, in the next turn.
            if relay.awaits_input() {
                return Ok(());
            }
        }
    }

    /// Sends the message, or resumes the agent's task if an earlier attempt has sent it.
    async fn open(
        &self,
        turn: &Turn,
        client: &Client,
        metadata: Metadata,
        relay: &mut Relay<'_>,
    ) -> Result<Events, Ended> {
        let upstream =
            UpstreamRef::of(turn.task()).unwrap_or_else(|| UpstreamRef::in_conversation(turn));
        let (context, task) = upstream.next();
        relay.set_continued(task.clone());
        if turn.attempt() > 1 {
            match upstream.task_of(turn) {
                Some(task) => return Ok(relay.resume(client, task.clone())),
                None if self.idempotent => {}
                None => {
                    return Err(Ended::Failed(Failure::new(
                        "may have got the message before the server stopped, and is not asked to do \
                     it twice",
                    )));
                }
            }
        }
        let mut message = turn.message().clone();
        message.message_id = turn.id().into();
        (message.context_id, message.task_id) = (context, task);
        message.metadata = Some(metadata);
        message.reference_task_ids = referenced(turn);
        let send = SendMessage {
            message,
            configuration: SendConfiguration {
                accepted_output_modes: turn.accepted_output_modes().to_vec(),
                ..SendConfiguration::default()
            },
            metadata: turn.metadata().cloned(),
            ..SendMessage::default()
        };
        match client.stream(send).await {
            Ok(events) => Ok(events),
            Err(error) => self.recover(client, error, relay).await,
        }
    }

    /// Subscribes to the continued task if the message to it was refused and it no longer waits: it may
    /// have ended meanwhile, or continued by itself. Otherwise returns the error.
    async fn recover(
        &self,
        client: &Client,
        error: Error,
        relay: &mut Relay<'_>,
    ) -> Result<Events, Ended> {
        if let (Some(task), true) = (relay.continued(), error.protocol().is_some())
            && let Ok(found) = client.get(task.clone()).await
            && !found.status.state.is_interrupted()
        {
            return Ok(relay.attach(client, task));
        }
        Err(self.failed(&error))
    }

    /// Cancels the agent's task.
    async fn cancel_upstream(
        &self,
        client: &Client,
        task: &TaskId,
        upstream: &TaskId,
        metadata: Option<Metadata>,
    ) {
        let cancel = CancelTask { id: upstream.clone(), metadata, ..CancelTask::default() };
        let answer = timeout(CANCEL_TIMEOUT, client.call(Request::CancelTask(cancel))).await;
        let agent = &self.name;
        match answer {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                let fault = self.secrets.redact_sentence(&error.to_string());
                tracing::info!(%task, %agent, %upstream, fault, "{NOT_CANCELLED}");
            }
            Err(_) => {
                let late = "the agent did not answer the cancel of its task in time";
                tracing::warn!(%task, %agent, %upstream, "{late}");
            }
        }
    }

    /// Logs why a turn ended early, and returns the error for the caller.
    fn report(&self, turn: &Turn, ended: Ended) -> AgentError {
        let redact = |text: String| self.secrets.redact_sentence(&text);
        let redacted = ended.map_failure(|failure| Failure {
            // A protocol violation quotes the agent here.
            kind: redact(failure.kind),
            message: failure.message.map(redact),
            full: failure.full.map(redact),
            ..failure
        });
        redacted.report(turn, &self.name, self.error_detail)
    }
}

/// The agent's ids of the tasks that a message references, as far as they are known.
fn referenced(turn: &Turn) -> Vec<TaskId> {
    let named = |id: &TaskId| turn.earlier().iter().find(|task| task.id == *id);
    let names = turn.message().reference_task_ids.iter().filter_map(named);
    names.filter_map(|task| UpstreamRef::of(task)?.task).collect()
}

#[async_trait]
impl Agent for Upstream {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let Some(trace) = turn.trace() else { return self.work(turn).await };
        TRACE.scope(trace.clone(), self.work(turn)).await
    }

    /// Cancels the agent's task that still waits for an answer.
    async fn task_ended(&self, task: &Task, metadata: Option<Metadata>) {
        let Some(upstream) = UpstreamRef::of(task).and_then(|known| known.next().1) else { return };
        match self.client().await {
            Ok(client) => self.cancel_upstream(&client, &task.id, &upstream, metadata).await,
            Err(error) => {
                let fault = self.secrets.redact_sentence(&error.to_string());
                let (task, agent) = (&task.id, &self.name);
                tracing::info!(%task, %agent, %upstream, fault, "{NOT_CANCELLED}");
            }
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.name)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}
