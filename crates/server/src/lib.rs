//! HTTP server for A2A: sockets, authentication and bindings over one engine.
//!
//! [`Server`] is a tower service over one [`Engine`](herald_engine::Engine): a host application can
//! mount it, and [`Server::serve`] binds a socket. A request is checked (`guard`), matched by its path
//! (`routes`), authenticated by its headers alone (`auth`), read within limits (`limits`) and handed
//! to one of the bindings (`bind`), which decodes it, calls the engine and encodes the reply.

mod activity;
mod api;
pub mod auth;
mod bind;
mod binding;
mod body;
mod browser;
mod builder;
mod caller_limits;
mod card;
mod catalog;
mod causes;
pub mod config;
mod connection;
mod cors;
mod guard;
mod h2_stall;
mod health;
mod limits;
mod mcp;
mod metrics;
mod page;
mod proxy;
mod refusal;
mod remote;
mod resource;
mod routes;
mod serve;
mod server;
mod shared;
pub mod signing;
mod socket;
pub mod tls;
mod trace;
pub mod webhook;

pub use auth::{
    Authenticate, CertificateName, CertificateSettings, CertificateTenant, Certificates, Jwt,
    JwtIssuer, JwtScopes, JwtSettingError, JwtTenant, PeerCertificate, Scheme, Tokens,
};
pub use body::Body;
pub use browser::download;
pub use builder::{ServerBuildError, ServerBuilder};
pub use config::{
    CardInterface, Config, Limits, McpConfig, MetricsAccess, SwitchedOff, TenantLimits, Timeouts,
    Token, UsageLimits,
};
pub use remote::RemoteAgentFactory;
pub use serve::ServeError;
pub use server::Server;
pub use signing::{SigningKey, SigningKeyError};
pub use tls::{ClientCertificates, Tls, TlsError};
pub use webhook::{HttpSender, ReceiverProbe, SecretsKey, WebhookConfig, WebhookSettingError};
