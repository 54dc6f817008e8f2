//! Agents that are registered and removed at run time.

use std::sync::Arc;

use herald_engine::{Agent, AgentRoute, Profile, QueuedTasks, RegistryError, turn::Assignment};
use herald_protocol::{ErrorKind, SendResult, TaskState, request::SendMessage};
use tokio::sync::Semaphore;

use crate::support::{Bench, Script, answer, eventually, failure_reason, profile, say};

fn named(name: &str) -> Profile {
    Profile { concurrency: 1, ..Profile::new(name, "Comes and goes") }
}

/// An agent that completes each task once the gate has a permit.
fn gated(gate: &Arc<Semaphore>) -> Arc<dyn Agent> {
    let gate = Arc::clone(gate);
    Arc::new(Script::new(move |_| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            Ok(())
        })
    }))
}

async fn bench() -> Bench {
    Bench::new(Script::new(|_| Box::pin(async { Ok(()) }))).await
}

fn on(bench: &Bench, agent: &str) -> Bench {
    let route = AgentRoute { agent: Some(agent.into()), ..AgentRoute::default() };
    Bench { route, ..bench.clone() }
}

#[tokio::test]
async fn an_agent_that_is_registered_at_run_time_works_on_tasks() {
    let bench = bench().await;
    let late = on(&bench, "late");
    assert_eq!(late.send(say("hi")).await.unwrap_err().kind, ErrorKind::AgentUnavailable);
    let gate = Arc::new(Semaphore::new(100));
    bench.engine.register(named("late"), gated(&gate)).unwrap();
    let names: Vec<_> =
        bench.engine.profiles().iter().map(|known| known.name.to_string()).collect();
    assert_eq!(names, ["late", "script"]);
    // The second task waits in the store for the dispatcher of the new agent.
    for _ in 0..2 {
        assert_eq!(late.send(say("hi")).await.unwrap().status.state, TaskState::Completed);
    }
    let twice = bench.engine.register(named("late"), gated(&gate));
    assert_eq!(twice, Err(RegistryError::Twice("late".into())));
    let bad = bench.engine.register(named("Not a name"), gated(&gate));
    assert!(matches!(bad, Err(RegistryError::BadName(_))));
}

#[tokio::test]
async fn a_handler_name_belongs_to_one_agent() {
    let bench = bench().await;
    let gate = Arc::new(Semaphore::new(100));
    let called =
        |name: &str, handler: &str| Profile { handler: Some(handler.into()), ..named(name) };
    bench.engine.register(called("my-one", "my_one"), gated(&gate)).unwrap();
    for taken in ["my_one", "script"] {
        let twice = bench.engine.register(called("other", taken), gated(&gate));
        assert_eq!(twice, Err(RegistryError::Twice(taken.into())));
    }
    for handler in ["my_one", "my-one"] {
        let send = SendMessage {
            message: say("hi"),
            agent: Some(handler.into()),
            ..SendMessage::default()
        };
        let SendResult::Task(task) = bench.sent(send).await.unwrap() else { panic!("no task") };
        assert_eq!(task.status.state, TaskState::Completed);
        on(&bench, "my-one").get(&task.id).await.unwrap();
    }
}

#[tokio::test]
async fn the_queued_tasks_of_a_removed_agent_wait_are_rejected_or_fail() {
    for (queued, state) in [
        (QueuedTasks::Wait, TaskState::Submitted),
        (QueuedTasks::Reject, TaskState::Rejected),
        (QueuedTasks::Fail, TaskState::Failed),
    ] {
        let bench = bench().await;
        let gate = Arc::new(Semaphore::new(0));
        bench.engine.register(named("late"), gated(&gate)).unwrap();
        let late = on(&bench, "late");
        let running = late.post(say("one")).await.unwrap();
        let waiting = late.post(say("two")).await.unwrap();
        assert_eq!(late.get(&waiting.id).await.unwrap().status.state, TaskState::Submitted);

        bench.engine.remove(&"late".into(), queued).await.unwrap();
        let status = late.get(&waiting.id).await.unwrap().status;
        assert_eq!(status.state, state);
        if state.is_terminal() {
            assert_eq!(failure_reason(&status), "AGENT_GONE");
        }
        let refused = late.send(say("three")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::AgentUnavailable);
        let refused = bench.post(answer(&running, "more")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::AgentUnavailable);
        // A running turn continues.
        gate.add_permits(1);
        eventually(|| async {
            late.get(&running.id).await.unwrap().status.state == TaskState::Completed
        })
        .await;

        // The name can be used again, and a waiting task begins.
        gate.add_permits(1);
        bench.engine.register(named("late"), gated(&gate)).unwrap();
        if queued == QueuedTasks::Wait {
            eventually(|| async {
                late.get(&waiting.id).await.unwrap().status.state == TaskState::Completed
            })
            .await;
        }
    }
}

#[tokio::test]
async fn the_default_agent_and_unknown_agents_cannot_be_removed() {
    let bench = bench().await;
    let name = profile().name;
    let removed = bench.engine.remove(&name, QueuedTasks::Wait).await;
    assert_eq!(removed, Err(RegistryError::IsDefault(name)));
    let removed = bench.engine.remove(&"unknown".into(), QueuedTasks::Wait).await;
    assert_eq!(removed, Err(RegistryError::Unknown("unknown".into())));
}

#[tokio::test]
async fn an_assignment_can_be_sent_to_a_worker() {
    let (sent, mut received) = tokio::sync::mpsc::channel(1);
    let bench = Bench::new(Script::new(move |turn| {
        let assigned = serde_json::to_string(turn.assignment()).unwrap();
        let (sent, id) = (sent.clone(), turn.id().to_owned());
        Box::pin(async move {
            sent.send((assigned, id)).await.unwrap();
            Ok(())
        })
    }))
    .await;
    let task = bench.send(say("hi")).await.unwrap();
    let (json, id) = received.recv().await.unwrap();
    let read: Assignment = serde_json::from_str(&json).unwrap();
    assert_eq!((read.id.to_string(), &read.task.id, read.attempt), (id, &task.id, 1));
    assert_eq!(serde_json::to_string(&read).unwrap(), json);
}
