//! Events of a task, and the entries of its log that hold them.

use std::sync::Arc;

use bytes::Bytes;
use herald_protocol::{
    Artifact, Message, Metadata, Seq, TaskState, TaskStatus, Timestamp, TraceContext,
};

/// An event of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A caller's message was accepted.
    Received(Received),
    /// The status changed. Metadata of an agent is merged into the task; metadata of a cancel is
    /// stored in the log only.
    Status(TaskStatus, Option<Metadata>),
    /// The status changed for as long as the turn, which goes on by itself, does not change it again.
    Interim(TaskStatus, Option<Metadata>),
    /// An artifact was extended or replaced.
    Artifact(Chunk),
    /// The agent answered directly.
    Reply(Arc<Message>),
}

/// An accepted message, with the data that its turn needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The message, with its task id and context id.
    pub message: Arc<Message>,
    /// Media types that the caller accepts; empty means any.
    pub accepted_output_modes: Vec<String>,
    /// The metadata of the send request, which is separate from that of the message.
    pub metadata: Option<Metadata>,
    /// The span in which the message was received; the parent of its turn's span.
    pub trace: Option<TraceContext>,
    /// The state of the task after the message.
    pub state: TaskState,
    /// The time of acceptance.
    pub at: Timestamp,
}

/// An artifact, or the next piece of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The artifact. Its parts are the piece.
    pub artifact: Arc<Artifact>,
    /// True if the parts are appended to the existing ones.
    pub append: bool,
    /// True if this piece completes the artifact.
    pub last: bool,
}

/// The kind of event in a log entry, available without decoding the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A caller's message was accepted, which led to this state.
    Received(TaskState),
    /// The status changed to this state.
    Status(TaskState),
    /// The status changed to this state, in which no turn ends: the turn goes on by itself.
    Interim(TaskState),
    /// An artifact was extended or replaced.
    Artifact,
    /// The agent answered directly. No event can follow.
    Reply,
}

/// One stored event. The body is the 1.0 JSON of the stream item, except for [`Kind::Received`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The sequence number in the log of the task, from 1.
    pub seq: Seq,
    /// The kind of the event.
    pub kind: Kind,
    /// The encoded event.
    pub body: Bytes,
}

impl Kind {
    /// The number that stands for the kind in the store.
    pub fn code(self) -> u8 {
        match self {
            Self::Artifact => 1,
            Self::Reply => 2,
            Self::Received(state) => 0x20 | state.number(),
            Self::Status(state) => 0x10 | state.number(),
            Self::Interim(state) => 0x30 | state.number(),
        }
    }

    /// The kind of a stored number.
    pub fn from_code(code: u8) -> Option<Self> {
        let state = TaskState::from_number(u64::from(code & 0x0f))?;
        match code & 0xf0 {
            0x10 => Some(Self::Status(state)),
            0x20 => Some(Self::Received(state)),
            0x30 => Some(Self::Interim(state)),
            0 if code == 1 => Some(Self::Artifact),
            0 if code == 2 => Some(Self::Reply),
            _ => None,
        }
    }

    /// The state after the event, if the event determines it.
    pub fn state(self) -> Option<TaskState> {
        match self {
            Self::Received(state) | Self::Status(state) | Self::Interim(state) => Some(state),
            Self::Reply => Some(TaskState::Completed),
            Self::Artifact => None,
        }
    }
}
