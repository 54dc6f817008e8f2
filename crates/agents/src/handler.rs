//! Handler agent: one long-lived process that works on many turns over the line protocol.

mod connection;
mod line;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use herald_engine::{Admission, Agent, AgentError, Candidate, Profile, Recovery, Turn};
use herald_protocol::AgentName;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use self::{
    connection::{HandlerConnection, TurnEvent, TurnHandle},
    line::ToHandler,
};
use crate::{
    ErrorDetail,
    ended::Ended,
    failure::Failure,
    process::{Processes, Program, STUCK},
};

/// Default limit of the bytes that a handler may write in one turn.
const MAX_OUTPUT: u64 = 16 << 20;

/// Agent that gives its turns to one long-lived process.
#[derive(Debug)]
pub struct Handler {
    /// The agent's name, for messages about its failures.
    pub name: AgentName,
    /// The program to run.
    pub program: Program,
    /// Bytes that the handler may write in one turn.
    pub max_output: u64,
    /// The part of a failure that callers see.
    pub error_detail: ErrorDetail,
    /// Attempts at a turn in all, when the handler's process or the server dies during it.
    pub attempts: u32,
    /// True if the first line of a turn decides whether the handler takes the message.
    pub admission: bool,
    processes: Processes,
    current: Mutex<Option<Arc<HandlerConnection>>>,
    tasks: TaskTracker,
}

/// Outcome of one attempt at a turn.
enum Attempt {
    /// The handler ended the turn.
    Done,
    /// The handler's process died; the turn can be tried again.
    Died(Failure),
}

impl Handler {
    /// A handler with the default limits. Its process is started for its first turn.
    pub fn new(name: &str, program: Program, processes: Processes) -> Self {
        Self {
            name: AgentName::new(name),
            program,
            max_output: MAX_OUTPUT,
            error_detail: ErrorDetail::default(),
            attempts: 1,
            admission: false,
            processes,
            current: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The agent's profile: card fields, limits and recovery.
    pub fn profile(&self) -> Profile {
        let mut profile = Profile::new(self.name.clone(), "Works on tasks in a process of its own");
        profile.skills[0].tags = vec!["handler".to_owned()];
        profile.input_modes = vec!["text/plain".to_owned(), "*/*".to_owned()];
        profile.output_modes = vec!["text/plain".to_owned(), "application/json".to_owned()];
        profile.recovery = match self.attempts {
            0 | 1 => Recovery::Fail,
            attempts => Recovery::Rerun(attempts),
        };
        profile.concurrency = 64;
        profile.timeout = Some(Duration::from_secs(600));
        profile.grace = self.program.grace + STUCK;
        profile
    }

    /// Opens a turn at the current process, or at a new one if that has ended.
    fn open_turn(&self) -> TurnHandle {
        let mut current = self.current.lock().expect("nothing panics while it holds this lock");
        loop {
            let open = current.as_ref().filter(|connection| connection.is_open());
            if let Some(handle) = open.and_then(HandlerConnection::open_turn) {
                return handle;
            }
            let last = current.as_deref();
            let (name, program) = (&self.name, &self.program);
            let next = HandlerConnection::open(name, program, &self.processes, &self.tasks, last);
            *current = Some(next);
        }
    }

    /// One attempt at a turn.
    async fn attempt(&self, turn: &Turn, attempt: u32) -> Result<Attempt, Ended> {
        let mut handle = self.open_turn();
        let result = tokio::select! {
            result = self.converse(turn, &mut handle, attempt) => result,
            () = turn.cancelled().cancelled() => Err(Ended::Turn(AgentError::Stopped)),
        };
        if handle.is_over {
            return result;
        }
        let result = result.map_err(|ended| self.report(turn, ended));
        let cleanup = self.cancel(turn, &mut handle);
        match &result {
            Ok(_) => cleanup.await,
            Err(error) => turn.fail_while(error, cleanup).await,
        }
        result.map_err(Ended::Turn)
    }

    fn report(&self, turn: &Turn, ended: Ended) -> AgentError {
        ended.report(turn, &self.name, self.error_detail)
    }

    async fn converse(
        &self,
        turn: &Turn,
        handle: &mut TurnHandle,
        attempt: u32,
    ) -> Result<Attempt, Ended> {
        handle.send(ToHandler::begin(&handle.name(), turn, attempt).encode()).await;
        let mut bytes = 0;
        while let Some(inbound) = handle.next().await {
            bytes += inbound.bytes as u64;
            if bytes > self.max_output {
                let kind = format!("wrote more than {} bytes", self.max_output);
                return Err(Ended::Failed(Failure::new(kind)));
            }
            match inbound.event {
                TurnEvent::Status(state, parts) => turn.report(state, parts).await?,
                TurnEvent::Interim(state, parts) => turn.report_interim(state, parts).await?,
                TurnEvent::Artifact(artifact, true, last) => turn.append(artifact, last).await?,
                TurnEvent::Artifact(artifact, false, last) => turn.replace(artifact, last).await?,
                TurnEvent::Answer(parts) => turn.answer_with(parts).await?,
                TurnEvent::Failed(failure) => return Err(Ended::Failed(failure)),
                TurnEvent::ProtocolViolation(failure) => {
                    return Err(Ended::ProtocolViolation(failure));
                }
            }
            if handle.is_over {
                return Ok(Attempt::Done);
            }
        }
        Ok(Attempt::Died(handle.failure()))
    }

    /// Tells the handler to cancel a turn, and waits until it has ended it or the grace is over.
    async fn cancel(&self, turn: &Turn, handle: &mut TurnHandle) {
        let metadata = turn.cancel_metadata();
        let ended = async {
            handle.send(ToHandler::Cancel { turn: &handle.name(), metadata }.encode()).await;
            while !handle.is_over {
                handle.next().await;
            }
        };
        if timeout(self.program.grace, ended).await.is_err() {
            let (agent, task) = (&self.name, turn.task_id());
            tracing::warn!(%agent, %task, "the handler did not end a cancelled turn in time");
        }
    }
}

#[async_trait]
impl Agent for Handler {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let mut attempt = turn.attempt();
        loop {
            match self.attempt(turn, attempt).await {
                Ok(Attempt::Done) => return Ok(()),
                Ok(Attempt::Died(failure)) if attempt < self.attempts => {
                    let (task, kind) = (turn.task_id(), failure.kind);
                    tracing::info!(%task, kind, "trying the turn again with a new process");
                    attempt += 1;
                    turn.start_over();
                }
                Ok(Attempt::Died(failure)) => return Err(self.report(turn, failure.into())),
                Err(ended) => return Err(self.report(turn, ended)),
            }
        }
    }

    fn admits(&self) -> bool {
        self.admission
    }

    // The turn itself asks the handler, so that a decision needs no line of its own.
    async fn admit(&self, _candidate: Candidate<'_>) -> Result<Admission, AgentError> {
        Ok(Admission::Defer)
    }
}
