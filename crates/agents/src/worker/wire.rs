//! Commands of a turn and the end of its agent, as the worker protocol has them.

use std::sync::Arc;

use herald_api::workers::{ArtifactCommand, StatusCommand, TurnCommand, TurnEnd, TurnFailure};
use herald_engine::{
    AgentError, ErrorDetail,
    rules::{Chunk, Command},
};
use herald_protocol::{Message, Metadata, TaskState};

/// The command on the wire; `None` if an agent cannot give it.
pub(super) fn command(command: Command) -> Option<TurnCommand> {
    match command {
        Command::Report(state, message, metadata) => {
            Some(TurnCommand::Report(status(state, message, metadata)))
        }
        Command::Interim(state, message, metadata) => {
            Some(TurnCommand::Interim(status(state, message, metadata)))
        }
        Command::Ask(state, message, metadata) => {
            Some(TurnCommand::Ask(status(state, message, metadata)))
        }
        Command::Write(Chunk { artifact, append, last }) => {
            let artifact = Arc::unwrap_or_clone(artifact);
            Some(TurnCommand::Write(ArtifactCommand { artifact, append, last }))
        }
        // The server makes a task of every message for a role, so that a direct answer completes it.
        Command::Reply(message) => {
            Some(TurnCommand::Report(status(TaskState::Completed, Some(message), None)))
        }
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
    }
}

fn status(
    state: TaskState,
    message: Option<Arc<Message>>,
    metadata: Option<Metadata>,
) -> StatusCommand {
    StatusCommand { state, message: message.map(Arc::unwrap_or_clone), metadata }
}

/// The end of a turn whose agent failed.
pub(super) fn failed(error: AgentError) -> TurnEnd {
    let (error, text) = match error.shown(ErrorDetail::Kind) {
        AgentError::Failed(text) | AgentError::Raised { detail: text, .. } => {
            (TurnFailure::Failed, text)
        }
        AgentError::ProtocolViolation(text) => (TurnFailure::ProtocolViolation, text),
        AgentError::Unavailable(text) => (TurnFailure::Unavailable, text),
        // The text of the engine for the same end of a turn in its own process.
        AgentError::Stopped | AgentError::Suspended => {
            (TurnFailure::Failed, "the agent gave up".to_owned())
        }
    };
    TurnEnd::Failed { error, text }
}
