//! Commands of callers, agents and the engine: the input of the rules.

use std::sync::Arc;

use herald_protocol::{Message, MessageId, Metadata, Seq, TaskState, Timestamp, TraceContext};

use super::{event::Chunk, member::MemberId};

/// A command of a caller, an agent or the engine.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Receive a message.
    Receive {
        /// The message. The rules add its task id and context id.
        message: Arc<Message>,
        /// Media types that the caller accepts.
        accepted_output_modes: Vec<String>,
        /// The metadata of the send.
        metadata: Option<Metadata>,
        /// The span in which the message is received.
        trace: Option<TraceContext>,
        /// The question that the message answers, if it names one. The message is refused if another
        /// question is open, or none.
        question: Option<MessageId>,
        /// The holder of the last turn, if that member is dead.
        dead: Option<MemberId>,
    },
    /// Cancel the task.
    Cancel {
        /// The metadata of the cancel request, which is stored in the log only.
        metadata: Option<Metadata>,
    },
    /// Begin the turn of the oldest unread message. No effect if there is none or a turn is
    /// running.
    Begin(MemberId),
    /// Hold the task for the admission of its oldest unread message: the agent decides before the turn begins.
    /// The message stays unread, so that an admission that a crash interrupts is repeated. No effect if there is
    /// no such message, if a turn is running, or if the task is hidden: a direct answer has no states.
    Admit(MemberId),
    /// Begin the turn of the message that the task is held for. No effect without an admission.
    Admitted,
    /// Decline the message that the task is held for, with the state `rejected` or `auth-required`, and release
    /// the task. Without an admission it is a report of that state.
    Decline(TaskState, Option<Arc<Message>>),
    /// Repeat the current turn after its holder died. No effect if another member holds the turn by
    /// now.
    Retry {
        /// The new holder.
        me: MemberId,
        /// The dead holder.
        from: MemberId,
    },
    /// Continue the running turn with the oldest unread message after this event. No effect if
    /// there is none, or if the task is hidden: a direct answer has no further message.
    Take(Seq),
    /// Report a state, with an optional message and metadata of the task. Every state except
    /// `working` ends the turn.
    Report(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Report that the task waits for its caller or for credentials, while the turn goes on by itself: nobody
    /// has to act for it.
    Interim(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Ask the caller, and keep the turn until the answer arrives.
    Ask(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Write an artifact or a piece of one.
    Write(Chunk),
    /// Answer directly.
    Reply(Arc<Message>),
    /// Fail the task because its caller did not answer, or because no turn began. No effect unless the
    /// task still waits since `since`, without a turn.
    Expire {
        /// The time of the status with the question, or of the message.
        since: Timestamp,
        /// True if the task waits for its turn to begin, false if it waits for its caller.
        queued: bool,
        /// The last message of the task.
        message: Arc<Message>,
    },
    /// Return the turn to the queue without an event, because its worker stops. The attempt does not
    /// count. No effect without a claim.
    Return,
    /// Release the claim without an event. The epoch grows, so that the former holder can no longer
    /// write.
    Release,
}
