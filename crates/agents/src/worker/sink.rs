//! Sink of a turn that runs on a worker: its writes go to the server, numbered, until they are answered.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use herald_api::{
    ApiCall,
    routes::{
        Nothing,
        calls::{EndTurn, TakeTurnAnswer, WriteTurn},
    },
    workers::{
        EndTurn as Ending, TakeAnswer, TurnEnd, TurnFailure, WriteCommands, WrittenCommands,
    },
};
use herald_engine::{AgentError, Stop, agent_failure, rules::Command, turn::Sink};
use herald_protocol::Message;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::{
    connection::RefusedRequest,
    session::{AssignedRun, WorkerSession},
    wire,
};

/// The worker's side of one turn.
#[derive(Debug)]
pub(super) struct WorkerSink {
    session: Arc<WorkerSession>,
    turn: Arc<AssignedRun>,
    /// Held during a request, so that the requests of a turn are made one after the other.
    progress: Arc<Mutex<WriteProgress>>,
    /// True after a write that the rules refused: a later failure is then a protocol violation.
    is_refused: AtomicBool,
}

/// The requests of a turn so far.
#[derive(Debug)]
struct WriteProgress {
    /// The number of the last request that the server took. A refused one has not used its number.
    number: u64,
    /// The head of the log after it.
    head: u64,
}

#[async_trait]
impl Sink for WorkerSink {
    async fn write(&self, commands: Vec<Command>) -> Result<(), Stop> {
        let asks = commands.iter().any(|command| matches!(command, Command::Ask(..)));
        let commands: Option<Vec<_>> = commands.into_iter().map(wire::command).collect();
        let Some(commands) = commands else {
            return Err(Stop::Refused("an agent cannot give this command".to_owned()));
        };
        let (session, epoch) = (self.session.registration.session.clone(), self.turn.epoch());
        let request =
            move |number, after| WriteCommands { session, epoch, number, after, commands };
        let head = |reply: &WrittenCommands| reply.head;
        self.send::<WriteTurn>(request, head, asks).await.map(|_| ())
    }

    async fn fail(&self, error: &AgentError) -> Result<(), Stop> {
        self.write(vec![agent_failure(&self.explain(error.clone()))]).await
    }

    async fn answered(&self) -> bool {
        let _waiting = self.session.wait(&self.turn);
        let mut answered = self.turn.answered.subscribe();
        tokio::select! {
            biased;
            () = self.turn.cancelled.cancelled() => false,
            answered = answered.wait_for(|answered| *answered) => answered.is_ok(),
            () = self.session.draining.cancelled() => false,
        }
    }

    async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        let (session, epoch) = (self.session.registration.session.clone(), self.turn.epoch());
        let request = move |number, after| TakeAnswer { session, epoch, number, after };
        let taken = self.send::<TakeTurnAnswer>(request, |reply| reply.head, true).await?;
        serde_json::from_str(taken.message.get())
            .map_err(|error| Stop::Refused(format!("the caller's answer cannot be read: {error}")))
    }

    async fn leaving(&self) {
        // A server that stops does not end the turns of its workers; a worker that stops does.
        self.session.draining.cancelled().await;
    }
}

impl WorkerSink {
    /// A sink without writes. `head` is the number of the last event of the task.
    pub(super) fn new(session: Arc<WorkerSession>, turn: Arc<AssignedRun>, head: u64) -> Self {
        let progress = Arc::new(Mutex::new(WriteProgress { number: 0, head }));
        Self { session, turn, progress, is_refused: AtomicBool::new(false) }
    }

    /// The error of the agent, which is a protocol violation if the rules refused one of its writes.
    pub(super) fn explain(&self, error: AgentError) -> AgentError {
        match error {
            AgentError::Failed(text) if self.is_refused.load(Ordering::Relaxed) => {
                AgentError::ProtocolViolation(text)
            }
            AgentError::Failed(_)
            | AgentError::Raised { .. }
            | AgentError::ProtocolViolation(_)
            | AgentError::Unavailable(_)
            | AgentError::Stopped
            | AgentError::Suspended => error,
        }
    }

    /// Tells the server the end of the turn.
    pub(super) async fn end(&self, outcome: TurnEnd) {
        let progress = self.progress.lock().await;
        let (session, epoch) = (self.session.registration.session.clone(), self.turn.epoch());
        let ending = Ending { session, epoch, number: progress.number + 1, outcome };
        let (connection, over) = (&self.session.worker.connection, &self.turn.over);
        let parameters = [&*self.session.registration.name, self.turn.id()];
        let ended = connection.call_until::<EndTurn>(&parameters, &ending, over).await;
        if let Some(Err(refusal)) = ended
            && !refusal.is_over()
        {
            let task = &self.turn.task;
            tracing::warn!(%task, error = refusal.message, "the server refused the end of a turn");
        }
    }

    /// Sends the next request of the turn, in a task of its own: an agent that drops its write would
    /// otherwise leave a number that is used twice. `head` reads the end of the log from the reply, and
    /// `settles_question` says that the reply changes which answer is the next.
    async fn send<C>(
        &self,
        request: impl FnOnce(u64, u64) -> C::Body,
        head: impl FnOnce(&C::Reply) -> u64 + Send + 'static,
        settles_question: bool,
    ) -> Result<C::Reply, Stop>
    where
        C: ApiCall<Query = Nothing>,
        C::Body: Send + Sync + 'static,
        C::Reply: DeserializeOwned + Send + 'static,
    {
        let mut progress = Arc::clone(&self.progress).lock_owned().await;
        // Nothing may follow the decision to hand the turn back.
        if self.turn.is_returned.load(Ordering::Relaxed) {
            return Err(Stop::Over);
        }
        let number = progress.number + 1;
        let body = request(number, progress.head);
        let (session, turn) = (Arc::clone(&self.session), Arc::clone(&self.turn));
        let sent = self.session.tasks.spawn(async move {
            let parameters = [&*session.registration.name, turn.id()];
            let connection = &session.worker.connection;
            let answer = connection.call_until::<C>(&parameters, &body, &turn.over).await;
            if let Some(Ok(reply)) = &answer {
                progress.number = number;
                progress.head = head(reply);
                if settles_question {
                    session.note_question(&turn);
                }
            }
            answer
        });
        match sent.await {
            Ok(Some(Ok(reply))) => Ok(reply),
            Ok(Some(Err(refusal))) => Err(self.refused(refusal)),
            // The session is lost, or the task was dropped with its runtime.
            Ok(None) | Err(_) => Err(Stop::Over),
        }
    }

    fn refused(&self, refusal: RefusedRequest) -> Stop {
        if refusal.is_over() {
            self.turn.cancelled.cancel();
            return Stop::Over;
        }
        self.is_refused.store(true, Ordering::Relaxed);
        Stop::Refused(refusal.message)
    }
}

/// Fails a turn that cannot begin here.
pub(super) async fn refuse(session: &WorkerSession, id: String, epoch: u64) {
    let text = "the worker cannot read the task; its version is not that of the server".to_owned();
    let outcome = TurnEnd::Failed { error: TurnFailure::ProtocolViolation, text };
    let parameters = [&*session.registration.name, &*id];
    let ending =
        Ending { session: session.registration.session.clone(), epoch, number: 1, outcome };
    let connection = &session.worker.connection;
    // If it is refused, the turn is not this worker's any more.
    let _ = connection.call_until::<EndTurn>(&parameters, &ending, &session.lost).await;
}
