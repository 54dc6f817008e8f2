//! Commands of callers, agents and the engine, which the rules decide.

use std::sync::Arc;

use herald_protocol::{Message, Metadata, Seq, TaskState, Timestamp, TraceContext};

use super::{event::Chunk, member::MemberId};

/// Something a caller, an agent or the engine wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Take a message.
    Receive {
        /// The message; its task and context are filled in by the decision.
        message: Arc<Message>,
        /// Media types the caller can use.
        accepted_output_modes: Vec<String>,
        /// The metadata of the send.
        metadata: Option<Metadata>,
        /// The span it is received in.
        trace: Option<TraceContext>,
        /// The holder of the last turn, if that member is dead.
        dead: Option<MemberId>,
    },
    /// End the task.
    Cancel {
        /// For whoever reads the log.
        metadata: Option<Metadata>,
    },
    /// Take up the oldest unread message. Nothing happens if there is none, or a turn under way.
    Begin(MemberId),
    /// Take up the current turn once more after its holder died. Nothing happens if another member
    /// holds it by now.
    Retry {
        /// Who takes it up.
        me: MemberId,
        /// The dead member it is taken over from.
        from: MemberId,
    },
    /// Go on, in the turn that is under way, with the oldest unread message after this event. Nothing
    /// happens if there is none, or if the task is hidden: a direct answer has no further message.
    Take(Seq),
    /// Say where the task stands, in which words, and what else is to be known about it. Every state
    /// but `working` ends the turn.
    Report(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Ask the caller and keep the turn until the answer is there.
    Ask(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Add to the results.
    Write(Chunk),
    /// Answer directly.
    Reply(Arc<Message>),
    /// Fail the task because its caller did not answer. Nothing happens unless the task has waited for
    /// its caller since then, without a turn.
    Expire {
        /// The time of the status with the question.
        since: Timestamp,
        /// The last message of the task.
        message: Arc<Message>,
    },
    /// Let go of the turn without an event. The epoch grows, so that whoever let go can no longer write.
    Release,
}
