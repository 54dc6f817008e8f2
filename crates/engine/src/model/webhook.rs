//! Webhooks as stored: a reader of a task's log whose cursor is stored, and the attempts to deliver.

use std::fmt;

use bytes::Bytes;
use herald_protocol::{Dialect, PushConfigId, Seq, Timestamp};
use uuid::Uuid;

use crate::model::key::Key;

/// Id of a webhook. It is never used again, even if a webhook with the same name replaces this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WebhookId(pub Uuid);

/// A webhook of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// The id.
    pub id: WebhookId,
    /// The task.
    pub key: Key,
    /// The registration.
    pub target: WebhookTarget,
    /// The time of the registration.
    pub created: Timestamp,
    /// The event at which the webhook begins. The first delivery is the task as of this event.
    pub start: Seq,
    /// The last event that was delivered.
    pub cursor: Seq,
    /// The state of the delivery.
    pub state: WebhookState,
    /// The attempts at the event after the cursor that failed.
    pub failures: u32,
    /// The time of the next attempt; for a webhook that is ready, since when.
    pub due: Timestamp,
    /// The number of all attempts.
    pub attempts: u64,
}

/// The registration of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookTarget {
    /// The name of the webhook within its task.
    pub config: PushConfigId,
    /// The URL.
    pub url: String,
    /// The scheme of its credentials, if it has credentials.
    pub scheme: Option<String>,
    /// The token and the credentials, sealed by the sender.
    pub secrets: Bytes,
    /// The protocol version of the registration, which is also the one of the deliveries.
    pub dialect: Dialect,
}

/// The state of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WebhookState {
    /// Every event is delivered.
    Idle,
    /// An event is to be delivered now.
    Ready,
    /// An attempt failed or had no memory, and the next one comes later.
    Waiting,
    /// All attempts failed. Nothing is delivered until it is enabled again.
    Parked,
    /// The receiver wants no more events. Nothing is delivered until it is enabled again.
    Disabled,
}

/// One attempt to deliver an event to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    /// The event.
    pub seq: Seq,
    /// The time of its end.
    pub at: Timestamp,
    /// The milliseconds that it took.
    pub millis: u64,
    /// True if the receiver has the event.
    pub delivered: bool,
    /// The HTTP status, if the receiver answered.
    pub status: Option<u16>,
    /// The cause of a failure, for administrators.
    pub detail: String,
    /// The time of the next attempt, if one follows.
    pub next: Option<Timestamp>,
}

impl WebhookState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Idle, Self::Ready, Self::Waiting, Self::Parked, Self::Disabled];

    /// The name of the state.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::Disabled => "disabled",
        }
    }

    /// The state of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

impl Webhook {
    /// The id of the delivery of one event, the same in each attempt.
    pub fn delivery_id(&self, seq: Seq) -> String {
        format!("msg_{}_{seq}", self.id)
    }
}

impl WebhookId {
    /// A new id.
    pub fn random() -> Self {
        Self(Uuid::now_v7())
    }

    /// The id in this text.
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::try_parse(text).ok().map(Self)
    }
}

impl fmt::Display for WebhookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}
