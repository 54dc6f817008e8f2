//! Turns sockets into engine calls and back.
//!
//! [`Server`] is a tower service over one [`Engine`](herald_engine::Engine): a host application can
//! mount it, and [`Server::serve`] puts it on a socket of its own. A request passes the door
//! (`guard`), finds its place (`routes`), is authenticated by its headers alone (`auth`), is read
//! within limits (`limits`) and ends in one of the bindings (`bind`), each of which decodes, calls
//! the engine and encodes.

pub mod auth;
mod bind;
mod body;
mod builder;
mod card;
pub mod config;
mod connection;
mod cors;
mod guard;
mod health;
mod limits;
mod metrics;
mod pace;
mod page;
mod refusal;
mod routes;
mod serve;
mod server;
mod socket;
pub mod tls;
mod trace;

pub use auth::{Authenticate, Open, Tokens};
pub use body::Body;
pub use builder::{BuildError, ServerBuilder};
pub use config::{CardInterface, Config, Limits, MetricsAccess, SwitchedOff, Timeouts, Token};
pub use serve::ServeError;
pub use server::Server;
pub use tls::Tls;
