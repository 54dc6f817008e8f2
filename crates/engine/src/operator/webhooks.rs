//! Webhooks of operators: lists, one webhook with its attempts, replay and enabling.

use std::time::Duration;

use herald_protocol::{Error, ErrorKind, Seq, Timestamp};
use tokio::time::Instant;

use crate::{
    caller::Scopes,
    fault::refuse,
    operator::Operator,
    store::{
        AuditSubject, DeliveryAttempt, Scope, Webhook, WebhookId, WebhookPage, WebhookQuery,
        WebhookState,
    },
    webhooks::deliverer::deliver_once,
};

/// Entries taken from the log at once.
const PAGE: usize = 256;

/// The events that are delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// From this event on.
    From(Seq),
    /// From the first event at or after this time.
    Since(Timestamp),
}

impl Operator<'_> {
    /// Reads a page of webhooks. A scope that the caller does not see needs `admin`.
    pub async fn webhooks(
        &self,
        scope: Option<Scope>,
        state: Option<WebhookState>,
        before: Option<i64>,
        limit: usize,
    ) -> Result<WebhookPage, Error> {
        let scope = scope.unwrap_or_else(|| self.caller.scope());
        self.require_scope(&scope, "webhook.list", None)?;
        let query = WebhookQuery { scope, state, before, limit };
        let mut page = self.core.store.list_webhooks(query).await.map_err(refuse)?;
        // Credentials for some agents do not show the webhooks of others.
        if self.caller.identity().agents.is_some() {
            let mut seen = Vec::new();
            for webhook in page.webhooks {
                let record = self.core.find_any(&webhook.key).await?;
                if record.is_some_and(|record| self.caller.may_use(&record.agent)) {
                    seen.push(webhook);
                }
            }
            page.webhooks = seen;
        }
        Ok(page)
    }

    /// A webhook and its latest attempts, the newest first. One of another owner needs `admin`.
    pub async fn webhook(&self, id: WebhookId) -> Result<(Webhook, Vec<DeliveryAttempt>), Error> {
        self.caller.require(Scopes::READ, "reading a webhook")?;
        let webhook = self.visible_webhook(id, "webhook.read").await?;
        let attempts = self.core.store.attempts(id).await.map_err(refuse)?;
        Ok((webhook, attempts))
    }

    /// True if the caller may see the causes of failures, which can name addresses of the network of the
    /// server.
    pub fn sees_causes(&self) -> bool {
        self.caller.identity().scopes.contains(Scopes::ADMIN)
    }

    /// Makes a webhook deliver again: from its cursor, or from an earlier event. Also enables one that was
    /// parked or disabled.
    pub async fn restart_webhook(
        &self,
        id: WebhookId,
        replay: Option<Replay>,
    ) -> Result<Webhook, Error> {
        self.caller.require(Scopes::PUSH, "replaying a webhook")?;
        let webhook = self.visible_webhook(id, "webhook.read").await?;
        let from = match replay {
            None => None,
            Some(Replay::From(seq)) => Some(seq),
            Some(Replay::Since(time)) => Some(self.first_since(&webhook, time).await?),
        };
        // Earlier events are not the webhook's.
        let cursor = from.map(|seq| seq.max(webhook.start).saturating_sub(1));
        let action = if from.is_some() { "webhook.replay" } else { "webhook.enable" };
        self.record_webhook(action, &webhook).await?;
        let restarted = self.core.store.restart_webhook(id, cursor).await.map_err(refuse)?;
        restarted.ok_or_else(no_webhook)
    }

    /// Delivers one event again, now and once, and returns the attempt.
    pub async fn deliver_again(
        &self,
        id: WebhookId,
        seq: Seq,
    ) -> Result<(Webhook, DeliveryAttempt), Error> {
        self.caller.require(Scopes::PUSH, "replaying a webhook")?;
        let webhook = self.visible_webhook(id, "webhook.read").await?;
        if seq < webhook.start {
            let text = format!("the webhook begins at event {}", webhook.start);
            return Err(Error::field("event", text));
        }
        self.record_webhook("webhook.replay", &webhook).await?;
        let begun = Instant::now();
        let (seq, result) = deliver_once(self.core, &webhook, seq).await?;
        let took: Duration = begun.elapsed();
        let attempt = DeliveryAttempt::of(seq, &result, took, self.core.now(), None);
        self.core.store.add_attempt(id, attempt.clone()).await.map_err(refuse)?;
        Ok((webhook, attempt))
    }

    async fn record_webhook(&self, action: &'static str, webhook: &Webhook) -> Result<(), Error> {
        if self.caller.scope().covers(&Scope::Own(webhook.key.owner.clone())) {
            return Ok(());
        }
        let owner = Some(webhook.key.owner.clone());
        let id = webhook.id.to_string().into();
        self.record(action, Some(AuditSubject { kind: "webhook".into(), id, owner }), "").await
    }

    /// A webhook of a task that the caller sees.
    async fn visible_webhook(&self, id: WebhookId, action: &'static str) -> Result<Webhook, Error> {
        let webhook = self.core.store.find_webhook(id).await.map_err(refuse)?;
        let webhook = webhook.ok_or_else(no_webhook)?;
        let scope = Scope::Own(webhook.key.owner.clone());
        let is_seen = self.caller.scope().covers(&scope);
        if !is_seen && !self.caller.identity().scopes.contains(Scopes::ADMIN) {
            return Err(no_webhook());
        }
        if !is_seen {
            self.require_scope(&scope, action, Some(&webhook.key.task))?;
        }
        let record = self.core.find_any(&webhook.key).await?;
        let seen = record.filter(|record| self.caller.may_use(&record.agent));
        seen.map(|_| webhook).ok_or_else(no_webhook)
    }

    /// The first event at or after a time; the end of the log if there is none.
    async fn first_since(&self, webhook: &Webhook, time: Timestamp) -> Result<Seq, Error> {
        let mut after = webhook.start.saturating_sub(1);
        loop {
            let page = self.core.store.read_log(&webhook.key, after, PAGE).await.map_err(refuse)?;
            let Some(last) = page.last() else { return Ok(after + 1) };
            if let Some(found) = page.iter().find(|logged| logged.at.is_some_and(|at| at >= time)) {
                return Ok(found.entry.seq);
            }
            after = last.entry.seq;
        }
    }
}

fn no_webhook() -> Error {
    Error::new(ErrorKind::ResourceNotFound, "no webhook has this id")
}
