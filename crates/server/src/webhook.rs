//! Webhooks: the HTTP client that delivers events, its URL guard, signatures and sealed secrets.
//!
//! [`HttpSender`] implements the interface of the engine
//! ([`WebhookSender`](herald_engine::webhooks::sender::WebhookSender)). The engine decides what is delivered and
//! when; the sender decides which URLs are allowed and how a request looks.

mod guard;
mod probe;
mod sealing;
mod sender;
mod signature;

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use crate::signing::SigningKey;

pub use probe::ReceiverProbe;
pub use sealing::SecretsKey;
pub use sender::{HttpSender, LOOP_HEADER};

/// Settings of the sender of webhooks.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// Hosts that are allowed whatever they resolve to: names, addresses and `*.` with a name, each with a port if
    /// only that port is allowed.
    pub allowed_hosts: Vec<String>,
    /// Networks whose addresses are allowed although they are not public, such as `10.1.0.0/16`.
    pub allowed_cidrs: Vec<String>,
    /// The only ports. By default 80, 443 and those from 1024 on, without those of well-known databases and other
    /// services of a network.
    pub allowed_ports: Option<Vec<RangeInclusive<u16>>>,
    /// True if URLs must begin with `https://`.
    pub https_only: bool,
    /// The time for one attempt.
    pub timeout: Duration,
    /// Secrets of signatures with HMAC, each `whsec_` and base64. Each one signs.
    pub signing_secrets: Vec<String>,
    /// Ed25519 keys of signatures. Each one signs, and all are published.
    pub signing_keys: Vec<Arc<SigningKey>>,
    /// Keys that encrypt the stored tokens and credentials of webhooks. The first one encrypts, all decrypt. Without
    /// one, a key in memory does it, which is lost with the process.
    pub secrets_keys: Vec<SecretsKey>,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_cidrs: Vec::new(),
            allowed_ports: None,
            https_only: false,
            timeout: Duration::from_secs(15),
            signing_secrets: Vec::new(),
            signing_keys: Vec::new(),
            secrets_keys: Vec::new(),
        }
    }
}

/// An invalid setting of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookSettingError {
    /// An allowed host is malformed.
    #[error(
        "[push] allowed_hosts: {0:?} must be a host name, an address or *.example.com, with a port if \
         only that port is allowed"
    )]
    AllowedHost(String),
    /// An allowed network is malformed.
    #[error("[push] allowed_cidrs: {0:?} must be an address or a network such as 10.1.0.0/16")]
    AllowedNetwork(String),
    /// A signing secret is malformed.
    #[error(
        "[push] signing_secrets: secret {0} must be whsec_ followed by 24 to 64 bytes in base64; make one \
         with: echo whsec_$(openssl rand -base64 32)"
    )]
    SigningSecret(usize),
    /// A signing key is not an Ed25519 key.
    #[error(
        "[push] signing_keys: the key {0:?} is not an Ed25519 key; make one with: openssl genpkey \
         -algorithm ed25519"
    )]
    SigningKey(String),
    /// A key of secrets is malformed.
    #[error(
        "[push] secrets_key: a key must be 32 bytes in base64; make one with: openssl rand -base64 32"
    )]
    SecretsKey,
    /// The timeout is too short or too long.
    #[error("[push] timeout must be between 1s and 30s")]
    Timeout,
}
