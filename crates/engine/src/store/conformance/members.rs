//! Checks of members: join, heartbeat, death, leave.

use std::sync::Arc;

use herald_protocol::AgentName;

use super::{
    super::{Append, Loaded, MemberId, MemberKind, Store, StoreError, TaskVersion},
    DEAD, LIVING, OTHER, claim, create, die, due, finish, join, key,
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
