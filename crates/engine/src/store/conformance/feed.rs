//! Checks of feeds: order, filters, scopes, skipped events.

use std::{slice, sync::Arc};

use bytes::Bytes;
use herald_protocol::TaskState;

use super::{
    super::{
        Append, FeedEntry, FeedQuery, Header, Kind, Position, Retention, Scope, Store, TaskVersion,
    },
    Key, body, create, finish, finished, key, owner,
};

fn of(tenant: &str, principal: &str) -> FeedQuery {
    FeedQuery {
        scope: Scope::Own(owner(tenant, principal)),
        agent: None,
        tasks: Vec::new(),
        after: Some(0),
        limit: 3,
    }
}

/// All events up to the end, and the last position.
async fn all(store: &dyn Store, mut query: FeedQuery) -> (Vec<FeedEntry>, Position) {
    let mut found = Vec::new();
    loop {
        let page = store.feed(&query).await.unwrap();
        assert!(page.entries.len() <= query.limit);
        assert!(Some(page.reached) >= query.after);
        let within = |entry: &FeedEntry| {
            Some(entry.position) > query.after && entry.position <= page.reached
        };
        assert!(page.entries.iter().all(within));
        found.extend(page.entries);
        if query.after == Some(page.reached) {
            return (found, page.reached);
        }
        query.after = Some(page.reached);
    }
}

fn names(found: &[FeedEntry]) -> Vec<(String, u64)> {
    found.iter().map(|one| (one.key.task.to_string(), one.entry.seq)).collect()
}

fn bobs(task: &str) -> Key {
    Key { owner: owner("acme", "bob"), task: task.into() }
}

pub(super) async fn a_feed_is_in_the_order_of_the_commits(store: Arc<dyn Store>) {
    store.append(create(key("a"), 1)).await.unwrap();
    store.append(create(bobs("x"), 2)).await.unwrap();
    store.append(create(key("b"), 3)).await.unwrap();
    store.append(finish(key("a"), 4)).await.unwrap();
    store.append(finish(bobs("x"), 5)).await.unwrap();
    let (found, end) = all(&*store, of("acme", "ann")).await;
    let expected = [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 4)];
    assert_eq!(names(&found), expected.map(|(task, seq)| (task.to_owned(), seq)));
    assert_eq!(found[1].entry.kind, Kind::Received(TaskState::Submitted));
    assert_eq!(found[3].entry.body, body("result"));
    assert_eq!(found[0].agent.as_str(), "echo");
    assert!(found.windows(2).all(|pair| pair[0].position < pair[1].position));
    // From each position, the events after it.
    for (index, last) in found.iter().enumerate() {
        let query = FeedQuery { after: Some(last.position), ..of("acme", "ann") };
        assert_eq!(all(&*store, query).await, (found[index + 1..].to_vec(), end));
    }
    let (theirs, _) = all(&*store, of("acme", "bob")).await;
    assert_eq!(names(&theirs).len(), 4);
    assert_eq!(all(&*store, of("nobody", "ann")).await, (Vec::new(), end));
}

pub(super) async fn a_feed_can_be_filtered(store: Arc<dyn Store>) {
    for task in ["a", "b", "c"] {
        let mut append = create(key(task), 1);
        append.header.agent = if task == "b" { "other".into() } else { "echo".into() };
        store.append(append).await.unwrap();
    }
    let agent = |name: &str| FeedQuery { agent: Some(name.into()), ..of("acme", "ann") };
    let tasks = |ids: &[&str]| FeedQuery {
        tasks: ids.iter().map(|id| (*id).into()).collect(),
        ..of("acme", "ann")
    };
    for (query, expected) in [
        (agent("echo"), &["a", "c"][..]),
        (agent("other"), &["b"]),
        (agent("nobody"), &[]),
        (tasks(&["b", "c"]), &["b", "c"]),
        (tasks(&["x"]), &[]),
    ] {
        let (found, end) = all(&*store, query).await;
        let found: Vec<_> = found.iter().map(|one| one.key.task.as_str()).collect();
        assert_eq!((found.as_slice(), end > 0), (expected, true));
    }
}

pub(super) async fn a_feed_skips_the_events_of_other_owners(store: Arc<dyn Store>) {
    store.append(create(key("first"), 1)).await.unwrap();
    let mut crowd = create(bobs("crowd"), 1);
    crowd.events.extend((0..3000).map(|_| (Kind::Artifact, body("chunk"))));
    store.append(crowd).await.unwrap();
    store.append(create(key("last"), 2)).await.unwrap();
    // The number of calls does not depend on the number of skipped events.
    let (mut steps, mut query) = (0, of("acme", "ann"));
    loop {
        let page = store.feed(&query).await.unwrap();
        query.after = Some(page.reached);
        steps += 1;
        if page.entries.iter().any(|found| found.key.task.as_str() == "last") {
            break;
        }
    }
    assert!(steps <= 3, "{steps} steps to find two events");
    let (found, _) = all(&*store, of("acme", "ann")).await;
    assert_eq!(names(&found), [("first".to_owned(), 1), ("last".to_owned(), 1)]);
    let (found, _) = all(&*store, FeedQuery { limit: 1000, ..of("acme", "bob") }).await;
    assert!(found.iter().map(|one| one.entry.seq).eq(1..=3001));
}

pub(super) async fn a_feed_never_shows_a_hidden_log(store: Arc<dyn Store>) {
    let hidden = |append: Append| Append {
        header: Header { hidden: true, ..append.header },
        snapshot: None,
        ..append
    };
    store.append(hidden(create(key("direct"), 1))).await.unwrap();
    let mut reply = hidden(finish(key("direct"), 2));
    reply.events = vec![(Kind::Reply, body("answer"))];
    store.append(reply).await.unwrap();
    store.append(create(key("shown"), 3)).await.unwrap();
    let (found, _) = all(&*store, of("acme", "ann")).await;
    assert_eq!(names(&found), [("shown".to_owned(), 1)]);
}

pub(super) async fn a_feed_keeps_its_end_after_events_are_removed(store: Arc<dyn Store>) {
    let end = async || {
        let query = FeedQuery { after: None, ..of("acme", "ann") };
        let page = store.feed(&query).await.unwrap();
        assert!(page.entries.is_empty());
        page.reached
    };
    assert_eq!(end().await, 0);
    finished(&*store, key("old"), 1).await;
    let before = end().await;
    assert!(before >= 4);
    assert_eq!(all(&*store, of("acme", "ann")).await.1, before);
    let nothing = Retention { ended_before: None, tasks: Some(0), bytes: None };
    assert_eq!(store.sweep(nothing, 10).await, Ok(1));
    assert_eq!(end().await, before, "positions are not used again");
    assert_eq!(all(&*store, of("acme", "ann")).await, (Vec::new(), before));
    store.append(create(key("new"), 2)).await.unwrap();
    let query = FeedQuery { after: Some(before), ..of("acme", "ann") };
    let (found, after) = all(&*store, query).await;
    assert_eq!(names(&found), [("new".to_owned(), 1)]);
    assert!(after > before);
}

pub(super) async fn a_feed_of_big_events_comes_in_small_pages(store: Arc<dyn Store>) {
    let chunk = Bytes::from(vec![b'x'; 1_000_000]);
    let mut append = create(key("t"), 1);
    append.events.extend((0..12).map(|_| (Kind::Artifact, chunk.clone())));
    store.append(append).await.unwrap();
    let query = FeedQuery { limit: 100, ..of("acme", "ann") };
    assert!(store.feed(&query).await.unwrap().entries.len() < 6);
    assert_eq!(all(&*store, query).await.0.len(), 13);
}

pub(super) async fn a_feed_of_a_tenant_has_the_events_of_all_its_owners(store: Arc<dyn Store>) {
    let other = Key { owner: owner("other", "ann"), task: "a".into() };
    let written = [key("a"), other.clone(), bobs("a"), key("b")];
    for task in &written {
        store.append(create(task.clone(), 1)).await.unwrap();
    }
    let mut hidden = create(bobs("hidden"), 1);
    hidden.header.hidden = true;
    store.append(hidden).await.unwrap();
    let keys = async |scope, limit| {
        let query = FeedQuery { scope, limit, ..of("acme", "ann") };
        let (found, _) = all(&*store, query).await;
        assert!(found.windows(2).all(|pair| pair[0].position < pair[1].position));
        found.into_iter().map(|one| one.key).collect::<Vec<_>>()
    };
    for limit in [1, 3, 100] {
        let acme = keys(Scope::Tenant("acme".into()), limit).await;
        assert_eq!(acme, [key("a"), bobs("a"), key("b")]);
        assert_eq!(keys(Scope::Tenant("other".into()), limit).await, slice::from_ref(&other));
        assert!(keys(Scope::Tenant("nobody".into()), limit).await.is_empty());
        assert_eq!(keys(Scope::All, limit).await, written);
    }
    // With a filter on tasks and agent, from the first position.
    let mut crowd = create(other, 2);
    crowd.expect = TaskVersion::new(1, 0);
    crowd.events.extend((0..3000).map(|_| (Kind::Artifact, body("chunk"))));
    store.append(crowd).await.unwrap();
    let mut last = create(bobs("last"), 3);
    last.header.agent = "other".into();
    store.append(last).await.unwrap();
    let acme = || FeedQuery { scope: Scope::Tenant("acme".into()), ..of("acme", "ann") };
    let (found, end) = all(&*store, acme()).await;
    assert_eq!(found.last().unwrap().key, bobs("last"));
    let narrowed = FeedQuery { tasks: vec!["a".into()], ..acme() };
    assert_eq!(names(&all(&*store, narrowed).await.0), [("a".to_owned(), 1), ("a".to_owned(), 1)]);
    let narrowed = FeedQuery { agent: Some("other".into()), ..acme() };
    assert_eq!(names(&all(&*store, narrowed).await.0), [("last".to_owned(), 1)]);
    assert_eq!(all(&*store, FeedQuery { after: Some(end), ..acme() }).await, (Vec::new(), end));
}
