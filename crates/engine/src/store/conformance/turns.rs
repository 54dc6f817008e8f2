use std::sync::Arc;

use herald_protocol::{AgentName, TaskState};

use super::{
    super::{Append, Conversation, Due, Header, Kind, MemberId, Run, Store, Version},
    DEAD, Key, LIVING, at, body, create, finish, finished, header, key, owner,
};

async fn due(store: &dyn Store, agent: &str, limit: usize) -> Vec<String> {
    let due = store.due(&agent.into(), LIVING, limit).await.unwrap();
    due.into_iter().map(|due| due.key.task.to_string()).collect()
}

async fn at_work(store: &dyn Store) -> Vec<String> {
    let agents = store.agents_at_work().await.unwrap();
    let mut agents: Vec<_> = agents.iter().map(AgentName::to_string).collect();
    agents.sort();
    agents
}

/// Takes up the message of [`create`].
fn claim(key: Key, holder: MemberId) -> Append {
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(holder), ..Run::default() };
    let header = Header { run, ..header(TaskState::Working, 1) };
    Append { expect: Version::new(1, 0), header, events: vec![], ..create(key, 1) }
}

pub(super) async fn work_is_due_until_somebody_holds_it(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    assert!(due(&*store, "other", 10).await.is_empty());
    assert!(due(&*store, "echo", 0).await.is_empty());
    assert_eq!(at_work(&*store).await, ["echo"]);

    store.append(claim(key("t"), LIVING)).await.unwrap();
    assert!(due(&*store, "echo", 10).await.is_empty());
    // A message that comes meanwhile is the holder's to take up.
    let mut message = claim(key("t"), LIVING);
    message.expect = Version::new(1, 1);
    message.header.run.unread = vec![2];
    message.events = create(key("t"), 1).events;
    store.append(message).await.unwrap();
    assert!(due(&*store, "echo", 10).await.is_empty());
    // Released with a message unread, it is anybody's again.
    let mut release = claim(key("t"), LIVING);
    release.expect = Version::new(2, 1);
    release.header.run.epoch = 2;
    release.header.run.holder = None;
    release.header.run.unread = vec![2];
    store.append(release).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    let free = store.due(&"echo".into(), LIVING, 10).await.unwrap();
    assert_eq!(free, [Due { key: key("t"), epoch: 2, holder: None }]);
    store.append(Append { expect: Version::new(2, 2), ..finish(key("t"), 3) }).await.unwrap();
    assert!(due(&*store, "echo", 10).await.is_empty());
    assert!(at_work(&*store).await.is_empty());
}

pub(super) async fn what_a_dead_process_held_is_due(store: Arc<dyn Store>) {
    let holders = [LIVING, DEAD, MemberId(0), MemberId(u128::MAX), LIVING];
    for (number, holder) in holders.into_iter().enumerate() {
        let key = key(&format!("t{number}"));
        store.append(create(key.clone(), number as i64)).await.unwrap();
        let mut claim = claim(key, holder);
        claim.header.created = at(number as i64);
        store.append(claim).await.unwrap();
    }
    assert_eq!(due(&*store, "echo", 10).await, ["t1", "t2", "t3"]);
    assert_eq!(due(&*store, "echo", 2).await, ["t1", "t2"]);
    let cut_off = store.due(&"echo".into(), LIVING, 1).await.unwrap();
    assert_eq!(cut_off, [Due { key: key("t1"), epoch: 1, holder: Some(DEAD) }]);
    // Cancelled while it was held: over, but its slot is still to be cleared.
    let mut cancel = Append { expect: Version::new(1, 1), ..finish(key("t1"), 9) };
    cancel.header.state = TaskState::Canceled;
    cancel.header.run.holder = Some(DEAD);
    store.append(cancel).await.unwrap();
    assert!(due(&*store, "echo", 10).await.contains(&"t1".to_owned()));
}

pub(super) async fn the_oldest_work_is_due_first(store: Arc<dyn Store>) {
    for (number, agent) in ["b", "a", "c", "a", "b", "c"].into_iter().enumerate() {
        let key =
            Key { owner: owner("acme", &format!("p{}", number % 2)), ..key(&number.to_string()) };
        let mut append = create(key.clone(), number as i64);
        append.header.agent = agent.into();
        store.append(append).await.unwrap();
        if number % 3 == 0 {
            let mut claim = claim(key, DEAD);
            claim.header.agent = agent.into();
            claim.header.created = at(number as i64);
            store.append(claim).await.unwrap();
        }
    }
    for (agent, tasks) in [("a", ["1", "3"]), ("b", ["0", "4"]), ("c", ["2", "5"])] {
        assert_eq!(due(&*store, agent, 10).await, tasks);
        assert_eq!(due(&*store, agent, 1).await, tasks[..1]);
    }
    assert_eq!(at_work(&*store).await, ["a", "b", "c"]);
}

pub(super) async fn serial_work_is_due_by_its_message(store: Arc<dyn Store>) {
    let agent = AgentName::from("echo");
    let busy = |principal: &str, context: &str| Conversation {
        owner: owner("acme", principal),
        context: context.into(),
    };
    let due = async |agent: &AgentName, busy: &[Conversation], limit| {
        let due = store.next_serial(agent, busy, limit).await.unwrap();
        due.iter().map(|due| due.key.task.to_string()).collect::<Vec<_>>()
    };
    // The store keeps the queue from here on, with the tasks that wait already.
    store.append(create(key("cut-off"), 100)).await.unwrap();
    store.append(claim(key("cut-off"), DEAD)).await.unwrap();
    store.enable_serial(&agent, LIVING).await.unwrap();
    assert_eq!(due(&agent, &[], 10).await, ["cut-off"]);
    // Each is younger by the clock than the one that came before it, which must not matter.
    for (number, task) in (1..).zip(["held", "older", "other"]) {
        let mut append = create(key(task), 100 - number);
        if task == "other" {
            append.header.context = "elsewhere".into();
        }
        store.append(append).await.unwrap();
    }
    store.append(claim(key("held"), LIVING)).await.unwrap();
    let foreign = Key { owner: owner("acme", "bob"), ..key("foreign") };
    store.append(create(foreign, 1)).await.unwrap();
    // Its first message was read long ago; what waits came last.
    let mut answered = finish(key("older"), 5);
    answered.header.state = TaskState::Submitted;
    answered.header.run.unread = vec![5, 6];
    answered.events.push((Kind::Received(TaskState::Submitted), body("again")));
    answered.events.push((Kind::Received(TaskState::Submitted), body("and again")));
    answered.snapshot = None;
    store.append(answered).await.unwrap();
    assert_eq!(due(&agent, &[], 10).await, ["cut-off", "other", "foreign", "older"]);
    assert_eq!(due(&agent, &[], 2).await, ["cut-off", "other"]);
    assert_eq!(due(&agent, &[busy("ann", "chat")], 10).await, ["other", "foreign"]);
    let others = [busy("bob", "chat"), busy("ann", "elsewhere"), busy("nobody", "chat")];
    assert_eq!(due(&agent, &others, 10).await, ["cut-off", "older"]);
    assert!(due(&"unknown".into(), &[], 10).await.is_empty());

    // The next task follows one that ended, also one that left the middle of the queue.
    let end = Append { expect: Version::new(1, 1), ..finish(key("cut-off"), 7) };
    store.append(end).await.unwrap();
    assert_eq!(due(&agent, &[], 1).await, ["other"]);
    store.append(create(key("last"), 8)).await.unwrap();
    assert_eq!(due(&agent, &[], 10).await, ["other", "foreign", "older", "last"]);
    let mut begun = claim(key("older"), LIVING);
    begun.expect = Version::new(6, 1);
    begun.header.run.epoch = 2;
    begun.header.run.unread = vec![6];
    store.append(begun.clone()).await.unwrap();
    assert_eq!(due(&agent, &[busy("ann", "elsewhere")], 10).await, ["foreign", "last"]);
    // It has a message left, which is older than what came meanwhile.
    begun.expect = Version::new(6, 2);
    begun.header.run.epoch = 3;
    begun.header.run.holder = None;
    store.append(begun).await.unwrap();
    assert_eq!(due(&agent, &[busy("bob", "chat")], 10).await, ["other", "older", "last"]);
    // Enabling it again changes nothing, except for tasks whose process has ended.
    store.enable_serial(&agent, LIVING).await.unwrap();
    assert_eq!(due(&agent, &[], 10).await, ["other", "foreign", "older", "last"]);
    store.enable_serial(&agent, MemberId(7)).await.unwrap();
    assert_eq!(due(&agent, &[], 2).await, ["held", "other"]);
    assert_eq!(due(&agent, &[busy("ann", "chat")], 10).await, ["other", "foreign"]);
}

pub(super) async fn a_paused_task_is_found_after_its_time(store: Arc<dyn Store>) {
    let states = [TaskState::InputRequired, TaskState::AuthRequired];
    for (number, state) in (1..=4).zip(states.into_iter().cycle()) {
        let key = key(&format!("t{number}"));
        store.append(create(key.clone(), 0)).await.unwrap();
        let pause = Append { header: header(state, number), ..finish(key, 0) };
        store.append(pause).await.unwrap();
    }
    finished(&*store, key("done"), 1).await;
    store.append(create(key("fresh"), 1)).await.unwrap();
    let agent = AgentName::from("echo");
    let paused = async |before, limit| {
        let keys = store.paused(&agent, at(before), limit).await.unwrap();
        keys.iter().map(|key| key.task.to_string()).collect::<Vec<_>>()
    };
    assert!(paused(1, 10).await.is_empty());
    assert_eq!(paused(3, 10).await, ["t1", "t2"]);
    assert_eq!(paused(9, 3).await, ["t1", "t2", "t3"]);
    assert!(store.paused(&"other".into(), at(99), 10).await.unwrap().is_empty());
    // Its caller has answered: it waits no more.
    let mut answer = create(key("t1"), 1);
    answer.expect = Version::new(4, 0);
    answer.header.state = TaskState::InputRequired;
    store.append(answer).await.unwrap();
    assert_eq!(paused(3, 10).await, ["t2"]);
}
