//! Events of a task, and the entries of its log that hold them.

use std::sync::Arc;

use bytes::Bytes;
use herald_protocol::{
    Artifact, Message, Metadata, Seq, TaskState, TaskStatus, Timestamp, TraceContext,
};

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A caller's message was accepted.
    Received(Received),
    /// The status changed. What an agent says beside it stays with the task; what a caller says
    /// about its cancel is in the log alone.
    Status(TaskStatus, Option<Metadata>),
    /// An artifact grew or was replaced.
    Artifact(Chunk),
    /// The agent answered directly.
    Reply(Arc<Message>),
}

/// An accepted message and what its turn needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The message, with its task and context filled in.
    pub message: Arc<Message>,
    /// Media types the caller can use; empty means any.
    pub accepted_output_modes: Vec<String>,
    /// The metadata of the send, beside the message's own.
    pub metadata: Option<Metadata>,
    /// The span it was received in, which its turn belongs to.
    pub trace: Option<TraceContext>,
    /// The state it left the task in.
    pub state: TaskState,
    /// When.
    pub at: Timestamp,
}

/// An artifact or the next piece of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The artifact; its parts are the piece.
    pub artifact: Arc<Artifact>,
    /// Whether the parts go after those already there.
    pub append: bool,
    /// Whether the artifact is complete with this.
    pub last: bool,
}

/// What kind of event a log entry holds, readable without decoding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A caller's message was accepted; the state it left the task in.
    Received(TaskState),
    /// The status changed to this state.
    Status(TaskState),
    /// An artifact grew or was replaced.
    Artifact,
    /// The agent answered directly; the log is closed.
    Reply,
}

/// One logged event. Its body is the 1.0 JSON of the stream item, except for [`Kind::Received`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its sequence number in the log of its task, from 1.
    pub seq: Seq,
    /// What it is.
    pub kind: Kind,
    /// The event itself.
    pub body: Bytes,
}

impl Kind {
    /// The number it is stored as.
    pub fn code(self) -> u8 {
        match self {
            Self::Artifact => 1,
            Self::Reply => 2,
            Self::Received(state) => 0x20 | state.number(),
            Self::Status(state) => 0x10 | state.number(),
        }
    }

    /// The kind stored as this number.
    pub fn from_code(code: u8) -> Option<Self> {
        let state = TaskState::from_number(u64::from(code & 0x0f))?;
        match code & 0xf0 {
            0x10 => Some(Self::Status(state)),
            0x20 => Some(Self::Received(state)),
            0 if code == 1 => Some(Self::Artifact),
            0 if code == 2 => Some(Self::Reply),
            _ => None,
        }
    }

    /// The state the task is in after this event, where the event says so.
    pub fn state(self) -> Option<TaskState> {
        match self {
            Self::Received(state) | Self::Status(state) => Some(state),
            Self::Reply => Some(TaskState::Completed),
            Self::Artifact => None,
        }
    }
}
