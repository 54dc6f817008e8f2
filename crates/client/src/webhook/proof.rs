//! Kinds of proof of a webhook's sender.

use std::fmt;

/// A kind of proof that a webhook comes from the expected sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookProof {
    /// The token of the push config.
    Token,
    /// The `Authorization` header of the push config.
    Authorization,
    /// A signature with a shared secret (`v1`).
    Hmac,
    /// A signature with a private key (`v1a`).
    Ed25519,
}

impl fmt::Display for WebhookProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "token",
            Self::Authorization => "authorization",
            Self::Hmac => "hmac",
            Self::Ed25519 => "ed25519",
        })
    }
}
