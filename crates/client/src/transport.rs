//! From a call to bytes on some binding, and back.

mod frames;
pub(crate) mod http;
mod jsonrpc;
mod rest;

use std::fmt;

use async_trait::async_trait;
use herald_protocol::Reply;

use crate::{call::Outgoing, error::Error};

pub(crate) use frames::{Frame, Frames};
pub(crate) use http::Endpoint;
pub(crate) use jsonrpc::JsonRpc;
pub(crate) use rest::Rest;

/// One way to reach one interface of an agent.
#[async_trait]
pub(crate) trait Transport: fmt::Debug + Send + Sync {
    /// Makes a call, once.
    async fn call(&self, call: &Outgoing) -> Result<Answered, Error>;
}

/// What a call led to.
#[derive(Debug)]
pub(crate) enum Answered {
    /// An answer.
    Reply(Box<Reply>),
    /// A stream.
    Frames(Box<Frames>),
}
