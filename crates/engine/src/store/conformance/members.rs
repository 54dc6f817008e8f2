//! Checks of members: join, heartbeat, death, leave.

use std::sync::Arc;

use herald_protocol::AgentName;

use super::{
    super::{
        Append, DueQuery, Loaded, MemberId, MemberKind, Store, StoreError, TaskVersion,
        WorkerMember,
    },
    DEAD, LIVING, OTHER, claim, create, die, due, finish, join, key, owner,
};

/// The ids and heartbeats of the living members, in the reply to a heartbeat.
async fn living(store: &dyn Store, me: MemberId) -> Vec<(MemberId, u64)> {
    let membership = store.heartbeat(me).await.unwrap();
    membership.members.iter().map(|member| (member.id, member.heartbeat)).collect()
}

async fn unserved(store: &dyn Store) -> Vec<String> {
    let agents = store.agents_unserved().await.unwrap();
    let mut agents: Vec<_> = agents.iter().map(AgentName::to_string).collect();
    agents.sort();
    agents
}

pub(super) async fn only_members_can_write(store: Arc<dyn Store>) {
    let not_member = Err(StoreError::NotMember);
    let stranger = Append { writer: OTHER, ..create(key("t"), 1) };
    assert_eq!(store.append(stranger.clone()).await, not_member);
    assert_eq!(store.load(&key("t"), None, u64::MAX).await, Ok(Loaded::Gone));
    assert_eq!(store.serve(OTHER, &["echo".into()]).await, Err(StoreError::NotMember));
    assert_eq!(store.heartbeat(OTHER).await, Err(StoreError::NotMember));
    join(&*store, OTHER).await;
    assert_eq!(store.append(stranger).await, Ok(1));
    store.append(claim(key("t"), OTHER)).await.unwrap();
    die(&*store, OTHER).await;
    let end = Append { expect: TaskVersion::new(1, 1), ..finish(key("t"), 2) };
    // Before all other checks: a dead writer has nothing to decide again.
    for late in [end.clone(), Append { fence: Some(7), ..end.clone() }, create(key("new"), 3)] {
        assert_eq!(store.append(Append { writer: OTHER, ..late }).await, not_member);
    }
    assert_eq!(store.serve(OTHER, &[]).await, Err(StoreError::NotMember));
    assert_eq!(store.heartbeat(OTHER).await, Err(StoreError::NotMember));
    assert_eq!(store.load(&key("new"), None, u64::MAX).await, Ok(Loaded::Gone));
    assert_eq!(store.append(end).await, Ok(4));
}

pub(super) async fn a_heartbeat_returns_all_living_members(store: Arc<dyn Store>) {
    assert_eq!(living(&*store, LIVING).await, [(LIVING, 1)]);
    store.join(OTHER, MemberKind::Worker, "crane").await.unwrap();
    store.serve(OTHER, &["echo".into(), "ünï, \"😀\"".into()]).await.unwrap();
    assert_eq!(living(&*store, LIVING).await, [(LIVING, 2), (OTHER, 0)]);
    assert_eq!(living(&*store, OTHER).await, [(LIVING, 2), (OTHER, 1)]);
    let worker = store.heartbeat(LIVING).await.unwrap().members.pop().unwrap();
    assert_eq!((worker.kind, worker.name.as_str()), (MemberKind::Worker, "crane"));
    assert_eq!(worker.agents, ["echo".into(), AgentName::from("ünï, \"😀\"")]);
    // The new agents replace the earlier ones.
    store.serve(OTHER, &["other".into()]).await.unwrap();
    let worker = store.heartbeat(LIVING).await.unwrap().members.pop().unwrap();
    assert_eq!(worker.agents, [AgentName::from("other")]);
    store.leave(OTHER).await.unwrap();
    assert_eq!(living(&*store, LIVING).await, [(LIVING, 5)]);
    assert_eq!(store.heartbeat(OTHER).await, Err(StoreError::NotMember));
}

pub(super) async fn a_member_that_sends_heartbeats_is_not_marked_dead(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    store.append(create(key("t"), 1)).await.unwrap();
    store.append(claim(key("t"), OTHER)).await.unwrap();
    assert_eq!(living(&*store, OTHER).await, [(LIVING, 0), (OTHER, 1)]);
    for seen in [0, 2] {
        assert_eq!(store.mark_dead(OTHER, seen).await, Ok(false));
    }
    assert!(due(&*store, "echo", 10).await.is_empty());
    assert_eq!(store.mark_dead(OTHER, 1).await, Ok(true));
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    // A second time has no effect, and an unknown member counts as dead.
    assert_eq!(store.mark_dead(OTHER, 1).await, Ok(false));
    assert_eq!(store.mark_dead(DEAD, 0).await, Ok(false));
    assert_eq!(living(&*store, LIVING).await, [(LIVING, 1)]);
}

pub(super) async fn tasks_of_a_member_are_due_when_it_leaves(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    for (task, holder) in [("mine", LIVING), ("theirs", OTHER)] {
        store.append(create(key(task), 1)).await.unwrap();
        store.append(claim(key(task), holder)).await.unwrap();
    }
    assert!(due(&*store, "echo", 10).await.is_empty());
    store.leave(OTHER).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["theirs"]);
    let end = Append { expect: TaskVersion::new(1, 1), writer: OTHER, ..finish(key("theirs"), 2) };
    assert_eq!(store.append(end).await, Err(StoreError::NotMember));
    // Leaving twice has no effect.
    store.leave(OTHER).await.unwrap();
}

pub(super) async fn agents_with_work_are_unserved_until_a_member_serves_them(
    store: Arc<dyn Store>,
) {
    assert!(unserved(&*store).await.is_empty());
    for agent in ["a", "b", "c"] {
        let mut append = create(key(agent), 1);
        append.header.agent = agent.into();
        store.append(append).await.unwrap();
    }
    join(&*store, OTHER).await;
    assert_eq!(unserved(&*store).await, ["a", "b", "c"]);
    store.serve(LIVING, &["a".into(), "unknown".into()]).await.unwrap();
    store.serve(OTHER, &["b".into()]).await.unwrap();
    assert_eq!(unserved(&*store).await, ["c"]);
    die(&*store, OTHER).await;
    assert_eq!(unserved(&*store).await, ["b", "c"]);
    let mut end = finish(key("c"), 2);
    end.header.agent = "c".into();
    store.append(end).await.unwrap();
    assert_eq!(unserved(&*store).await, ["b"]);
    // A member works on it, but no member serves the agent.
    let mut begun = claim(key("b"), LIVING);
    begun.header.agent = "b".into();
    store.append(begun).await.unwrap();
    assert_eq!(unserved(&*store).await, ["b"]);
}

fn worker(principal: &str) -> WorkerMember {
    WorkerMember {
        name: "echo:vm:1".to_owned(),
        role: "echo".into(),
        owner: owner("acme", principal),
        labels: vec!["gpu".to_owned(), "ünï \"😀\"".to_owned()],
        concurrency: 3,
    }
}

pub(super) async fn a_worker_is_found_by_its_session(store: Arc<dyn Store>) {
    assert_eq!(store.find_worker(OTHER).await, Ok(None));
    assert_eq!(store.is_member(OTHER).await, Ok(false));
    assert_eq!(store.count_heartbeat(OTHER).await, Err(StoreError::NotMember));
    assert_eq!(store.join_worker(OTHER, &worker("ann")).await, Ok(Vec::new()));
    assert_eq!(store.find_worker(OTHER).await, Ok(Some(worker("ann"))));
    assert_eq!(store.find_worker(LIVING).await, Ok(None), "a node is no worker");
    assert_eq!(store.is_member(OTHER).await, Ok(true));
    assert_eq!(store.count_heartbeat(OTHER).await, Ok(()));
    assert_eq!(living(&*store, LIVING).await, [(LIVING, 1), (OTHER, 1)]);
    let member = store.heartbeat(LIVING).await.unwrap().members.pop().unwrap();
    assert_eq!((member.kind, member.name.as_str()), (MemberKind::Worker, "echo:vm:1"));
    assert_eq!(member.agents, [AgentName::from("echo")]);
    assert_eq!(store.mark_dead(OTHER, 1).await, Ok(true));
    assert_eq!(store.find_worker(OTHER).await, Ok(None));
    assert_eq!(store.count_heartbeat(OTHER).await, Err(StoreError::NotMember));
}

pub(super) async fn a_second_life_of_a_worker_ends_the_first(store: Arc<dyn Store>) {
    store.join_worker(OTHER, &worker("ann")).await.unwrap();
    store.append(create(key("t"), 1)).await.unwrap();
    store.append(claim(key("t"), OTHER)).await.unwrap();
    let conflict = Err(StoreError::Conflict);
    assert_eq!(store.join_worker(DEAD, &worker("mallory")).await, conflict);
    assert_eq!(store.is_member(DEAD).await, Ok(false));
    assert!(due(&*store, "echo", 10).await.is_empty());
    assert_eq!(store.join_worker(DEAD, &worker("ann")).await, Ok(vec![OTHER]));
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    assert_eq!(store.count_heartbeat(OTHER).await, Err(StoreError::NotMember));
    let late = Append { expect: TaskVersion::new(1, 1), writer: OTHER, ..finish(key("t"), 2) };
    assert_eq!(store.append(late).await, Err(StoreError::NotMember));
    // Once it is gone, another owner can have the name.
    store.leave(DEAD).await.unwrap();
    assert_eq!(store.join_worker(OTHER, &worker("mallory")).await, Ok(Vec::new()));
}

pub(super) async fn the_tasks_that_a_member_holds_are_found(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    let echo = AgentName::from("echo");
    assert!(store.held(&echo, OTHER, 10).await.unwrap().is_empty());
    for (task, holder) in [("a", OTHER), ("b", OTHER), ("c", LIVING)] {
        store.append(create(key(task), 1)).await.unwrap();
        store.append(claim(key(task), holder)).await.unwrap();
    }
    store.append(create(key("waits"), 1)).await.unwrap();
    let held = store.held(&echo, OTHER, 10).await.unwrap();
    let mut names: Vec<_> = held.iter().map(|held| held.key.task.to_string()).collect();
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert!(held.iter().all(|held| held.epoch == 1 && held.holder == Some(OTHER)));
    assert_eq!(store.held(&echo, OTHER, 1).await.unwrap().len(), 1);
    assert!(store.held(&"other".into(), OTHER, 10).await.unwrap().is_empty());
    let end = Append { expect: TaskVersion::new(1, 1), ..finish(key("a"), 2) };
    store.append(end).await.unwrap();
    assert_eq!(store.held(&echo, OTHER, 10).await.unwrap().len(), 1);
}

pub(super) async fn a_task_of_a_holder_that_was_dead_before_its_claim_is_due(
    store: Arc<dyn Store>,
) {
    let echo = AgentName::from("echo");
    join(&*store, OTHER).await;
    die(&*store, OTHER).await;
    // A search before the claim finds nothing of the dead member.
    assert!(store.due(DueQuery::new(&echo, 10)).await.unwrap().is_empty());
    store.append(create(key("t"), 1)).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    store.append(claim(key("t"), OTHER)).await.unwrap();
    let found = store.due(DueQuery::new(&echo, 10)).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].holder, Some(OTHER));
}
