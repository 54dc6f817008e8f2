//! Client: the operations of one agent.

use std::sync::Arc;

use herald_protocol::{
    AgentCard, PushConfigId, Reply, Request, SendResult, StreamEvent, Task, TaskId, Version,
    card::{AgentInterface, signature::Verdict},
    push::{PushConfig, PushConfigPage},
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, ListTasks, PushConfigRef,
        SendMessage, SubscribeToTask,
    },
    version::VERSION_HEADER,
};
use http::{HeaderMap, HeaderValue, header};
use tokio::time::{sleep, timeout};

use crate::{
    agent::RemoteAgent,
    candidates::choose,
    client_core::{ClientCore, is_settled, name, unexpected},
    credential::Credential,
    discover::{FoundCard, Source},
    error::Error,
    events::Events,
    interface::Binding,
    oauth::{Prompt, Token},
    pages::Pages,
    proof::Proof,
    settings::ClientSettings,
    transport::http::Http,
};

/// Calls one agent. A cheap handle: clones share connections and the card.
#[derive(Debug, Clone)]
pub struct Client {
    core: Arc<ClientCore>,
}

/// An agent's card, before an interface of it is chosen.
#[derive(Debug)]
#[must_use]
pub struct Discovered {
    settings: ClientSettings,
    http: Http,
    source: Source,
    found: FoundCard,
}

/// The answer of any operation.
#[derive(Debug)]
pub enum Answer {
    /// One answer.
    Reply(Box<Reply>),
    /// A stream.
    Events(Box<Events>),
}

impl Client {
    pub(crate) fn new(
        settings: ClientSettings,
        http: Http,
        source: Option<Source>,
        found: FoundCard,
    ) -> Result<Self, Error> {
        ClientCore::new(settings, http, source, found).map(|core| Self { core: Arc::new(core) })
    }

    /// The agent card.
    pub fn card(&self) -> AgentCard {
        self.agent().found.card.clone()
    }

    /// The verdict on the signatures of the card, by the keys that were given.
    pub fn verdict(&self) -> Verdict {
        self.agent().found.verdict.clone()
    }

    /// The interface that is being called.
    pub fn interface(&self) -> AgentInterface {
        self.agent().interface().interface.clone()
    }

    /// Logs in: fetches a token from the authorization server of the card. `ask` shows a person what to do, if
    /// that is needed. This client then uses the token, and [`OAuth::on_token`](crate::OAuth::on_token) gets it
    /// to store it.
    pub async fn log_in(&self, ask: impl Fn(Prompt) + Send + Sync) -> Result<Token, Error> {
        let session = self.agent().session.clone().ok_or_else(|| {
            Error::setup("a login needs an OAuth credential, and a card that requires one")
        })?;
        session.log_in(&ask).await
    }

    /// Drops the token and revokes it at the authorization server (RFC 7009). Returns `false` if the
    /// server has no revocation endpoint or there is no token.
    pub async fn log_out(&self) -> Result<bool, Error> {
        match self.agent().session.clone() {
            Some(session) => session.log_out().await,
            None => Ok(false),
        }
    }

    /// Fetches the card again if it has expired. Returns whether it has changed; further calls use the new one.
    pub async fn refresh(&self) -> Result<bool, Error> {
        let ClientCore { settings, http, source, .. } = &*self.core;
        let known = self.agent();
        let Some(source) = source.as_ref().filter(|_| !known.found.is_fresh()) else {
            return Ok(false);
        };
        let Some(found) = find(settings, http, source, Some(&known.found)).await? else {
            return Ok(false);
        };
        let changed = found.card != known.found.card;
        self.core.replace(vetted(settings, http, found).await?)?;
        Ok(changed)
    }

    /// Sends a message and waits until the task is done or waits for its caller. A server may answer
    /// earlier, with a task that is still working; [`finish`](Self::finish) continues from there.
    pub async fn send(&self, message: impl Into<SendMessage>) -> Result<SendResult, Error> {
        let reply = self.unary(Request::SendMessage(Box::new(message.into()))).await?;
        if let Reply::Sent(result) = reply { Ok(result) } else { Err(unexpected()) }
    }

    /// Sends a message and returns the events of its task. An agent that does not stream, by its card or by
    /// its answer, is polled instead.
    pub async fn stream(&self, message: impl Into<SendMessage>) -> Result<Events, Error> {
        let mut send = message.into();
        name(&mut send);
        if self.is_streaming() {
            return Events::open(
                Arc::clone(&self.core),
                Request::SendStreamingMessage(Box::new(send)),
            )
            .await;
        }
        send.configuration.return_immediately = true;
        let result = self.send(send).await?;
        Ok(Events::polling(Arc::clone(&self.core), result))
    }

    /// Sends a message and waits until its task has ended or waits for its caller: over a stream if the
    /// agent has one, and otherwise, or if the stream is lost, by polling. `on_task` is called with the id
    /// of the task as soon as that is known, so that an interrupted caller can find the task again.
    pub async fn send_and_wait(
        &self,
        message: impl Into<SendMessage>,
        mut on_task: impl FnMut(&TaskId),
    ) -> Result<SendResult, Error> {
        let send = message.into();
        let id = if self.is_streaming() {
            let mut events = self.stream(send).await?;
            let mut task = None;
            loop {
                match events.next().await {
                    Ok(Some(StreamEvent::Message(message))) if task.is_none() => {
                        return Ok(SendResult::Message(message));
                    }
                    Ok(Some(StreamEvent::Task(task))) if is_settled(task.status.state) => {
                        return Ok(SendResult::Task(task));
                    }
                    Ok(Some(event)) => {
                        if let Some(id) = event.task_id() {
                            on_task(id);
                            task = Some(id.clone());
                        }
                        if event.state().is_some_and(is_settled) {
                            break;
                        }
                    }
                    Ok(None) => break,
                    // The stream is lost, but the task is known.
                    Err(_) if task.is_some() => break,
                    Err(error) => return Err(error),
                }
            }
            task.ok_or_else(|| Error::invalid("the stream ended without a task"))?
        } else {
            match self.send(send).await? {
                SendResult::Task(task) if !is_settled(task.status.state) => task.id,
                done @ (SendResult::Task(_) | SendResult::Message(_)) => return Ok(done),
            }
        };
        on_task(&id);
        self.wait(id).await.map(SendResult::Task)
    }

    /// Polls a task until it has ended or waits for its caller, and returns it. The pauses between two
    /// polls grow to five times [`Timeouts::poll`](crate::Timeouts::poll).
    pub async fn wait(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        let id = id.into();
        let mut pauses = self.core.settings.timeouts.poll_pauses();
        loop {
            let task = self.get(id.clone()).await?;
            if is_settled(task.status.state) {
                return Ok(task);
            }
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Follows the task in `result` until it has ended or waits for its caller, and returns it.
    pub async fn finish(&self, result: SendResult) -> Result<SendResult, Error> {
        let task = match result {
            SendResult::Task(task) if !is_settled(task.status.state) => task.id,
            done @ (SendResult::Task(_) | SendResult::Message(_)) => return Ok(done),
        };
        let mut events = self.follow(task.clone());
        while events.next().await?.is_some() {}
        self.get(task).await.map(SendResult::Task)
    }

    /// Gets a task.
    pub async fn get(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        let get = GetTask { id: id.into(), ..GetTask::default() };
        self.task(Request::GetTask(get)).await
    }

    /// Lists tasks, page by page.
    pub fn list(&self, query: ListTasks) -> Pages {
        Pages::new(Arc::clone(&self.core), query)
    }

    /// Cancels a task.
    pub async fn cancel(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        let cancel = CancelTask { id: id.into(), ..CancelTask::default() };
        self.task(Request::CancelTask(cancel)).await
    }

    /// Subscribes to a task: the events from now on.
    pub async fn subscribe(&self, id: impl Into<TaskId>) -> Result<Events, Error> {
        let subscribe = SubscribeToTask { id: id.into(), ..SubscribeToTask::default() };
        Events::open(Arc::clone(&self.core), Request::SubscribeToTask(subscribe)).await
    }

    /// Follows a task: its current state first, then its events. A task that has ended, or that the agent
    /// refuses to stream, is polled.
    pub fn follow(&self, id: impl Into<TaskId>) -> Events {
        Events::following(Arc::clone(&self.core), id.into(), None)
    }

    /// Resumes a stream after the event with this [`Events::cursor`], which may come from another process.
    pub fn resume(&self, id: impl Into<TaskId>, cursor: impl Into<String>) -> Events {
        Events::following(Arc::clone(&self.core), id.into(), Some(cursor.into()))
    }

    /// Adds a webhook to the task of `config`.
    pub async fn create_push_config(&self, config: PushConfig) -> Result<PushConfig, Error> {
        self.push_config(Request::CreateTaskPushNotificationConfig(config)).await
    }

    /// Gets a webhook of a task.
    pub async fn push_config_of(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<PushConfigId>,
    ) -> Result<PushConfig, Error> {
        let named = PushConfigRef { tenant: None, task_id: task.into(), id: id.into() };
        self.push_config(Request::GetTaskPushNotificationConfig(named)).await
    }

    /// Lists one page of a task's webhooks.
    pub async fn push_configs(&self, query: ListPushConfigs) -> Result<PushConfigPage, Error> {
        let reply = self.unary(Request::ListTaskPushNotificationConfigs(query)).await?;
        if let Reply::PushConfigs(page) = reply { Ok(page) } else { Err(unexpected()) }
    }

    /// Removes a webhook.
    pub async fn delete_push_config(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<PushConfigId>,
    ) -> Result<(), Error> {
        let named = PushConfigRef { tenant: None, task_id: task.into(), id: id.into() };
        self.unary(Request::DeleteTaskPushNotificationConfig(named)).await.map(drop)
    }

    /// Fetches the card for authenticated callers. It replaces the public one.
    pub async fn extended_card(&self) -> Result<AgentCard, Error> {
        let request = Request::GetExtendedAgentCard(GetExtendedAgentCard::default());
        let Reply::Card(card) = self.unary(request).await? else { return Err(unexpected()) };
        let ClientCore { settings, http, .. } = &*self.core;
        let found = self.agent().found.with((*card).clone());
        self.core.replace(vetted(settings, http, found).await?)?;
        Ok(*card)
    }

    /// Performs any operation.
    pub async fn call(&self, request: Request) -> Result<Answer, Error> {
        if let Request::SendStreamingMessage(send) = request {
            return self.stream(*send).await.map(Box::new).map(Answer::Events);
        }
        if request.operation().is_streaming() {
            let events = Events::open(Arc::clone(&self.core), request).await?;
            return Ok(Answer::Events(Box::new(events)));
        }
        self.unary(request).await.map(Box::new).map(Answer::Reply)
    }

    async fn task(&self, request: Request) -> Result<Task, Error> {
        let reply = self.unary(request).await?;
        if let Reply::Task(task) = reply { Ok(task) } else { Err(unexpected()) }
    }

    async fn push_config(&self, request: Request) -> Result<PushConfig, Error> {
        let reply = self.unary(request).await?;
        if let Reply::PushConfig(config) = reply { Ok(config) } else { Err(unexpected()) }
    }

    pub(crate) async fn unary(&self, request: Request) -> Result<Reply, Error> {
        self.core.unary(request).await
    }

    /// True if the agent streams, by its card.
    fn is_streaming(&self) -> bool {
        self.agent().found.card.capabilities.streaming == Some(true)
    }

    fn agent(&self) -> Arc<RemoteAgent> {
        self.core.agent()
    }
}

impl Discovered {
    pub(crate) async fn find(
        settings: ClientSettings,
        http: Http,
        source: Source,
    ) -> Result<Self, Error> {
        let found = find(&settings, &http, &source, None).await?;
        let found = found.ok_or_else(|| {
            Error::invalid("the server answered 304 (not modified) to a first request")
        })?;
        let found = vetted(&settings, &http, found).await?;
        Ok(Self { settings, http, source, found })
    }

    /// The agent card.
    pub fn card(&self) -> &AgentCard {
        &self.found.card
    }

    /// The source of the card.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The verdict on the signatures of the card, by the keys that were given.
    pub fn verdict(&self) -> &Verdict {
        &self.found.verdict
    }

    /// The card as the server sent it.
    pub fn document(&self) -> &[u8] {
        &self.found.document
    }

    /// Adds a credential for the agent. The server of the card does not get it, unlike a credential of the
    /// builder.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.settings.credentials.push(credential);
        self
    }

    /// Requests a protocol extension of the card with every call.
    pub fn extension(mut self, uri: impl Into<String>) -> Self {
        self.settings.extensions.push(uri.into());
        self
    }

    /// The interface that would be called first with these preferences.
    pub fn selected(&self, preferred: &[Binding], version: Version) -> Option<AgentInterface> {
        let FoundCard { card, url, .. } = &self.found;
        let usable = choose(card, url.as_ref(), preferred, Some(version)).ok()?;
        usable.into_iter().next().map(|usable| usable.interface)
    }

    /// A client for the best interface of the card.
    pub fn client(self) -> Result<Client, Error> {
        let Self { settings, http, source, found } = self;
        Client::new(settings, http, Some(source), found)
    }
}

/// Fetches the card within the timeout of a call. A failed connection is not retried: at this point a
/// wrong URL is more likely than a server that restarts. Credentials are sent only if the server refuses
/// its card without them.
async fn find(
    settings: &ClientSettings,
    http: &Http,
    source: &Source,
    known: Option<&FoundCard>,
) -> Result<Option<FoundCard>, Error> {
    let proof = Proof::authorization(&settings.credentials)?.headers();
    let mut headers = HeaderMap::new();
    let version = settings.version.unwrap_or(Version::V1_0).to_string();
    let version = HeaderValue::try_from(version).expect("a version is numbers and a dot");
    headers.insert(VERSION_HEADER, version);
    let attempts = async {
        let mut pauses = settings.retry.pauses();
        loop {
            let mut fetched = source.fetch(http, &headers, known).await;
            if fetched.as_ref().is_err_and(|error| matches!(error.status(), Some(401 | 403)))
                && !proof.is_empty()
                && !headers.contains_key(header::AUTHORIZATION)
            {
                headers.extend(proof.clone());
                fetched = source.fetch(http, &headers, known).await;
            }
            let again =
                fetched.as_ref().is_err_and(|error| error.is_temporary() && !error.is_connect());
            match pauses.next().filter(|_| again) {
                Some(pause) => sleep(pause).await,
                None => return fetched,
            }
        }
    };
    let limit = settings.timeouts.call;
    let fetched = timeout(limit, attempts).await;
    fetched.unwrap_or_else(|_| Err(Error::timeout("there was no card", limit)))
}

/// Verifies the signatures of a card from the network, and refuses the card if a valid one is required.
async fn vetted(
    settings: &ClientSettings,
    http: &Http,
    mut found: FoundCard,
) -> Result<FoundCard, Error> {
    let limit = settings.timeouts.call;
    // Boxed, since most cards are not signed and every call would carry its size.
    let judge = Box::pin(settings.card_keys.judge(http, &found.card));
    let judged = timeout(limit, judge).await;
    let (verdict, fault) =
        judged.map_err(|_| Error::timeout("the card's keys did not arrive", limit))?;
    found.verdict = settings.admit(verdict, fault)?;
    Ok(found)
}
