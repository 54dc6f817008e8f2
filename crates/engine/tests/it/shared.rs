//! Two engines on one store: neither fails, steals or misses the work of the other.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::{
    AgentRoute, Clock, Profile, QueuedTasks, Recovery, Settings, Turn,
    store::{Store, flaky::Flaky},
};
use herald_protocol::{StreamEvent, TaskId, TaskState, Timestamp};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::support::{
    Bench, Running, Script, answer, artifact_text, eventually, profile, rest, say, text,
};

/// The engines that ran each task, in the order of the runs.
type Runs = Arc<Mutex<HashMap<TaskId, Vec<&'static str>>>>;

fn script(
    engine: &'static str,
    runs: &Runs,
    work: impl for<'a> Fn(&'a Turn) -> Running<'a> + Send + Sync + 'static,
) -> Script {
    let runs = Arc::clone(runs);
    Script::new(move |turn| {
        let task = turn.task().id.clone();
        runs.lock().unwrap().entry(task).or_default().push(engine);
        work(turn)
    })
}

/// Writes a few chunks with pauses in between.
fn chunks(turn: &Turn) -> Running<'_> {
    Box::pin(async move {
        for number in 0..5 {
            turn.append(text("out", number.to_string()), false).await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    })
}

fn fast() -> Settings {
    Settings { heartbeat_every: Duration::from_millis(20), ..Settings::default() }
}

async fn engine(
    store: &Arc<Flaky>,
    agent: Script,
    profile: Profile,
    settings: Settings,
    clock: &Clock,
) -> Bench {
    let store: Arc<dyn Store> = Arc::<Flaky>::clone(store);
    Bench::on(store, agent, profile, settings, clock.clone()).await
}

async fn pair(
    store: &Arc<Flaky>,
    profile: &Profile,
    work: impl for<'a> Fn(&'a Turn) -> Running<'a> + Clone + Send + Sync + 'static,
) -> (Bench, Bench, Runs) {
    let (runs, clock) = (Runs::default(), Clock::system());
    let one = script("one", &runs, work.clone());
    let one = engine(store, one, profile.clone(), fast(), &clock).await;
    let two = script("two", &runs, work);
    let two = engine(store, two, profile.clone(), fast(), &clock).await;
    (one, two, runs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_is_failed_or_run_twice_and_every_reader_sees_everything() {
    for loses_changes in [false, true] {
        let store = Arc::new(Flaky::new().unwrap());
        store.lose_changes(loses_changes);
        // Few permits, so that tasks wait and either engine claims them.
        let few = Profile { concurrency: 3, recovery: Recovery::Fail, ..profile() };
        let (one, two, runs) = pair(&store, &few, chunks).await;
        let mut sends = JoinSet::new();
        for number in 0..60 {
            let (here, there) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let (here, there) = (here.clone(), there.clone());
            sends.spawn(async move {
                let task = here.post(say("go")).await.unwrap();
                // Followed on the other engine.
                let mut stream = there.subscribe(&task.id, Some(0)).await.unwrap();
                let items = rest(&mut stream).await;
                let numbers: Vec<_> = items.iter().map(|(seq, _)| *seq).collect();
                assert_eq!(numbers, (1..=items.len() as u64).collect::<Vec<_>>());
                let Some((_, StreamEvent::StatusUpdate(last))) = items.last() else {
                    panic!("a stream ends with a status: {items:?}");
                };
                assert_eq!(last.status.state, TaskState::Completed);
                for bench in [here, there] {
                    let task = bench.get(&task.id).await.unwrap();
                    assert_eq!(task.status.state, TaskState::Completed);
                    assert_eq!(artifact_text(&task, "out"), "01234");
                }
                task.id
            });
        }
        // Meanwhile agents are registered and removed on both engines.
        for round in 0..10 {
            let bench = if round % 2 == 0 { &one } else { &two };
            let name = format!("extra-{round}");
            let extra = Profile::new(name.as_str(), "Comes and goes");
            let done = Script::new(|_| Box::pin(async { Ok(()) }));
            bench.engine.register(extra, Arc::new(done)).unwrap();
            let route = AgentRoute { agent: Some(name.as_str().into()), ..AgentRoute::default() };
            let extra = Bench { route, ..bench.clone() };
            assert_eq!(extra.send(say("hi")).await.unwrap().status.state, TaskState::Completed);
            bench.engine.remove(&name.as_str().into(), QueuedTasks::Fail).await.unwrap();
        }
        let tasks = sends.join_all().await;
        let runs = runs.lock().unwrap();
        for task in tasks {
            assert_eq!(runs[&task].len(), 1, "{task} ran on {:?}", runs[&task]);
        }
        let by = |name| runs.values().filter(|ran| ran[0] == name).count();
        assert!(by("one") > 0 && by("two") > 0, "both work");
    }
}

#[tokio::test]
async fn a_change_on_one_engine_is_seen_by_a_get_on_the_other_at_once() {
    let store = Arc::new(Flaky::new().unwrap());
    store.lose_changes(true);
    let (one, two, _) = pair(&store, &profile(), |turn: &Turn| {
        Box::pin(async move {
            turn.ask("and then?").await?;
            Ok(())
        })
    })
    .await;
    let task = one.send(say("hi")).await.unwrap();
    for (here, there) in [(&one, &two), (&two, &one), (&one, &two)] {
        assert_eq!(there.get(&task.id).await.unwrap().status.state, TaskState::InputRequired);
        let answered = here.send(answer(&task, "more")).await.unwrap();
        let seen = there.get(&task.id).await.unwrap();
        assert_eq!(seen.history.unwrap().len(), answered.history.unwrap().len());
    }
    two.cancel(&task.id).await.unwrap();
    assert_eq!(one.get(&task.id).await.unwrap().status.state, TaskState::Canceled);
}

#[tokio::test]
async fn a_cancel_and_an_answer_reach_the_turn_on_the_other_engine() {
    for loses_changes in [false, true] {
        let store = Arc::new(Flaky::new().unwrap());
        store.lose_changes(loses_changes);
        let stopped = Arc::new(Semaphore::new(0));
        let told = Arc::clone(&stopped);
        let (one, two, runs) = pair(&store, &profile(), move |turn: &Turn| {
            let told = Arc::clone(&told);
            Box::pin(async move {
                turn.ask_within_turn(vec![herald_protocol::Part::text("name?")]).await?;
                assert!(turn.answered().await);
                let answer = turn.take_answer().await?;
                let name = answer.parts[0].as_text().unwrap_or_default().to_owned();
                turn.append(text("out", name), false).await?;
                turn.cancelled().cancelled().await;
                told.add_permits(1);
                Ok(())
            })
        })
        .await;
        let task = one.send(say("hi")).await.unwrap();
        assert_eq!(task.status.state, TaskState::InputRequired);
        two.post(answer(&task, "Ann")).await.unwrap();
        eventually(|| async { artifact_text(&two.get(&task.id).await.unwrap(), "out") == "Ann" })
            .await;
        let task = two.cancel(&task.id).await.unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
        stopped.acquire().await.unwrap().forget();
        assert_eq!(runs.lock().unwrap()[&task.id], ["one"]);
    }
}

#[tokio::test]
async fn the_turns_of_a_dead_engine_are_taken_over_and_its_writes_refused() {
    let store = Arc::new(Flaky::new().unwrap());
    let clock = Clock::manual(Timestamp::from_millis(1_700_000_000_000));
    let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
    // Engine one sends no heartbeats, as if it were stopped, and its agent hangs.
    let silent = Settings { heartbeat_every: Duration::from_secs(3600), ..Settings::default() };
    let (waits, refused) = (Arc::clone(&gate), Arc::new(Mutex::new(None)));
    let outcome = Arc::clone(&refused);
    let one = script("one", &runs, move |turn| {
        let (waits, outcome) = (Arc::clone(&waits), Arc::clone(&outcome));
        Box::pin(async move {
            turn.append(text("out", "first"), false).await?;
            waits.acquire().await.unwrap().forget();
            let written = turn.append(text("out", "late"), false).await;
            *outcome.lock().unwrap() = Some(written.clone());
            Ok(written?)
        })
    });
    let one = engine(&store, one, profile(), silent.clone(), &clock).await;
    let task = one.post(say("hi")).await.unwrap();
    eventually(|| async { artifact_text(&one.get(&task.id).await.unwrap(), "out") == "first" })
        .await;
    let two = script("two", &runs, |turn| {
        Box::pin(async move {
            turn.append(text("out", "second"), false).await?;
            Ok(())
        })
    });
    let two = engine(&store, two, profile(), silent, &clock).await;
    // Engine two observes for less than the lease: engine one keeps its turn.
    let second = || clock.set(Timestamp::from_millis(clock.now().as_millis() + 1000));
    for _ in 0..14 {
        second();
        two.engine.heartbeat().await.unwrap();
    }
    assert_eq!(two.get(&task.id).await.unwrap().status.state, TaskState::Working);
    for _ in 0..2 {
        second();
        two.engine.heartbeat().await.unwrap();
    }
    eventually(|| async { two.get(&task.id).await.unwrap().status.state == TaskState::Completed })
        .await;
    assert_eq!(runs.lock().unwrap()[&task.id], ["one", "two"]);
    gate.add_permits(1);
    eventually(|| std::future::ready(refused.lock().unwrap().is_some())).await;
    assert!(refused.lock().unwrap().take().unwrap().is_err(), "its write is refused");
    assert_eq!(artifact_text(&two.get(&task.id).await.unwrap(), "out"), "second");
    // With its next heartbeat it joins again and claims tasks.
    one.engine.heartbeat().await.unwrap();
    gate.add_permits(1);
    let next = one.send(say("again")).await.unwrap();
    assert_eq!(next.status.state, TaskState::Completed);
}

#[tokio::test]
async fn turns_of_a_serial_agent_in_one_conversation_run_one_after_the_other_on_both_engines() {
    let store = Arc::new(Flaky::new().unwrap());
    let serial = Profile { serial: true, concurrency: 4, ..profile() };
    let running = Arc::new(Semaphore::new(1));
    let (one, two, runs) = pair(&store, &serial, move |_: &Turn| {
        let running = Arc::clone(&running);
        Box::pin(async move {
            let alone = running.try_acquire().expect("another turn of the conversation runs");
            tokio::time::sleep(Duration::from_millis(3)).await;
            drop(alone);
            Ok(())
        })
    })
    .await;
    let mut sends = JoinSet::new();
    for number in 0..24 {
        let bench = if number % 2 == 0 { one.clone() } else { two.clone() };
        let mut message = say("go");
        message.context_id = Some("chat".into());
        sends.spawn(async move { bench.send(message).await.unwrap() });
    }
    for task in sends.join_all().await {
        assert_eq!(task.status.state, TaskState::Completed, "{:?}", task.status);
    }
    assert_eq!(runs.lock().unwrap().len(), 24);
}

#[tokio::test]
async fn tasks_of_an_agent_that_only_the_other_engine_serves_are_left_alone() {
    let store = Arc::new(Flaky::new().unwrap());
    let settings = Settings {
        unserved_after: Duration::ZERO,
        sweep_every: Duration::from_millis(10),
        ..fast()
    };
    let clock = Clock::system();
    let gate = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let slow = Script::new(move |_| {
        let waits = Arc::clone(&waits);
        Box::pin(async move {
            waits.acquire().await.unwrap().forget();
            Ok(())
        })
    });
    let only = Profile { name: "only".into(), concurrency: 1, ..profile() };
    let one = engine(&store, slow, only, settings.clone(), &clock).await;
    let other = Script::new(|_| Box::pin(async { Ok(()) }));
    let two = engine(&store, other, profile(), settings, &clock).await;
    let (running, waiting) = (one.post(say("a")).await.unwrap(), one.post(say("b")).await.unwrap());
    // Several sweeps of both engines; one of the engines is the leader.
    let sweeps = tokio::time::Instant::now() + Duration::from_millis(200);
    eventually(|| std::future::ready(tokio::time::Instant::now() > sweeps)).await;
    assert_eq!(two.get(&waiting.id).await.unwrap().status.state, TaskState::Submitted);
    gate.add_permits(2);
    for task in [running, waiting] {
        eventually(|| async {
            two.get(&task.id).await.unwrap().status.state == TaskState::Completed
        })
        .await;
    }
    // Once no engine serves the agent, its tasks fail.
    let last = one.post(say("c")).await.unwrap();
    one.engine.drain(Duration::from_millis(10)).await;
    eventually(|| async { two.get(&last.id).await.unwrap().status.state == TaskState::Failed })
        .await;
}

#[tokio::test]
async fn a_caller_waits_for_a_slow_write_only_so_long_and_the_write_goes_on() {
    let store = Arc::new(Flaky::new().unwrap());
    let settings = Settings { commit_wait: Duration::from_millis(20), ..fast() };
    let agent = Script::new(|_| Box::pin(async { Ok(()) }));
    let bench = engine(&store, agent, profile(), settings, &Clock::system()).await;
    store.delay_appends(Duration::from_millis(200));
    let message = say("hi");
    let refused = bench.send(message.clone()).await.unwrap_err();
    assert_eq!(refused.kind, herald_protocol::ErrorKind::Unavailable);
    assert!(refused.message.contains("same messageId"), "{refused}");
    store.delay_appends(Duration::ZERO);
    let task = bench.send(message).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.history.unwrap().len(), 1, "the message was stored once");
}
