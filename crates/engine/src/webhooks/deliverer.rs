//! Deliverer: claims webhooks that have an event to deliver, and delivers to many receivers at once.
//!
//! A receiver that hangs holds only its own places: one that has not answered yet gets one, one that
//! answers gets several, and some places are kept for those that answer.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use herald_protocol::{Error, Seq, TenantId, Timestamp, TraceContext};
use tokio::{sync::Notify, time::Instant};
use tracing::Instrument;

use crate::{
    budget::Quota,
    core::Core,
    fault::{no_memory, no_push, too_many_replays},
    store::{
        ClaimedWebhook, DeliveryAttempt, MemberId, NextDelivery, StoreError, Webhook, WebhookClaim,
        WebhookProgress, WebhookState,
    },
    webhooks::{
        payload::{NextPayload, Payload, PayloadReader},
        retry,
        sender::{AttemptOutcome, AttemptResult, Delivery, SealedSecrets, WebhookSender},
    },
};

/// Deliveries at once.
const PLACES: usize = 256;

/// Places that receivers which have not answered yet can have together.
const UNPROVEN_PLACES: usize = 192;

/// Places that receivers of one tenant which have not answered yet can have together.
const UNPROVEN_PLACES_PER_TENANT: usize = 96;

/// Places of a receiver that answers.
const PLACES_PER_RECEIVER: usize = 8;

/// Receivers that are known to answer. A full list is cleared.
const PROVEN: usize = 4096;

/// Events that one claim delivers before other webhooks of the receiver have their turn.
const TURN: usize = 16;

/// The wait for further events after the first one. A short task then ends before its deliveries begin, which would
/// slow down the send that waits for it, and one claim takes the webhooks of several tasks.
const GATHER: Duration = Duration::from_millis(5);

/// The longest wait between two looks for due webhooks, in case a notification was lost.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest time for which a shutdown waits for the answer of a receiver.
const LAST_ATTEMPT: Duration = Duration::from_secs(2);

/// The wait of a delivery whose memory others have.
const MEMORY_RETRY: i64 = 1000;

/// The longest text of a failure that is stored.
const DETAIL: usize = 300;

/// The deliverer of one engine.
#[derive(Debug)]
pub(crate) struct Deliverer {
    core: Arc<Core>,
    sender: Arc<dyn WebhookSender>,
    places: Arc<Places>,
    /// The receiver whose turn was the last.
    last: String,
}

/// The receivers that are called now, and those that are known to answer.
#[derive(Debug, Default)]
struct Places {
    taken: Mutex<PlacesTaken>,
    /// Wakes the deliverer: a place is free again.
    freed: Notify,
}

#[derive(Debug, Default)]
struct PlacesTaken {
    /// The tenant of each receiver that is called, and the number of its places.
    by_receiver: HashMap<String, (TenantId, usize)>,
    proven: Arc<HashSet<String>>,
}

/// A place for one delivery, free again when it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    receiver: String,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, PlacesTaken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The query for the free places.
    fn claim(&self, after: &str) -> WebhookClaim {
        let taken = self.lock();
        let (mut called, mut all, mut unproven) = (HashMap::new(), 0, 0);
        let mut unproven_of: HashMap<String, usize> = HashMap::new();
        for (receiver, (tenant, places)) in &taken.by_receiver {
            all += places;
            let left = if taken.proven.contains(receiver) {
                PLACES_PER_RECEIVER.saturating_sub(*places)
            } else {
                unproven += places;
                *unproven_of.entry(tenant.to_string()).or_default() += places;
                0
            };
            called.insert(receiver.clone(), left);
        }
        WebhookClaim {
            after: after.to_owned(),
            called,
            proven: Arc::clone(&taken.proven),
            per_proven: PLACES_PER_RECEIVER,
            others: UNPROVEN_PLACES.saturating_sub(unproven),
            others_per_tenant: UNPROVEN_PLACES_PER_TENANT,
            others_of: unproven_of,
            limit: PLACES.saturating_sub(all),
        }
    }

    /// True if the receiver is known to answer.
    fn is_proven(&self, receiver: &str) -> bool {
        self.lock().proven.contains(receiver)
    }

    /// Notes that a receiver answers, or that it does not.
    fn note(&self, receiver: &str, answers: bool) {
        let mut taken = self.lock();
        if taken.proven.contains(receiver) == answers {
            return;
        }
        let proven = Arc::make_mut(&mut taken.proven);
        if !answers {
            proven.remove(receiver);
            return;
        }
        if proven.len() >= PROVEN {
            proven.clear();
        }
        proven.insert(receiver.to_owned());
    }
}

impl PlacesTaken {
    fn add(&mut self, receiver: &str, tenant: &TenantId) {
        let new = || (tenant.clone(), 0);
        self.by_receiver.entry(receiver.to_owned()).or_insert_with(new).1 += 1;
    }
}

impl Place {
    fn take(places: &Arc<Places>, receiver: String, tenant: &TenantId) -> Self {
        places.lock().add(&receiver, tenant);
        Self { places: Arc::clone(places), receiver }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some((_, places)) = taken.by_receiver.get_mut(&self.receiver) {
            *places -= 1;
            if *places == 0 {
                taken.by_receiver.remove(&self.receiver);
            }
        }
        drop(taken);
        self.places.freed.notify_one();
    }
}

impl Deliverer {
    pub(crate) fn new(core: &Arc<Core>, sender: Arc<dyn WebhookSender>) -> Self {
        let (places, last) = (Arc::default(), String::new());
        Self { core: Arc::clone(core), sender, places, last }
    }

    /// Delivers until the engine shuts down.
    pub(crate) async fn run(mut self) {
        while !self.core.is_draining() {
            let wait = match self.claim().await {
                Ok(0) => self.until_next_attempt().await,
                // There may be more.
                Ok(_) => continue,
                // The store has logged its error.
                Err(_) => self.core.settings.heartbeat_every,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.core.webhooks.ready.notified() => self.gather().await,
                () = self.places.freed.notified() => {}
                () = self.core.draining.cancelled() => {}
            }
        }
    }

    /// Waits for further events, unless a place becomes free.
    async fn gather(&self) {
        tokio::select! {
            () = tokio::time::sleep(GATHER) => {}
            () = self.places.freed.notified() => {}
            () = self.core.draining.cancelled() => {}
        }
    }

    /// Claims webhooks for the free places and delivers to each in a task of its own. Returns their number.
    async fn claim(&mut self) -> Result<usize, StoreError> {
        let claim = self.places.claim(&self.last);
        if claim.limit == 0 {
            return Ok(0);
        }
        let me = self.core.member().await?;
        let claimed = self.core.store.claim_webhooks(me, claim, self.core.now()).await?;
        let count = claimed.len();
        if let Some(last) = claimed.last() {
            self.last.clone_from(&last.receiver);
        }
        for ClaimedWebhook { webhook, receiver } in claimed {
            let tenant = &webhook.key.owner.tenant;
            let place = Place::take(&self.places, receiver, tenant);
            let delivering = Delivering {
                core: Arc::clone(&self.core),
                sender: Arc::clone(&self.sender),
                me,
                webhook,
            };
            self.core.work.spawn(async move { delivering.run(place).await });
        }
        Ok(count)
    }

    /// The time until the next attempt is due.
    async fn until_next_attempt(&self) -> Duration {
        // The store has logged its error.
        let Ok(Some(next)) = self.core.store.next_attempt().await else { return LONGEST_WAIT };
        let millis = next.as_millis().saturating_sub(self.core.now().as_millis());
        // At least a millisecond: a claim before the time finds nothing.
        let millis = u64::try_from(millis).unwrap_or_default().max(1);
        Duration::from_millis(millis).min(LONGEST_WAIT)
    }
}

/// Deliveries to one claimed webhook.
#[derive(Debug)]
struct Delivering {
    core: Arc<Core>,
    sender: Arc<dyn WebhookSender>,
    me: MemberId,
    webhook: Webhook,
}

impl Delivering {
    /// Delivers the events after the cursor, in order. A shutdown ends it after an attempt; the next start
    /// continues.
    async fn run(self, place: Place) {
        let quota = quota(&self.core, place.places.is_proven(&place.receiver));
        let mut reader = PayloadReader::new(&self.core, &self.webhook, quota);
        let mut delivered = self.webhook.cursor;
        for number in 1..=TURN {
            let payload = match reader.next().await {
                Ok(NextPayload::Ready(payload)) => payload,
                Ok(NextPayload::End) => {
                    let next = NextDelivery::Release(reader.seen());
                    self.record(reader.reached(), None, next).await;
                    return;
                }
                Ok(NextPayload::NoMemory) => {
                    let at = self.core.now().as_millis().saturating_add(MEMORY_RETRY);
                    let next = NextDelivery::Wait(Timestamp::from_millis(at));
                    self.record(reader.reached(), None, next).await;
                    return;
                }
                Err(error) => {
                    let (webhook, task) = (self.webhook.id, &self.webhook.key.task);
                    tracing::warn!(%webhook, %task, %error, "an event cannot be read for its webhook");
                    let result = AttemptResult::failed("the event cannot be read");
                    self.failed(delivered, reader.reached() + 1, &result, Duration::ZERO).await;
                    return;
                }
            };
            let seq = payload.seq;
            let failures = if delivered == self.webhook.cursor { self.webhook.failures } else { 0 };
            let parent = reader.trace();
            let begun = Instant::now();
            let attempt = attempt(
                &self.core,
                &*self.sender,
                &self.webhook,
                payload,
                parent.as_ref(),
                failures + 1,
            );
            let result = tokio::select! {
                result = attempt => result,
                // The claim ends with the membership, and the next holder sends the event again.
                () = self.stopping() => return,
            };
            let took = begun.elapsed();
            place.places.note(&place.receiver, result.status.is_some());
            match result.outcome {
                AttemptOutcome::Delivered => {
                    delivered = seq;
                    self.core.webhooks.metrics.delivered.count();
                    self.core.webhooks.metrics.lag.took(self.lag());
                    let next = if number == TURN || self.core.is_draining() {
                        NextDelivery::Release(seq)
                    } else {
                        NextDelivery::Keep
                    };
                    let attempt = DeliveryAttempt::of(seq, &result, took, self.core.now(), None);
                    if !self.record(delivered, Some(attempt), next).await {
                        return;
                    }
                    if next != NextDelivery::Keep {
                        return;
                    }
                }
                AttemptOutcome::Failed | AttemptOutcome::Gone => {
                    self.failed(delivered, seq, &result, took).await;
                    return;
                }
            }
        }
    }

    /// Waits until the engine shuts down, and then for as long as an attempt may delay that.
    async fn stopping(&self) {
        self.core.draining.cancelled().await;
        tokio::time::sleep(LAST_ATTEMPT).await;
    }

    /// Records a failed attempt and its consequence.
    async fn failed(&self, cursor: Seq, seq: Seq, result: &AttemptResult, took: Duration) {
        let metrics = &self.core.webhooks.metrics;
        metrics.failed.count();
        // The count of failures belongs to one event: a delivery in this claim has reset it.
        let failures = if cursor == self.webhook.cursor { self.webhook.failures } else { 0 };
        let schedule = &self.core.settings.webhooks.retry;
        let wait = retry::wait(schedule, self.webhook.id, failures + 1, result.retry_after);
        let (webhook, task) = (self.webhook.id, &self.webhook.key.task);
        let next = match (result.outcome, wait) {
            (AttemptOutcome::Gone, _) => {
                metrics.disabled.count();
                tracing::warn!(%webhook, %task, "a webhook is disabled: its receiver answered 410");
                NextDelivery::Stop(WebhookState::Disabled)
            }
            (_, Some(wait)) => {
                let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
                let at = self.core.now().as_millis().saturating_add(wait);
                NextDelivery::Wait(Timestamp::from_millis(at))
            }
            (_, None) => {
                metrics.parked.count();
                let cause = &result.detail;
                tracing::warn!(%webhook, %task, cause, "a webhook is parked: the last attempt failed");
                NextDelivery::Stop(WebhookState::Parked)
            }
        };
        let at = match next {
            NextDelivery::Wait(at) => Some(at),
            NextDelivery::Keep | NextDelivery::Release(_) | NextDelivery::Stop(_) => None,
        };
        let attempt = DeliveryAttempt::of(seq, result, took, self.core.now(), at);
        self.record(cursor, Some(attempt), next).await;
        // The wait may be shorter than the one that the deliverer is in.
        self.core.webhooks.ready.notify_one();
    }

    /// Records the progress, with retries while the store is unavailable. Returns false if the claim has
    /// ended.
    async fn record(
        &self,
        cursor: Seq,
        attempt: Option<DeliveryAttempt>,
        next: NextDelivery,
    ) -> bool {
        let progress = WebhookProgress { cursor, attempt, next };
        let record = || self.core.store.record_progress(self.me, self.webhook.id, progress.clone());
        let is_unavailable = |error: &StoreError| matches!(error, StoreError::Unavailable(_));
        self.core.retry_while_unavailable(record, is_unavailable).await.unwrap_or(false)
    }

    /// The time since the webhook had something to deliver.
    fn lag(&self) -> Duration {
        let millis = self.core.now().as_millis().saturating_sub(self.webhook.due.as_millis());
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }
}

/// Delivers one event of a webhook once: the first delivery from this event on. The cursor stays.
pub(crate) async fn deliver_once(
    core: &Core,
    webhook: &Webhook,
    seq: Seq,
) -> Result<(Seq, AttemptResult), Error> {
    let sender = core.webhooks.sender.as_ref().ok_or_else(no_push)?;
    let _place = core.webhooks.replays.try_acquire().map_err(|_| too_many_replays())?;
    let webhook = Webhook { cursor: seq.saturating_sub(1), ..webhook.clone() };
    let mut reader = PayloadReader::new(core, &webhook, quota(core, false));
    let payload = match reader.next().await? {
        NextPayload::Ready(payload) => payload,
        NextPayload::End => {
            return Err(Error::field("event", "the task has no such event yet"));
        }
        NextPayload::NoMemory => return Err(no_memory()),
    };
    let (seq, parent) = (payload.seq, reader.trace());
    Ok((seq, attempt(core, &**sender, &webhook, payload, parent.as_ref(), 1).await))
}

/// The memory of deliveries to receivers that answer, or to the others. A receiver that hangs holds
/// that of the others only.
fn quota(core: &Core, is_proven: bool) -> Arc<Quota> {
    let pools = &core.deliveries;
    Arc::clone(if is_proven { &pools.proven } else { &pools.unproven })
}

/// Makes one attempt at a delivery, in a span of its own below the trace of its message.
async fn attempt(
    core: &Core,
    sender: &dyn WebhookSender,
    webhook: &Webhook,
    payload: Payload,
    parent: Option<&TraceContext>,
    number: u32,
) -> AttemptResult {
    let own = core.span_below(parent);
    let span = core.delivery_span(webhook, payload.seq, number, parent, own.as_ref());
    let sending = sender.send(delivery(webhook, payload, own));
    let result = sending.instrument(span.clone()).await;
    if !span.is_disabled() {
        span.record("failed", result.outcome != AttemptOutcome::Delivered);
        if let Some(status) = result.status {
            span.record("status", status);
        }
        if result.status.is_none() {
            span.record("error", "unreachable");
        }
    }
    result
}

fn delivery(webhook: &Webhook, payload: Payload, trace: Option<TraceContext>) -> Delivery {
    Delivery {
        id: webhook.delivery_id(payload.seq),
        tenant: webhook.key.owner.tenant.clone(),
        url: webhook.target.url.clone(),
        secrets: SealedSecrets(webhook.target.secrets.clone()),
        body: payload.body,
        content_type: payload.content_type,
        trace,
    }
}

impl DeliveryAttempt {
    /// The record of an attempt that has just ended.
    pub(crate) fn of(
        seq: Seq,
        result: &AttemptResult,
        took: Duration,
        at: Timestamp,
        next: Option<Timestamp>,
    ) -> Self {
        let mut detail = result.detail.clone();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL) {
            detail.truncate(end);
        }
        Self {
            seq,
            at,
            millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            delivered: result.outcome == AttemptOutcome::Delivered,
            status: result.status,
            detail,
            next,
        }
    }
}

impl AttemptResult {
    /// A failure without an answer of the receiver.
    fn failed(detail: &str) -> Self {
        let (outcome, detail) = (AttemptOutcome::Failed, detail.to_owned());
        Self { outcome, status: None, retry_after: None, detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_does_not_answer_gets_one_place() {
        let places = Places::default();
        places.lock().add("slow", &"a".into());
        places.lock().add("fast", &"a".into());
        places.note("fast", true);
        let claim = places.claim("");
        assert_eq!(claim.called["slow"], 0);
        assert_eq!(claim.called["fast"], PLACES_PER_RECEIVER - 1);
        assert_eq!(claim.others, UNPROVEN_PLACES - 1);
        assert_eq!(claim.others_of, HashMap::from([("a".to_owned(), 1)]));
        assert_eq!(claim.limit, PLACES - 2);
        places.note("fast", false);
        assert_eq!(places.claim("").called["fast"], 0);
    }

    #[test]
    fn receivers_that_answer_have_places_left_when_others_hang() {
        let places = Places::default();
        for number in 0..UNPROVEN_PLACES {
            places.lock().add(&format!("slow {number}"), &"a".into());
        }
        let claim = places.claim("");
        assert_eq!(claim.others, 0);
        assert_eq!(claim.limit, PLACES - UNPROVEN_PLACES);
    }
}
