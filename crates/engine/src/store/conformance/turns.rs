//! Checks of due tasks, serial queues, conversation locks and pauses.

use std::{collections::HashSet, sync::Arc};

use herald_protocol::{AgentName, TaskState, TenantId, Timestamp};

use super::{
    super::{
        Append, Conversation, Demands, Due, DueQuery, Kind, Loaded, MemberId, Store, StoreError,
        TaskVersion,
    },
    DEAD, Key, LIVING, OTHER, at, body, claim, create, dedup, die, due, finish, finished, header,
    join, key, owner,
};

pub(super) async fn a_task_is_due_until_a_member_holds_it(store: Arc<dyn Store>) {
    store.append(create(key("t"), 1)).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    assert!(due(&*store, "other", 10).await.is_empty());
    assert!(due(&*store, "echo", 0).await.is_empty());

    store.append(claim(key("t"), LIVING)).await.unwrap();
    assert!(due(&*store, "echo", 10).await.is_empty());
    // A message that arrives meanwhile does not make the task due, because it has a holder.
    let mut message = claim(key("t"), LIVING);
    message.expect = TaskVersion::new(1, 1);
    message.header.run.unread = vec![2];
    message.events = create(key("t"), 1).events;
    store.append(message).await.unwrap();
    assert!(due(&*store, "echo", 10).await.is_empty());
    // Released with an unread message, the task is due again.
    let mut release = claim(key("t"), LIVING);
    release.expect = TaskVersion::new(2, 1);
    release.header.run.epoch = 2;
    release.header.run.holder = None;
    release.header.run.unread = vec![2];
    store.append(release).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["t"]);
    let free = store.due(DueQuery::new(&"echo".into(), 10)).await.unwrap();
    assert_eq!(free, [Due { key: key("t"), epoch: 2, holder: None }]);
    store.append(Append { expect: TaskVersion::new(2, 2), ..finish(key("t"), 3) }).await.unwrap();
    assert!(due(&*store, "echo", 10).await.is_empty());
}

pub(super) async fn tasks_of_a_dead_member_are_due(store: Arc<dyn Store>) {
    let dead = [DEAD, MemberId(0), MemberId(u128::MAX)];
    for member in dead {
        join(&*store, member).await;
    }
    let holders = [LIVING, dead[0], dead[1], dead[2], LIVING];
    for (number, holder) in holders.into_iter().enumerate() {
        let key = key(&format!("t{number}"));
        store.append(create(key.clone(), number as i64)).await.unwrap();
        let mut claim = claim(key, holder);
        claim.header.created = at(number as i64);
        store.append(claim).await.unwrap();
    }
    assert!(due(&*store, "echo", 10).await.is_empty());
    for member in dead {
        die(&*store, member).await;
    }
    assert_eq!(due(&*store, "echo", 10).await, ["t1", "t2", "t3"]);
    assert_eq!(due(&*store, "echo", 2).await, ["t1", "t2"]);
    let cut_off = store.due(DueQuery::new(&"echo".into(), 1)).await.unwrap();
    assert_eq!(cut_off, [Due { key: key("t1"), epoch: 1, holder: Some(DEAD) }]);
    // Cancelled while it was held: ended, but its holder must still be removed.
    let mut cancel = Append { expect: TaskVersion::new(1, 1), ..finish(key("t1"), 9) };
    cancel.header.state = TaskState::Canceled;
    cancel.header.run.holder = Some(DEAD);
    store.append(cancel).await.unwrap();
    assert!(due(&*store, "echo", 10).await.contains(&"t1".to_owned()));
}

pub(super) async fn the_oldest_task_is_due_first(store: Arc<dyn Store>) {
    join(&*store, DEAD).await;
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
    die(&*store, DEAD).await;
    for (agent, tasks) in [("a", ["1", "3"]), ("b", ["0", "4"]), ("c", ["2", "5"])] {
        assert_eq!(due(&*store, agent, 10).await, tasks);
        assert_eq!(due(&*store, agent, 1).await, tasks[..1]);
    }
}

pub(super) async fn owners_take_turns(store: Arc<dyn Store>) {
    store.enable_serial(&"serial".into()).await.unwrap();
    let tasks = ["a1", "a2", "a3", "b1", "c1", "c2"];
    let of = |task: &str| Key { owner: owner("acme", &task[..1]), ..key(task) };
    for agent in ["echo", "serial"] {
        for (number, task) in tasks.into_iter().enumerate() {
            let key = Key { task: format!("{task}-{agent}").as_str().into(), ..of(task) };
            let mut append = create(key, number as i64);
            append.header.agent = agent.into();
            append.header.context = task.into();
            store.append(append).await.unwrap();
        }
    }
    for agent in ["echo", "serial"] {
        let name = AgentName::from(agent);
        let found = async |query: DueQuery<'_>| {
            let found = match agent {
                "echo" => store.due(query).await,
                _ => store.next_serial(query).await,
            };
            let found = found.unwrap().into_iter().map(|due| due.key.task.as_str()[..2].to_owned());
            found.collect::<Vec<_>>()
        };
        let all = DueQuery::new(&name, 10);
        assert_eq!(found(all).await, ["a1", "b1", "c1", "a2", "a3", "c2"]);
        assert_eq!(found(DueQuery { limit: 4, ..all }).await, ["a1", "b1", "c1", "a2"]);
        for (after, next) in [("a", "b1"), ("b", "c1"), ("c", "a1"), ("unknown", "a1")] {
            let after = owner("acme", after);
            let query = DueQuery { after: Some(&after), limit: 1, ..all };
            assert_eq!(found(query).await, [next]);
        }
        let passed: HashSet<Key> = ["a1", "a2", "c1"]
            .map(|task| Key { task: format!("{task}-{agent}").as_str().into(), ..of(task) })
            .into();
        let query = DueQuery { except: &passed, ..all };
        assert_eq!(found(query).await, ["a3", "b1", "c2"]);
    }
}

/// A new task with these demands.
fn demanding(task: &str, now: i64, labels: &[&str], priority: i8) -> Append {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    let demands = Some(Box::new(Demands { labels, priority }));
    Append { demands, ..create(key(task), now) }
}

pub(super) async fn a_higher_priority_is_due_first(store: Arc<dyn Store>) {
    for (task, now, priority) in
        [("low", 1, -100), ("usual", 2, 0), ("older", 1, 0), ("high", 3, 100)]
    {
        store.append(demanding(task, now, &[], priority)).await.unwrap();
    }
    assert_eq!(due(&*store, "echo", 10).await, ["high", "older", "usual", "low"]);
    // A claim and a death leave it as it is.
    store.append(claim(key("low"), DEAD)).await.unwrap();
    store.append(claim(key("high"), DEAD)).await.unwrap();
    assert_eq!(due(&*store, "echo", 10).await, ["high", "older", "usual", "low"]);
    // Owners take turns, whatever the priority of their tasks.
    let mut other = demanding("other", 4, &[], -100);
    other.key.owner = owner("acme", "bob");
    store.append(other).await.unwrap();
    assert_eq!(due(&*store, "echo", 2).await, ["high", "other"]);
}

pub(super) async fn a_task_is_due_for_workers_with_its_labels(store: Arc<dyn Store>) {
    for (task, labels) in [("any", &[][..]), ("gpu", &["gpu"]), ("both", &["gpu", "linux"])] {
        store.append(demanding(task, 1, labels, 0)).await.unwrap();
    }
    store.append(demanding("held", 2, &["gpu"], 0)).await.unwrap();
    store.append(claim(key("held"), DEAD)).await.unwrap();
    let agent = AgentName::from("echo");
    let found = async |labels: Option<&[&str]>| {
        let labels: Option<Vec<String>> =
            labels.map(|labels| labels.iter().map(|label| (*label).to_owned()).collect());
        let query = DueQuery { labels: labels.as_deref(), ..DueQuery::new(&agent, 10) };
        let due = store.due(query).await.unwrap();
        let mut tasks: Vec<_> = due.into_iter().map(|due| due.key.task.to_string()).collect();
        tasks.sort();
        tasks
    };
    assert_eq!(found(Some(&[])).await, ["any"]);
    assert_eq!(found(Some(&["linux"])).await, ["any"]);
    assert_eq!(found(Some(&["cuda", "gpu"])).await, ["any", "gpu", "held"]);
    assert_eq!(found(Some(&["gpu", "linux"])).await, ["any", "both", "gpu", "held"]);
    assert_eq!(found(None).await, ["any", "both", "gpu", "held"]);
}

pub(super) async fn a_task_is_due_for_workers_of_its_tenant(store: Arc<dyn Store>) {
    store.enable_serial(&"serial".into()).await.unwrap();
    let owners = [("acme", "a"), ("acme", "b"), ("", "c"), ("zeta", "a")];
    for agent in ["echo", "serial"] {
        for (number, (tenant, principal)) in owners.into_iter().cycle().take(8).enumerate() {
            let task = format!("{tenant}-{principal}-{}-{agent}", number / 4);
            let key = Key { owner: owner(tenant, principal), task: task.as_str().into() };
            let mut append = create(key, number as i64);
            append.header.agent = agent.into();
            append.header.context = task.as_str().into();
            store.append(append).await.unwrap();
        }
    }
    // Interrupted turns are those of their tenant, too.
    let held = Key { owner: owner("zeta", "a"), task: "zeta-a-1-echo".into() };
    let mut held = claim(held, DEAD);
    held.header.created = at(7);
    store.append(held).await.unwrap();
    for agent in ["echo", "serial"] {
        let name = AgentName::from(agent);
        let found = async |tenant: Option<&str>, after: Option<(&str, &str)>, limit| {
            let tenant = tenant.map(TenantId::from);
            let after = after.map(|(tenant, principal)| owner(tenant, principal));
            let (tenant, after) = (tenant.as_ref(), after.as_ref());
            let query = DueQuery { tenant, after, ..DueQuery::new(&name, limit) };
            let due = match agent {
                "echo" => store.due(query).await.unwrap(),
                _ => store.next_serial(query).await.unwrap(),
            };
            let tasks = due.into_iter().map(|due| {
                let task = due.key.task.as_str();
                task.strip_suffix(&format!("-{agent}")).unwrap().to_owned()
            });
            tasks.collect::<Vec<_>>()
        };
        assert_eq!(
            found(Some("acme"), None, 9).await,
            ["acme-a-0", "acme-b-0", "acme-a-1", "acme-b-1"]
        );
        assert_eq!(found(Some(""), None, 9).await, ["-c-0", "-c-1"]);
        assert_eq!(found(Some("zeta"), None, 9).await, ["zeta-a-0", "zeta-a-1"]);
        assert!(found(Some("unknown"), None, 9).await.is_empty());
        // The owners of a tenant take turns, and those of another tenant do not count.
        assert_eq!(found(Some("acme"), Some(("acme", "a")), 1).await, ["acme-b-0"]);
        assert_eq!(found(Some("acme"), Some(("acme", "b")), 1).await, ["acme-a-0"]);
        assert_eq!(found(Some("acme"), Some(("zeta", "a")), 1).await, ["acme-a-0"]);
        // Without a tenant all owners take turns.
        let mut last = ("zeta", "a");
        let mut seen = HashSet::new();
        for _ in 0..4 {
            let next = found(None, Some(last), 1).await.swap_remove(0);
            last = *owners.iter().find(|(t, p)| next.starts_with(&format!("{t}-{p}-"))).unwrap();
            seen.insert(last);
        }
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!(found(None, None, 9).await.len(), 8);
    }
}

pub(super) async fn the_number_of_label_sets_is_limited(store: Arc<dyn Store>) {
    // The tasks of one owner can require some sets, and those of all owners a number of them.
    let of = |principal: &str, number: usize, label: &str| {
        let append = demanding(&format!("t{number}"), 1, &[label], 0);
        Append { key: Key { owner: owner("acme", principal), ..append.key }, ..append }
    };
    let mut sets = Vec::new();
    let mut refused = None;
    for principal in 0..1000 {
        let before = sets.len();
        for number in before..before + 1000 {
            let append = of(&principal.to_string(), number, &format!("label-{number}"));
            match store.append(append).await {
                Ok(_) => sets.push((principal.to_string(), number)),
                Err(error) => {
                    refused = Some((principal.to_string(), number, error));
                    break;
                }
            }
        }
        let taken = sets.len() - before;
        if principal == 0 {
            assert!((1..100).contains(&taken), "one owner must not use up all sets: {taken}");
            // A set that the owner requires already can be required again.
            store.append(of("0", 5000, "label-0")).await.unwrap();
        } else if taken == 0 {
            break;
        }
    }
    let (principal, number, error) = refused.expect("the number of sets is limited");
    assert!(matches!(error, StoreError::LimitReached(_)), "{error:?}");
    let task = Key { owner: owner("acme", &principal), ..key(&format!("t{number}")) };
    assert_eq!(store.load(&task, None, u64::MAX).await, Ok(Loaded::Gone));
    // A known set can still be required by others.
    store.append(of("other", 5001, "label-1")).await.unwrap();
    // A set whose last task has ended makes room for another one, and its name can be used again.
    let (ended, number) = sets[3].clone();
    assert!(store.append(of("other", 5002, "new")).await.is_err());
    let task = Key { owner: owner("acme", &ended), ..key(&format!("t{number}")) };
    store.append(finish(task, 2)).await.unwrap();
    store.append(of("other", 5002, "new")).await.unwrap();
    assert!(store.append(of("other", 5003, "label-3")).await.is_err(), "all are in use again");
    let labels = ["new".to_owned()];
    let agent = AgentName::from("echo");
    let query = DueQuery { labels: Some(&labels), ..DueQuery::new(&agent, 10) };
    let due = store.due(query).await.unwrap();
    let due: Vec<_> = due.into_iter().map(|due| due.key.task.to_string()).collect();
    assert_eq!(due, ["t5002"]);
}

async fn next(store: &dyn Store, agent: &str, limit: usize) -> Vec<String> {
    let due = store.next_serial(DueQuery::new(&agent.into(), limit)).await.unwrap();
    due.into_iter().map(|due| due.key.task.to_string()).collect()
}

async fn unlock(store: &dyn Store, context: &str, me: MemberId) {
    let conversation = Conversation { owner: owner("acme", "ann"), context: context.into() };
    store.unlock_conversation(&"echo".into(), &conversation, me).await.unwrap();
}

fn bobs(task: &str) -> Key {
    Key { owner: owner("acme", "bob"), ..key(task) }
}

pub(super) async fn serial_tasks_are_due_in_the_order_of_their_messages(store: Arc<dyn Store>) {
    let next = async |limit| next(&*store, "echo", limit).await;
    // The store keeps the queue from here on, including the tasks that already wait.
    store.append(create(key("cut-off"), 100)).await.unwrap();
    for member in [DEAD, OTHER] {
        join(&*store, member).await;
    }
    store.append(claim(key("cut-off"), DEAD)).await.unwrap();
    die(&*store, DEAD).await;
    store.enable_serial(&"echo".into()).await.unwrap();
    assert_eq!(next(10).await, ["cut-off"]);
    // The clock runs backwards here, which must not change the order.
    for (number, task) in (1..).zip(["held", "older", "other"]) {
        let mut append = create(key(task), 100 - number);
        if task == "other" {
            append.header.context = "elsewhere".into();
        }
        store.append(append).await.unwrap();
    }
    store.append(claim(key("held"), OTHER)).await.unwrap();
    store.append(create(bobs("foreign"), 1)).await.unwrap();
    // Its first message was read before; its waiting message arrived last.
    let mut answered = finish(key("older"), 5);
    answered.header.state = TaskState::Submitted;
    answered.header.run.unread = vec![5, 6];
    answered.events.push((Kind::Received(TaskState::Submitted), body("again")));
    answered.events.push((Kind::Received(TaskState::Submitted), body("and again")));
    answered.snapshot = None;
    store.append(answered).await.unwrap();
    // A conversation with a running turn is skipped.
    assert_eq!(next(10).await, ["other", "foreign"]);
    unlock(&*store, "chat", OTHER).await;
    assert_eq!(next(10).await, ["cut-off", "foreign", "other", "older"]);
    assert_eq!(next(2).await, ["cut-off", "foreign"]);
    assert!(store.next_serial(DueQuery::new(&"unknown".into(), 10)).await.unwrap().is_empty());

    // The next task follows an ended one, even one that was in the middle of the queue.
    let end = Append { expect: TaskVersion::new(1, 1), ..finish(key("cut-off"), 7) };
    store.append(end).await.unwrap();
    assert_eq!(next(1).await, ["other"]);
    store.append(create(key("last"), 8)).await.unwrap();
    assert_eq!(next(10).await, ["other", "foreign", "older", "last"]);
    let mut begun = claim(key("older"), LIVING);
    begun.expect = TaskVersion::new(6, 1);
    begun.header.run.epoch = 2;
    begun.header.run.unread = vec![6];
    store.append(begun.clone()).await.unwrap();
    assert_eq!(next(10).await, ["other", "foreign"]);
    unlock(&*store, "chat", LIVING).await;
    assert_eq!(next(10).await, ["other", "foreign", "last"]);
    // It has an unread message that is older than those that arrived meanwhile.
    begun.expect = TaskVersion::new(6, 2);
    begun.header.run.epoch = 3;
    begun.header.run.holder = None;
    store.append(begun).await.unwrap();
    assert_eq!(next(10).await, ["other", "foreign", "older", "last"]);
    // Enabling it again changes nothing. A task whose holder dies is ordered by its message.
    store.enable_serial(&"echo".into()).await.unwrap();
    assert_eq!(next(10).await, ["other", "foreign", "older", "last"]);
    die(&*store, OTHER).await;
    assert_eq!(next(3).await, ["held", "foreign", "other"]);
}

pub(super) async fn a_serial_conversation_has_one_turn(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    store.enable_serial(&"echo".into()).await.unwrap();
    let tasks = [key("a"), key("b"), key("elsewhere"), bobs("foreign")];
    for task in &tasks {
        let mut append = create(task.clone(), 1);
        if task.task.as_str() == "elsewhere" {
            append.header.context = "elsewhere".into();
        }
        store.append(append).await.unwrap();
    }
    store.append(claim(key("a"), LIVING)).await.unwrap();
    let before = store.load(&key("b"), None, u64::MAX).await;
    let locked = async || {
        for member in [LIVING, OTHER] {
            assert_eq!(store.append(claim(key("b"), member)).await, Err(StoreError::Locked));
        }
        assert_eq!(store.load(&key("b"), None, u64::MAX).await, before);
    };
    locked().await;
    // The checks of the claim itself come before the lock.
    let fenced = Append { fence: Some(7), ..claim(key("b"), OTHER) };
    assert_eq!(store.append(fenced).await, Err(StoreError::Fenced));
    let stale = Append { expect: TaskVersion::new(1, 7), ..claim(key("b"), OTHER) };
    assert_eq!(store.append(stale).await, Err(StoreError::Conflict));
    // A new task whose turn would begin at once is refused as well, and nothing of it is stored.
    let mut at_once = Append { dedup: Some(dedup(1, 7)), ..create(key("new"), 2) };
    at_once.header.run = claim(key("new"), OTHER).header.run;
    assert_eq!(store.append(at_once.clone()).await, Err(StoreError::Locked));
    assert_eq!(store.load(&key("new"), None, u64::MAX).await, Ok(Loaded::Gone));
    assert_eq!(store.original(&[1; 32]).await, Ok(None));
    at_once.key = key("b");
    assert_eq!(store.append(at_once).await, Err(StoreError::Conflict));
    // Other conversations and other owners are not locked.
    for task in [key("elsewhere"), bobs("foreign")] {
        store.append(claim(task, OTHER)).await.unwrap();
    }
    // The turn can write under its lock, and the lock outlives the task, because its agent may
    // still run.
    let end = Append { expect: TaskVersion::new(1, 1), fence: Some(1), ..finish(key("a"), 2) };
    store.append(end).await.unwrap();
    locked().await;
    unlock(&*store, "chat", OTHER).await;
    locked().await;
    unlock(&*store, "chat", LIVING).await;
    store.append(claim(key("b"), OTHER)).await.unwrap();
    // The locks of dead members are released.
    store.append(create(key("c"), 3)).await.unwrap();
    assert_eq!(store.append(claim(key("c"), LIVING)).await, Err(StoreError::Locked));
    assert!(next(&*store, "echo", 10).await.is_empty());
    die(&*store, OTHER).await;
    assert_eq!(next(&*store, "echo", 10).await, ["b", "foreign", "elsewhere", "c"]);
    store.append(claim(key("c"), LIVING)).await.unwrap();
    store.leave(LIVING).await.unwrap();
    assert_eq!(next(&*store, "echo", 10).await, ["b", "foreign", "elsewhere", "c"]);
}

pub(super) async fn an_agent_that_is_not_serial_has_several_turns_per_conversation(
    store: Arc<dyn Store>,
) {
    store.enable_serial(&"other".into()).await.unwrap();
    for task in ["a", "b"] {
        store.append(create(key(task), 1)).await.unwrap();
        store.append(claim(key(task), LIVING)).await.unwrap();
    }
}

pub(super) async fn a_paused_task_is_found_after_its_timeout(store: Arc<dyn Store>) {
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
        let paused = store.paused(&agent, at(before), limit).await.unwrap();
        paused.iter().map(|(key, _)| key.task.to_string()).collect::<Vec<_>>()
    };
    assert!(paused(1, 10).await.is_empty());
    assert_eq!(paused(3, 10).await, ["t1", "t2"]);
    assert_eq!(paused(9, 3).await, ["t1", "t2", "t3"]);
    assert!(store.paused(&"other".into(), at(99), 10).await.unwrap().is_empty());
    // Its caller has answered, so it no longer waits.
    let mut answer = create(key("t1"), 1);
    answer.expect = TaskVersion::new(4, 0);
    answer.header.state = TaskState::InputRequired;
    store.append(answer).await.unwrap();
    assert_eq!(paused(3, 10).await, ["t2"]);
}

pub(super) async fn a_queued_task_is_found_after_its_deadline(store: Arc<dyn Store>) {
    for number in 1..=4 {
        store.append(create(key(&format!("t{number}")), number)).await.unwrap();
    }
    finished(&*store, key("done"), 1).await;
    let agent = AgentName::from("echo");
    let queued = async |before, limit| {
        let queued = store.queued(&agent, at(before), limit).await.unwrap();
        let named = |(key, since): &(Key, Timestamp)| (key.task.to_string(), *since);
        queued.iter().map(named).collect::<Vec<_>>()
    };
    let task = |number: i64| (format!("t{number}"), at(number));
    assert!(queued(1, 10).await.is_empty());
    assert_eq!(queued(3, 10).await, [task(1), task(2)]);
    assert_eq!(queued(9, 3).await, [task(1), task(2), task(3)]);
    assert!(store.queued(&"other".into(), at(99), 10).await.unwrap().is_empty());
    // Its turn has begun, so it no longer waits.
    store.append(claim(key("t1"), LIVING)).await.unwrap();
    assert_eq!(queued(3, 10).await, [task(2)]);
}
