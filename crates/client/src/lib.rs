//! Calls any A2A agent: finds it, picks a binding and a version, and resumes streams by itself.
//!
//! ```
//! # use std::sync::Arc;
//! # use herald_agents::Echo;
//! # use herald_engine::{Engine, store::sqlite::Sqlite};
//! # use herald_server::Server;
//! use herald_client::{Client, StreamEvent};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = Engine::builder(Arc::new(Sqlite::memory()?))
//! #     .agent(Echo::profile("echo"), Echo)
//! #     .build()?;
//! # let server = Server::builder(engine).build()?;
//! // Over the network it is Client::connect("http://127.0.0.1:8000").await?
//! let client = Client::in_process(server).await?;
//! assert_eq!(client.send("Hello").await?.text(), "Echo: Hello");
//!
//! let mut events = client.stream("Hello again").await?;
//! let mut text = String::new();
//! while let Some(event) = events.next().await? {
//!     if let StreamEvent::ArtifactUpdate(update) = event {
//!         text += &update.artifact.text().unwrap_or_default();
//!     }
//! }
//! assert_eq!(text, "Echo: Hello again");
//! # Ok(()) }
//! ```
//!
//! A task that fails is a result, with the state `failed`; an [`Error`] means that the call itself failed.

// The modules in the order of their imports: each imports only modules that are further down.
//
//   blocking     the client for programs without a runtime
//   builder      from settings to a client
//   client       the operations
//   events       streams that resume
//   pages        lists
//   client_core  calls with deadlines and retries
//   agent        the interfaces of an agent and which of them is called
//   settings     everything that the builder sets
//   network      connections over the network
//   tls          roots and client certificates
//   secrets      redaction
//   credential   credentials and their places
//   oauth        tokens
//   wire_tap     --debug
//   webhook      verification of webhooks, for receivers
//   discover     agent cards
//   signature    their signatures
//   transport    bindings
//   proof        headers that prove who is calling
//   interface    choice of a binding
//   call         a call before it is encoded
//   limits       limits, timeouts, retries
//   error        errors
mod agent;
pub mod blocking;
mod builder;
mod call;
mod candidates;
mod client;
mod client_core;
mod connect_failure;
mod credential;
mod discover;
mod error;
mod events;
mod interface;
mod limits;
mod network;
mod oauth;
mod pages;
mod proof;
mod secrets;
mod settings;
mod signature;
mod tls;
mod transport;
mod webhook;
mod wire_tap;

pub use builder::ClientBuilder;
pub use call::{Interceptor, Outgoing};
pub use client::{Answer, Client, Discovered};
pub use connect_failure::ConnectFailure;
pub use credential::Credential;
pub use discover::Source;
pub use error::{Error, TriedInterface};
pub use events::Events;
pub use herald_protocol as protocol;
pub use herald_protocol::{
    AgentCard, Message, Part, Reply, Request, SendResult, StreamEvent, Task, TaskId, TaskState,
    TraceContext, card::signature::Verdict, request::SendMessage,
};
pub use interface::Binding;
pub use limits::{Limits, Retry, Timeouts};
pub use oauth::{OAuth, Prompt, Token};
pub use pages::Pages;
pub use proof::Secret;
pub use secrets::Secrets;
pub use signature::CardKeys;
pub use transport::StdioProgram;
pub use webhook::{VerifiedWebhook, WebhookError, WebhookProof, WebhookVerifier};
pub use wire_tap::WireTap;

/// The page about embedding, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
#[derive(Debug)]
pub struct Embedding;

/// The page about receivers of webhooks, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/webhook-receivers.md")]
#[derive(Debug)]
pub struct WebhookReceivers;
