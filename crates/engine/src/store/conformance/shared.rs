//! Checks of two nodes on one store: neither fails, steals or misses the work of the other.

use std::{collections::HashSet, sync::Arc};

use herald_protocol::{AgentName, TaskState, Timestamp};
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    super::{
        Append, AuditQuery, Change, Conversation, Due, DueQuery, FeedQuery, Header, Kind, Loaded,
        MemberId, Run, Scope, Store, StoreError, TaskVersion, verify_audit,
    },
    DEAD, Key, LIVING, OTHER,
    api_keys::{act, api_key},
    at, audit, body,
    changes::await_change,
    claim, create, dedup, die, due, finish, header, join, key, owner,
};

/// The handle of one node.
#[derive(Debug, Clone)]
pub(super) struct Node {
    store: Arc<dyn Store>,
    me: MemberId,
}

/// Two nodes that have joined and serve the agent.
pub(super) async fn nodes(first: Arc<dyn Store>, second: Arc<dyn Store>) -> [Node; 2] {
    let nodes = [Node { store: first, me: LIVING }, Node { store: second, me: OTHER }];
    for node in &nodes {
        join(&*node.store, node.me).await;
        node.store.serve(node.me, &["echo".into()]).await.unwrap();
    }
    nodes
}

impl Node {
    async fn append(&self, append: Append) -> Result<u64, StoreError> {
        self.store.append(Append { writer: self.me, ..append }).await
    }

    /// Claims a due task as a dispatcher does: under the epoch with which it was due.
    async fn claim(&self, due: &Due) -> Result<u64, StoreError> {
        let Loaded::Whole(stored) = self.store.load(&due.key, None, u64::MAX).await? else {
            return Err(StoreError::Conflict);
        };
        let mut header = stored.header;
        let epoch = header.run.epoch + 1;
        let attempt = header.run.attempt + 1;
        header.run = Run { turn: 1, attempt, epoch, holder: Some(self.me), ..Run::default() };
        header.state = TaskState::Working;
        let expect = TaskVersion::new(stored.head, epoch - 1);
        let events = vec![(Kind::Status(TaskState::Working), body(&self.me.0.to_string()))];
        let fence = Some(due.epoch);
        let append = Append { expect, fence, header, events, ..create(due.key.clone(), 1) };
        self.append(append).await
    }

    /// Ends a task that this node has claimed at this version.
    async fn end(&self, key: &Key, version: TaskVersion) -> Result<u64, StoreError> {
        let fence = Some(version.epoch);
        let run = Run { turn: 1, attempt: 1, epoch: version.epoch, ..Run::default() };
        let header = Header { run, ..header(TaskState::Completed, 9) };
        let events = vec![(Kind::Status(TaskState::Completed), body("completed"))];
        let end = Append { expect: version, fence, header, events, ..finish(key.clone(), 9) };
        self.append(Append { snapshot: None, ..end }).await
    }
}

/// True if another writer was first.
fn is_lost(error: &StoreError) -> bool {
    matches!(error, StoreError::Conflict | StoreError::Fenced)
}

pub(super) async fn each_task_is_claimed_by_one_node([first, second]: [Node; 2]) {
    const TASKS: usize = 200;
    for number in 0..TASKS {
        let node = if number % 2 == 0 { &first } else { &second };
        node.append(create(key(&format!("t{number}")), number as i64)).await.unwrap();
    }
    let mut dispatchers = JoinSet::new();
    for node in [first.clone(), second, first.clone()] {
        dispatchers.spawn(async move {
            let mut claimed = Vec::new();
            loop {
                let due = node.store.due(DueQuery::new(&"echo".into(), 8)).await.unwrap();
                if due.is_empty() {
                    return claimed;
                }
                for due in due {
                    match node.claim(&due).await {
                        Ok(head) => {
                            let version = TaskVersion::new(head, due.epoch + 1);
                            node.end(&due.key, version).await.unwrap();
                            claimed.push(due.key);
                        }
                        Err(error) => assert!(is_lost(&error), "{error}"),
                    }
                }
            }
        });
    }
    let claimed: Vec<Key> = dispatchers.join_all().await.into_iter().flatten().collect();
    assert_eq!(claimed.len(), TASKS, "no task is claimed twice");
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), TASKS, "every task is claimed");
    for key in &claimed {
        let stored = first.store.load(key, None, u64::MAX).await.unwrap().whole().unwrap();
        assert_eq!((stored.head, stored.header.run.attempt), (3, 1), "{key:?}");
    }
}

pub(super) async fn a_turn_of_a_living_node_is_not_due([first, second]: [Node; 2]) {
    second.append(create(key("t"), 1)).await.unwrap();
    let free = second.store.due(DueQuery::new(&"echo".into(), 10)).await.unwrap();
    second.claim(&free[0]).await.unwrap();
    // The other node cannot make it due, because this member is alive.
    for _ in 0..3 {
        first.store.heartbeat(first.me).await.unwrap();
        second.store.heartbeat(second.me).await.unwrap();
        assert!(due(&*first.store, "echo", 10).await.is_empty());
    }
    let seen = first.store.heartbeat(first.me).await.unwrap();
    let seen = seen.members.iter().find(|member| member.id == second.me).unwrap().heartbeat;
    second.store.heartbeat(second.me).await.unwrap();
    assert_eq!(
        first.store.mark_dead(second.me, seen).await,
        Ok(false),
        "it has sent a heartbeat since"
    );
    // A dispatcher that read the task before the claim is too late.
    assert_eq!(first.claim(&free[0]).await, Err(StoreError::Fenced));
    second.end(&key("t"), TaskVersion::new(2, 1)).await.unwrap();
}

pub(super) async fn one_node_takes_over_from_a_dead_one([first, second]: [Node; 2]) {
    join(&*first.store, DEAD).await;
    for number in 0..50 {
        let key = key(&format!("t{number}"));
        first.append(create(key.clone(), number)).await.unwrap();
        first.append(claim(key, DEAD)).await.unwrap();
    }
    // Both nodes find it dead at the same time, and one of them succeeds.
    let marks = [first.store.mark_dead(DEAD, 0), second.store.mark_dead(DEAD, 0)];
    let [a, b] = marks;
    let (a, b) = tokio::join!(a, b);
    assert_eq!(usize::from(a.unwrap()) + usize::from(b.unwrap()), 1);
    let due = first.store.due(DueQuery::new(&"echo".into(), 100)).await.unwrap();
    assert_eq!(due, second.store.due(DueQuery::new(&"echo".into(), 100)).await.unwrap());
    assert_eq!(due.len(), 50);
    for due in due {
        assert_eq!((due.epoch, due.holder), (1, Some(DEAD)));
        let (a, b) = tokio::join!(first.claim(&due), second.claim(&due));
        let (winner, lost) = match (a, b) {
            (Ok(_), Err(lost)) => (&first, lost),
            (Err(lost), Ok(_)) => (&second, lost),
            both => panic!("one of them claims it: {both:?}"),
        };
        assert!(is_lost(&lost), "{lost}");
        // The loser does not retry under the old epoch, which would take the task from a living
        // member.
        for node in [&first, &second] {
            assert_eq!(node.claim(&due).await, Err(StoreError::Fenced));
        }
        winner.end(&due.key, TaskVersion::new(2, 2)).await.unwrap();
    }
    assert!(super::due(&*second.store, "echo", 10).await.is_empty());
}

pub(super) async fn a_node_that_is_marked_dead_cannot_write([first, second]: [Node; 2]) {
    second.append(create(key("t"), 1)).await.unwrap();
    let free = second.store.due(DueQuery::new(&"echo".into(), 1)).await.unwrap().remove(0);
    second.claim(&free).await.unwrap();
    let mut changes = first.store.changes(first.me);
    // It writes while it is declared dead: each write is stored before that or refused.
    let (start, writer) = (Arc::new(Barrier::new(2)), second.clone());
    let begun = Arc::clone(&start);
    let mut writes = JoinSet::new();
    writes.spawn(async move {
        let mut head = 2;
        begun.wait().await;
        loop {
            let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(OTHER), ..Run::default() };
            let header = Header { run, ..header(TaskState::Working, 1) };
            let events = vec![(Kind::Artifact, body("chunk"))];
            let expect = TaskVersion::new(head, 1);
            let write = Append { expect, fence: Some(1), header, events, ..create(key("t"), 1) };
            match writer.append(write).await {
                Ok(next) => head = next,
                Err(error) => return (head, error),
            }
        }
    });
    start.wait().await;
    die(&*first.store, second.me).await;
    let stored = first.store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    let (head, error) = writes.join_next().await.unwrap().unwrap();
    assert_eq!((head, error), (stored.head, StoreError::NotMember));
    assert_eq!(second.store.heartbeat(second.me).await, Err(StoreError::NotMember));
    await_change(&mut changes, &Change::Work("echo".into())).await;
    let left = first.store.due(DueQuery::new(&"echo".into(), 10)).await.unwrap();
    assert_eq!(left, [Due { key: key("t"), epoch: 1, holder: Some(second.me) }]);
    first.claim(&left[0]).await.unwrap();
}

pub(super) async fn a_conversation_has_one_turn_on_both_nodes([first, second]: [Node; 2]) {
    for node in [&first, &second] {
        node.store.enable_serial(&"echo".into()).await.unwrap();
    }
    for number in 0..4 {
        first.append(create(key(&format!("t{number}")), number)).await.unwrap();
    }
    let conversation = Conversation { owner: owner("acme", "ann"), context: "chat".into() };
    let mut changes = [first.store.changes(first.me), second.store.changes(second.me)];
    for number in 0..4 {
        let next = first.store.next_serial(DueQuery::new(&"echo".into(), 1)).await.unwrap();
        assert_eq!(next[0].key, key(&format!("t{number}")), "in the order of the messages");
        let (a, b) = tokio::join!(first.claim(&next[0]), second.claim(&next[0]));
        let (at, loser, head) = match (a, b) {
            (Ok(head), Err(error)) if is_lost(&error) => (0, 1, head),
            (Err(error), Ok(head)) if is_lost(&error) => (1, 0, head),
            both => panic!("one of them claims it: {both:?}"),
        };
        let (holder, other) = if at == 0 { (&first, &second) } else { (&second, &first) };
        assert!(
            other.store.next_serial(DueQuery::new(&"echo".into(), 1)).await.unwrap().is_empty()
        );
        if number < 3 {
            let waits = Due { key: key(&format!("t{}", number + 1)), epoch: 0, holder: None };
            assert_eq!(other.claim(&waits).await, Err(StoreError::Locked));
        }
        holder.end(&next[0].key, TaskVersion::new(head, 1)).await.unwrap();
        assert!(
            other.store.next_serial(DueQuery::new(&"echo".into(), 1)).await.unwrap().is_empty()
        );
        await_change(&mut changes[loser], &Change::Task(next[0].key.clone())).await;
        let me = holder.me;
        holder.store.unlock_conversation(&"echo".into(), &conversation, me).await.unwrap();
        await_change(&mut changes[loser], &Change::Work("echo".into())).await;
    }
}

pub(super) async fn a_node_follows_what_the_other_writes([first, second]: [Node; 2]) {
    let mut changes = first.store.changes(first.me);
    first.append(create(key("t"), 1)).await.unwrap();
    let free = second.store.due(DueQuery::new(&"echo".into(), 1)).await.unwrap();
    second.claim(&free[0]).await.unwrap();
    // The first node has cached the task since it was sent, and catches up with each change.
    let (mut known, mut bodies) = (TaskVersion::new(1, 0), Vec::new());
    for word in ["one", "two", "three"] {
        let head =
            second.store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap().head;
        let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(OTHER), ..Run::default() };
        let header = Header { run, ..header(TaskState::Working, 1) };
        let events = vec![(Kind::Artifact, body(word))];
        let expect = TaskVersion::new(head, 1);
        let append = Append { expect, fence: Some(1), header, events, ..create(key("t"), 1) };
        second.append(append).await.unwrap();
        await_change(&mut changes, &Change::Task(key("t"))).await;
        match first.store.load(&key("t"), Some(known), u64::MAX).await.unwrap() {
            Loaded::More { header, head, since } => {
                known = TaskVersion::new(head, header.run.epoch);
                bodies.extend(since.into_iter().map(|entry| entry.body));
            }
            Loaded::Same => {}
            other @ (Loaded::Whole(_) | Loaded::Gone) => panic!("{other:?}"),
        }
    }
    while let Loaded::More { header, head, since } =
        first.store.load(&key("t"), Some(known), u64::MAX).await.unwrap()
    {
        known = TaskVersion::new(head, header.run.epoch);
        bodies.extend(since.into_iter().map(|entry| entry.body));
    }
    assert_eq!(bodies, [body(&OTHER.0.to_string()), body("one"), body("two"), body("three")]);
    // The first node cancels the task; the second notices at its next write at the latest.
    let mut stops = second.store.changes(second.me);
    let mut cancel = Append { expect: known, ..finish(key("t"), 3) };
    cancel.header.state = TaskState::Canceled;
    cancel.events = vec![(Kind::Status(TaskState::Canceled), body("canceled"))];
    cancel.snapshot = None;
    first.append(cancel).await.unwrap();
    await_change(&mut stops, &Change::Task(key("t"))).await;
    let late = second.end(&key("t"), known).await;
    assert_eq!(late, Err(StoreError::Conflict));
    let now = second.store.load(&key("t"), Some(known), u64::MAX).await.unwrap();
    assert!(
        matches!(&now, Loaded::More { header, .. } if header.state == TaskState::Canceled),
        "{now:?}"
    );
}

pub(super) async fn both_nodes_write_one_log([first, second]: [Node; 2]) {
    first.append(create(key("t"), 1)).await.unwrap();
    let mut writers = JoinSet::new();
    for node in [first.clone(), second] {
        writers.spawn(async move {
            let mut known = TaskVersion::new(1, 0);
            for number in 0..50 {
                loop {
                    let text = format!("{} {number}", node.me.0);
                    let events = vec![(Kind::Artifact, body(&text))];
                    let append = Append { expect: known, events, ..create(key("t"), 1) };
                    match node.append(append).await {
                        Ok(head) => {
                            known.head = head;
                            break;
                        }
                        Err(error) => assert_eq!(error, StoreError::Conflict),
                    }
                    match node.store.load(&key("t"), Some(known), u64::MAX).await.unwrap() {
                        Loaded::More { head, .. } => known.head = head,
                        other @ (Loaded::Same | Loaded::Whole(_) | Loaded::Gone) => {
                            panic!("the other node has written: {other:?}")
                        }
                    }
                }
            }
        });
    }
    writers.join_all().await;
    let stored = first.store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert!(stored.since.iter().map(|entry| entry.seq).eq(1..=101));
    for node in [LIVING, OTHER] {
        let of = format!("{} ", node.0);
        let bodies: Vec<_> =
            stored.since.iter().filter(|entry| entry.body.starts_with(of.as_bytes())).collect();
        let expected = (0..50).map(|number| body(&format!("{of}{number}")));
        assert!(bodies.iter().map(|entry| entry.body.clone()).eq(expected), "each event once");
    }
}

pub(super) async fn a_send_to_both_nodes_is_stored_once([first, second]: [Node; 2]) {
    for number in 0..50_u8 {
        let send = |node: &Node, task: &str| {
            let key = key(&format!("{task}{number}"));
            let (node, dedup) = (node.clone(), Some(dedup(number, 1)));
            async move { node.append(Append { dedup, ..create(key, 1) }).await }
        };
        let (a, b) = tokio::join!(send(&first, "a"), send(&second, "b"));
        match (a, b) {
            (Ok(1), Err(StoreError::Duplicate(one))) => {
                assert_eq!(one.key.task.as_str(), format!("a{number}"));
            }
            (Err(StoreError::Duplicate(one)), Ok(1)) => {
                assert_eq!(one.key.task.as_str(), format!("b{number}"));
            }
            both => panic!("one of them is the original: {both:?}"),
        }
    }
    // The same for a task whose id the caller chose.
    let create = || create(key("own"), 1);
    let (a, b) = tokio::join!(first.append(create()), second.append(create()));
    assert!(matches!(
        (&a, &b),
        (Ok(1), Err(StoreError::Conflict)) | (Err(StoreError::Conflict), Ok(1))
    ));
}

pub(super) async fn agents_of_the_other_node_are_served([first, second]: [Node; 2]) {
    second.store.serve(second.me, &["echo".into(), "theirs".into()]).await.unwrap();
    for agent in ["echo", "theirs", "nobodys"] {
        let mut append = create(key(agent), 1);
        append.header.agent = agent.into();
        first.append(append).await.unwrap();
    }
    let unserved = async || first.store.agents_unserved().await.unwrap();
    assert_eq!(unserved().await, [AgentName::from("nobodys")]);
    second.store.leave(second.me).await.unwrap();
    let mut left = unserved().await;
    left.sort_unstable();
    assert_eq!(left, ["nobodys".into(), AgentName::from("theirs")]);
}

pub(super) async fn a_feed_misses_no_event_of_either_node([first, second]: [Node; 2]) {
    const EACH: usize = 100;
    let mut writers = JoinSet::new();
    for node in [first.clone(), second.clone()] {
        writers.spawn(async move {
            for number in 0..EACH {
                let key = key(&format!("{}-{number}", node.me.0));
                node.append(create(key.clone(), 1)).await.unwrap();
                node.append(finish(key, 2)).await.unwrap();
            }
        });
    }
    // Both nodes read while both write: no event appears before a position that a reader has
    // passed.
    let mut readers = JoinSet::new();
    for (node, scope) in [(first, Scope::All), (second, Scope::Own(owner("acme", "ann")))] {
        readers.spawn(async move {
            let mut query =
                FeedQuery { scope, agent: None, tasks: Vec::new(), after: Some(0), limit: 7 };
            let mut seen = Vec::new();
            while seen.len() < 2 * 4 * EACH {
                let page = node.store.feed(&query).await.unwrap();
                query.after = Some(page.reached);
                seen.extend(page.entries.into_iter().map(|one| (one.key, one.entry.seq)));
                tokio::task::yield_now().await;
            }
            seen
        });
    }
    writers.join_all().await;
    let mut feeds = readers.join_all().await;
    let (a, b) = (feeds.remove(0), feeds.remove(0));
    assert_eq!(a, b, "both readers see the same order");
    assert_eq!(a.iter().collect::<HashSet<_>>().len(), 2 * 4 * EACH);
}

pub(super) async fn a_paused_task_has_the_time_of_its_pause([first, second]: [Node; 2]) {
    first.append(create(key("t"), 1)).await.unwrap();
    let mut ask = finish(key("t"), 5);
    ask.header.state = TaskState::InputRequired;
    second.append(ask.clone()).await.unwrap();
    let late = Timestamp::from_millis(i64::MAX);
    let paused = first.store.paused(&"echo".into(), late, 10).await.unwrap();
    assert_eq!(paused, [(key("t"), ask.header.changed)]);
    // The caller answers at the other node: a timeout that was decided for the pause is refused.
    let mut answer = create(key("t"), 6);
    answer.expect = TaskVersion::new(4, 1);
    answer.header.run = Run { epoch: 1, unread: vec![5], ..Run::default() };
    second.append(answer).await.unwrap();
    let expire = Append { expect: TaskVersion::new(4, 1), ..finish(key("t"), 7) };
    assert_eq!(first.append(expire).await, Err(StoreError::Conflict));
    assert!(first.store.paused(&"echo".into(), late, 10).await.unwrap().is_empty());
}

pub(super) async fn a_key_that_one_node_revokes_is_revoked_on_both([first, second]: [Node; 2]) {
    let mut changes = second.store.changes(second.me);
    first.store.create_key(api_key("a", 1, "acme"), act("key.create")).await.unwrap();
    await_change(&mut changes, &Change::Keys).await;
    let found = second.store.find_key_by_hash(&[1; 32]).await.unwrap().unwrap();
    assert!(found.is_valid(at(2)));
    // Both revoke at once: one time and one record.
    let (a, b) = tokio::join!(
        first.store.revoke_key("a", at(5), act("key.revoke")),
        second.store.revoke_key("a", at(6), act("key.revoke")),
    );
    assert_eq!(a, b);
    await_change(&mut changes, &Change::Keys).await;
    let found = second.store.find_key_by_hash(&[1; 32]).await.unwrap();
    assert_eq!(found, a.unwrap());
    let revoked = AuditQuery { action: Some("key.revoke".into()), ..AuditQuery::default() };
    assert_eq!(audit::all(&*first.store, revoked).await.len(), 1);
}

pub(super) async fn both_nodes_write_one_audit_log([first, second]: [Node; 2]) {
    let mut writers = JoinSet::new();
    for node in [first.clone(), second.clone(), first.clone(), second] {
        writers.spawn(async move {
            for _ in 0..50 {
                node.store.append_audit(vec![act("a"), act("b")]).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let head = verify_audit(&*first.store, None, |_, _| {}).await.unwrap().unwrap();
    assert_eq!(head.number, 400);
    let query = AuditQuery { oldest_first: true, ..AuditQuery::default() };
    let records = audit::all(&*first.store, query).await;
    for pair in records.chunks(2) {
        let actions = [&*pair[0].entry.action, &*pair[1].entry.action];
        assert_eq!(actions, ["a", "b"], "the records of one call follow each other");
    }
}
