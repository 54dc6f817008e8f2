//! Transports, one per binding: encode a call, send it and decode the answer.

mod grpc;
pub(crate) mod http;
mod jsonrpc;
mod rest;
mod session;
mod sse;
mod stdio;
mod ws;

use std::fmt;

use async_trait::async_trait;
use herald_protocol::{Reply, StreamEvent};

use crate::{call::Outgoing, error::Error};

pub(crate) use grpc::Grpc;
pub(crate) use http::HttpEndpoint;
pub(crate) use jsonrpc::JsonRpc;
pub(crate) use rest::Rest;
pub(crate) use session::Lasting;
pub(crate) use stdio::Pipe;
pub use stdio::StdioProgram;
pub(crate) use ws::WebSocket;

/// Transport to one interface of an agent.
#[async_trait]
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Makes a call once, without retries.
    async fn call(&self, call: &Outgoing) -> Result<Answered, Error>;
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum Answered {
    /// An answer.
    Reply(Box<Reply>),
    /// A stream.
    Frames(Box<dyn Frames>),
}

/// The events of one open stream.
#[async_trait]
pub(crate) trait Frames: fmt::Debug + Send {
    /// The next event; `None` at the end. Cancel safe. Not called again after an error.
    async fn next(&mut self) -> Result<Option<Frame>, Error>;
}

/// One event of a stream.
#[derive(Debug)]
pub(crate) struct Frame {
    /// The id of the event, if the server numbers events.
    pub(crate) cursor: Option<String>,
    pub(crate) event: StreamEvent,
}
