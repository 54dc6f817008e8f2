//! Storage of webhooks: registrations, claims, cursors and attempts.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use herald_protocol::{PushConfigId, Seq, Timestamp};

use super::{
    DeliveryAttempt, Key, MemberId, Scope, StoreError, Webhook, WebhookId, WebhookState,
    WebhookTarget,
};

/// A webhook to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebhook {
    /// The id, unless the webhook replaces an equal one.
    pub id: WebhookId,
    /// The registration.
    pub target: WebhookTarget,
    /// The limits.
    pub limits: WebhookLimits,
}

/// Limits of the number of webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookLimits {
    /// The webhooks of one task.
    pub per_task: usize,
    /// The webhooks of all tasks of one tenant.
    pub per_tenant: u64,
}

/// Query of webhooks to deliver to. The receivers take turns, so that one with many webhooks does not
/// delay the others.
#[derive(Debug, Clone, Default)]
pub struct WebhookClaim {
    /// The receiver whose turn was the last.
    pub after: String,
    /// The maximum number of webhooks for each of these receivers, which are called now.
    pub called: HashMap<String, usize>,
    /// Receivers that answer.
    pub proven: Arc<HashSet<String>>,
    /// The maximum number of webhooks for each receiver that answers.
    pub per_proven: usize,
    /// The maximum number of webhooks for all other receivers together, one for each.
    pub others: usize,
    /// The maximum number of other receivers of one tenant that are called at once, so that the receivers of
    /// one tenant do not delay those of the others.
    pub others_per_tenant: usize,
    /// The number of other receivers of each tenant that are called now.
    pub others_of: HashMap<String, usize>,
    /// The maximum number of webhooks.
    pub limit: usize,
}

/// A webhook that this member delivers to until it records the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedWebhook {
    /// The webhook.
    pub webhook: Webhook,
    /// Its receiver: the tenant, and scheme, host and port of the URL.
    pub receiver: String,
}

/// The progress of a claimed webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookProgress {
    /// The last event that is delivered or need not be.
    pub cursor: Seq,
    /// The attempt that ended, if there was one.
    pub attempt: Option<DeliveryAttempt>,
    /// The next state.
    pub next: NextDelivery,
}

/// The next state of a claimed webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextDelivery {
    /// The member keeps its claim.
    Keep,
    /// The claim ends. The webhook is ready if the log goes on after this event, and idle otherwise.
    Release(Seq),
    /// The claim ends, and the next attempt is at this time. Without an attempt the count of failures stays.
    Wait(Timestamp),
    /// The claim ends, and nothing is delivered until the webhook is enabled.
    Stop(WebhookState),
}

/// Query of webhooks, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookQuery {
    /// The owners of the tasks.
    pub scope: Scope,
    /// Only webhooks in this state.
    pub state: Option<WebhookState>,
    /// Only webhooks before this cursor.
    pub before: Option<i64>,
    /// The maximum number of webhooks.
    pub limit: usize,
}

/// One page of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebhookPage {
    /// The webhooks. A page before the last may be empty.
    pub webhooks: Vec<Webhook>,
    /// The cursor of the next page, if there is one.
    pub next: Option<i64>,
}

/// Storage of webhooks. A webhook is removed with its task.
#[async_trait]
pub trait WebhookStore {
    /// Stores a webhook of a task, ready to deliver the task as it is now. One with the same name is
    /// replaced, unless URL and version are equal: then it keeps its id and its cursor, gets the new
    /// secrets and is enabled. `None` if the task does not exist; [`StoreError::LimitReached`] if there are too many.
    async fn put_webhook(&self, key: &Key, new: NewWebhook) -> Result<Option<Webhook>, StoreError>;

    /// Removes a webhook of a task. Returns false if there is none of this name.
    async fn remove_webhook(&self, key: &Key, config: &PushConfigId) -> Result<bool, StoreError>;

    /// The webhooks of a task after `after`, by name, at most `limit`.
    async fn webhooks_of(
        &self,
        key: &Key,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Vec<Webhook>, StoreError>;

    /// One webhook.
    async fn find_webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError>;

    /// Reads a page of webhooks. One call examines a bounded number of webhooks.
    async fn list_webhooks(&self, query: WebhookQuery) -> Result<WebhookPage, StoreError>;

    /// The latest attempts of a webhook, the newest first.
    async fn attempts(&self, id: WebhookId) -> Result<Vec<DeliveryAttempt>, StoreError>;

    /// Claims webhooks that are ready, or whose next attempt is due at the time `now`.
    async fn claim_webhooks(
        &self,
        me: MemberId,
        claim: WebhookClaim,
        now: Timestamp,
    ) -> Result<Vec<ClaimedWebhook>, StoreError>;

    /// Records the progress of a webhook that this member has claimed. Returns false if it has no
    /// claim any more: the webhook was removed, replaced or reset, or the member was declared dead.
    async fn record_progress(
        &self,
        me: MemberId,
        id: WebhookId,
        progress: WebhookProgress,
    ) -> Result<bool, StoreError>;

    /// Records an attempt outside of a claim. No effect if the webhook does not exist.
    async fn add_attempt(&self, id: WebhookId, attempt: DeliveryAttempt) -> Result<(), StoreError>;

    /// Makes a webhook ready: from the event after `cursor`, or from its own cursor. Ends the claim of
    /// a member. Returns the webhook as it is then; `None` if it does not exist.
    async fn restart_webhook(
        &self,
        id: WebhookId,
        cursor: Option<Seq>,
    ) -> Result<Option<Webhook>, StoreError>;

    /// The earliest time of a next attempt.
    async fn next_attempt(&self) -> Result<Option<Timestamp>, StoreError>;

    /// The number of webhooks in each state that matters to operators: ready, waiting, parked and
    /// disabled ones, each up to `limit`.
    async fn count_webhooks(&self, limit: usize) -> Result<Vec<(WebhookState, u64)>, StoreError>;
}
