//! Visibility: a caller that sees its whole tenant continues the tasks of other principals, and nothing
//! that is stored changes its owner.

use std::sync::Arc;

use herald_engine::{
    Caller, Clock, Identity, Scopes, Settings, Visibility,
    store::{Actor, Key, Owner, Store, sqlite::Sqlite},
};
use herald_protocol::{
    ErrorKind, Message, Request, SendResult, Task, TaskId, TaskState,
    request::{ListTasks, SendMessage},
};

use crate::support::{Bench, Script, profile, say};

fn caller(tenant: &str, principal: &str, visibility: Visibility) -> Caller {
    let identity = Identity::new(tenant.into(), principal, Scopes::CALLER);
    Arc::new(Identity { visibility, ..identity }).into()
}

/// An agent that asks for every message but "done".
fn asks() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "done" {
                turn.complete("ok").await?;
            } else {
                turn.ask("more?").await?;
            }
            Ok(())
        })
    })
}

/// The engine as another caller.
fn with(bench: &Bench, caller: Caller) -> Bench {
    Bench { caller, ..bench.clone() }
}

async fn start() -> (Arc<Sqlite>, Bench) {
    let store = Arc::new(Sqlite::memory().unwrap());
    let on = Arc::clone(&store) as Arc<dyn Store>;
    let bench = Bench::on(on, asks(), profile(), Settings::default(), Clock::system()).await;
    (store, bench)
}

/// The task that a send creates or continues.
async fn task_of(bench: &Bench, send: SendMessage) -> Task {
    match bench.sent(send).await.unwrap() {
        SendResult::Task(task) => task,
        SendResult::Message(message) => panic!("expected a task, not {message:?}"),
    }
}

fn to(task: &TaskId, text: &str) -> Message {
    Message { task_id: Some(task.clone()), ..say(text) }
}

async fn listed(bench: &Bench) -> Vec<TaskId> {
    match bench.call(Request::ListTasks(ListTasks::default())).await.unwrap() {
        herald_engine::Reply::Tasks(page) => page.tasks.into_iter().map(|task| task.id).collect(),
        other => panic!("expected a page, not {other:?}"),
    }
}

#[tokio::test]
async fn a_caller_that_sees_its_tenant_reads_and_continues_tasks_of_others() {
    let (store, bench) = start().await;
    let ann = with(&bench, caller("acme", "ann", Visibility::Owner));
    let bob = with(&bench, caller("acme", "bob", Visibility::Tenant));
    let task = ann.send(say("hello")).await.unwrap();
    assert_eq!(bob.get(&task.id).await.unwrap().id, task.id);
    assert_eq!(listed(&bob).await, std::slice::from_ref(&task.id));
    let mut stream = bob.subscribe(&task.id, None).await.unwrap();
    let mut feed = bob.engine.follow(&bob.caller, &bob.route, vec![], None).await.unwrap();
    let answered = bob.send(to(&task.id, "done")).await.unwrap();
    assert_eq!(answered.status.state, TaskState::Completed);
    while let Some(item) = stream.next().await.unwrap() {
        if item.closing {
            break;
        }
    }
    loop {
        let item = feed.next().await.unwrap().unwrap();
        assert_eq!(item.task, task.id);
        if item.closing {
            break;
        }
    }
    // The task still belongs to Ann, and its log names Bob.
    let key = |principal: &str| {
        let owner = Owner { tenant: "acme".into(), principal: principal.into() };
        Key { owner, task: task.id.clone() }
    };
    let log = store.read_log(&key("ann"), 0, 100).await.unwrap();
    let actors: Vec<_> = log
        .iter()
        .filter_map(|entry| match &entry.cause.as_ref().unwrap().actor {
            Actor::Agent | Actor::Engine => None,
            actor => Some(actor.clone()),
        })
        .collect();
    assert_eq!(actors, [Actor::Caller, Actor::Principal("bob".into())]);
    assert!(store.read_log(&key("bob"), 0, 100).await.unwrap().is_empty());
    assert_eq!(ann.get(&task.id).await.unwrap().status.state, TaskState::Completed);
    // A cancel of another principal is named, too.
    let second = ann.send(say("hello")).await.unwrap();
    assert_eq!(bob.cancel(&second.id).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test]
async fn a_foreign_task_is_not_found_and_looks_like_none() {
    let (_, bench) = start().await;
    let ann = with(&bench, caller("acme", "ann", Visibility::Tenant));
    let task = ann.send(say("hello")).await.unwrap();
    let unknown = TaskId::from("00000000-0000-7000-8000-000000000000");
    for stranger in [
        caller("acme", "bob", Visibility::Owner),
        caller("other", "ann", Visibility::Owner),
        caller("other", "ann", Visibility::Tenant),
        caller("", "", Visibility::Tenant),
    ] {
        let stranger = with(&bench, stranger);
        let refusals = async |id: &TaskId| {
            [
                stranger.get(id).await.unwrap_err(),
                stranger.cancel(id).await.unwrap_err(),
                stranger.send(to(id, "done")).await.unwrap_err(),
                stranger.subscribe(id, None).await.unwrap_err(),
                stranger
                    .engine
                    .follow(&stranger.caller, &stranger.route, vec![id.clone()], None)
                    .await
                    .unwrap_err(),
            ]
        };
        let (foreign, absent) = (refusals(&task.id).await, refusals(&unknown).await);
        assert_eq!(foreign, absent);
        assert!(foreign.iter().all(|error| error.kind == ErrorKind::TaskNotFound), "{foreign:?}");
        assert!(listed(&stranger).await.is_empty());
    }
}

#[tokio::test]
async fn a_change_of_visibility_changes_what_is_seen_and_never_who_owns_it() {
    let (store, bench) = start().await;
    let hello = say("hello");
    let keyed = || SendMessage {
        message: hello.clone(),
        idempotency_key: Some("key".into()),
        ..SendMessage::default()
    };
    let as_bob = |visibility| with(&bench, caller("acme", "bob", visibility));
    let ann = with(&bench, caller("acme", "ann", Visibility::Tenant));
    let first = task_of(&ann, keyed()).await;
    let own = task_of(&as_bob(Visibility::Tenant), keyed()).await;
    assert_ne!(first.id, own.id, "an idempotency key belongs to its sender");
    for visibility in [Visibility::Owner, Visibility::Tenant, Visibility::Owner] {
        let bob = as_bob(visibility);
        let repeated = task_of(&bob, keyed()).await;
        assert_eq!(repeated.id, own.id, "the key still finds the same task");
        let seen = listed(&bob).await.len();
        assert_eq!(seen, if visibility == Visibility::Tenant { 2 } else { 1 });
        assert_eq!(bob.get(&first.id).await.is_ok(), visibility == Visibility::Tenant);
    }
    // A keyed answer to the task of another principal is found again, though the task is not Bob's.
    let answer = SendMessage {
        message: to(&first.id, "more"),
        idempotency_key: Some("answer".into()),
        ..SendMessage::default()
    };
    let bob = as_bob(Visibility::Tenant);
    let answered = task_of(&bob, answer.clone()).await;
    let again = task_of(&bob, answer).await;
    assert_eq!((answered.id, again.id.clone()), (first.id.clone(), first.id.clone()));
    let messages = again.history.unwrap_or_default();
    let answers = messages.iter().filter(|one| one.text() == "more").count();
    assert_eq!(answers, 1, "the repeated answer was not stored twice");
    for (task, principal) in [(&first.id, "ann"), (&own.id, "bob")] {
        let scope = herald_engine::store::Scope::All;
        let owners = store.owners_of(&scope, task, 9).await.unwrap();
        assert_eq!(owners, [Owner { tenant: "acme".into(), principal: principal.into() }]);
    }
}
