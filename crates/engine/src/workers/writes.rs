//! Writes of a worker: commands, answers and ends of its turns.

use std::sync::Arc;

use herald_protocol::{
    Artifact, Error, ErrorKind, Message, MessageId, Metadata, Role, Seq, TaskState,
};

use crate::{
    caller::Caller,
    fault::{internal, shutting_down},
    rules::{Chunk, Command},
    store::Epoch,
    workers::{
        SessionRef, Workers,
        pool::FoundTurn,
        proxy::{TurnOutcome, WorkerTurn, turn_over},
    },
};

/// The most commands of one write.
const MAX_COMMANDS: usize = 256;

/// A turn of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRef {
    /// The session.
    pub session: SessionRef,
    /// The id of the turn.
    pub turn: String,
    /// The epoch of the claim.
    pub epoch: Epoch,
}

/// One write of a worker: all of its commands become durable, or none.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerWrite {
    /// The number of the write, from 1. A repeated write has the same number.
    pub number: u64,
    /// The end of the log that the worker knows: `head` of the last reply or of the assignment.
    pub after: Seq,
    /// The commands.
    pub commands: Vec<WorkerCommand>,
}

/// A command of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerCommand {
    /// Report a state. Every state except `working` ends the turn.
    Report(TaskState, Option<Message>, Option<Metadata>),
    /// Report that the task waits, while the turn goes on by itself.
    Interim(TaskState, Option<Message>, Option<Metadata>),
    /// Ask the caller, and keep the turn until the answer arrives.
    Ask(TaskState, Option<Message>, Option<Metadata>),
    /// Write an artifact, or a piece of one.
    Write {
        /// The artifact. Its parts are the piece.
        artifact: Artifact,
        /// True if the parts are appended to the existing ones.
        append: bool,
        /// True if this piece completes the artifact.
        last: bool,
    },
    /// Answer directly.
    Reply(Message),
}

impl Workers<'_> {
    /// Writes commands of a worker to its turn. A repeated number is not written again. Returns the end of
    /// the log.
    pub async fn write(
        &self,
        caller: &Caller,
        at: &TurnRef,
        write: WorkerWrite,
    ) -> Result<Seq, Error> {
        check_number(write.number)?;
        if !(1..=MAX_COMMANDS).contains(&write.commands.len()) {
            let text = format!("must have 1 to {MAX_COMMANDS} commands");
            return Err(Error::field("commands", text));
        }
        let ends_turn = |command: &WorkerCommand| match command {
            WorkerCommand::Report(state, ..) => *state != TaskState::Working,
            WorkerCommand::Reply(_) => true,
            WorkerCommand::Interim(..) | WorkerCommand::Ask(..) | WorkerCommand::Write { .. } => {
                false
            }
        };
        if write.commands.iter().rev().skip(1).any(ends_turn) {
            let text = "only the last command of a write can end the turn";
            return Err(Error::new(ErrorKind::WriteRefused, text));
        }
        let commands = write.commands.into_iter().map(Command::try_from);
        let commands = commands.collect::<Result<Vec<_>, _>>()?;
        let turn = self.running_turn(caller, at).await?;
        let (number, after) = (write.number, write.after);
        self.detached(async move { turn.write(number, after, commands).await }).await
    }

    /// Takes the caller's answer to the question of a turn. A repeated number gets the same answer.
    pub async fn answer(
        &self,
        caller: &Caller,
        at: &TurnRef,
        number: u64,
        after: Seq,
    ) -> Result<(Arc<Message>, Seq), Error> {
        check_number(number)?;
        let turn = self.running_turn(caller, at).await?;
        self.detached(async move { turn.take_answer(number, after).await }).await
    }

    /// Ends a turn. The end is durable once this returns. An end of a turn that has just ended succeeds.
    pub async fn end(
        &self,
        caller: &Caller,
        at: &TurnRef,
        outcome: TurnOutcome,
    ) -> Result<(), Error> {
        let turn = match self.turn(caller, at).await? {
            FoundTurn::Running(turn) => turn,
            FoundTurn::Ended => return Ok(()),
            FoundTurn::Unknown => return Err(turn_over()),
        };
        turn.end(outcome);
        let wait = self.core.settings.commit_wait;
        if tokio::time::timeout(wait, turn.finished.cancelled()).await.is_err() {
            let text = "the end of the turn could not be stored in time; repeat it";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        // A shutdown may have come before the write. The next start has the turn, if it is not over.
        if self.core.is_draining() {
            return Err(shutting_down());
        }
        if turn.is_gone() { Err(turn_over()) } else { Ok(()) }
    }

    async fn running_turn(&self, caller: &Caller, at: &TurnRef) -> Result<Arc<WorkerTurn>, Error> {
        match self.turn(caller, at).await? {
            FoundTurn::Running(turn) => Ok(turn),
            FoundTurn::Ended | FoundTurn::Unknown => {
                let (worker, turn, epoch) = (&at.session.name, &at.turn, at.epoch);
                tracing::info!(
                    ?worker,
                    ?turn,
                    epoch,
                    "refused a write: the worker does not hold the turn"
                );
                Err(turn_over())
            }
        }
    }

    async fn turn(&self, caller: &Caller, at: &TurnRef) -> Result<FoundTurn, Error> {
        // The turns of workers are detached, and the next start attaches them.
        if self.core.is_draining() {
            return Err(shutting_down());
        }
        let (_, pool) = self.find(caller, &at.session).await?;
        Ok(pool.turn(at.session.session, &(at.turn.clone(), at.epoch)))
    }

    /// Runs a write to its end, even if the worker hangs up, so that its number is noted.
    async fn detached<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        match self.core.work.spawn(write).await {
            Ok(written) => written,
            Err(_) => Err(internal("a write of a worker was aborted")),
        }
    }
}

impl TryFrom<WorkerCommand> for Command {
    type Error = Error;

    fn try_from(command: WorkerCommand) -> Result<Self, Error> {
        Ok(match command {
            WorkerCommand::Report(state, message, metadata) => {
                Self::Report(state, message.map(of_agent).transpose()?, metadata)
            }
            WorkerCommand::Interim(state, message, metadata) => {
                Self::Interim(state, message.map(of_agent).transpose()?, metadata)
            }
            WorkerCommand::Ask(state, message, metadata) => {
                Self::Ask(state, message.map(of_agent).transpose()?, metadata)
            }
            WorkerCommand::Write { artifact, append, last } => {
                Self::Write(Chunk { artifact: Arc::new(artifact), append, last })
            }
            WorkerCommand::Reply(message) => Self::Reply(of_agent(message)?),
        })
    }
}

/// A message as one of the agent, with an id.
fn of_agent(mut message: Message) -> Result<Arc<Message>, Error> {
    if message.parts.is_empty() {
        return Err(Error::field("message.parts", "must not be empty"));
    }
    message.role = Role::Agent;
    if message.message_id.is_empty() {
        message.message_id = MessageId::from(uuid::Uuid::now_v7().to_string().as_str());
    }
    Ok(Arc::new(message))
}

fn check_number(number: u64) -> Result<(), Error> {
    if number > 0 { Ok(()) } else { Err(Error::field("number", "must be 1 or more")) }
}
