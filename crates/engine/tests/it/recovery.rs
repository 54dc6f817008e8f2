//! Recovery after a crash and after a shutdown, and the timeouts of turns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use herald_engine::{AgentError, Clock, Profile, Recovery, Settings};
use herald_protocol::{Metadata, Task, TaskState};

use crate::support::{
    Bench, Script, answer, artifact_text, crashed, eventually, failure_reason, file, profile,
    reopened, say, text,
};

/// Runs an agent that hangs after its first write, aborts the process, and starts again.
async fn crash(recovery: Recovery) -> (Task, usize) {
    let directory = tempfile::tempdir().unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let agent = |hangs: bool| {
        let runs = Arc::clone(&runs);
        Script::new(move |turn| {
            let runs = Arc::clone(&runs);
            Box::pin(async move {
                runs.fetch_add(1, Ordering::SeqCst);
                let kept =
                    turn.task().metadata.as_ref().and_then(|kept| kept.get::<String>("turn"));
                if turn.attempt() > 1 && kept.as_deref() != Some(turn.id()) {
                    return Err(AgentError::failed("every attempt has the name of its turn"));
                }
                let name = ("turn".to_owned(), turn.id().into());
                turn.relay(TaskState::Working, None, Some(Metadata::from_iter([name]))).await?;
                if turn.is_resumed() {
                    turn.append(text("out", "two"), true).await?;
                    return Ok(());
                }
                turn.append(text("out", "one "), false).await?;
                if hangs {
                    std::future::pending::<()>().await;
                }
                turn.append(text("out", "two"), true).await?;
                Ok::<(), AgentError>(())
            })
        })
    };
    let mut declared = profile();
    declared.recovery = recovery;
    let task = {
        // A separate runtime, because dropping it aborts everything, as a crash does.
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (path, declared, agent) = (directory.path().to_owned(), declared.clone(), agent(true));
        let task = runtime
            .spawn(async move {
                let settings = Settings::default();
                let bench =
                    Bench::on(file(&path), agent, declared, settings, Clock::system()).await;
                let task = bench.post(say("work")).await.unwrap();
                eventually(|| async { bench.get(&task.id).await.unwrap().artifacts.is_some() })
                    .await;
                task
            })
            .await
            .unwrap();
        runtime.shutdown_background();
        task
    };
    let store = reopened(directory.path()).await;
    let bench =
        Bench::on(store, agent(false), declared, Settings::default(), Clock::system()).await;
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    (bench.get(&task.id).await.unwrap(), runs.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_turn_replaces_its_earlier_writes() {
    let (task, runs) = crash(Recovery::Rerun(2)).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "one two");
    assert_eq!(runs, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_turn_continues_after_its_earlier_writes() {
    let (task, runs) = crash(Recovery::Resume(2)).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "one two");
    assert_eq!(runs, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_turn_continues_after_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let agent = || {
        Script::new(|turn| {
            Box::pin(async move {
                if turn.is_resumed() {
                    turn.append(text("out", "two"), true).await?;
                    return Ok(());
                }
                turn.append(text("out", "one "), false).await?;
                turn.leaving().await;
                Err(AgentError::Suspended)
            })
        })
    };
    let declared = Profile { recovery: Recovery::Resume(2), ..profile() };
    let start = async |store| {
        Bench::on(store, agent(), declared.clone(), Settings::default(), Clock::system()).await
    };
    let bench = start(file(directory.path())).await;
    let task = bench.post(say("work")).await.unwrap();
    eventually(|| async { bench.get(&task.id).await.unwrap().artifacts.is_some() }).await;
    // Without a limit: it would never return if the turn were not suspended.
    bench.engine.drain(Duration::MAX).await;
    drop(bench);
    let bench = start(reopened(directory.path()).await).await;
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed, "{task:?}");
    assert_eq!(artifact_text(&task, "out"), "one two");
}

#[tokio::test]
async fn a_turn_on_a_store_in_memory_is_not_suspended() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let finished = Arc::new(AtomicUsize::new(0));
    let (waited, counted) = (Arc::clone(&gate), Arc::clone(&finished));
    let agent = Script::new(move |turn| {
        let (gate, finished) = (Arc::clone(&waited), Arc::clone(&counted));
        Box::pin(async move {
            tokio::select! {
                biased;
                () = turn.leaving() => return Err(AgentError::Suspended),
                permit = gate.acquire() => permit.unwrap().forget(),
            }
            finished.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    });
    let bench = Bench::new(agent).await;
    bench.post(say("work")).await.unwrap();
    let opened = async {
        bench.engine.draining().await;
        gate.add_permits(1);
    };
    tokio::join!(bench.engine.drain(Duration::MAX), opened);
    assert_eq!(finished.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_turn_that_suspends_without_a_shutdown_fails() {
    let agent = Script::new(|_| Box::pin(async { Err(AgentError::Suspended) }));
    let task = Bench::new(agent).await.send(say("work")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_may_not_be_repeated_fails_with_a_reason() {
    for recovery in [Recovery::Fail, Recovery::Rerun(1)] {
        let (task, runs) = crash(recovery).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(failure_reason(&task.status), "INTERRUPTED");
        assert_eq!(runs, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_turn_keeps_the_artifacts_of_earlier_turns() {
    let directory = tempfile::tempdir().unwrap();
    // The second turn writes too little for a snapshot.
    let agent = |hangs: bool| {
        Script::new(move |turn| {
            Box::pin(async move {
                match turn.message().text().as_str() {
                    "first" => turn.append(text("large", "x".repeat(10_000)), true).await?,
                    "second" => turn.append(text("small", "old "), true).await?,
                    _ => {
                        turn.append(text("new", "once"), false).await?;
                        if hangs {
                            turn.progress("hangs").await?;
                            std::future::pending::<()>().await;
                        }
                        turn.append(text("small", "more"), true).await?;
                        return Ok(());
                    }
                }
                turn.ask("and then?").await?;
                Ok::<(), AgentError>(())
            })
        })
    };
    let (path, first) = (directory.path().to_owned(), agent(true));
    let task = crashed(async move {
        let bench =
            Bench::on(file(&path), first, profile(), Settings::default(), Clock::system()).await;
        let task = bench.send(say("first")).await.unwrap();
        bench.send(answer(&task, "second")).await.unwrap();
        bench.post(answer(&task, "third")).await.unwrap();
        let hangs = || async {
            let words = bench.get(&task.id).await.unwrap().status.message;
            words.is_some_and(|words| words.text() == "hangs")
        };
        eventually(hangs).await;
        task
    })
    .await;
    let path = directory.path().join("test.db");
    drop(reopened(directory.path()).await);
    let conn = rusqlite::Connection::open(path).unwrap();
    let covered = "SELECT t.snapshot, max(e.seq) FROM tasks t JOIN events e ON e.task = t.row \
                   WHERE e.kind = 22";
    let (covered, asked): (i64, i64) =
        conn.query_row(covered, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert!(covered < asked, "the second pause wrote no snapshot: {covered} {asked}");
    drop(conn);
    let store = reopened(directory.path()).await;
    let bench =
        Bench::on(store, agent(false), profile(), Settings::default(), Clock::system()).await;
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(artifact_text(&task, "new"), "once");
    assert_eq!(artifact_text(&task, "small"), "old more");
    assert_eq!(artifact_text(&task, "large").len(), 10_000);
}

async fn hanging(profile: Profile) -> Task {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.progress("thinking").await?;
            turn.cancelled().cancelled().await;
            Err(AgentError::Stopped)
        })
    });
    let bench = Bench::with(agent, profile, Settings::default()).await;
    bench.send(say("work")).await.unwrap()
}

#[tokio::test]
async fn a_silent_turn_and_a_long_one_both_end_with_a_reason() {
    let limit = Some(Duration::from_millis(40));
    let idle = Profile { idle_timeout: limit, ..profile() };
    let long = Profile { timeout: limit, ..profile() };
    for (profile, reason) in [(idle, "IDLE"), (long, "TIMED_OUT")] {
        let task = hanging(profile).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert_eq!(failure_reason(&task.status), reason);
    }
}

#[tokio::test]
async fn a_permit_is_held_until_a_cancelled_agent_has_stopped() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let running = Arc::new(AtomicUsize::new(0));
    let (waited, counted) = (Arc::clone(&gate), Arc::clone(&running));
    let agent = Script::new(move |turn| {
        let (gate, running) = (Arc::clone(&waited), Arc::clone(&counted));
        Box::pin(async move {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "there is one permit");
            turn.cancelled().cancelled().await;
            gate.acquire().await.unwrap().forget(); // a slow cleanup
            running.fetch_sub(1, Ordering::SeqCst);
            Err(AgentError::Stopped)
        })
    });
    let one = Profile { concurrency: 1, grace: Duration::from_secs(60), ..profile() };
    let bench = Bench::with(agent, one, Settings::default()).await;
    let first = bench.post(say("one")).await.unwrap();
    let second = bench.post(say("two")).await.unwrap();
    bench.cancel(&first.id).await.unwrap();
    let state = |id| {
        let bench = bench.clone();
        async move { bench.get(&id).await.unwrap().status.state }
    };
    assert_eq!(state(first.id.clone()).await, TaskState::Canceled);
    assert_eq!(state(second.id.clone()).await, TaskState::Submitted);
    gate.add_permits(1);
    eventually(|| async { state(second.id.clone()).await == TaskState::Working }).await;
    // Its turn begins after its state has changed.
    eventually(|| async { running.load(Ordering::SeqCst) == 1 }).await;
    assert_eq!(state(second.id).await, TaskState::Working);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_cannot_be_read_does_not_block_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let waits = || {
        Script::new(|turn| {
            Box::pin(async move {
                turn.cancelled().cancelled().await;
                Err(AgentError::Stopped)
            })
        })
    };
    let ids: Vec<_> = {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let path = directory.path().to_owned();
        let ids = runtime
            .spawn(async move {
                let settings = Settings::default();
                let bench =
                    Bench::on(file(&path), waits(), profile(), settings, Clock::system()).await;
                let mut ids = Vec::new();
                for _ in 0..3 {
                    ids.push(bench.post(say("work")).await.unwrap().id);
                }
                ids
            })
            .await
            .unwrap();
        runtime.shutdown_background();
        ids
    };
    let store = reopened(directory.path()).await;
    drop(store);
    let damage = rusqlite::Connection::open(directory.path().join("test.db")).unwrap();
    let hurt = "UPDATE events SET body = X'7B22' WHERE task = (SELECT min(row) FROM tasks)";
    assert!(damage.execute(hurt, []).unwrap() > 0);
    drop(damage);
    let done = Script::new(|_| Box::pin(async { Ok(()) }));
    let store = reopened(directory.path()).await;
    let bench = Bench::on(store, done, profile(), Settings::default(), Clock::system()).await;
    for id in &ids[1..] {
        eventually(|| async { bench.get(id).await.unwrap().status.state.is_terminal() }).await;
    }
    assert!(bench.get(&ids[0]).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_went_on_while_its_task_waited_is_repeated_after_a_crash() {
    for (recovery, state) in
        [(Recovery::Rerun(2), TaskState::Completed), (Recovery::Fail, TaskState::Failed)]
    {
        let directory = tempfile::tempdir().unwrap();
        let agent = |hangs: bool| {
            Script::new(move |turn| {
                Box::pin(async move {
                    turn.report_interim(TaskState::InputRequired, Vec::new()).await?;
                    turn.append(text("out", "one "), false).await?;
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    turn.append(text("out", "two"), true).await?;
                    turn.complete("done").await?;
                    Ok(())
                })
            })
        };
        let declared = Profile { recovery, ..profile() };
        let (path, first) = (directory.path().to_owned(), declared.clone());
        let task = crashed(async move {
            let bench =
                Bench::on(file(&path), agent(true), first, Settings::default(), Clock::system())
                    .await;
            let task = bench.post(say("work")).await.unwrap();
            eventually(|| async { bench.get(&task.id).await.unwrap().artifacts.is_some() }).await;
            assert_eq!(bench.get(&task.id).await.unwrap().status.state, TaskState::InputRequired);
            task
        })
        .await;
        let store = reopened(directory.path()).await;
        let bench =
            Bench::on(store, agent(false), declared, Settings::default(), Clock::system()).await;
        // A stream that waits for the turn ends with its outcome, without an answer of the caller.
        let mut stream = bench.subscribe(&task.id, None).await;
        if let Ok(stream) = &mut stream {
            crate::support::rest(stream).await;
        }
        eventually(|| async { bench.get(&task.id).await.unwrap().status.state == state }).await;
        let task = bench.get(&task.id).await.unwrap();
        match recovery {
            Recovery::Rerun(_) => assert_eq!(artifact_text(&task, "out"), "one two"),
            Recovery::Resume(_) | Recovery::Fail => {
                assert_eq!(failure_reason(&task.status), "INTERRUPTED");
            }
        }
    }
}
