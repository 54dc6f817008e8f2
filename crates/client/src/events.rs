//! Event streams that resume after a lost connection.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use backon::ExponentialBackoff;
use futures_util::{Stream, stream};
use herald_protocol::{
    ErrorKind, Reply, Request, SendResult, StreamEvent, Task, TaskId, TaskState,
    request::{GetTask, SendMessage, SubscribeToTask},
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    client_core::{ClientCore, Repeats, as_event, is_settled, unexpected},
    error::Error,
    transport::{Answered, Frame, Frames},
};

/// Time that a server has to close a stream whose task has ended.
const LINGER: Duration = Duration::from_secs(2);

/// Event stream of one task, or the direct answer of an agent without tasks.
///
/// It ends when the task does, when the server closes it while the task waits for its caller, or
/// after a direct answer; never otherwise without an error. When the connection breaks it resumes:
/// after the last event that was received, if the server numbers events; otherwise with a snapshot of
/// the task in place of the missed events; and if the server refuses a subscription, by polling.
#[derive(Debug)]
pub struct Events {
    core: Arc<ClientCore>,
    stage: Stage,
    /// The message to send again as long as no event has arrived.
    send: Option<Box<SendMessage>>,
    task: Option<TaskId>,
    cursor: Option<String>,
    /// The number of the event after which the connection resumes.
    after: Option<u64>,
    /// True after a resume, until the server sends its first event.
    asked: bool,
    state: TaskState,
    /// The time when the task ended.
    ended: Option<Instant>,
    /// Events to return before anything else.
    ready: VecDeque<StreamEvent>,
    /// The task as last polled.
    seen: Option<Box<Task>>,
    /// The retry delays that are left before the stream fails; `None` while it is connected.
    pauses: Option<ExponentialBackoff>,
    /// The last error.
    cause: Option<Error>,
}

/// State of a stream.
#[derive(Debug)]
enum Stage {
    /// To be resumed at once.
    New,
    /// Connected since this time.
    Open(Box<dyn Frames>, Instant),
    /// To be resumed after a delay.
    Lost,
    /// The agent refused to stream: the message is to be sent in another way.
    Unstreamed,
    /// The task cannot be subscribed to and is polled.
    Polling,
    /// At its end.
    Over,
}

impl Events {
    fn new(core: Arc<ClientCore>, stage: Stage) -> Self {
        Self {
            core,
            stage,
            send: None,
            task: None,
            cursor: None,
            after: None,
            asked: false,
            state: TaskState::Unspecified,
            ended: None,
            ready: VecDeque::new(),
            seen: None,
            pauses: None,
            cause: None,
        }
    }

    /// A stream that begins with a call. If the agent refuses to stream, its task is polled.
    pub(crate) async fn open(core: Arc<ClientCore>, request: Request) -> Result<Self, Error> {
        let mut events = Self::new(Arc::clone(&core), Stage::New);
        if let Request::SendStreamingMessage(send) = &request {
            events.task.clone_from(&send.message.task_id);
            events.send = Some(send.clone());
        } else if let Request::SubscribeToTask(subscribe) = &request {
            events.task = Some(subscribe.id.clone());
        }
        match core.exchange(request, None, Repeats::Allowed).await {
            Ok(answer) => events.take_answer(answer)?,
            Err(error) if events.send.is_some() && error.refuses_streaming() => {
                events.send_unstreamed().await?;
            }
            Err(error) => return Err(error),
        }
        Ok(events)
    }

    /// A stream over the result of a send, whose task is polled.
    pub(crate) fn polling(core: Arc<ClientCore>, result: SendResult) -> Self {
        let mut events = Self::new(core, Stage::Polling);
        events.take_snapshot(as_event(result));
        events
    }

    /// A stream over an existing task.
    pub(crate) fn following(core: Arc<ClientCore>, task: TaskId, cursor: Option<String>) -> Self {
        Self { task: Some(task), cursor, ..Self::new(core, Stage::New) }
    }

    /// The id of the task, once it is known.
    pub fn task_id(&self) -> Option<&TaskId> {
        self.task.as_ref()
    }

    /// The id of the last event, if the server numbers events. [`Client::resume`](crate::Client::resume) takes it.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The next event; `None` at the end. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, Error> {
        let next = self.advance().await;
        if next.is_err() {
            self.stage = Stage::Over;
        }
        next
    }

    /// The same as a stream of the `futures` crates. It ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<StreamEvent, Error>> + Send + Unpin {
        Box::pin(stream::try_unfold(self, async |mut events: Self| {
            Ok(events.next().await?.map(|event| (event, events)))
        }))
    }

    async fn advance(&mut self) -> Result<Option<StreamEvent>, Error> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            match &mut self.stage {
                Stage::Open(frames, _) => {
                    let read = match self.ended {
                        None => frames.next().await,
                        // A server that keeps the stream of an ended task open is not waited for.
                        Some(ended) => {
                            timeout_at(ended + LINGER, frames.next()).await.unwrap_or(Ok(None))
                        }
                    };
                    match read {
                        Ok(Some(frame)) => self.take(frame)?,
                        Ok(None) => self.closed(None)?,
                        Err(error) => self.closed(Some(error))?,
                    }
                }
                Stage::New => self.resume().await?,
                Stage::Lost => {
                    self.pause().await?;
                    self.resume().await?;
                }
                Stage::Unstreamed => self.send_unstreamed().await?,
                Stage::Polling => {
                    sleep(self.core.settings.timeouts.poll).await;
                    self.poll().await?;
                }
                Stage::Over => return Ok(None),
            }
        }
    }

    /// Decides how to continue after the end of a connection.
    fn closed(&mut self, error: Option<Error>) -> Result<(), Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Lost);
        if self.state.is_terminal() || error.is_none() && self.state.is_interrupted() {
            self.stage = Stage::Over;
            return Ok(());
        }
        if let Stage::Open(_, since) = stage
            && since.elapsed() >= self.core.settings.retry.longest
        {
            // An idle stream was closed, not refused: some proxies close idle connections.
            self.pauses = None;
        }
        match error {
            // Servers of 0.3 refuse a subscription within the stream itself.
            Some(error) if self.asked && error.protocol().is_some() && !error.is_temporary() => {
                self.fall_back_to_polling(&error);
                Ok(())
            }
            // Servers of 0.3 refuse a streaming send within the stream, too.
            Some(error) if self.send.is_some() && error.refuses_streaming() => {
                self.stage = Stage::Unstreamed;
                Ok(())
            }
            Some(error) if !may_pass(&error) => Err(error),
            Some(error) => {
                self.cause = Some(error);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Queues one event, unless it was returned before.
    fn take(&mut self, frame: Frame) -> Result<(), Error> {
        let Frame { cursor, event } = frame;
        (self.send, self.asked) = (None, false);
        let is_snapshot = matches!(event, StreamEvent::Task(_));
        if let StreamEvent::Message(_) = event
            && self.task.is_none()
        {
            self.queue(event);
            return Ok(());
        }
        if let Some(id) = event.task_id().filter(|id| !id.is_empty()) {
            let task = self.task.get_or_insert_with(|| id.clone());
            if task != id {
                return Err(Error::invalid("the stream holds an event of another task"));
            }
        }
        if !is_snapshot {
            let number = self.number(cursor.as_deref());
            if number.zip(self.after).is_some_and(|(number, after)| number <= after) {
                return Ok(());
            }
            (self.pauses, self.cause) = (None, None);
        }
        self.cursor = cursor.or_else(|| self.cursor.take());
        self.queue(event);
        Ok(())
    }

    /// The number in a cursor that Herald gave out: the task's id, a colon and a number. Whether the
    /// ids of other servers outlive a connection is not known.
    fn number(&self, cursor: Option<&str>) -> Option<u64> {
        let (task, number) = cursor?.rsplit_once(':')?;
        (task == self.task.as_ref()?.as_str()).then(|| number.parse().ok())?
    }

    /// Queues an event and updates the state. After the end only snapshots and late artifacts count.
    fn queue(&mut self, event: StreamEvent) {
        let is_update = matches!(event, StreamEvent::StatusUpdate(_));
        if self.ended.is_some() && (is_update || event.state().is_some_and(|one| one != self.state))
        {
            return;
        }
        match &event {
            StreamEvent::Task(task) => {
                self.task.get_or_insert_with(|| task.id.clone());
                if self.seen.as_deref() == Some(task) {
                    return;
                }
            }
            StreamEvent::Message(_) if self.task.is_none() => self.stage = Stage::Over,
            StreamEvent::Message(_) => {}
            StreamEvent::StatusUpdate(_) | StreamEvent::ArtifactUpdate(_) => {}
        }
        if let Some(state) = event.state() {
            self.state = state;
            if state.is_terminal() {
                self.ended.get_or_insert_with(Instant::now);
            }
        }
        self.ready.push_back(event);
    }

    fn take_answer(&mut self, answer: Answered) -> Result<(), Error> {
        match answer {
            Answered::Frames(frames) => {
                self.after = self.number(self.cursor.as_deref());
                self.stage = Stage::Open(frames, Instant::now());
            }
            // A server that does not stream after all.
            Answered::Reply(reply) => {
                self.stage = Stage::Polling;
                self.send = None;
                match *reply {
                    Reply::Sent(result) => self.take_snapshot(as_event(result)),
                    Reply::Task(task) => self.take_snapshot(StreamEvent::Task(task)),
                    Reply::Tasks(_)
                    | Reply::PushConfig(_)
                    | Reply::PushConfigs(_)
                    | Reply::Deleted
                    | Reply::Card(_) => return Err(unexpected()),
                }
            }
        }
        Ok(())
    }

    /// Resumes the stream in the best way that the server supports.
    async fn resume(&mut self) -> Result<(), Error> {
        if let Some(send) = self.send.clone() {
            return self.send_again(send).await;
        }
        let id = self.task.clone().unwrap_or_default();
        let subscribe = SubscribeToTask { id, ..SubscribeToTask::default() };
        let request = Request::SubscribeToTask(subscribe);
        let answer = self.core.exchange(request, self.cursor.clone(), Repeats::None).await;
        match answer {
            Ok(answer) => {
                let numbered = self.number(self.cursor.as_deref()).is_some();
                if !numbered && matches!(answer, Answered::Frames(_)) {
                    // The stream has no events from before the subscription; the task has their effect.
                    self.poll().await?;
                }
                self.asked = true;
                if let Stage::Over = self.stage { Ok(()) } else { self.take_answer(answer) }
            }
            Err(error) if error.is_temporary() => {
                self.lose(error);
                Ok(())
            }
            // An invalid answer counts as a refusal.
            Err(error)
                if error.protocol().is_some() || error.status().is_some() || error.is_invalid() =>
            {
                self.fall_back_to_polling(&error);
                self.poll().await
            }
            Err(error) => Err(error),
        }
    }

    /// Falls back to polling: the task has ended, or the server refuses the subscription.
    fn fall_back_to_polling(&mut self, error: &Error) {
        tracing::debug!(%error, "a task cannot be subscribed to; polling it");
        self.stage = Stage::Polling;
    }

    fn lose(&mut self, cause: Error) {
        self.stage = Stage::Lost;
        self.cause = Some(cause);
    }

    /// Waits before the next attempt, or gives up.
    async fn pause(&mut self) -> Result<(), Error> {
        let retry = &self.core.settings.retry;
        if self.send.is_some() && !retry.sends {
            let text = "the stream ended before its first event, and the agent may have received the \
                        message: look for its task before you send the message again";
            return match self.cause.take() {
                Some(refusal) if refusal.protocol().is_some() => Err(refusal),
                cause => Err(Error::lost(text, cause)),
            };
        }
        let Some(pause) = self.pauses.get_or_insert_with(|| retry.pauses()).next() else {
            let text = match &self.task {
                Some(task) => format!("the stream of task {task} ended before the task did"),
                None => "the stream ended before its first event".to_owned(),
            };
            return Err(Error::lost(text, self.cause.take()));
        };
        let asked = self.cause.as_ref().and_then(Error::retry_after).unwrap_or_default();
        sleep(pause.max(asked.min(retry.longest))).await;
        Ok(())
    }

    /// Sends the message again, which has the same id as before.
    async fn send_again(&mut self, send: Box<SendMessage>) -> Result<(), Error> {
        let request = Request::SendStreamingMessage(send);
        match self.core.exchange(request, None, Repeats::None).await {
            Ok(answer) => self.take_answer(answer),
            Err(error) if error.is_temporary() => {
                self.lose(error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the message without a stream; its task is then polled. The message is taken out first, so that
    /// a dropped future does not lead to a second send.
    async fn send_unstreamed(&mut self) -> Result<(), Error> {
        let Some(mut send) = self.send.take() else {
            return Err(Error::lost("the send was given up before its answer", None));
        };
        send.configuration.return_immediately = true;
        let reply = self.core.unary(Request::SendMessage(send)).await?;
        let Reply::Sent(result) = reply else { return Err(unexpected()) };
        self.stage = Stage::Polling;
        self.take_snapshot(as_event(result));
        Ok(())
    }

    /// Polls the task.
    async fn poll(&mut self) -> Result<(), Error> {
        let id = self.task.clone().unwrap_or_default();
        let get = GetTask { id, ..GetTask::default() };
        let reply = self.core.unary(Request::GetTask(get)).await?;
        let Reply::Task(task) = reply else { return Err(unexpected()) };
        self.take_snapshot(StreamEvent::Task(task));
        Ok(())
    }

    /// Queues a polled task, unless it is unchanged.
    fn take_snapshot(&mut self, event: StreamEvent) {
        let task = if let StreamEvent::Task(task) = &event { Some(task.clone()) } else { None };
        self.queue(event);
        self.seen = task.map(Box::new);
        if is_settled(self.state) {
            self.stage = Stage::Over;
        }
    }
}

/// True if a stream that failed with this error may resume over another connection. After an agent's own
/// failure in the middle of a stream, the task may have the outcome.
fn may_pass(error: &Error) -> bool {
    error.is_temporary() || error.kind() == Some(ErrorKind::Internal)
}
