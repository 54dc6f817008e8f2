//! Checks of appends: versions, fencing, idempotency keys, loads.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use herald_protocol::TaskState;
use tokio::task::JoinSet;

use super::{
    super::{
        Append, DueQuery, Header, Kind, Loaded, Original, Run, Snapshot, Store, StoreError,
        TaskVersion,
    },
    LIVING, at, body, create, dedup, finish, finished, header, key, owner, snapshot,
};

pub(super) async fn a_task_is_loaded_as_it_was_written(store: Arc<dyn Store>) {
    let mut append = create(key("t"), 3);
    append.header = Header {
        agent: "other".into(),
        context: "talk".into(),
        state: TaskState::AuthRequired,
        changed: at(4),
        created: at(3),
        hidden: true,
        bytes: u64::from(u32::MAX) * 3,
        run: Run {
            unread: vec![1, 7, 1 << 40],
            turn: 9,
            attempt: 2,
            returned: true,
            epoch: 5,
            kept: 4,
            holder: Some(LIVING),
        },
    };
    append.events.push((Kind::Artifact, Bytes::new()));
    append.events.push((Kind::Status(TaskState::AuthRequired), body("{}")));
    append.snapshot = Some(snapshot(1));
    assert_eq!(store.append(append.clone()).await, Ok(3));

    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!(loaded.header, append.header);
    assert_eq!(loaded.head, 3);
    assert_eq!(loaded.snapshot, append.snapshot);
    let since: Vec<_> = loaded.since.into_iter().map(|e| (e.seq, e.kind, e.body)).collect();
    let status = Kind::Status(TaskState::AuthRequired);
    assert_eq!(since, [(2, Kind::Artifact, Bytes::new()), (3, status, body("{}"))]);
    assert_eq!(store.load(&key("unknown"), None, u64::MAX).await, Ok(Loaded::Gone));
}

pub(super) async fn an_append_extends_the_log(store: Arc<dyn Store>) {
    assert_eq!(store.append(create(key("t"), 1)).await, Ok(1));
    let end = Append { snapshot: None, ..finish(key("t"), 2) };
    assert_eq!(store.append(end.clone()).await, Ok(4));
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!((loaded.head, loaded.header), (4, end.header));
    let texts: Vec<_> = loaded.since.iter().map(|entry| &entry.body[..]).collect();
    assert_eq!(texts, [&b"hello"[..], b"working", b"result", b"completed"]);
    assert!(loaded.since.iter().map(|entry| entry.seq).eq(1..=4));
}

pub(super) async fn an_append_without_events_changes_the_run(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(LIVING), ..Run::default() };
    let header = Header { run, ..create(key("t"), 1).header };
    let claim = Append {
        expect: TaskVersion::new(1, 0),
        fence: Some(0),
        header: header.clone(),
        events: vec![],
        ..create(key("t"), 1)
    };
    assert_eq!(store.append(claim).await, Ok(1));
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!((loaded.head, loaded.header, loaded.since.len()), (1, header, 1));
}

pub(super) async fn a_second_create_is_refused(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let before = store.load(&key("t"), None, u64::MAX).await;
    assert_eq!(store.append(create(key("t"), 9)).await, Err(StoreError::Conflict));
    assert_eq!(store.load(&key("t"), None, u64::MAX).await, before);
}

pub(super) async fn a_stale_append_is_refused(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    let before = store.load(&key("t"), None, u64::MAX).await;
    for (head, epoch) in [(1, 1), (3, 1), (5, 1), (4, 0), (4, 2)] {
        let append = Append { expect: TaskVersion::new(head, epoch), ..finish(key("t"), 9) };
        assert_eq!(store.append(append).await, Err(StoreError::Conflict));
    }
    assert_eq!(store.load(&key("t"), None, u64::MAX).await, before);
    for fence in [None, Some(0), Some(3)] {
        let append = Append { fence, ..finish(key("unknown"), 9) };
        assert_eq!(store.append(append).await, Err(StoreError::Conflict));
    }
    assert_eq!(store.load(&key("unknown"), None, u64::MAX).await, Ok(Loaded::Gone));
}

pub(super) async fn a_change_without_an_event_changes_the_version(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let run = |epoch, holder| Run { turn: 1, attempt: 1, epoch, holder, ..Run::default() };
    let change = |expect, run| {
        let header = Header { run, ..header(TaskState::Submitted, 1) };
        Append { expect, header, events: vec![], ..create(key("t"), 1) }
    };
    let claim = change(TaskVersion::new(1, 0), run(1, Some(LIVING)));
    assert_eq!(store.append(claim.clone()).await, Ok(1));
    let release = change(TaskVersion::new(1, 1), run(2, None));
    assert_eq!(store.append(release.clone()).await, Ok(1));
    let before = store.load(&key("t"), None, u64::MAX).await;
    // Both were decided for the earlier version, at the same head: they would bring the released
    // holder back.
    for stale in [claim, release] {
        assert_eq!(store.append(stale).await, Err(StoreError::Conflict));
    }
    let message = Append { expect: TaskVersion::new(1, 1), ..create(key("t"), 2) };
    assert_eq!(store.append(message).await, Err(StoreError::Conflict));
    assert_eq!(store.load(&key("t"), None, u64::MAX).await, before);
}

pub(super) async fn a_lost_claim_is_fenced(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let claim = |fence, epoch| {
        let run = Run { turn: 1, attempt: 1, epoch, holder: Some(LIVING), ..Run::default() };
        let header = Header { run, ..header(TaskState::Submitted, 1) };
        Append {
            expect: TaskVersion::new(1, epoch - 1),
            fence,
            header,
            events: vec![],
            ..create(key("t"), 1)
        }
    };
    assert_eq!(store.append(claim(Some(0), 1)).await, Ok(1));
    assert_eq!(store.append(claim(Some(1), 2)).await, Ok(1));
    let before = store.load(&key("t"), None, u64::MAX).await;
    // The head has not moved, and the older claim is refused nevertheless.
    assert_eq!(store.append(claim(Some(1), 3)).await, Err(StoreError::Fenced));
    // A writer that lost its claim must get `Fenced` and not `Conflict`, which would make it decide
    // again.
    let stale = Append { expect: TaskVersion::new(7, 2), ..claim(Some(1), 3) };
    assert_eq!(store.append(stale).await, Err(StoreError::Fenced));
    assert_eq!(store.load(&key("t"), None, u64::MAX).await, before);
    // A write without a claim is not fenced.
    let end = Append { expect: TaskVersion::new(1, 2), fence: None, ..finish(key("t"), 2) };
    assert_eq!(store.append(end).await, Ok(4));
}

pub(super) async fn events_without_a_header_change_are_counted(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    let chunk = |head, text: &str, bytes| {
        let expect = TaskVersion::new(head, 0);
        let events = vec![(Kind::Artifact, body(text))];
        let header = Header { bytes, ..create(key("t"), 1).header };
        Append { expect, fence: Some(0), events, header, ..create(key("t"), 1) }
    };
    assert_eq!(store.append(chunk(1, "one", 8)).await, Ok(2));
    assert_eq!(store.append(chunk(2, "three", 13)).await, Ok(3));
    assert_eq!(store.append(chunk(2, "late", 12)).await, Err(StoreError::Conflict));
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!((loaded.head, loaded.header), (3, chunk(2, "three", 13).header));
    let page = store.read(&key("t"), 2, 10).await.unwrap();
    assert_eq!((page.entries[0].seq, page.entries.len(), page.closed), (3, 1, false));
    let end = Append { expect: TaskVersion::new(3, 0), ..finish(key("t"), 2) };
    assert_eq!(store.append(end).await, Ok(6));
    assert!(store.read(&key("t"), 5, 10).await.unwrap().closed);
}

pub(super) async fn a_snapshot_shortens_the_log_to_load(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!((loaded.snapshot, loaded.since), (Some(snapshot(4)), vec![]));

    let mut more = finish(key("t"), 2);
    more.expect = TaskVersion::new(4, 1);
    more.snapshot = Some(Snapshot {
        seq: 5,
        status: body("s"),
        history: Bytes::new(),
        metadata: body("{}"),
        artifacts: Bytes::new(),
    });
    store.append(more.clone()).await.unwrap();
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!(loaded.snapshot, more.snapshot);
    assert!(loaded.since.iter().map(|entry| entry.seq).eq(6..=7));
}

pub(super) async fn a_load_with_a_known_version_returns_only_later_events(store: Arc<dyn Store>) {
    let load = async |task: &str, head, epoch, limit| {
        store.load(&key(task), Some(TaskVersion::new(head, epoch)), limit).await
    };
    assert_eq!(load("t", 1, 0, u64::MAX).await, Ok(Loaded::Gone));
    store.append(create(key("t"), 1)).await.unwrap();
    // Events that do not change the header.
    for head in 1..=3 {
        let events = vec![(Kind::Artifact, body("chunk"))];
        let header = Header { bytes: 5 + 5 * head, ..create(key("t"), 1).header };
        let expect = TaskVersion::new(head, 0);
        store.append(Append { expect, events, header, ..create(key("t"), 1) }).await.unwrap();
    }
    let whole = store.load(&key("t"), None, u64::MAX).await.unwrap();
    let Loaded::Whole(stored) = whole.clone() else { panic!("{whole:?}") };
    assert_eq!(load("t", 4, 0, 0).await, Ok(Loaded::Same));
    for known in [1, 2, 3] {
        let since = stored.since[known as usize..].to_vec();
        let header = Header { bytes: 5 * since.len() as u64, ..stored.header.clone() };
        let more = Loaded::More { header, head: 4, since };
        assert_eq!(load("t", known, 0, u64::MAX).await, Ok(more));
    }
    assert_eq!(load("t", 1, 0, 14).await, Err(StoreError::TooLarge(15)));
    assert!(load("t", 1, 0, 15).await.is_ok());
    // A version that this log never had, and the version before the first event.
    for unknown in [0, 5] {
        assert_eq!(load("t", unknown, 0, u64::MAX).await, Ok(whole.clone()));
    }
    // A change of the run state without an event.
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(LIVING), ..Run::default() };
    let header = Header { run, bytes: 20, ..header(TaskState::Working, 2) };
    let expect = TaskVersion::new(4, 0);
    let claim = Append { expect, header: header.clone(), events: vec![], ..create(key("t"), 1) };
    store.append(claim).await.unwrap();
    let more = Loaded::More { header: Header { bytes: 0, ..header }, head: 4, since: vec![] };
    assert_eq!(load("t", 4, 0, u64::MAX).await, Ok(more));
    assert_eq!(load("t", 4, 1, u64::MAX).await, Ok(Loaded::Same));
    // Past a snapshot, because the events still exist.
    let mut end = Append { expect: TaskVersion::new(4, 1), ..finish(key("t"), 3) };
    end.snapshot = Some(snapshot(7));
    store.append(end.clone()).await.unwrap();
    let Ok(Loaded::More { header, head, since }) = load("t", 4, 1, u64::MAX).await else {
        panic!("the events still exist");
    };
    assert_eq!((header.state, header.bytes, head), (TaskState::Completed, 22, 7));
    assert!(since.iter().map(|entry| entry.seq).eq(5..=7));
}

pub(super) async fn an_idempotency_key_is_registered_once(store: Arc<dyn Store>) {
    assert_eq!(store.original(&[1; 32]).await, Ok(None));
    let first = Append { dedup: Some(dedup(1, 7)), ..create(key("first"), 1) };
    store.append(first.clone()).await.unwrap();
    let original = Original { key: key("first"), seq: 1, content: [7; 32] };
    assert_eq!(store.original(&[1; 32]).await, Ok(Some(original.clone())));

    let retry = Append { dedup: Some(dedup(1, 8)), ..create(key("second"), 2) };
    let refused = Err(StoreError::Duplicate(original.clone()));
    assert_eq!(store.append(retry).await, refused);
    assert_eq!(store.load(&key("second"), None, u64::MAX).await, Ok(Loaded::Gone));
    // A repeated send finds its original even if the task has changed since.
    assert_eq!(store.append(first).await, refused);
    let other = Append { dedup: Some(dedup(2, 7)), ..create(key("second"), 2) };
    assert_eq!(store.append(other).await, Ok(1));
}

pub(super) async fn a_refused_append_registers_no_key(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    let stale = Append { dedup: Some(dedup(1, 7)), ..finish(key("t"), 2) };
    assert_eq!(store.append(stale).await, Err(StoreError::Conflict));
    let expect = TaskVersion::new(4, 1);
    let fenced = Append { expect, fence: Some(9), dedup: Some(dedup(1, 7)), ..finish(key("t"), 2) };
    assert_eq!(store.append(fenced).await, Err(StoreError::Fenced));
    assert_eq!(store.original(&[1; 32]).await, Ok(None));
    let fresh = Append { dedup: Some(dedup(1, 7)), ..create(key("u"), 2) };
    assert_eq!(store.append(fresh).await, Ok(1));
}

pub(super) async fn a_later_message_has_its_own_key(store: Arc<dyn Store>) {
    store.append(Append { dedup: Some(dedup(1, 1)), ..create(key("t"), 1) }).await.unwrap();
    let message = (Kind::Received(TaskState::Working), body("more"));
    let second = Append {
        expect: TaskVersion::new(1, 0),
        events: vec![message.clone(), message],
        dedup: Some(dedup(2, 2)),
        ..create(key("t"), 2)
    };
    assert_eq!(store.append(second).await, Ok(3));
    let original = store.original(&[2; 32]).await.unwrap().unwrap();
    assert_eq!(original, Original { key: key("t"), seq: 2, content: [2; 32] });
}

pub(super) async fn fifty_retries_at_once_have_one_winner(store: Arc<dyn Store>) {
    let mut sends = JoinSet::new();
    for number in 0..50 {
        let store = Arc::clone(&store);
        sends.spawn(async move {
            let task = format!("t{number}");
            let send = Append { dedup: Some(dedup(1, 1)), ..create(key(&task), 1) };
            (task, store.append(send).await)
        });
    }
    let (mut winners, mut found) = (Vec::new(), HashSet::new());
    while let Some(sent) = sends.join_next().await {
        match sent.unwrap() {
            (task, Ok(_)) => winners.push(task),
            (_, Err(StoreError::Duplicate(original))) => {
                found.insert(original.key.task.as_str().to_owned());
            }
            (_, Err(other)) => panic!("{other}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(Vec::from_iter(found), winners);
}

pub(super) async fn writers_of_one_task_win_one_at_a_time(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    for head in 1..=20 {
        let mut writers = JoinSet::new();
        for writer in 0..10 {
            let store = Arc::clone(&store);
            let events = vec![(Kind::Artifact, body(&format!("{head} by {writer}")))];
            let append =
                Append { expect: TaskVersion::new(head, 0), events, ..create(key("t"), 1) };
            writers.spawn(async move { store.append(append).await });
        }
        let results = writers.join_all().await;
        assert_eq!(results.iter().filter(|result| **result == Ok(head + 1)).count(), 1);
        let refused = results.iter().filter(|result| **result == Err(StoreError::Conflict));
        assert_eq!(refused.count(), 9);
    }
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert!(loaded.since.iter().map(|entry| entry.seq).eq(1..=21));
}

pub(super) async fn a_thousand_tasks_at_once_are_all_written(store: Arc<dyn Store>) {
    let mut writers = JoinSet::new();
    for number in 0..1000 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let key = key(&format!("t{number}"));
            store.append(create(key.clone(), number)).await.unwrap();
            store.append(finish(key, number)).await.unwrap();
        });
    }
    writers.join_all().await;
    for number in 0..1000 {
        let loaded =
            store.load(&key(&format!("t{number}")), None, u64::MAX).await.unwrap().whole().unwrap();
        assert_eq!((loaded.head, loaded.header.changed), (4, at(number)));
    }
}

pub(super) async fn big_bodies_are_stored_unchanged(store: Arc<dyn Store>) {
    let big = Bytes::from(vec![b'x'; 5_000_000]);
    let mut append = create(key("t"), 1);
    append.events.push((Kind::Artifact, big.clone()));
    append.snapshot = Some(Snapshot { artifacts: big.clone(), ..snapshot(1) });
    store.append(append).await.unwrap();
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert!(loaded.since[0].body == big && loaded.snapshot.unwrap().artifacts == big);
    assert!(store.read(&key("t"), 1, 10).await.unwrap().entries[0].body == big);
}

pub(super) async fn unusual_names_are_stored_unchanged(store: Arc<dyn Store>) {
    let long = "x".repeat(1024);
    let names = [
        "",
        " ",
        "'; DROP TABLE tasks; --",
        "ünï-😀",
        "a\0b",
        "a",
        "A",
        "a%",
        "a_",
        "\u{301}",
        &long,
    ];
    for name in names {
        let key = super::Key { owner: owner(name, name), task: name.into() };
        let mut append = create(key.clone(), 1);
        append.header.agent = name.into();
        append.header.context = name.into();
        assert_eq!(store.append(append.clone()).await, Ok(1), "{name:?}");
        let loaded = store.load(&key, None, u64::MAX).await.unwrap().whole().unwrap();
        assert_eq!(loaded.header, append.header);
    }
    let agents = store.agents_unserved().await.unwrap();
    let found: HashSet<_> = agents.iter().map(|agent| agent.as_str()).collect();
    assert_eq!(found, HashSet::from(names));
    for agent in &agents {
        let due = store.due(DueQuery::new(agent, 100)).await.unwrap();
        assert_eq!(
            due.iter().map(|due| due.key.task.as_str()).collect::<Vec<_>>(),
            [agent.as_str()]
        );
    }
}

pub(super) async fn owners_do_not_see_each_other(store: Arc<dyn Store>) {
    let owners = [("a", ""), ("", "a"), ("a", "b"), ("b", "a"), ("ab", "")];
    let key =
        |(tenant, principal)| super::Key { owner: owner(tenant, principal), task: "t".into() };
    for (number, name) in owners.into_iter().enumerate() {
        assert_eq!(store.load(&key(name), None, u64::MAX).await, Ok(Loaded::Gone));
        assert_eq!(store.append(finish(key(name), 1)).await, Err(StoreError::Conflict));
        let mut append = create(key(name), 1);
        append.events[0].1 = body(&number.to_string());
        assert_eq!(store.append(append).await, Ok(1));
    }
    for (number, name) in owners.into_iter().enumerate() {
        let page = store.read(&key(name), 0, 10).await.unwrap();
        assert_eq!(page.entries[0].body, body(&number.to_string()));
    }
}

pub(super) async fn the_secret_is_stable_and_a_probe_changes_nothing(store: Arc<dyn Store>) {
    let secret = store.secret();
    assert_ne!(secret, [0; 32]);
    finished(&*store, key("t"), 1).await;
    let before = store.load(&key("t"), None, u64::MAX).await;
    for _ in 0..3 {
        assert_eq!(store.probe().await, Ok(()));
    }
    assert_eq!(store.load(&key("t"), None, u64::MAX).await, before);
    assert_eq!(store.secret(), secret);
}
