//! Checks of lists and conversation histories.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use herald_protocol::TaskState;

use super::{
    super::{
        Append, Header, HistoryQuery, Kind, ListCursor, ListQuery, Listing, Owner, Run, Scope,
        Store, TaskVersion,
    },
    Key, at, body, create, finish, finished, header, key, owner, snapshot,
};

fn all() -> ListQuery {
    ListQuery {
        scope: Scope::Own(owner("acme", "ann")),
        agent: None,
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 1000,
        artifacts: false,
    }
}

fn ids(listing: &Listing) -> Vec<&str> {
    listing.tasks.iter().map(|(key, _)| key.task.as_str()).collect()
}

/// All pages of a query. Each page must be consistent with the others.
async fn walk(store: &dyn Store, query: &ListQuery, limit: usize) -> Vec<(Key, Header)> {
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = store.list(ListQuery { after, limit, ..query.clone() }).await.unwrap();
        assert!(page.tasks.len() <= limit);
        seen.extend(page.tasks.into_iter().map(|(key, stored)| (key, stored.header)));
        match page.next {
            Some(next) => {
                let (_, last) = seen.last().expect("a page with a next one is not empty");
                assert_eq!(next.changed, last.changed);
                after = Some(next);
            }
            None => {
                assert_eq!(page.total, seen.len() as u64, "{query:?}");
                return seen;
            }
        }
    }
}

/// Compares the lists of a few hundred tasks in every state with a filter over all of them.
pub(super) async fn a_list_matches_its_filters(store: Arc<dyn Store>) {
    let owners = [owner("acme", "ann"), owner("acme", "bob"), owner("other", "ann")];
    let mut written = Vec::new();
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for number in 0..400 {
        let owner = owners[random(3) as usize].clone();
        let key = Key { owner, task: format!("t{number}").as_str().into() };
        // Few different times, so that many tasks have the same one.
        let mut head = header(TaskState::ALL[random(8) as usize], random(12) as i64);
        head.agent = format!("agent-{}", random(3)).as_str().into();
        head.context = format!("context-{}", random(4)).as_str().into();
        head.hidden = random(10) == 0;
        let first = Append { header: head.clone(), ..create(key.clone(), 1) };
        store.append(first.clone()).await.unwrap();
        if random(2) == 0 {
            head.state = TaskState::ALL[random(8) as usize];
            head.changed = at(random(12) as i64);
            store
                .append(Append { expect: TaskVersion::new(1, 0), header: head.clone(), ..first })
                .await
                .unwrap();
        }
        written.push((key, head));
    }
    let mut states = vec![None];
    states.extend(TaskState::ALL.map(Some));
    let mut scopes = vec![Scope::Tenant("acme".into()), Scope::Tenant("x".into()), Scope::All];
    scopes.extend(owners.iter().cloned().map(Scope::Own));
    for scope in &scopes {
        for agent in [None, Some("agent-1".into()), Some("agent-9".into())] {
            for context in [None, Some("context-2".into()), Some("context-9".into())] {
                for since in [None, Some(at(5)), Some(at(99))] {
                    for state in &states {
                        let query = ListQuery {
                            scope: scope.clone(),
                            agent: agent.clone(),
                            context: context.clone(),
                            state: *state,
                            since,
                            ..all()
                        };
                        let seen = walk(&*store, &query, 7).await;
                        compare(&written, &query, &seen);
                    }
                }
            }
        }
    }
}

fn covers(scope: &Scope, owner: &Owner) -> bool {
    match scope {
        Scope::Own(own) => own == owner,
        Scope::Tenant(tenant) => *tenant == owner.tenant,
        Scope::All => true,
    }
}

fn compare(written: &[(Key, Header)], query: &ListQuery, seen: &[(Key, Header)]) {
    let matching = written.iter().filter(|(key, header)| {
        covers(&query.scope, &key.owner)
            && !header.hidden
            && query.agent.as_ref().is_none_or(|agent| header.agent == *agent)
            && query.context.as_ref().is_none_or(|context| header.context == *context)
            && query.state.is_none_or(|state| header.state == state)
            && query.since.is_none_or(|since| header.changed >= since)
    });
    let expected: HashSet<&Key> = matching.map(|(key, _)| key).collect();
    let found: HashSet<&Key> = seen.iter().map(|(key, _)| key).collect();
    assert_eq!(found, expected, "{query:?}");
    assert_eq!(found.len(), seen.len(), "no task is listed twice: {query:?}");
    assert!(seen.is_sorted_by(|(_, a), (_, b)| a.changed >= b.changed), "{query:?}");
}

pub(super) async fn a_page_continues_where_the_last_one_ended(store: Arc<dyn Store>) {
    for number in 0..20 {
        // All at the same time, so that only the cursor distinguishes them.
        finished(&*store, key(&format!("t{number}")), 1).await;
    }
    let whole = walk(&*store, &all(), 100).await;
    assert_eq!(whole.len(), 20);
    for limit in [1, 2, 19, 20, 21] {
        assert_eq!(walk(&*store, &all(), limit).await, whole, "pages of {limit}");
    }
    let none = store.list(ListQuery { limit: 0, ..all() }).await.unwrap();
    assert_eq!(none, Listing { tasks: vec![], next: None, total: 20 });
    let nobody = ListQuery { scope: Scope::Own(owner("nobody", "")), ..all() };
    assert_eq!(store.list(nobody).await, Ok(Listing::default()));
    let end = ListQuery { after: Some(ListCursor { changed: at(0), row: 0 }), ..all() };
    assert_eq!(store.list(end).await, Ok(Listing { tasks: vec![], next: None, total: 20 }));
}

pub(super) async fn a_changed_task_moves_to_the_front(store: Arc<dyn Store>) {
    for (number, task) in ["a", "b", "c"].into_iter().enumerate() {
        store.append(create(key(task), number as i64)).await.unwrap();
    }
    assert_eq!(ids(&store.list(all()).await.unwrap()), ["c", "b", "a"]);
    store.append(finish(key("b"), 9)).await.unwrap();
    assert_eq!(ids(&store.list(all()).await.unwrap()), ["b", "c", "a"]);
    let submitted = ListQuery { state: Some(TaskState::Submitted), ..all() };
    let listing = store.list(submitted).await.unwrap();
    assert_eq!((ids(&listing), listing.total), (vec!["c", "a"], 2));
}

pub(super) async fn a_hidden_task_is_listed_once_it_is_shown(store: Arc<dyn Store>) {
    let mut append = create(key("t"), 1);
    append.header.hidden = true;
    store.append(append).await.unwrap();
    for context in [None, Some("chat".into())] {
        let query = ListQuery { context, ..all() };
        assert_eq!(store.list(query).await, Ok(Listing::default()));
    }
    store.append(finish(key("t"), 2)).await.unwrap();
    for context in [None, Some("chat".into())] {
        let listing = store.list(ListQuery { context, ..all() }).await.unwrap();
        assert_eq!((ids(&listing), listing.total), (vec!["t"], 1));
    }
}

pub(super) async fn artifacts_are_left_out_unless_asked_for(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    for context in [None, Some("chat".into())] {
        let query = ListQuery { context, ..all() };
        let mut expected = snapshot(4);
        let with = ListQuery { artifacts: true, ..query.clone() };
        let listing = store.list(with).await.unwrap();
        assert_eq!(listing.tasks[0].1.snapshot, Some(expected.clone()));
        let listing = store.list(query).await.unwrap();
        expected.artifacts = Bytes::new();
        assert_eq!(listing.tasks[0].1.snapshot, Some(expected));
    }
}

pub(super) async fn a_running_task_is_listed_with_its_events(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let run = Run { turn: 1, ..Run::default() };
    let more = Append {
        expect: TaskVersion::new(1, 0),
        header: Header { run, ..header(TaskState::Working, 2) },
        events: vec![(Kind::Status(TaskState::Working), body("w")), (Kind::Artifact, body("a"))],
        ..create(key("t"), 1)
    };
    store.append(more).await.unwrap();
    let listing = store.list(all()).await.unwrap();
    let (_, stored) = &listing.tasks[0];
    assert_eq!(Some(stored), store.load(&key("t"), None, u64::MAX).await.unwrap().whole().as_ref());
    assert_eq!((stored.head, stored.since.len()), (3, 3));
}

fn conversation() -> HistoryQuery {
    let (owner, context) = (owner("acme", "ann"), "chat".into());
    HistoryQuery { owner, agent: "echo".into(), context, tasks: 10, bytes: 1000 }
}

async fn history(store: &dyn Store, query: HistoryQuery) -> Vec<String> {
    let found = store.conversation_history(query).await.unwrap();
    for (id, stored) in &found {
        let whole = store.load(&key(id.as_str()), None, u64::MAX).await.unwrap().whole();
        assert_eq!(Some(stored), whole.as_ref(), "with its artifacts");
    }
    found.into_iter().map(|(id, _)| id.to_string()).collect()
}

pub(super) async fn a_conversation_history_is_in_the_order_of_acceptance(store: Arc<dyn Store>) {
    assert!(history(&*store, conversation()).await.is_empty());
    // In the order of acceptance, regardless of the clock and of the order in which they ended.
    for (task, now) in [("a", 3), ("b", 1), ("c", 2)] {
        store.append(create(key(task), now)).await.unwrap();
    }
    for task in ["c", "b"] {
        store.append(finish(key(task), 9)).await.unwrap();
    }
    let mut paused = finish(key("a"), 9);
    paused.header.state = TaskState::InputRequired;
    store.append(paused).await.unwrap();
    store.append(create(key("waits"), 4)).await.unwrap();
    for (change, name) in [("agent", "x"), ("context", "y"), ("hidden", "z")] {
        let mut begun = create(key(name), 5);
        let mut ended = finish(key(name), 5);
        for header in [&mut begun.header, &mut ended.header] {
            match change {
                "agent" => header.agent = "other".into(),
                "context" => header.context = "other".into(),
                _ => header.hidden = true,
            }
        }
        store.append(begun).await.unwrap();
        store.append(ended).await.unwrap();
    }
    let foreign = Key { owner: owner("acme", "bob"), ..key("foreign") };
    finished(&*store, foreign, 6).await;
    assert_eq!(history(&*store, conversation()).await, ["a", "b", "c"]);
    let nobody = HistoryQuery { owner: owner("nobody", ""), ..conversation() };
    assert!(history(&*store, nobody).await.is_empty());
    let unknown = HistoryQuery { agent: "unknown".into(), ..conversation() };
    assert!(history(&*store, unknown).await.is_empty());
}

pub(super) async fn a_conversation_history_respects_its_size_limit(store: Arc<dyn Store>) {
    for number in 0..5 {
        finished(&*store, key(&format!("t{number}")), number).await;
    }
    let of = |tasks, bytes| history(&*store, HistoryQuery { tasks, bytes, ..conversation() });
    assert_eq!(of(2, 1000).await, ["t3", "t4"]);
    assert!(of(0, 1000).await.is_empty());
    // The limit counts the history and the artifacts.
    let each = snapshot(4).history.len() + snapshot(4).artifacts.len();
    assert_eq!(of(10, 3 * each).await, ["t2", "t3", "t4"]);
    assert_eq!(of(10, 3 * each - 1).await, ["t3", "t4"]);
    assert!(of(10, each - 1).await.is_empty());
}
