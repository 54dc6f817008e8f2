//! Checks of the times and causes of events.

use std::sync::Arc;

use herald_protocol::TaskState;

use super::{
    super::{Actor, Append, Cause, Kind, LogEntry, Retention, Store, TaskVersion},
    LIVING, body, create, finish, finished, key,
};

fn request(actor: Actor) -> Cause {
    Cause { actor, request: Some("r-1".into()), binding: Some("grpc".into()) }
}

async fn log(store: &dyn Store) -> Vec<LogEntry> {
    store.read_log(&key("t"), 0, 100).await.unwrap()
}

pub(super) async fn a_log_has_the_times_and_causes_of_its_events(store: Arc<dyn Store>) {
    assert!(log(&*store).await.is_empty());
    let (caller, operator) = (request(Actor::Caller), request(Actor::Principal("root".into())));
    let mut send = Append { cause: caller.clone(), ..create(key("t"), 1) };
    send.events.push((Kind::Status(TaskState::Working), body("working")));
    store.append(send).await.unwrap();
    finished(&*store, key("between"), 1).await;
    let chunk = vec![(Kind::Artifact, body("chunk")), (Kind::Artifact, body("more"))];
    let said = Append { expect: TaskVersion::new(2, 0), events: chunk, ..create(key("t"), 1) };
    let worker = Cause::from(Actor::Worker { session: LIVING, number: 7 });
    store.append(Append { cause: worker.clone(), ..said }).await.unwrap();
    let mut cancel = Append { expect: TaskVersion::new(4, 0), ..finish(key("t"), 2) };
    cancel.events = vec![(Kind::Status(TaskState::Canceled), body("canceled"))];
    store.append(Append { cause: operator.clone(), ..cancel }).await.unwrap();

    let found = log(&*store).await;
    let page = store.read(&key("t"), 0, 100).await.unwrap();
    assert_eq!(found.iter().map(|one| one.entry.clone()).collect::<Vec<_>>(), page.entries);
    assert!(found.windows(2).all(|pair| pair[0].position < pair[1].position));
    let agent = Cause::from(Actor::Agent);
    let causes = [&caller, &agent, &worker, &agent, &operator];
    assert_eq!(found.iter().map(|one| one.cause.as_ref().unwrap()).collect::<Vec<_>>(), causes);
    // The events of one append have the same commit time.
    let times: Vec<_> = found.iter().map(|one| one.at.unwrap()).collect();
    assert_eq!((times[0], times[2]), (times[1], times[3]));
    assert_eq!(store.read_log(&key("t"), 3, 1).await.unwrap(), found[3..4]);
    assert!(store.read_log(&key("t"), 5, 100).await.unwrap().is_empty());
    assert!(store.read_log(&key("unknown"), 0, 100).await.unwrap().is_empty());
}

pub(super) async fn a_big_log_is_read_in_small_pages(store: Arc<dyn Store>) {
    let chunk = bytes::Bytes::from(vec![b'x'; 1_000_000]);
    let mut append = create(key("t"), 1);
    append.events.extend((0..12).map(|_| (Kind::Artifact, chunk.clone())));
    store.append(append).await.unwrap();
    let (mut after, mut seen) = (0, 0);
    loop {
        let page = store.read_log(&key("t"), after, 100).await.unwrap();
        assert!(page.len() < 6);
        let Some(last) = page.last() else { break };
        (after, seen) = (last.entry.seq, seen + page.len());
    }
    assert_eq!((seen, after), (13, 13));
}

pub(super) async fn times_and_causes_are_removed_with_their_task(store: Arc<dyn Store>) {
    for task in ["old", "t"] {
        let send = Append { cause: request(Actor::Caller), ..create(key(task), 1) };
        store.append(send).await.unwrap();
    }
    store.append(finish(key("old"), 1)).await.unwrap();
    let before = log(&*store).await;
    let nothing = Retention { ended_before: None, tasks: Some(0), bytes: None };
    assert_eq!(store.sweep(nothing, 10).await, Ok(1));
    // The events of other tasks in the same commit keep their time.
    assert_eq!(log(&*store).await, before);
    assert!(store.read_log(&key("old"), 0, 100).await.unwrap().is_empty());
}
