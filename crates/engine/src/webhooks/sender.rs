//! Interface of the HTTP client that delivers events to webhooks. The engine has no HTTP: the server
//! implements it.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{Error, TenantId, TraceContext, push::PushConfig};

/// HTTP client for webhooks.
#[async_trait]
pub trait WebhookSender: fmt::Debug + Send + Sync + 'static {
    /// Checks a new webhook and seals its secrets. The error is for the caller: a URL that is not
    /// absolute HTTP, a forbidden address, a token that is no header value.
    async fn admit(&self, config: &PushConfig) -> Result<SealedSecrets, Error>;

    /// Makes one attempt at a delivery. It ends in bounded time.
    async fn send(&self, delivery: Delivery) -> AttemptResult;
}

/// The encrypted token and credentials of a webhook, as stored. Only the sender can read them. Empty if the webhook has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SealedSecrets(pub Bytes);

/// One event for one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The id of the delivery. It is the same in each attempt, and another one for each event and webhook.
    pub id: String,
    /// The tenant of the task.
    pub tenant: TenantId,
    /// The URL of the webhook.
    pub url: String,
    /// The secrets of the webhook.
    pub secrets: SealedSecrets,
    /// The body. It is the same in each attempt.
    pub body: Bytes,
    /// The media type of the body.
    pub content_type: &'static str,
    /// The trace of the message that caused the event.
    pub trace: Option<TraceContext>,
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptResult {
    /// The consequence for the webhook.
    pub outcome: AttemptOutcome,
    /// The HTTP status, if the receiver answered.
    pub status: Option<u16>,
    /// The time that the receiver asks to wait before the next attempt.
    pub retry_after: Option<Duration>,
    /// The cause of a failure, for administrators: it may name addresses of the network of the server.
    pub detail: String,
}

/// The consequence of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The receiver has the event: a status of 2xx.
    Delivered,
    /// The event is sent again later.
    Failed,
    /// The receiver wants no more events: status 410.
    Gone,
}
