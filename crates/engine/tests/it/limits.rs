//! Limits of tasks, retention and memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::{Caller, Clock, Profile, Settings, rules::TaskLimits};
use herald_protocol::{ErrorKind, TaskState, Timestamp};

use tokio::sync::Semaphore;

use crate::support::{
    Bench, Script, answer, eventually, failure_reason, profile, reopened, say, text,
};

#[tokio::test]
async fn a_flooding_agent_fails_its_task_at_the_limit() {
    for limits in [
        TaskLimits { events: 50, ..TaskLimits::default() },
        TaskLimits { bytes: 10_000, ..TaskLimits::default() },
    ] {
        let flood = Script::new(|turn| {
            Box::pin(async move {
                loop {
                    turn.append(text("out", "x".repeat(100)), false).await?;
                }
            })
        });
        let settings = Settings { limits, ..Settings::default() };
        let bench = Bench::with(flood, profile(), settings).await;
        let task = bench.send(say("go")).await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed);
        assert!(task.status.message.unwrap().text().contains("limit"));
    }
}

#[tokio::test]
async fn an_event_that_exceeds_the_limit_is_not_stored() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.artifact(text("small", "fits")).await?;
            turn.artifact(text("large", "x".repeat(20_000))).await?;
            Ok(())
        })
    });
    let limits = TaskLimits { bytes: 10_000, ..TaskLimits::default() };
    let bench = Bench::with(agent, profile(), Settings { limits, ..Settings::default() }).await;
    let task = bench.send(say("go")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    assert!(task.status.message.unwrap().text().contains("10000 bytes"));
    let ids: Vec<_> = task.artifacts.iter().flatten().map(|it| it.artifact_id.as_str()).collect();
    assert_eq!(ids, ["small"]);
}

#[tokio::test]
async fn the_default_limits_allow_five_thousand_events_and_five_megabytes() {
    let limits = TaskLimits::default();
    assert!(limits.events > 5_100 && limits.bytes > 6 << 20);
}

#[tokio::test]
async fn retention_removes_old_tasks_with_their_keys_and_keeps_waiting_ones_until_their_timeout() {
    let clock = Clock::manual(Timestamp::from_millis(1_000_000));
    let agent = Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "ask" {
                turn.ask("what?").await?;
            }
            Ok(())
        })
    });
    let settings = Settings { keep_for: Some(Duration::from_secs(100)), ..Settings::default() };
    let profile = Profile { paused_timeout: Some(Duration::from_secs(1000)), ..profile() };
    let store = Arc::new(herald_engine::store::sqlite::Sqlite::memory().unwrap());
    let bench = Bench::on(store, agent, profile, settings, clock.clone()).await;
    let message = say("go");
    let finished = bench.send(message.clone()).await.unwrap();
    let waiting = bench.send(say("ask")).await.unwrap();
    clock.set(Timestamp::from_millis(1_200_000));
    bench.engine.sweep().await.unwrap();
    assert_eq!(bench.get(&finished.id).await.unwrap_err().kind, ErrorKind::TaskNotFound);
    assert_ne!(bench.send(message).await.unwrap().id, finished.id, "its key is free again");
    assert_eq!(bench.get(&waiting.id).await.unwrap().status.state, TaskState::InputRequired);
    clock.set(Timestamp::from_millis(2_100_000));
    bench.engine.sweep().await.unwrap();
    let failed = bench.get(&waiting.id).await.unwrap();
    assert_eq!(failure_reason(&failed.status), "UNANSWERED");
}

#[tokio::test]
async fn retention_keeps_the_newest_tasks_up_to_their_number() {
    let clock = Clock::manual(Timestamp::from_millis(1_000_000));
    let agent = Script::new(|_| Box::pin(async { Ok(()) }));
    let settings = Settings { keep_tasks: Some(2), ..Settings::default() };
    let store = Arc::new(herald_engine::store::sqlite::Sqlite::memory().unwrap());
    let bench = Bench::on(store, agent, profile(), settings, clock.clone()).await;
    let mut tasks = Vec::new();
    for second in 0..4 {
        clock.set(Timestamp::from_millis(1_000_000 + 1000 * second));
        tasks.push(bench.send(say("go")).await.unwrap().id);
    }
    bench.engine.sweep().await.unwrap();
    for old in &tasks[..2] {
        assert_eq!(bench.get(old).await.unwrap_err().kind, ErrorKind::TaskNotFound);
    }
    for new in &tasks[2..] {
        assert_eq!(bench.get(new).await.unwrap().status.state, TaskState::Completed);
    }
}

#[tokio::test]
async fn a_small_memory_budget_still_serves_large_tasks() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            for index in 0..40 {
                turn.append(text("out", format!("{index:>8000}")), index == 39).await?;
            }
            Ok(())
        })
    });
    // A quarter of it is for tasks in memory, and the task is larger.
    let settings = Settings { memory: 1 << 20, ..Settings::default() };
    let bench = Bench::with(agent, profile(), settings).await;
    let task = bench.send(say("go")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(crate::support::artifact_text(&task, "out").len(), 40 * 8000);
}

#[tokio::test]
async fn a_task_larger_than_the_memory_budget_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let agent = || {
        Script::new(|turn| {
            Box::pin(async move {
                turn.ask("more?").await?;
                Ok(())
            })
        })
    };
    let start = async |memory| {
        let store = reopened(directory.path()).await;
        let settings = Settings { memory, ..Settings::default() };
        Bench::on(store, agent(), profile(), settings, Clock::system()).await
    };
    let bench = start(256 << 20).await;
    let large = bench.send(say(&"x".repeat(1 << 20))).await.unwrap();
    let small = bench.send(say("small")).await.unwrap();
    bench.engine.drain(Duration::from_secs(5)).await;
    drop(bench);
    let bench = start(2 << 20).await;
    let refused = bench.get(&large.id).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::LimitExceeded);
    assert!(refused.message.contains("[limits] memory"), "{}", refused.message);
    let refused = bench.send(answer(&large, "go on")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::LimitExceeded);
    assert_eq!(bench.get(&small.id).await.unwrap().status.state, TaskState::InputRequired);
    assert_eq!(bench.send(say("new")).await.unwrap().status.state, TaskState::InputRequired);
    bench.engine.drain(Duration::from_secs(5)).await;
    drop(bench);
    let bench = start(256 << 20).await;
    let answered = bench.send(answer(&large, "go on")).await.unwrap();
    assert_eq!(answered.status.state, TaskState::InputRequired, "no data is lost");
}

#[tokio::test]
async fn turns_of_large_tasks_wait_in_the_store_for_free_memory() {
    let gate = Arc::new(Semaphore::new(0));
    let passing = Arc::clone(&gate);
    let agent = Script::new(move |turn| {
        let gate = Arc::clone(&passing);
        Box::pin(async move {
            if !turn.message().text().starts_with("quick") {
                gate.acquire().await.expect("the semaphore is never closed").forget();
            }
            turn.complete_with(text("out", "done")).await?;
            Ok(())
        })
    });
    // Memory for one turn.
    let settings = Settings { memory: 1 << 20, ..Settings::default() };
    let bench = Bench::with(agent, profile(), settings).await;
    let large = "x".repeat(100 << 10);
    let first = bench.post(say(&large)).await.unwrap();
    assert_eq!(first.status.state, TaskState::Working);
    let second = bench.post(say(&large)).await.unwrap();
    assert_eq!(second.status.state, TaskState::Submitted, "it is stored, and no turn runs");
    assert_eq!(bench.send(say("quick")).await.unwrap().status.state, TaskState::Completed);
    assert_eq!(bench.get(&second.id).await.unwrap().status.state, TaskState::Submitted);
    gate.add_permits(2);
    for task in [first, second] {
        let state = async || bench.get(&task.id).await.unwrap().status.state;
        eventually(async || state().await == TaskState::Completed).await;
    }
}

#[tokio::test]
async fn an_owner_with_many_tasks_does_not_keep_others_waiting() {
    for serial in [false, true] {
        let gate = Arc::new(Semaphore::new(0));
        let order = Arc::new(Mutex::new(Vec::new()));
        let (waited, noted) = (Arc::clone(&gate), Arc::clone(&order));
        let agent = Script::new(move |turn| {
            let (gate, order) = (Arc::clone(&waited), Arc::clone(&noted));
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                order.lock().unwrap().push(turn.message().text());
                Ok(())
            })
        });
        let one = Profile { serial, concurrency: 1, ..profile() };
        let noisy = Bench::with(agent, one, Settings::default()).await;
        for _ in 0..50 {
            noisy.post(say("noisy")).await.unwrap();
        }
        let mut quiet = noisy.clone();
        quiet.caller = Caller::anonymous("quiet".into());
        quiet.post(say("quiet")).await.unwrap();
        gate.add_permits(51);
        eventually(|| async { order.lock().unwrap().len() == 51 }).await;
        let place = order.lock().unwrap().iter().position(|text| text == "quiet").unwrap();
        assert!(place <= 2, "{place} others came first");
    }
}
