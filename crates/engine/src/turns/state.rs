//! Turn state: what the engine knows of a running turn, wherever its agent runs.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use herald_protocol::{Seq, TaskState};
use tokio::{sync::Notify, time::Instant};

use crate::{
    agents::error::{AgentError, ErrorDetail},
    rules::{Command, Record},
    store::TurnClaim,
    turns::{failure, last_pause::LastPause},
};

/// The state of one turn under one claim.
#[derive(Debug)]
pub(crate) struct TurnState {
    pub(crate) claim: TurnClaim,
    pub(crate) begun: Instant,
    /// True if a direct answer completes the task, because the caller asked for a task.
    closes_task: bool,
    /// The part of an error that callers see.
    error_detail: ErrorDetail,
    /// Milliseconds from `begun` to the last write, for the idle timeout.
    last_write: AtomicU64,
    /// True after a write that the rules refused as invalid: a later failure is then reported as a
    /// protocol violation.
    protocol_violation: AtomicBool,
    pause: Mutex<Pause>,
    /// Wakes the supervisor when a pause begins or ends.
    paused: Notify,
    /// The sequence number of the last question. Earlier messages do not answer it.
    last_question: AtomicU64,
    /// True if the last state of the turn is an interim one.
    interim: AtomicBool,
}

/// Time that the agent spent waiting for its caller. Its timeouts do not count it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pause {
    pub(crate) since: Option<Instant>,
    pub(crate) total: Duration,
}

impl TurnState {
    /// A turn that begins now.
    pub(crate) fn new(claim: TurnClaim, closes_task: bool, error_detail: ErrorDetail) -> Self {
        Self {
            claim,
            begun: Instant::now(),
            closes_task,
            error_detail,
            last_write: AtomicU64::new(0),
            protocol_violation: AtomicBool::new(false),
            pause: Mutex::default(),
            paused: Notify::new(),
            last_question: AtomicU64::new(0),
            interim: AtomicBool::new(false),
        }
    }

    /// The commands of an agent as the log takes them. A direct answer to a caller who asked for a task
    /// completes the task. `None` if one of them is not an agent's to give.
    pub(crate) fn permitted(&self, commands: Vec<Command>) -> Option<Vec<Command>> {
        let permitted = commands.into_iter().map(|command| match command {
            Command::Reply(message) if self.closes_task => {
                Some(Command::Report(TaskState::Completed, Some(message), None))
            }
            Command::Report(..)
            | Command::Interim(..)
            | Command::Ask(..)
            | Command::Write(_)
            | Command::Reply(_) => Some(command),
            Command::Receive { .. }
            | Command::Cancel { .. }
            | Command::Begin(_)
            | Command::Admit(_)
            | Command::Admitted
            | Command::Decline(..)
            | Command::Retry { .. }
            | Command::Take(_)
            | Command::Expire { .. }
            | Command::Return
            | Command::Release => None,
        });
        permitted.collect()
    }

    /// True if the last of these commands with a state reports an interim one; `None` without such a command.
    pub(crate) fn reports_interim(commands: &[Command]) -> Option<bool> {
        let has_state = |command: &&Command| !matches!(command, Command::Write(_));
        let last = commands.iter().rfind(has_state)?;
        Some(matches!(last, Command::Interim(..)))
    }

    /// True if the last state of the turn is an interim one.
    pub(crate) fn is_interim(&self) -> bool {
        self.interim.load(Ordering::Relaxed)
    }

    /// Notes a write of the agent, the question that it may have asked, and whether its state is an interim one.
    pub(crate) fn wrote(&self, record: &Record, interim: Option<bool>) {
        if let Some(interim) = interim {
            self.interim.store(interim, Ordering::Relaxed);
        }
        if record.state().is_interrupted() {
            self.last_question.store(record.head, Ordering::Relaxed);
        }
    }

    /// Notes the last pause of a turn that began before a restart.
    pub(crate) fn restore_pause(&self, pause: LastPause) {
        self.last_question.store(pause.seq, Ordering::Relaxed);
        self.interim.store(pause.is_interim, Ordering::Relaxed);
    }

    /// Notes that the rules refused a write as invalid.
    pub(crate) fn violated_protocol(&self) {
        self.protocol_violation.store(true, Ordering::Relaxed);
    }

    /// The command that ends the task after this failure of its agent.
    pub(crate) fn failed(&self, error: &AgentError) -> Command {
        let error = error.clone().shown(self.error_detail);
        match &error {
            // The agent fails because one of its writes was refused as invalid.
            AgentError::Failed(text) if self.protocol_violation.load(Ordering::Relaxed) => {
                failure::fail(failure::PROTOCOL_VIOLATION, text)
            }
            AgentError::Failed(_)
            | AgentError::Raised { .. }
            | AgentError::ProtocolViolation(_)
            | AgentError::Unavailable(_)
            | AgentError::Stopped
            | AgentError::Suspended => failure::of_agent(&error),
        }
    }

    /// The sequence number of the last question.
    pub(crate) fn last_question(&self) -> Seq {
        self.last_question.load(Ordering::Relaxed)
    }

    /// The pauses so far, with the current one if the agent waits now.
    pub(crate) fn pauses(&self) -> Pause {
        *self.pause.lock().expect("nothing panics while it holds this lock")
    }

    /// Returns when a pause begins or ends.
    pub(crate) async fn paused(&self) {
        self.paused.notified().await;
    }

    /// Begins a pause.
    pub(crate) fn pause(&self) {
        self.update_pause(|pause| pause.since = Some(Instant::now()));
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        self.touch();
        self.update_pause(|pause| {
            pause.total += pause.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        });
    }

    /// The time of the last write.
    pub(crate) fn silent_since(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_write.load(Ordering::Relaxed))
    }

    /// Restarts the idle timeout.
    pub(crate) fn touch(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_write.store(elapsed, Ordering::Relaxed);
    }

    fn update_pause(&self, change: impl FnOnce(&mut Pause)) {
        change(&mut self.pause.lock().expect("nothing panics while it holds this lock"));
        self.paused.notify_one();
    }
}
