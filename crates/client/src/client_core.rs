//! Calls of one agent with deadlines, interceptors and retries; shared by the client, its streams and its pages.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use herald_protocol::{
    ErrorKind, MessageId, Operation, Reply, Request, SendResult, StreamEvent, TaskState,
    request::{CancelTask, GetTask, SendMessage},
};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{
    agent::RemoteAgent,
    call::Outgoing,
    discover::{FoundCard, Source},
    error::Error,
    settings::ClientSettings,
    transport::{Answered, http::Http},
};

/// One agent, with everything that a call to it needs.
#[derive(Debug)]
pub(crate) struct ClientCore {
    pub(crate) settings: ClientSettings,
    pub(crate) http: Http,
    pub(crate) source: Option<Source>,
    agent: RwLock<Arc<RemoteAgent>>,
}

/// Permission to retry a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeats {
    Allowed,
    None,
}

impl ClientCore {
    pub(crate) fn new(
        settings: ClientSettings,
        http: Http,
        source: Option<Source>,
        found: FoundCard,
    ) -> Result<Self, Error> {
        let agent = RemoteAgent::new(&settings, &http, source.as_ref(), found)?;
        let agent = RwLock::new(Arc::new(agent));
        Ok(Self { settings, http, source, agent })
    }

    pub(crate) async fn unary(&self, request: Request) -> Result<Reply, Error> {
        match self.exchange(request, None, Repeats::Allowed).await? {
            Answered::Reply(reply) => Ok(*reply),
            Answered::Frames(_) => Err(Error::invalid("expected one answer and got a stream")),
        }
    }

    /// Makes one call within its timeout: completes the request, runs the interceptors, and retries if that is
    /// safe.
    pub(crate) async fn exchange(
        &self,
        request: Request,
        cursor: Option<String>,
        repeats: Repeats,
    ) -> Result<Answered, Error> {
        let settings = &self.settings;
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
        let limit = settings.timeouts.of(operation);
        let answer = match timeout(limit, self.attempt(&call, repeats)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::timeout("there was no answer", limit)),
        };
        let answer = answer.and_then(|answer| belongs(&call.request, answer));
        for interceptor in settings.interceptors.iter().rev() {
            interceptor.after(operation, answer.as_ref().map(|_| ()));
        }
        answer
    }

    async fn attempt(&self, call: &Outgoing, repeats: Repeats) -> Result<Answered, Error> {
        let retry = &self.settings.retry;
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
            tracing::debug!(%error, ?pause, "retrying a call");
            sleep(pause.max(asked)).await;
            repeated = true;
        }
    }

    /// The canceled task, if a retried cancel was refused because the first attempt had succeeded and only its
    /// answer was lost.
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

    /// The agent by its current card.
    pub(crate) fn agent(&self) -> Arc<RemoteAgent> {
        Arc::clone(&self.agent.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the card for the next calls.
    pub(crate) fn replace(&self, found: FoundCard) -> Result<(), Error> {
        let Self { settings, http, source, agent } = self;
        let new = RemoteAgent::new(settings, http, source.as_ref(), found)?;
        *agent.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        Ok(())
    }
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

/// Refuses an answer with another task than the requested one.
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

/// The error for a reply of another operation, which no transport returns.
pub(crate) fn unexpected() -> Error {
    Error::invalid("the answer belongs to another operation")
}

/// Gives a message an id before the first attempt, so that an agent recognises retries.
pub(crate) fn name(send: &mut SendMessage) {
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
