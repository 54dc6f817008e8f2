//! The A2A protocol as plain data: messages, operations, errors and dialects. No I/O, no async.
//!
//! The types here are those of A2A 1.0 and their serde form is its JSON. Older generations are
//! read into and written from the same types by [`dialect`].

pub mod card;
pub mod dialect;
pub mod error;
pub mod escape;
pub mod failure;
pub mod grpc;
pub mod id;
pub mod json;
pub mod jsonrpc;
pub mod lines;
pub mod locks;
pub mod message;
mod object;
pub mod open;
pub mod percent;
pub mod push;
pub mod reply;
pub mod request;
pub mod rest;
pub mod security;
pub mod sse;
pub mod status;
pub mod task;
pub mod time;
pub mod trace;
pub mod validate;
pub mod version;

pub use card::AgentCard;
pub use dialect::{Dialect, MissingVersion};
pub use error::{Error, ErrorKind, Violation};
pub use id::{AgentName, ArtifactId, ContextId, MessageId, PushConfigId, TaskId, TenantId};
pub use message::{Content, MAX_PARTS, Message, Part, Role, is_too_deep};
pub use open::{Json, Metadata};
pub use reply::Reply;
pub use request::{Operation, Request, Seq};
pub use task::{
    Artifact, ArtifactUpdate, SendResult, StatusUpdate, StreamEvent, Task, TaskPage, TaskState,
    TaskStatus,
};
pub use time::Timestamp;
pub use trace::TraceContext;
pub use version::Version;
