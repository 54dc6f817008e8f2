//! Answers around a crash: each belongs to its question, and no finished turn runs again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use herald_engine::{AgentError, Clock, Profile, Recovery, Settings};
use herald_protocol::{Part, Task, TaskState};

use crate::support::{
    Bench, Script, answer, artifact_text, crashed, eventually, file, profile, reopened, say, text,
};

/// The progress of a turn before the crash.
#[derive(Debug, Clone, Copy)]
enum Asks {
    /// The turn waits for the answer.
    AndWaits,
    /// The turn has asked and is about to end, but the crash comes first.
    AndEnds,
}

/// Asks about `work` and hangs; repeats every other message. Counts the runs of both.
fn asking(asks: Asks, runs: &Arc<[AtomicUsize; 2]>) -> Script {
    let runs = Arc::clone(runs);
    Script::new(move |turn| {
        let runs = Arc::clone(&runs);
        Box::pin(async move {
            let said = turn.message().text();
            if said != "work" {
                runs[1].fetch_add(1, Ordering::SeqCst);
                turn.append(text("out", format!("heard {said}. ")), true).await?;
                return Ok(());
            }
            runs[0].fetch_add(1, Ordering::SeqCst);
            match asks {
                Asks::AndWaits => {
                    turn.ask_within_turn(vec![Part::text("may I?")]).await?;
                    assert!(!turn.answered().await, "nobody answers before the crash");
                }
                Asks::AndEnds => {
                    turn.ask("may I?").await?;
                    std::future::pending::<()>().await;
                }
            }
            Ok::<(), AgentError>(())
        })
    })
}

async fn ended(bench: &Bench, task: &Task) -> Task {
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    bench.get(&task.id).await.unwrap()
}

const RECOVERIES: [Recovery; 3] = [Recovery::Fail, Recovery::Rerun(3), Recovery::Resume(3)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_right_after_a_crash_begins_the_next_turn() {
    for (asks, recovery, serial) in [Asks::AndWaits, Asks::AndEnds]
        .into_iter()
        .flat_map(|asks| RECOVERIES.map(|recovery| (asks, recovery)))
        .flat_map(|(asks, recovery)| [false, true].map(|serial| (asks, recovery, serial)))
    {
        let directory = tempfile::tempdir().unwrap();
        let runs = Arc::default();
        let declared = Profile { recovery, serial, ..profile() };
        let (path, agent) = (directory.path().to_owned(), asking(asks, &runs));
        let first = declared.clone();
        let task = crashed(async move {
            let store = file(&path);
            let bench = Bench::on(store, agent, first, Settings::default(), Clock::system()).await;
            bench.send(say("work")).await.unwrap()
        })
        .await;
        assert_eq!(task.status.state, TaskState::InputRequired);
        let store = reopened(directory.path()).await;
        let agent = asking(asks, &runs);
        let bench = Bench::idle(store, agent, declared, Settings::default(), Clock::system());
        // The dispatcher has not read yet which turns the dead process held.
        bench.post(answer(&task, "yes")).await.unwrap();
        bench.engine.start_work().await.unwrap();
        let task = ended(&bench, &task).await;
        assert_eq!(task.status.state, TaskState::Completed, "{asks:?} {recovery:?} {task:?}");
        assert_eq!(artifact_text(&task, "out"), "heard yes. ");
        let runs: Vec<_> = runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect();
        assert_eq!(runs, [1, 1], "{asks:?} {recovery:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_right_before_a_crash_begins_the_next_turn() {
    for recovery in RECOVERIES {
        let directory = tempfile::tempdir().unwrap();
        let runs = Arc::default();
        let declared = Profile { recovery, ..profile() };
        let (path, agent) = (directory.path().to_owned(), asking(Asks::AndEnds, &runs));
        let first = declared.clone();
        let task = crashed(async move {
            let store = file(&path);
            let bench = Bench::on(store, agent, first, Settings::default(), Clock::system()).await;
            let task = bench.send(say("work")).await.unwrap();
            bench.post(answer(&task, "yes")).await.unwrap()
        })
        .await;
        let store = reopened(directory.path()).await;
        let agent = asking(Asks::AndEnds, &runs);
        let bench = Bench::on(store, agent, declared, Settings::default(), Clock::system()).await;
        let task = ended(&bench, &task).await;
        assert_eq!(task.status.state, TaskState::Completed, "{recovery:?} {task:?}");
        assert_eq!(artifact_text(&task, "out"), "heard yes. ");
        assert_eq!(runs[0].load(Ordering::SeqCst), 1, "{recovery:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_was_done_before_a_crash_is_not_run_again() {
    let directory = tempfile::tempdir().unwrap();
    let runs: Arc<[AtomicUsize; 2]> = Arc::default();
    let agent = |first: bool| {
        let runs = Arc::clone(&runs);
        Script::new(move |turn| {
            let runs = Arc::clone(&runs);
            Box::pin(async move {
                let said = turn.message().text();
                runs[usize::from(said != "work")].fetch_add(1, Ordering::SeqCst);
                if first {
                    turn.progress("at work").await?;
                    turn.answered().await;
                    turn.complete("done, but there is more to read").await?;
                    std::future::pending::<()>().await;
                }
                Ok::<(), AgentError>(())
            })
        })
    };
    let path = directory.path().to_owned();
    let life = agent(true);
    let task = crashed(async move {
        let bench =
            Bench::on(file(&path), life, profile(), Settings::default(), Clock::system()).await;
        let task = bench.post(say("work")).await.unwrap();
        eventually(|| async { bench.get(&task.id).await.unwrap().status.message.is_some() }).await;
        bench.post(answer(&task, "more")).await.unwrap();
        eventually(|| async {
            bench.get(&task.id).await.unwrap().status.state == TaskState::Submitted
        })
        .await;
        task
    })
    .await;
    let store = reopened(directory.path()).await;
    let bench =
        Bench::on(store, agent(false), profile(), Settings::default(), Clock::system()).await;
    assert_eq!(ended(&bench, &task).await.status.state, TaskState::Completed);
    let runs: Vec<_> = runs.iter().map(|runs| runs.load(Ordering::SeqCst)).collect();
    assert_eq!(runs, [1, 1]);
}
