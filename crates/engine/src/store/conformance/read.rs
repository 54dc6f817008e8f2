//! Checks of reads of one log.

use std::sync::Arc;

use bytes::Bytes;
use herald_protocol::TaskState;

use super::{
    super::{Append, Header, Kind, LogPage, Run, Store},
    body, create, finish, finished, header, key,
};

pub(super) async fn a_log_is_read_in_pages(store: Arc<dyn Store>) {
    let mut append = create(key("t"), 1);
    for number in 2..=10 {
        append.events.push((Kind::Artifact, body(&number.to_string())));
    }
    store.append(append).await.unwrap();
    for limit in [1, 3, 10, 11, usize::MAX] {
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = store.read(&key("t"), after, limit).await.unwrap();
            assert!(page.entries.len() <= limit);
            assert!(!page.closed, "the log of an active task is not closed");
            let Some(last) = page.entries.last() else { break };
            after = last.seq;
            seen.extend(page.entries.iter().map(|entry| entry.seq));
        }
        assert!(seen.into_iter().eq(1..=10), "limit {limit}");
    }
    assert_eq!(store.read(&key("t"), 3, 0).await, Ok(LogPage::default()));
    assert_eq!(store.read(&key("t"), u64::MAX, 5).await, Ok(LogPage::default()));
}

pub(super) async fn a_log_is_closed_when_it_has_ended(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    for (after, limit, closed) in
        [(0, 10, true), (0, 4, true), (0, 3, false), (3, 1, true), (4, 1, true), (9, 1, true)]
    {
        let page = store.read(&key("t"), after, limit).await.unwrap();
        assert_eq!(page.closed, closed, "after {after}, at most {limit}");
    }
    for (state, closed) in [
        (TaskState::Submitted, false),
        (TaskState::Working, false),
        (TaskState::InputRequired, false),
        (TaskState::AuthRequired, false),
        (TaskState::Failed, true),
        (TaskState::Canceled, true),
        (TaskState::Rejected, true),
    ] {
        let key = key(state.proto_name());
        store.append(create(key.clone(), 1)).await.unwrap();
        let end = Append { header: header(state, 2), ..finish(key.clone(), 2) };
        store.append(end).await.unwrap();
        assert_eq!(store.read(&key, 0, 10).await.unwrap().closed, closed, "{state:?}");
    }
}

pub(super) async fn a_direct_answer_closes_its_log(store: Arc<dyn Store>) {
    let hidden = |append: Append| Append {
        header: Header { hidden: true, ..append.header },
        snapshot: None,
        ..append
    };
    store.append(hidden(create(key("t"), 1))).await.unwrap();
    assert!(!store.read(&key("t"), 0, 10).await.unwrap().closed);
    let mut reply = hidden(finish(key("t"), 2));
    reply.events = vec![(Kind::Reply, body("answer"))];
    store.append(reply).await.unwrap();
    let page = store.read(&key("t"), 1, 10).await.unwrap();
    assert_eq!((page.entries[0].kind, page.closed), (Kind::Reply, true));
    assert!(store.read(&key("t"), 2, 10).await.unwrap().closed);
}

pub(super) async fn an_unknown_log_is_empty_and_closed(store: Arc<dyn Store>) {
    let nothing = LogPage { entries: vec![], closed: true };
    assert_eq!(store.read(&key("t"), 0, 10).await, Ok(nothing.clone()));
    finished(&*store, key("t"), 1).await;
    assert_eq!(store.read(&key("u"), 0, 10).await, Ok(nothing));
}

pub(super) async fn big_events_are_all_read(store: Arc<dyn Store>) {
    let chunk = Bytes::from(vec![b'x'; 1_000_000]);
    let mut append = create(key("t"), 1);
    append.events.extend((0..12).map(|_| (Kind::Artifact, chunk.clone())));
    append.header.state = TaskState::Completed;
    append.header.run = Run::default();
    store.append(append).await.unwrap();
    let (mut after, mut seen) = (0, 0);
    loop {
        // A page may end early; only `closed` means that no event follows.
        let page = store.read(&key("t"), after, 100).await.unwrap();
        seen += page.entries.len();
        after = page.entries.last().map_or(after, |last| last.seq);
        if page.closed {
            break;
        }
        assert!(!page.entries.is_empty());
    }
    assert_eq!((seen, after), (13, 13));
}
