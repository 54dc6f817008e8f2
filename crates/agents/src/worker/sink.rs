//! Sink of a turn that runs on a worker: its writes go to the server, numbered, until they are answered.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use herald_engine::{AgentError, Stop, agent_failure, rules::Command, turn::Sink};
use herald_protocol::Message;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    connection::{Refusal, path},
    session::{RunningTurn, Session},
    wire::{
        AnswerReply, AnswerRequest, CommandsReply, CommandsRequest, Empty, EndRequest, TurnOutcome,
        WorkerCommand,
    },
};

/// The worker's side of one turn.
#[derive(Debug)]
pub(super) struct WorkerSink {
    session: Arc<Session>,
    turn: Arc<RunningTurn>,
    /// Held during a request, so that the requests of a turn are made one after the other.
    progress: Arc<Mutex<Progress>>,
    /// True after a write that the rules refused: a later failure is then a protocol violation.
    is_refused: AtomicBool,
}

/// The requests of a turn so far.
#[derive(Debug)]
struct Progress {
    /// The number of the last request.
    number: u64,
    /// The head of the log after it.
    head: u64,
}

#[async_trait]
impl Sink for WorkerSink {
    async fn write(&self, commands: Vec<Command>) -> Result<(), Stop> {
        let asks = commands.iter().any(|command| matches!(command, Command::Ask(..)));
        let commands: Option<Vec<_>> = commands.into_iter().map(WorkerCommand::new).collect();
        let Some(commands) = commands else {
            return Err(Stop::Refused("an agent cannot give this command".to_owned()));
        };
        let progress = Arc::clone(&self.progress).lock_owned().await;
        let request = |session: &Session, turn: &RunningTurn, progress: &Progress| {
            let (session, epoch) = (session.registration.session.clone(), turn.claim.epoch);
            let (number, after) = (progress.number, progress.head);
            CommandsRequest { session, epoch, number, after, commands }
        };
        let written = self.send(
            "/commands",
            progress,
            request,
            move |session, turn, progress, reply: &CommandsReply| {
                progress.head = reply.head;
                if asks {
                    session.note_question(turn);
                }
            },
        );
        written.await.map(|_| ())
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
        let progress = Arc::clone(&self.progress).lock_owned().await;
        let request = |session: &Session, turn: &RunningTurn, progress: &Progress| {
            let (session, epoch) = (session.registration.session.clone(), turn.claim.epoch);
            AnswerRequest { session, epoch, number: progress.number }
        };
        let taken = self.send(
            "/answer",
            progress,
            request,
            |session, turn, progress, reply: &AnswerReply| {
                progress.head = reply.head;
                session.note_question(turn);
            },
        );
        taken.await.map(|reply| reply.message)
    }

    async fn leaving(&self) {
        // A server that stops does not end the turns of its workers; a worker that stops does.
        self.session.draining.cancelled().await;
    }
}

impl WorkerSink {
    /// A sink without writes. `head` is the number of the last event of the task.
    pub(super) fn new(session: Arc<Session>, turn: Arc<RunningTurn>, head: u64) -> Self {
        let progress = Arc::new(Mutex::new(Progress { number: 0, head }));
        Self { session, turn, progress, is_refused: AtomicBool::new(false) }
    }

    /// The error of the agent, which is a protocol violation if the rules refused one of its writes.
    pub(super) fn explain(&self, error: AgentError) -> AgentError {
        match error {
            AgentError::Failed(text) if self.is_refused.load(Ordering::Relaxed) => {
                AgentError::ProtocolViolation(text)
            }
            error => error,
        }
    }

    /// Tells the server the end of the turn.
    pub(super) async fn end(&self, outcome: TurnOutcome) {
        let mut progress = Arc::clone(&self.progress).lock_owned().await;
        progress.number += 1;
        let request = EndRequest {
            session: &self.session.registration.session,
            epoch: self.turn.claim.epoch,
            number: progress.number,
            outcome,
        };
        let path = turn_path(&self.session, &self.turn, "/end");
        let connection = &self.session.worker.connection;
        let ended = connection.call_until::<Empty>(&path, &request, &self.turn.over).await;
        if let Some(Err(refusal)) = ended
            && !refusal.is_over()
        {
            let task = &self.turn.task;
            tracing::warn!(%task, error = refusal.message, "the server refused the end of a turn");
        }
    }

    /// Sends a request in a task of its own, so that an agent that drops its write leaves no number
    /// that is used twice.
    async fn send<B, R>(
        &self,
        verb: &'static str,
        mut progress: OwnedMutexGuard<Progress>,
        request: impl FnOnce(&Session, &RunningTurn, &Progress) -> B,
        done: impl FnOnce(&Session, &RunningTurn, &mut Progress, &R) + Send + 'static,
    ) -> Result<R, Stop>
    where
        B: Serialize + Send + Sync + 'static,
        R: DeserializeOwned + Send + 'static,
    {
        // Nothing may follow the decision to hand the turn back.
        if self.turn.is_returned.load(Ordering::Relaxed) {
            return Err(Stop::Over);
        }
        progress.number += 1;
        let (session, turn) = (Arc::clone(&self.session), Arc::clone(&self.turn));
        let body = request(&session, &turn, &progress);
        let sent = self.session.tasks.spawn(async move {
            let path = turn_path(&session, &turn, verb);
            let connection = &session.worker.connection;
            let answer = connection.call_until::<R>(&path, &body, &turn.over).await;
            if let Some(Ok(reply)) = &answer {
                done(&session, &turn, &mut progress, reply);
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

    fn refused(&self, refusal: Refusal) -> Stop {
        if refusal.is_over() {
            self.turn.cancelled.cancel();
            return Stop::Over;
        }
        self.is_refused.store(true, Ordering::Relaxed);
        Stop::Refused(refusal.message)
    }
}

fn turn_path(session: &Session, turn: &RunningTurn, verb: &str) -> String {
    path(&session.registration.name, &format!("/turns/{}{verb}", turn.claim.id))
}
