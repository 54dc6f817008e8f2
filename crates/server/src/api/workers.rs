//! Workers: polls, and the writes, answers and ends of their turns.

use std::time::Duration;

use herald_api::{
    routes::Nothing,
    workers::{
        AssignedTurn, EndTurn, EndedTask, MAX_WAIT_SECONDS, PollRequest, PollResponse,
        StatusCommand, StopTurn, StopTurnReason, TakeAnswer, TakenAnswer, TurnCommand, TurnEnd,
        TurnFailure, WriteCommands, WrittenCommands,
    },
};
use herald_engine::{
    AgentError, StopReason,
    workers::{
        EndedNotice, GivenTurn, Poll, SessionRef, StoppedTurn, TurnOutcome, TurnRef, WorkerCommand,
        WorkerWrite,
    },
};
use herald_protocol::{Error, ErrorKind};
use serde_json::value::to_raw_value;

use super::ApiRequest;

pub(super) async fn poll(
    request: &ApiRequest<'_>,
    _: Nothing,
    poll: PollRequest,
) -> Result<PollResponse, Error> {
    let session = SessionRef::parse(request.parameter(0), &poll.session)?;
    if poll.wait_seconds > MAX_WAIT_SECONDS {
        return Err(Error::field("wait_seconds", format!("must be at most {MAX_WAIT_SECONDS}")));
    }
    let poll = Poll {
        free: poll.free as usize,
        is_draining: poll.draining,
        turns: poll.turns.into_iter().map(|turn| (turn.id, turn.epoch)).collect(),
        wait: Duration::from_secs(poll.wait_seconds.into()),
        takes_ended: poll.takes_ended,
    };
    let reply = request.engine().workers().poll(&request.caller, &session, poll).await?;
    let assignments = reply.assignments.into_iter().map(assigned);
    Ok(PollResponse {
        assignments: assignments.collect::<Result<_, _>>()?,
        stop: reply.stop.into_iter().map(stopped).collect(),
        answered: reply.answered,
        ended: reply.ended.into_iter().map(ended).collect::<Result<_, _>>()?,
        leaving: reply.leaving,
    })
}

pub(super) async fn write(
    request: &ApiRequest<'_>,
    _: Nothing,
    write: WriteCommands,
) -> Result<WrittenCommands, Error> {
    let at = turn(request, &write.session, write.epoch)?;
    let (number, after) = (write.number, write.after);
    let commands = write.commands.into_iter().map(command).collect();
    let write = WorkerWrite { number, after, commands };
    let head = request.engine().workers().write(&request.caller, &at, write).await?;
    Ok(WrittenCommands { head })
}

pub(super) async fn answer(
    request: &ApiRequest<'_>,
    _: Nothing,
    take: TakeAnswer,
) -> Result<TakenAnswer, Error> {
    let at = turn(request, &take.session, take.epoch)?;
    let workers = request.engine().workers();
    let (message, head) = workers.answer(&request.caller, &at, take.number, take.after).await?;
    let message = to_raw_value(&*message).map_err(|_| unencodable())?;
    Ok(TakenAnswer { message, head })
}

pub(super) async fn end(
    request: &ApiRequest<'_>,
    _: Nothing,
    end: EndTurn,
) -> Result<Nothing, Error> {
    let at = turn(request, &end.session, end.epoch)?;
    let outcome = match end.outcome {
        TurnEnd::Done => TurnOutcome::Done,
        TurnEnd::Returned => TurnOutcome::Returned,
        TurnEnd::Failed { error, text } => TurnOutcome::Failed(match error {
            TurnFailure::Failed => AgentError::Failed(text),
            TurnFailure::ProtocolViolation => AgentError::ProtocolViolation(text),
            TurnFailure::Unavailable => AgentError::Unavailable(text),
        }),
    };
    request.engine().workers().end(&request.caller, &at, outcome).await?;
    Ok(Nothing {})
}

/// The turn in the path.
fn turn(request: &ApiRequest<'_>, session: &str, epoch: u64) -> Result<TurnRef, Error> {
    let session = SessionRef::parse(request.parameter(0), session)?;
    Ok(TurnRef { session, turn: request.parameter(1).to_owned(), epoch })
}

fn command(command: TurnCommand) -> WorkerCommand {
    match command {
        TurnCommand::Report(StatusCommand { state, message, metadata }) => {
            WorkerCommand::Report(state, message, metadata)
        }
        TurnCommand::Interim(StatusCommand { state, message, metadata }) => {
            WorkerCommand::Interim(state, message, metadata)
        }
        TurnCommand::Ask(StatusCommand { state, message, metadata }) => {
            WorkerCommand::Ask(state, message, metadata)
        }
        TurnCommand::Write(write) => {
            let (append, last) = (write.append, write.last);
            WorkerCommand::Write { artifact: write.artifact, append, last }
        }
        TurnCommand::Reply(reply) => WorkerCommand::Reply(reply.message),
    }
}

fn assigned(given: GivenTurn) -> Result<AssignedTurn, Error> {
    let turn = to_raw_value(&given.assignment).map_err(|_| unencodable())?;
    Ok(AssignedTurn { id: given.id, epoch: given.epoch, turn, head: given.head })
}

fn ended(notice: EndedNotice) -> Result<EndedTask, Error> {
    let task = to_raw_value(&*notice.task).map_err(|_| unencodable())?;
    Ok(EndedTask { task, metadata: notice.metadata })
}

fn stopped(turn: StoppedTurn) -> StopTurn {
    let reason = match turn.reason {
        StopReason::Cancelled => StopTurnReason::Cancelled,
        StopReason::TimedOut => StopTurnReason::TimedOut,
        StopReason::Lost => StopTurnReason::Lost,
    };
    StopTurn { id: turn.id, epoch: turn.epoch, reason, metadata: turn.metadata }
}

fn unencodable() -> Error {
    Error::new(ErrorKind::Internal, "Internal error")
}
