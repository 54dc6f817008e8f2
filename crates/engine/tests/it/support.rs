//! Test bench: an engine, a caller and a route.

use std::{fmt, future::Future, path::Path, pin::Pin, sync::Arc};

use async_trait::async_trait;
use herald_engine::{
    Admission, Agent, AgentError, AgentRoute, Caller, Candidate, Clock, Engine, Profile, Recovery,
    Reply, Settings, Subscription, Turn,
    store::{
        Store,
        sqlite::{Options, Sqlite},
    },
};
use herald_protocol::{
    Artifact, Error, Message, Part, Request, Role, SendResult, StreamEvent, Task, TaskId,
    TaskStatus,
    request::{CancelTask, GetTask, SendMessage, SubscribeToTask},
};

type Work = Box<dyn for<'a> Fn(&'a Turn) -> Running<'a> + Send + Sync>;
type Admit = Box<dyn for<'a> Fn(Candidate<'a>) -> Admitting<'a> + Send + Sync>;
pub(crate) type Admitting<'a> =
    Pin<Box<dyn Future<Output = Result<Admission, AgentError>> + Send + 'a>>;
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), AgentError>> + Send + 'a>>;

/// An agent made of a closure.
pub(crate) struct Script {
    work: Work,
    direct: bool,
    admit: Option<Admit>,
}

impl Script {
    pub(crate) fn new(
        work: impl for<'a> Fn(&'a Turn) -> Running<'a> + Send + Sync + 'static,
    ) -> Self {
        Self { work: Box::new(work), direct: false, admit: None }
    }

    /// Decides about each message before its turn.
    pub(crate) fn admitting(
        mut self,
        admit: impl for<'a> Fn(Candidate<'a>) -> Admitting<'a> + Send + Sync + 'static,
    ) -> Self {
        self.admit = Some(Box::new(admit));
        self
    }

    pub(crate) fn direct(mut self) -> Self {
        self.direct = true;
        self
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

#[async_trait]
impl Agent for Script {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        (self.work)(turn).await
    }

    fn admits(&self) -> bool {
        self.admit.is_some()
    }

    async fn admit(&self, candidate: Candidate<'_>) -> Result<Admission, AgentError> {
        match &self.admit {
            Some(admit) => admit(candidate).await,
            None => Ok(Admission::Accept),
        }
    }

    fn answers_directly(&self, _message: &Message) -> bool {
        self.direct
    }
}

/// An engine and a caller, with one method per operation.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) caller: Caller,
    pub(crate) route: AgentRoute,
}

pub(crate) fn profile() -> Profile {
    let mut profile = Profile::new("script", "Does what the test says");
    profile.recovery = Recovery::Rerun(3);
    profile
}

impl Bench {
    pub(crate) async fn new(agent: Script) -> Self {
        Self::with(agent, profile(), Settings::default()).await
    }

    pub(crate) async fn with(agent: Script, profile: Profile, settings: Settings) -> Self {
        let store = Arc::new(Sqlite::memory().unwrap());
        Self::on(store, agent, profile, settings, Clock::system()).await
    }

    pub(crate) async fn on(
        store: Arc<dyn Store>,
        agent: Script,
        profile: Profile,
        settings: Settings,
        clock: Clock,
    ) -> Self {
        let bench = Self::idle(store, agent, profile, settings, clock);
        bench.engine.start_work().await.unwrap();
        bench
    }

    /// An engine that answers calls but has not started its dispatchers.
    pub(crate) fn idle(
        store: Arc<dyn Store>,
        agent: Script,
        profile: Profile,
        settings: Settings,
        clock: Clock,
    ) -> Self {
        let builder = Engine::builder(store).settings(settings).clock(clock);
        let engine = builder.agent(profile, agent).build().unwrap();
        Self { engine, caller: Caller::anonymous("".into()), route: AgentRoute::default() }
    }

    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Error> {
        self.engine.call(&self.caller, &self.route, request).await
    }

    pub(crate) async fn send(&self, message: Message) -> Result<Task, Error> {
        match self.sent(SendMessage { message, ..SendMessage::default() }).await? {
            SendResult::Task(task) => Ok(task),
            SendResult::Message(message) => panic!("expected a task, not {message:?}"),
        }
    }

    /// Sends without waiting for the outcome.
    pub(crate) async fn post(&self, message: Message) -> Result<Task, Error> {
        let mut send = SendMessage { message, ..SendMessage::default() };
        send.configuration.return_immediately = true;
        match self.sent(send).await? {
            SendResult::Task(task) => Ok(task),
            SendResult::Message(message) => panic!("expected a task, not {message:?}"),
        }
    }

    pub(crate) async fn sent(&self, send: SendMessage) -> Result<SendResult, Error> {
        match self.call(Request::SendMessage(Box::new(send))).await? {
            Reply::Sent(sent) => sent.decode(),
            other => panic!("expected an answer to a send, not {other:?}"),
        }
    }

    pub(crate) async fn stream(&self, message: Message) -> Result<Subscription, Error> {
        let send = SendMessage { message, ..SendMessage::default() };
        match self.call(Request::SendStreamingMessage(Box::new(send))).await? {
            Reply::Stream(stream) => Ok(stream),
            other => panic!("expected a stream, not {other:?}"),
        }
    }

    pub(crate) async fn subscribe(
        &self,
        id: &TaskId,
        after: Option<u64>,
    ) -> Result<Subscription, Error> {
        let params = SubscribeToTask { id: id.clone(), after, ..SubscribeToTask::default() };
        match self.call(Request::SubscribeToTask(params)).await? {
            Reply::Stream(stream) => Ok(stream),
            other => panic!("expected a stream, not {other:?}"),
        }
    }

    pub(crate) async fn get(&self, id: &TaskId) -> Result<Task, Error> {
        task(self.call(Request::GetTask(GetTask { id: id.clone(), ..GetTask::default() })).await)
    }

    pub(crate) async fn cancel(&self, id: &TaskId) -> Result<Task, Error> {
        let params = CancelTask { id: id.clone(), ..CancelTask::default() };
        task(self.call(Request::CancelTask(params)).await)
    }
}

fn task(reply: Result<Reply, Error>) -> Result<Task, Error> {
    match reply? {
        Reply::Task(task) => task.decode(),
        other => panic!("expected a task, not {other:?}"),
    }
}

/// A message of the user with a new id.
pub(crate) fn say(text: &str) -> Message {
    Message {
        message_id: uuid::Uuid::now_v7().to_string().into(),
        role: Role::User,
        parts: vec![Part::text(text)],
        ..Message::default()
    }
}

/// A message of the user to a task.
pub(crate) fn answer(task: &Task, text: &str) -> Message {
    Message { task_id: Some(task.id.clone()), ..say(text) }
}

pub(crate) fn text(id: &str, text: impl Into<String>) -> Artifact {
    Artifact { artifact_id: id.into(), parts: vec![Part::text(text)], ..Artifact::default() }
}

/// The text of an artifact, all parts joined.
pub(crate) fn artifact_text(task: &Task, id: &str) -> String {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    let artifact = artifacts.iter().find(|artifact| artifact.artifact_id.as_str() == id);
    artifact.map(|found| found.parts.iter().filter_map(Part::as_text).collect()).unwrap_or_default()
}

/// All further items of a stream, with their sequence numbers.
pub(crate) async fn rest(stream: &mut Subscription) -> Vec<(u64, StreamEvent)> {
    let mut items = Vec::new();
    while let Some(item) = stream.next().await.unwrap() {
        items.push((item.seq, serde_json::from_slice(&item.body).unwrap()));
    }
    items
}

/// A store in a directory, which outlives engines.
pub(crate) fn file(directory: &Path) -> Arc<dyn Store> {
    Arc::new(Sqlite::open(&directory.join("test.db"), Options::default()).unwrap())
}

/// Opens the store again, once the threads of the earlier process have released its lock.
pub(crate) async fn reopened(directory: &Path) -> Arc<dyn Store> {
    let mut opened = None;
    eventually(|| {
        opened = Sqlite::open(&directory.join("test.db"), Options::default()).ok();
        std::future::ready(opened.is_some())
    })
    .await;
    Arc::new(opened.unwrap())
}

/// Runs an engine on its own runtime and aborts it, as a crash does.
pub(crate) async fn crashed<T: Send + 'static>(
    life: impl Future<Output = T> + Send + 'static,
) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let left = runtime.spawn(life).await.unwrap();
    runtime.shutdown_background();
    left
}

/// Waits until the condition holds. The test runner's own timeout is the deadline.
pub(crate) async fn eventually<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    while !condition().await {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// The failure reason in the status of a task.
pub(crate) fn failure_reason(status: &TaskStatus) -> String {
    let metadata = status.message.as_ref().unwrap().metadata.as_ref().unwrap();
    metadata.get("reason").unwrap()
}
