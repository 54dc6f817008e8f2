//! Client: the operations of one agent.

use std::{
    sync::{Arc, RwLock},
    time::Duration,
};

use bytes::Bytes;
use herald_protocol::{
    AgentCard, ErrorKind, MessageId, Operation, PushConfigId, Reply, Request, SendResult,
    StreamEvent, Task, TaskId, TaskState, Version,
    card::{AgentInterface, signature::Verdict},
    locks,
    push::{PushConfig, PushConfigPage},
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, ListTasks, PushConfigRef,
        SendMessage, SubscribeToTask,
    },
    version::VERSION_HEADER,
};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::Full;
use tokio::time::{sleep, timeout};
use tower::Service;
use uuid::Uuid;

use crate::{
    agent::RemoteAgent,
    builder::{ClientBuilder, Settings},
    call::Outgoing,
    credential::{Credential, Proof},
    discover::{FoundCard, Source},
    error::{BoxError, Error},
    events::Events,
    interface::{Binding, choose},
    oauth::{Prompt, Token},
    pages::Pages,
    transport::{Answered, http::Http},
};

/// Calls one agent. A cheap handle: clones share connections and the card.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
}

#[derive(Debug)]
struct ClientShared {
    settings: Settings,
    http: Http,
    source: Option<Source>,
    agent: RwLock<Arc<RemoteAgent>>,
}

/// An agent's card, before an interface of it is chosen.
#[derive(Debug)]
#[must_use]
pub struct Discovered {
    settings: Settings,
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
    /// Finds the agent at `url`: its base URL, the URL of its card (which ends in `.json`), a `file://`
    /// URL of a card, or `stdio:` and a command that is started.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Calls an agent in this process, without a socket: Herald's `Server`, or anything else that
    /// answers HTTP requests.
    pub async fn in_process<S, B>(service: S) -> Result<Self, Error>
    where
        S: Service<http::Request<Full<Bytes>>, Response = Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::builder().service(service).connect("http://localhost").await
    }

    pub(crate) fn new(
        settings: Settings,
        http: Http,
        source: Option<Source>,
        found: FoundCard,
    ) -> Result<Self, Error> {
        let agent = RemoteAgent::new(&settings, &http, source.as_ref(), found)?;
        let agent = RwLock::new(Arc::new(agent));
        Ok(Self { shared: Arc::new(ClientShared { settings, http, source, agent }) })
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

    /// Fetches a token from the authorization server that the card names, also where a person has to do
    /// something for it: `ask` shows them what. This client then uses the token, and
    /// [`OAuth::on_token`](crate::OAuth::on_token) is called with it, so that it can be stored.
    pub async fn log_in(&self, ask: impl Fn(Prompt) + Send + Sync) -> Result<Token, Error> {
        let session = self.agent().session.clone().ok_or_else(|| {
            Error::setup("give the client an OAuth credential, and a card that asks for one")
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

    /// Asks whether the card is still the same, once it may no longer be used without asking.
    /// Returns whether it has changed; the next call then goes by the new one.
    pub async fn refresh(&self) -> Result<bool, Error> {
        let ClientShared { settings, http, source, .. } = &*self.shared;
        let known = self.agent();
        let Some(source) = source.as_ref().filter(|_| !known.found.is_fresh()) else {
            return Ok(false);
        };
        let Some(found) = find(settings, http, source, Some(&known.found)).await? else {
            return Ok(false);
        };
        let changed = found.card != known.found.card;
        self.replace(vetted(settings, http, found).await?)?;
        Ok(changed)
    }

    /// Sends a message and waits until the task is done or waits for its caller. A server may answer
    /// earlier, with a task that is still working; [`finish`](Self::finish) goes on from there.
    pub async fn send(&self, message: impl Into<SendMessage>) -> Result<SendResult, Error> {
        let reply = self.unary(Request::SendMessage(Box::new(message.into()))).await?;
        if let Reply::Sent(result) = reply { Ok(result) } else { Err(unexpected()) }
    }

    /// Sends a message and returns the events of its task. An agent that does not stream is polled
    /// instead.
    pub async fn stream(&self, message: impl Into<SendMessage>) -> Result<Events, Error> {
        let mut send = message.into();
        name(&mut send);
        if self.agent().found.card.capabilities.streaming == Some(true) {
            return Events::open(self.clone(), Request::SendStreamingMessage(Box::new(send))).await;
        }
        send.configuration.return_immediately = true;
        let result = self.send(send).await?;
        Ok(Events::polling(self.clone(), result))
    }

    /// Follows the task in `result` until it is done or waits for its caller, and returns it as it
    /// then is.
    pub async fn finish(&self, result: SendResult) -> Result<SendResult, Error> {
        let task = match result {
            SendResult::Task(task) if !is_settled(task.status.state) => task.id,
            done @ (SendResult::Task(_) | SendResult::Message(_)) => return Ok(done),
        };
        let mut events = self.follow(task.clone());
        while events.next().await?.is_some() {}
        self.get(task).await.map(SendResult::Task)
    }

    /// Looks a task up.
    pub async fn get(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        let get = GetTask { id: id.into(), ..GetTask::default() };
        self.task(Request::GetTask(get)).await
    }

    /// Lists tasks, page by page.
    pub fn list(&self, query: ListTasks) -> Pages {
        Pages::new(self.clone(), query)
    }

    /// Ends a task.
    pub async fn cancel(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        let cancel = CancelTask { id: id.into(), ..CancelTask::default() };
        self.task(Request::CancelTask(cancel)).await
    }

    /// Follows a task from now on.
    pub async fn subscribe(&self, id: impl Into<TaskId>) -> Result<Events, Error> {
        let subscribe = SubscribeToTask { id: id.into(), ..SubscribeToTask::default() };
        Events::open(self.clone(), Request::SubscribeToTask(subscribe)).await
    }

    /// Follows a task from where it stands, which comes first. One that has ended, or that the agent
    /// does not let be followed, is looked at instead.
    pub fn follow(&self, id: impl Into<TaskId>) -> Events {
        Events::following(self.clone(), id.into(), None)
    }

    /// Takes a stream up again where another one, perhaps of an earlier process, had come to: see
    /// [`Events::cursor`].
    pub fn resume(&self, id: impl Into<TaskId>, cursor: impl Into<String>) -> Events {
        Events::following(self.clone(), id.into(), Some(cursor.into()))
    }

    /// Adds a webhook to a task, which `config` has to name.
    pub async fn create_push_config(&self, config: PushConfig) -> Result<PushConfig, Error> {
        self.push_config(Request::CreateTaskPushNotificationConfig(config)).await
    }

    /// Looks a webhook up.
    pub async fn push_config_of(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<PushConfigId>,
    ) -> Result<PushConfig, Error> {
        let named = PushConfigRef { tenant: None, task_id: task.into(), id: id.into() };
        self.push_config(Request::GetTaskPushNotificationConfig(named)).await
    }

    /// Lists a task's webhooks, one page of them.
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

    /// The card for those who have proved who they are. It takes the place of the public one.
    pub async fn extended_card(&self) -> Result<AgentCard, Error> {
        let request = Request::GetExtendedAgentCard(GetExtendedAgentCard::default());
        let Reply::Card(card) = self.unary(request).await? else { return Err(unexpected()) };
        let ClientShared { settings, http, .. } = &*self.shared;
        let found = self.agent().found.with((*card).clone());
        self.replace(vetted(settings, http, found).await?)?;
        Ok(*card)
    }

    /// Performs any operation.
    pub async fn call(&self, request: Request) -> Result<Answer, Error> {
        if let Request::SendStreamingMessage(send) = request {
            return self.stream(*send).await.map(Box::new).map(Answer::Events);
        }
        if request.operation().is_streaming() {
            let events = Events::open(self.clone(), request).await?;
            return Ok(Answer::Events(Box::new(events)));
        }
        self.unary(request).await.map(Box::new).map(Answer::Reply)
    }

    pub(crate) async fn unary(&self, request: Request) -> Result<Reply, Error> {
        match self.exchange(request, None, Repeats::Allowed).await? {
            Answered::Reply(reply) => Ok(*reply),
            Answered::Frames(_) => Err(Error::invalid("expected one answer and got a stream")),
        }
    }

    /// Makes one call, within its time: completes it, shows it to the interceptors, and repeats it
    /// where that is safe.
    pub(crate) async fn exchange(
        &self,
        request: Request,
        cursor: Option<String>,
        repeats: Repeats,
    ) -> Result<Answered, Error> {
        let settings = &self.shared.settings;
        let mut call = Outgoing::new(request, cursor);
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = &mut call.request
        {
            name(send);
        }
        if let Some(context) = settings.trace.as_ref().and_then(|current| current()) {
            call.trace(&context);
        }
        for interceptor in &settings.interceptors {
            interceptor.before(&mut call).await?;
        }
        let operation = call.request.operation();
        let patience = settings.timeouts.of(operation);
        let answer = match timeout(patience, self.attempt(&call, repeats)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::timeout("there was no answer", patience)),
        };
        let answer = answer.and_then(|answer| belongs(&call.request, answer));
        for interceptor in settings.interceptors.iter().rev() {
            interceptor.after(operation, answer.as_ref().map(|_| ()));
        }
        answer
    }

    async fn attempt(&self, call: &Outgoing, repeats: Repeats) -> Result<Answered, Error> {
        let retry = &self.shared.settings.retry;
        let mut pauses = retry.pauses();
        let mut repeated = false;
        loop {
            let error = match self.agent().call(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if repeated && let Some(answer) = self.canceled(call, &error).await {
                return Ok(answer);
            }
            let safe = error.is_connect()
                || error.is_temporary() && (is_safe(call.request.operation()) || retry.sends);
            let pause = match repeats {
                Repeats::Allowed if safe => pauses.next(),
                Repeats::Allowed | Repeats::None => None,
            };
            let Some(pause) = pause else { return Err(error) };
            let asked = error.retry_after().unwrap_or(Duration::ZERO).min(retry.longest);
            tracing::debug!(%error, ?pause, "repeating a call");
            sleep(pause.max(asked)).await;
            repeated = true;
        }
    }

    /// A cancel whose first answer was lost is refused when it is repeated. If the task is canceled,
    /// it has worked.
    async fn canceled(&self, call: &Outgoing, error: &Error) -> Option<Answered> {
        let Request::CancelTask(cancel) = &call.request else { return None };
        if error.kind() != Some(ErrorKind::TaskNotCancelable) {
            return None;
        }
        let get = GetTask { id: cancel.id.clone(), ..GetTask::default() };
        let get = Outgoing { request: Request::GetTask(get), ..call.clone() };
        let answer = belongs(&get.request, self.agent().call(&get).await.ok()?).ok()?;
        let Answered::Reply(reply) = &answer else { return None };
        let done =
            matches!(&**reply, Reply::Task(task) if task.status.state == TaskState::Canceled);
        done.then_some(answer)
    }

    async fn task(&self, request: Request) -> Result<Task, Error> {
        let reply = self.unary(request).await?;
        if let Reply::Task(task) = reply { Ok(task) } else { Err(unexpected()) }
    }

    async fn push_config(&self, request: Request) -> Result<PushConfig, Error> {
        let reply = self.unary(request).await?;
        if let Reply::PushConfig(config) = reply { Ok(config) } else { Err(unexpected()) }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    fn agent(&self) -> Arc<RemoteAgent> {
        Arc::clone(&locks::read(&self.shared.agent))
    }

    fn replace(&self, found: FoundCard) -> Result<(), Error> {
        let ClientShared { settings, http, source, agent } = &*self.shared;
        let new = RemoteAgent::new(settings, http, source.as_ref(), found)?;
        *locks::write(agent) = Arc::new(new);
        Ok(())
    }
}

impl Discovered {
    pub(crate) async fn find(
        settings: Settings,
        http: Http,
        source: Source,
    ) -> Result<Self, Error> {
        let found = find(&settings, &http, &source, None).await?;
        let found = found.ok_or_else(|| Error::invalid("the server says that nothing changed"))?;
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

    /// The card as it was written, byte by byte.
    pub fn document(&self) -> &[u8] {
        &self.found.document
    }

    /// Proves who is calling to the agent itself. Whoever keeps the card sees nothing of it, unlike
    /// of a credential that the builder has.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.settings.credentials.push(credential);
        self
    }

    /// Names a protocol extension in every call, now that the card has said which there are.
    pub fn extension(mut self, uri: impl Into<String>) -> Self {
        self.settings.extensions.push(uri.into());
        self
    }

    /// The interface that would be called first, given such wishes.
    pub fn selected(&self, preferred: &[Binding], version: Version) -> Option<AgentInterface> {
        let FoundCard { card, url, .. } = &self.found;
        let usable = choose(card, url.as_ref(), preferred, Some(version)).ok()?;
        usable.into_iter().next().map(|usable| usable.interface)
    }

    /// Calls the agent at the best of its interfaces.
    pub fn client(self) -> Result<Client, Error> {
        let Self { settings, http, source, found } = self;
        Client::new(settings, http, Some(source), found)
    }
}

/// True if a call may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeats {
    Allowed,
    None,
}

/// True if a task does not change without a further message.
pub(crate) fn is_settled(state: TaskState) -> bool {
    state.is_terminal() || state.is_interrupted()
}

/// True for an idempotent operation.
fn is_safe(operation: Operation) -> bool {
    match operation {
        Operation::GetTask
        | Operation::ListTasks
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::GetExtendedAgentCard => true,
        Operation::SendMessage
        | Operation::SendStreamingMessage
        | Operation::CreateTaskPushNotificationConfig
        | Operation::DeleteTaskPushNotificationConfig => false,
    }
}

/// Fetches the card within the timeout of a call. A failed connection is not retried: at this point a
/// wrong URL is more likely than a server that restarts. Credentials are sent only if the server refuses
/// its card without them.
async fn find(
    settings: &Settings,
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
    let patience = settings.timeouts.call;
    let fetched = timeout(patience, attempts).await;
    fetched.unwrap_or_else(|_| Err(Error::timeout("there was no card", patience)))
}

/// Judges the signatures of a card from the network, and refuses it if they have to be good.
async fn vetted(
    settings: &Settings,
    http: &Http,
    mut found: FoundCard,
) -> Result<FoundCard, Error> {
    let patience = settings.timeouts.call;
    // Boxed, since most cards are not signed and every call would carry its size.
    let judge = Box::pin(settings.card_keys.judge(http, &found.card));
    let judged = timeout(patience, judge).await;
    let (verdict, fault) =
        judged.map_err(|_| Error::timeout("the card's keys did not come", patience))?;
    found.verdict = settings.admit(verdict, fault)?;
    Ok(found)
}

/// Refuses an answer about another task than the one that was asked about.
fn belongs(request: &Request, answer: Answered) -> Result<Answered, Error> {
    let (Request::GetTask(GetTask { id: asked, .. })
    | Request::CancelTask(CancelTask { id: asked, .. })) = request
    else {
        return Ok(answer);
    };
    if let Answered::Reply(reply) = &answer
        && let Reply::Task(task) = &**reply
        && task.id != *asked
    {
        return Err(Error::invalid("the answer is about another task"));
    }
    Ok(answer)
}

/// Every transport reads the answer of the operation it was given.
pub(crate) fn unexpected() -> Error {
    Error::invalid("the answer belongs to another operation")
}

/// Gives the message of a send an id: a repeat has the same, so that an agent can tell.
fn name(send: &mut SendMessage) {
    if send.message.message_id.is_empty() {
        send.message.message_id = MessageId::new(Uuid::new_v4().to_string());
    }
}

/// The result of a send as an event of a stream.
pub(crate) fn as_event(result: SendResult) -> StreamEvent {
    match result {
        SendResult::Task(task) => StreamEvent::Task(task),
        SendResult::Message(message) => StreamEvent::Message(message),
    }
}
