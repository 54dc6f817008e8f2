//! Outage of the store: work waits, and nothing is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use herald_engine::{
    AgentError, Clock, Settings,
    store::{Append, Kind, flaky::Flaky},
};
use herald_protocol::{StreamEvent, TaskState};
use tokio::sync::Notify;

use crate::support::{Bench, Script, answer, artifact_text, eventually, profile, rest, say, text};

fn failing(which: fn(&Append) -> bool, count: usize) -> Arc<Flaky> {
    let store = Flaky::new().unwrap();
    store.fail_appends(which, count);
    Arc::new(store)
}

#[tokio::test]
async fn writes_of_an_agent_wait_until_the_store_is_available() {
    let store = failing(|append| append.events.iter().any(|(kind, _)| *kind == Kind::Artifact), 3);
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.complete_with(text("out", "kept")).await?;
            Ok(())
        })
    });
    let bench = Bench::on(store, agent, profile(), Settings::default(), Clock::system()).await;
    let task = bench.send(say("go")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "kept");
}

#[tokio::test]
async fn a_failed_agent_cleans_up_while_the_store_is_unavailable() {
    let store = Arc::new(Flaky::new().unwrap());
    let (full, away) = (Arc::clone(&store), Arc::new(Notify::new()));
    let tidied = Arc::clone(&away);
    let agent = Script::new(move |turn| {
        let (full, tidied) = (Arc::clone(&full), Arc::clone(&tidied));
        Box::pin(async move {
            let error = AgentError::Failed("it broke".to_owned());
            full.fail_writes(true);
            turn.fail_while(&error, async { tidied.notify_one() }).await;
            Err(error)
        })
    });
    let on = Arc::clone(&store);
    let bench = Bench::on(on, agent, profile(), Settings::default(), Clock::system()).await;
    let task = bench.post(say("go")).await.unwrap();
    away.notified().await;
    store.fail_writes(false);
    let state = async || bench.get(&task.id).await.unwrap().status.state;
    eventually(async || state().await == TaskState::Failed).await;
}

#[tokio::test]
async fn a_turn_waits_until_its_task_can_be_read() {
    let store = Arc::new(Flaky::new().unwrap());
    let agent = Script::new(|turn| {
        Box::pin(async move {
            if turn.cancelled().is_cancelled() {
                return Err(AgentError::Stopped);
            }
            Ok(())
        })
    });
    // Too large for the cache, so that the turn begins with a read.
    let settings = Settings { memory: 400_000, ..Settings::default() };
    let on = Arc::clone(&store);
    let bench = Bench::on(on, agent, profile(), settings, Clock::system()).await;
    store.fail_loads(2);
    let task = bench.send(say(&"x".repeat(100_000))).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_paused_task_is_read_again_only_if_memory_is_short() {
    for (memory, is_kept) in [(256 << 20, true), (400_000, false)] {
        let store = Arc::new(Flaky::new().unwrap());
        let agent = Script::new(|turn| {
            Box::pin(async move {
                turn.ask("more?").await?;
                Ok(())
            })
        });
        let settings = Settings { memory, ..Settings::default() };
        let on = Arc::clone(&store);
        let bench = Bench::on(on, agent, profile(), settings, Clock::system()).await;
        let task = bench.send(say(&"x".repeat(100_000))).await.unwrap();
        // The end of the turn may read the task as well.
        eventually(|| async { bench.engine.at_work().is_empty() }).await;
        // The next read would fail.
        store.fail_loads(1);
        let answered = bench.send(answer(&task, "go on")).await;
        assert_eq!(answered.is_ok(), is_kept, "{answered:?}");
    }
}

#[tokio::test]
async fn a_large_result_is_waited_for_in_memory_and_streamed_from_the_store() {
    let store = Arc::new(Flaky::new().unwrap());
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.complete_with(text("out", turn.message().text())).await?;
            Ok(())
        })
    });
    let on = Arc::clone(&store);
    let bench = Bench::on(on, agent, profile(), Settings::default(), Clock::system()).await;
    let large = "x".repeat(100_000);
    store.fail_reads_after(0);
    let task = bench.send(say(&large)).await.unwrap();
    assert_eq!(artifact_text(&task, "out"), large);
    store.fail_reads_after(usize::MAX);
    let items = rest(&mut bench.stream(say(&large)).await.unwrap()).await;
    let results = items.iter().filter_map(|(_, event)| match event {
        StreamEvent::ArtifactUpdate(update) => update.artifact.parts[0].as_text(),
        StreamEvent::Task(_) | StreamEvent::Message(_) | StreamEvent::StatusUpdate(_) => None,
    });
    assert_eq!(results.collect::<Vec<_>>(), [large]);
}

#[tokio::test]
async fn a_turn_that_could_not_begin_begins_later() {
    let second_turn =
        |append: &Append| append.header.run.turn > 1 && append.header.run.holder.is_some();
    let store = failing(second_turn, 2);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let turns = Arc::new(AtomicUsize::new(0));
    let (waited, counted) = (Arc::clone(&gate), Arc::clone(&turns));
    let agent = Script::new(move |_| {
        let (gate, turns) = (Arc::clone(&waited), Arc::clone(&counted));
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            turns.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    });
    let bench = Bench::on(store, agent, profile(), Settings::default(), Clock::system()).await;
    let task = bench.post(say("one")).await.unwrap();
    bench.post(answer(&task, "two")).await.unwrap();
    gate.add_permits(2);
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}
