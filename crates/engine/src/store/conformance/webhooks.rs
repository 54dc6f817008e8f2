//! Webhooks: registration, claims, progress, retention.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use herald_protocol::{Dialect, PushConfigId, Seq, Timestamp};

use crate::store::{
    Append, ClaimedWebhook, DeliveryAttempt, Key, MemberId, NewWebhook, NextDelivery, Retention,
    Scope, Store, StoreError, Webhook, WebhookClaim, WebhookId, WebhookLimits, WebhookProgress,
    WebhookQuery, WebhookState, WebhookTarget,
};

use super::{LIVING, OTHER, create, die, finish, finished, join, key, owner};

/// After every time that a store gives, whatever its clock shows.
fn late() -> Timestamp {
    Timestamp::from_millis(4_102_444_800_000)
}

fn new(config: &str, url: &str) -> NewWebhook {
    NewWebhook {
        id: WebhookId::random(),
        target: WebhookTarget {
            config: config.into(),
            url: url.to_owned(),
            scheme: Some("Bearer".to_owned()),
            secrets: Bytes::from_static(b"sealed"),
            dialect: Dialect::V03,
        },
        limits: WebhookLimits { per_task: 3, per_tenant: 5 },
    }
}

fn any(limit: usize) -> WebhookClaim {
    WebhookClaim { others: limit, others_per_tenant: limit, limit, ..WebhookClaim::default() }
}

async fn claim(store: &dyn Store, me: MemberId, limit: usize) -> Vec<ClaimedWebhook> {
    store.claim_webhooks(me, any(limit), late()).await.unwrap()
}

async fn put(store: &dyn Store, key: &Key, new: NewWebhook) -> Webhook {
    store.put_webhook(key, new).await.unwrap().unwrap()
}

fn attempt(seq: Seq, delivered: bool) -> DeliveryAttempt {
    DeliveryAttempt {
        seq,
        at: super::at(1),
        millis: 12,
        delivered,
        status: Some(if delivered { 200 } else { 503 }),
        detail: "detail".to_owned(),
        next: None,
    }
}

async fn record(
    store: &dyn Store,
    me: MemberId,
    id: WebhookId,
    cursor: Seq,
    attempt: Option<DeliveryAttempt>,
    next: NextDelivery,
) -> bool {
    let progress = WebhookProgress { cursor, attempt, next };
    store.record_progress(me, id, progress).await.unwrap()
}

pub(super) async fn a_webhook_is_found_as_it_was_registered(store: Arc<dyn Store>) {
    assert_eq!(store.put_webhook(&key("t"), new("a", "http://a/")).await, Ok(None), "no task");
    finished(&*store, key("t"), 1).await;
    let given = new("a", "http://a/");
    let stored = put(&*store, &key("t"), given.clone()).await;
    assert_eq!((stored.id, &stored.target, &stored.key), (given.id, &given.target, &key("t")));
    assert_eq!((stored.start, stored.cursor, stored.failures), (4, 3, 0));
    assert_eq!(stored.state, WebhookState::Ready, "the task as it is now is to be delivered");
    assert_eq!(store.find_webhook(given.id).await, Ok(Some(stored.clone())));
    assert_eq!(store.find_webhook(WebhookId::random()).await, Ok(None));
    put(&*store, &key("t"), new("b", "http://b/")).await;
    let names = |found: Vec<Webhook>| -> Vec<PushConfigId> {
        found.into_iter().map(|webhook| webhook.target.config).collect()
    };
    let all = store.webhooks_of(&key("t"), None, 10).await.unwrap();
    assert_eq!(names(all), ["a".into(), "b".into()]);
    let second = store.webhooks_of(&key("t"), Some(&"a".into()), 10).await.unwrap();
    assert_eq!(names(second), ["b".into()]);
    let foreign = Key { owner: owner("acme", "bob"), ..key("t") };
    assert_eq!(store.webhooks_of(&foreign, None, 10).await, Ok(Vec::new()));
    assert_eq!(store.remove_webhook(&foreign, &"a".into()).await, Ok(false));
    assert_eq!(store.remove_webhook(&key("t"), &"a".into()).await, Ok(true));
    assert_eq!(store.remove_webhook(&key("t"), &"a".into()).await, Ok(false));
    assert_eq!(store.find_webhook(given.id).await, Ok(None));
}

pub(super) async fn a_registration_with_the_same_name_replaces_or_renews(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    let first = put(&*store, &key("t"), new("a", "http://a/")).await;
    claim(&*store, LIVING, 10).await;
    let parked = NextDelivery::Stop(WebhookState::Parked);
    assert!(record(&*store, LIVING, first.id, 4, Some(attempt(4, false)), parked).await);
    let mut renewed = new("a", "http://a/");
    renewed.target.secrets = Bytes::from_static(b"other");
    let renewed = put(&*store, &key("t"), renewed).await;
    assert_eq!((renewed.id, renewed.cursor), (first.id, 4), "the cursor stays");
    assert_eq!((renewed.state, renewed.failures), (WebhookState::Ready, 0), "it is enabled");
    assert_eq!(&renewed.target.secrets[..], b"other");
    let replaced = put(&*store, &key("t"), new("a", "http://other/")).await;
    assert_ne!(replaced.id, first.id);
    assert_eq!(store.find_webhook(first.id).await, Ok(None));
    assert_eq!((replaced.start, replaced.cursor), (4, 3));
}

pub(super) async fn webhooks_have_limits(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    finished(&*store, key("u"), 1).await;
    for name in ["a", "b", "c"] {
        put(&*store, &key("t"), new(name, "http://a/")).await;
    }
    let full = |found: Result<_, StoreError>| matches!(found, Err(StoreError::LimitReached(_)));
    assert!(full(store.put_webhook(&key("t"), new("d", "http://a/")).await), "of the task");
    put(&*store, &key("t"), new("c", "http://replaced/")).await;
    put(&*store, &key("u"), new("a", "http://a/")).await;
    put(&*store, &key("u"), new("b", "http://a/")).await;
    assert!(full(store.put_webhook(&key("u"), new("c", "http://a/")).await), "of the tenant");
    store.remove_webhook(&key("t"), &"a".into()).await.unwrap();
    put(&*store, &key("u"), new("c", "http://a/")).await;
}

pub(super) async fn an_append_registers_its_webhook_or_nothing(store: Arc<dyn Store>) {
    let webhook = |name| Some(Box::new(new(name, "http://a/")));
    store.append(Append { webhook: webhook("a"), ..create(key("t"), 1) }).await.unwrap();
    let stored = store.webhooks_of(&key("t"), None, 10).await.unwrap();
    assert_eq!((stored[0].start, stored[0].cursor), (1, 0));
    let refused = Append { webhook: webhook("b"), ..create(key("t"), 1) };
    assert_eq!(store.append(refused).await, Err(StoreError::Conflict));
    assert_eq!(store.webhooks_of(&key("t"), None, 10).await.unwrap().len(), 1);
    let mut over = new("c", "http://a/");
    over.limits.per_tenant = 1;
    let over = Append { webhook: Some(Box::new(over)), ..create(key("u"), 1) };
    assert!(matches!(store.append(over).await, Err(StoreError::LimitReached(_))));
    assert_eq!(store.webhooks_of(&key("u"), None, 10).await, Ok(Vec::new()));
    store.append(create(key("u"), 1)).await.unwrap();
}

pub(super) async fn a_webhook_is_claimed_once_and_released_when_it_is_done(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    finished(&*store, key("t"), 1).await;
    let id = put(&*store, &key("t"), new("a", "http://a/x")).await.id;
    let claimed = claim(&*store, LIVING, 10).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].receiver, "acme http://a");
    assert!(claim(&*store, OTHER, 10).await.is_empty(), "it is claimed");
    let next = NextDelivery::Release(4);
    assert!(!record(&*store, OTHER, id, 4, None, next).await, "it is another member's");
    assert!(record(&*store, LIVING, id, 4, Some(attempt(4, true)), next).await);
    let done = store.find_webhook(id).await.unwrap().unwrap();
    assert_eq!((done.state, done.cursor, done.attempts), (WebhookState::Idle, 4, 1));
    assert!(!record(&*store, LIVING, id, 4, None, next).await, "the claim has ended");
    assert!(claim(&*store, LIVING, 10).await.is_empty());
}

pub(super) async fn an_event_during_a_claim_is_not_missed(store: Arc<dyn Store>) {
    let webhook = Some(Box::new(new("a", "http://a/")));
    store.append(Append { webhook, ..create(key("t"), 1) }).await.unwrap();
    let id = claim(&*store, LIVING, 1).await[0].webhook.id;
    store.append(finish(key("t"), 2)).await.unwrap();
    record(&*store, LIVING, id, 1, None, NextDelivery::Release(1)).await;
    let again = claim(&*store, LIVING, 1).await;
    assert_eq!(again[0].webhook.cursor, 1, "three events are left");
    record(&*store, LIVING, id, 4, None, NextDelivery::Release(4)).await;
    assert!(claim(&*store, LIVING, 1).await.is_empty());
}

pub(super) async fn a_failed_webhook_waits_for_its_time(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    let id = put(&*store, &key("t"), new("a", "http://a/")).await.id;
    claim(&*store, LIVING, 1).await;
    let at = Timestamp::from_millis(late().as_millis() + 10);
    let failed = Some(attempt(4, false));
    assert_eq!(store.next_attempt().await, Ok(None));
    assert!(record(&*store, LIVING, id, 3, failed, NextDelivery::Wait(at)).await);
    assert_eq!(store.next_attempt().await, Ok(Some(at)));
    assert!(claim(&*store, LIVING, 1).await.is_empty(), "it is not due");
    let due = store.claim_webhooks(LIVING, any(1), at).await.unwrap();
    assert_eq!((due[0].webhook.failures, due[0].webhook.cursor), (1, 3));
    assert!(record(&*store, LIVING, id, 3, None, NextDelivery::Wait(at)).await);
    let due = store.claim_webhooks(LIVING, any(1), at).await.unwrap();
    assert_eq!(
        (due[0].webhook.failures, due[0].webhook.attempts),
        (1, 1),
        "no attempt, no failure"
    );
    assert!(record(&*store, LIVING, id, 4, Some(attempt(4, true)), NextDelivery::Release(4)).await);
    assert_eq!(store.find_webhook(id).await.unwrap().unwrap().failures, 0);
}

pub(super) async fn a_stopped_webhook_waits_until_it_is_started_again(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let id = put(&*store, &key("t"), new("a", "http://a/")).await.id;
    for state in [WebhookState::Parked, WebhookState::Disabled] {
        claim(&*store, LIVING, 1).await;
        record(&*store, LIVING, id, 0, Some(attempt(1, false)), NextDelivery::Stop(state)).await;
        assert_eq!(store.find_webhook(id).await.unwrap().unwrap().state, state);
        assert!(claim(&*store, LIVING, 1).await.is_empty());
        let counted = store.count_webhooks(10).await.unwrap();
        assert!(counted.contains(&(state, 1)), "{counted:?}");
        let again = store.restart_webhook(id, None).await.unwrap().unwrap();
        assert_eq!((again.state, again.failures, again.cursor), (WebhookState::Ready, 0, 0));
    }
    claim(&*store, LIVING, 1).await;
    record(&*store, LIVING, id, 1, None, NextDelivery::Stop(WebhookState::Parked)).await;
    store.append(finish(key("t"), 2)).await.unwrap();
    assert!(claim(&*store, LIVING, 1).await.is_empty(), "an event does not start it");
    let replayed = store.restart_webhook(id, Some(2)).await.unwrap().unwrap();
    assert_eq!(replayed.cursor, 2);
    let claimed = claim(&*store, LIVING, 1).await;
    store.restart_webhook(id, Some(0)).await.unwrap();
    let lost = record(&*store, LIVING, claimed[0].webhook.id, 4, None, NextDelivery::Release(4));
    assert!(!lost.await, "a restart ends the claim");
    assert_eq!(store.restart_webhook(WebhookId::random(), None).await, Ok(None));
}

pub(super) async fn receivers_take_turns(store: Arc<dyn Store>) {
    for number in 0..5 {
        let key = key(&format!("t{number}"));
        finished(&*store, key.clone(), 1).await;
        let limits = WebhookLimits { per_task: 9, per_tenant: 99 };
        for receiver in ["a", "b", "c"] {
            let new = new(receiver, &format!("http://{receiver}/{number}"));
            put(&*store, &key, NewWebhook { limits, ..new }).await;
        }
    }
    let receivers = |claimed: &[ClaimedWebhook]| -> Vec<String> {
        claimed.iter().map(|one| one.receiver.trim_start_matches("acme ").to_owned()).collect()
    };
    let first = store.claim_webhooks(LIVING, any(10), late()).await.unwrap();
    assert_eq!(receivers(&first), ["http://a", "http://b", "http://c"], "one for each");
    let mut query = any(10);
    query.after = "acme http://a".to_owned();
    query.proven = Arc::new(HashSet::from(["acme http://b".to_owned()]));
    query.per_proven = 2;
    query.called.insert("acme http://c".to_owned(), 0);
    let second = store.claim_webhooks(LIVING, query, late()).await.unwrap();
    assert_eq!(receivers(&second), ["http://b", "http://b", "http://a"]);
    let mut query = any(10);
    query.others = 1;
    let third = store.claim_webhooks(LIVING, query, late()).await.unwrap();
    assert_eq!(receivers(&third), ["http://a"], "the others share one place");
    let mut query = any(10);
    query.others = 0;
    query.after = "acme http://b".to_owned();
    let proven = ["acme http://a", "acme http://b", "acme http://c", "acme http://d"];
    query.proven = Arc::new(HashSet::from(proven.map(str::to_owned)));
    query.per_proven = 1;
    query.called.insert("acme http://b".to_owned(), 0);
    let fourth = store.claim_webhooks(LIVING, query, late()).await.unwrap();
    assert_eq!(receivers(&fourth), ["http://c", "http://a"], "those that answer have places");
}

pub(super) async fn webhooks_of_a_dead_member_are_ready(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    finished(&*store, key("t"), 1).await;
    let id = put(&*store, &key("t"), new("a", "http://a/")).await.id;
    assert_eq!(claim(&*store, OTHER, 1).await.len(), 1);
    die(&*store, OTHER).await;
    assert_eq!(claim(&*store, LIVING, 1).await.len(), 1);
    assert!(!record(&*store, OTHER, id, 4, None, NextDelivery::Release(4)).await);
    let dead = store.claim_webhooks(OTHER, any(1), late()).await;
    assert_eq!(dead, Err(StoreError::NotMember));
}

pub(super) async fn attempts_are_kept_up_to_a_number(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    let id = put(&*store, &key("t"), new("a", "http://a/")).await.id;
    claim(&*store, LIVING, 1).await;
    for number in 0..100 {
        let attempt = DeliveryAttempt { millis: number, ..attempt(4, false) };
        assert!(record(&*store, LIVING, id, 3, Some(attempt), NextDelivery::Keep).await);
    }
    let kept = store.attempts(id).await.unwrap();
    assert_eq!(kept.len(), 32);
    assert_eq!(kept[0], DeliveryAttempt { millis: 99, ..attempt(4, false) }, "the newest first");
    assert_eq!(store.find_webhook(id).await.unwrap().unwrap().attempts, 100);
    store.remove_webhook(&key("t"), &"a".into()).await.unwrap();
    assert_eq!(store.attempts(id).await, Ok(Vec::new()));
}

pub(super) async fn a_task_with_deliveries_is_kept(store: Arc<dyn Store>) {
    let later = Timestamp::from_millis(late().as_millis() + 1);
    for (task, next) in [
        ("ready", NextDelivery::Release(3)),
        ("waiting", NextDelivery::Wait(later)),
        ("parked", NextDelivery::Stop(WebhookState::Parked)),
        ("delivered", NextDelivery::Release(4)),
    ] {
        finished(&*store, key(task), 1).await;
        let id = put(&*store, &key(task), new("a", &format!("http://{task}/"))).await.id;
        for claimed in claim(&*store, LIVING, 10).await {
            let webhook = claimed.webhook;
            let next = if webhook.id == id { next } else { NextDelivery::Release(3) };
            record(&*store, LIVING, webhook.id, 3, None, next).await;
        }
    }
    let all = Retention { ended_before: Some(late()), tasks: None, bytes: None };
    assert_eq!(store.sweep(all.clone(), 10).await, Ok(2));
    for (task, kept) in [("ready", 1), ("waiting", 1), ("parked", 0), ("delivered", 0)] {
        let webhooks = store.webhooks_of(&key(task), None, 10).await.unwrap();
        assert_eq!(webhooks.len(), kept, "{task}");
    }
    for webhook in store.webhooks_of(&key("ready"), None, 10).await.unwrap() {
        store.remove_webhook(&webhook.key, &webhook.target.config).await.unwrap();
    }
    assert_eq!(store.sweep(all, 10).await, Ok(1));
    let mut new = new("again", "http://a/");
    new.limits.per_tenant = 2;
    finished(&*store, key("later"), 1).await;
    put(&*store, &key("later"), new).await;
}

pub(super) async fn webhooks_are_listed_in_pages(store: Arc<dyn Store>) {
    let bobs = Key { owner: owner("acme", "bob"), ..key("t") };
    let others = Key { owner: owner("other", "ann"), ..key("t") };
    for key in [key("t"), bobs.clone(), others] {
        finished(&*store, key.clone(), 1).await;
        put(&*store, &key, new("a", "http://a/")).await;
        put(&*store, &key, new("b", "http://b/")).await;
    }
    let query = |scope| WebhookQuery { scope, state: None, before: None, limit: 3 };
    let count = async |query: WebhookQuery| {
        let (mut found, mut query) = (Vec::new(), query);
        loop {
            let page = store.list_webhooks(query.clone()).await.unwrap();
            assert!(page.webhooks.len() <= 3);
            found.extend(page.webhooks);
            match page.next {
                Some(next) => query.before = Some(next),
                None => return found,
            }
        }
    };
    let all = count(query(Scope::All)).await;
    assert_eq!(all.len(), 6);
    assert!(all.windows(2).all(|pair| pair[0].created >= pair[1].created), "the newest first");
    assert_eq!(count(query(Scope::Tenant("acme".into()))).await.len(), 4);
    assert_eq!(count(query(Scope::Own(bobs.owner.clone()))).await.len(), 2);
    assert_eq!(count(query(Scope::Own(owner("no", "body")))).await.len(), 0);
    let idle = WebhookQuery { state: Some(WebhookState::Idle), ..query(Scope::All) };
    assert!(count(idle).await.is_empty());
    let ready = WebhookQuery { state: Some(WebhookState::Ready), ..query(Scope::All) };
    assert_eq!(count(ready).await.len(), 6);
    assert_eq!(all[0].start, 4);
}
