//! Damaged tasks: an unreadable task does not affect the others.

use std::{future::Future, path::Path, time::Duration};

use herald_engine::{AgentRoute, Caller, Clock, Engine, Profile, Reply, Settings};
use herald_protocol::{
    ErrorKind, Message, Request, StreamEvent, Task, TaskState, request::ListTasks,
};
use rusqlite::Connection;
use tokio::task::JoinSet;

use crate::support::{
    Bench, Script, eventually, failure_reason, file, profile, reopened, say, text,
};

/// Statements that damage the ended task `?1`.
const DAMAGE: [&str; 6] = [
    "UPDATE tasks SET status = x'00ff00ff' WHERE id = ?1",
    "UPDATE tasks SET history = x'7b7d7b' WHERE id = ?1",
    "UPDATE tasks SET artifacts = zeroblob(length(artifacts)) WHERE id = ?1",
    "UPDATE tasks SET unread = 'x' WHERE id = ?1",
    "UPDATE tasks SET state = 77 WHERE id = ?1",
    "UPDATE tasks SET context = CAST(x'ff' AS TEXT) WHERE id = ?1",
];

fn damage(directory: &Path, how: &str, task: &Task) {
    let conn = Connection::open(directory.join("test.db")).unwrap();
    assert_eq!(conn.execute(how, [task.id.as_str()]).unwrap(), 1, "{how}");
}

/// Answers with its conversation history.
fn agent() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            let earlier =
                turn.earlier().iter().map(|task| task.history.as_ref().unwrap()[0].text());
            let earlier: Vec<_> = earlier.collect();
            turn.artifact(text("out", earlier.join(" "))).await?;
            Ok(())
        })
    })
}

async fn bench(directory: &Path, agent: Script, profile: Profile) -> Bench {
    let store = reopened(directory).await;
    Bench::on(store, agent, profile, Settings::default(), Clock::system()).await
}

/// An engine with an empty cache.
async fn afresh(directory: &Path) -> Bench {
    bench(directory, agent(), Profile { memory: 5, ..profile() }).await
}

async fn end(bench: Bench) {
    bench.engine.drain(Duration::from_secs(60)).await;
}

fn in_chat(text: &str) -> Message {
    Message { context_id: Some("chat".into()), ..say(text) }
}

#[tokio::test]
async fn a_damaged_task_is_not_listed_and_does_not_hide_others() {
    for how in DAMAGE {
        let directory = tempfile::tempdir().unwrap();
        let first = afresh(directory.path()).await;
        let mut tasks = Vec::new();
        for word in ["one", "two", "three"] {
            tasks.push(first.send(in_chat(word)).await.unwrap());
        }
        end(first).await;
        damage(directory.path(), how, &tasks[1]);
        let bench = afresh(directory.path()).await;
        for include_artifacts in [None, Some(true)] {
            let list = ListTasks { include_artifacts, ..ListTasks::default() };
            let Reply::Tasks(page) = bench.call(Request::ListTasks(list)).await.unwrap() else {
                panic!("the reply to a list is a list");
            };
            let seen: Vec<_> = page.tasks.iter().map(|task| &task.id).collect();
            // A list without artifacts does not read the damaged ones.
            if include_artifacts.is_none() && how.contains("artifacts") {
                assert_eq!(seen.len(), 3);
            } else {
                assert_eq!(seen, [&tasks[2].id, &tasks[0].id], "{how}");
            }
        }
        let error = bench.get(&tasks[1].id).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal, "{how}");
        assert_eq!(bench.get(&tasks[0].id).await.unwrap().id, tasks[0].id);
        let next = bench.send(in_chat("four")).await.unwrap();
        let remembered = crate::support::artifact_text(&next, "out");
        assert_eq!(remembered, "one three", "{how}");
        end(bench).await;
    }
}

#[tokio::test]
async fn a_feed_skips_a_damaged_event() {
    for how in ["kind = 99", "body = x'00'"] {
        let directory = tempfile::tempdir().unwrap();
        let first = afresh(directory.path()).await;
        let (damaged, whole) = (first.send(say("one")).await, first.send(say("two")).await);
        let (damaged, whole) = (damaged.unwrap(), whole.unwrap());
        end(first).await;
        let how = format!(
            "UPDATE events SET {how} WHERE seq = 1 AND task = (SELECT row FROM tasks WHERE id = ?1)"
        );
        damage(directory.path(), &how, &damaged);
        let bench = afresh(directory.path()).await;
        let follow = bench.engine.follow(&bench.caller, &bench.route, Vec::new(), Some(0));
        let mut feed = follow.await.unwrap();
        let mut seen = Vec::new();
        while seen.last() != Some(&(whole.id.clone(), true)) {
            let item = feed.next().await.unwrap().unwrap();
            let event: StreamEvent = serde_json::from_slice(&item.body).unwrap();
            assert!(!matches!(event, StreamEvent::Task(_)));
            seen.push((item.task, item.closing));
        }
        let of = |task: &Task| seen.iter().filter(|(id, _)| *id == task.id).count();
        assert_eq!(of(&damaged) + 1, of(&whole), "{seen:?}");
        end(bench).await;
    }
}

/// Runs one process: its unfinished work is aborted at the end.
fn life<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

#[test]
fn a_damaged_waiting_task_does_not_block_others() {
    let damaged = [
        "UPDATE tasks SET id = CAST(x'ff' AS TEXT) WHERE id = ?1",
        "UPDATE tasks SET owner = 77 WHERE id = ?1",
        "UPDATE tasks SET unread = '1,x' WHERE id = ?1",
        "UPDATE tasks SET context = CAST(x'ff' AS TEXT) WHERE id = ?1",
        "UPDATE events SET body = x'00' WHERE seq = 1
         AND task = (SELECT row FROM tasks WHERE id = ?1)",
    ];
    for (how, serial) in damaged.into_iter().flat_map(|how| [(how, false), (how, true)]) {
        let directory = tempfile::tempdir().unwrap();
        let one_by_one = Profile { serial, concurrency: 1, ..profile() };
        let stuck = Script::new(|_| Box::pin(std::future::pending()));
        let tasks = life(async {
            let bench = bench(directory.path(), stuck, one_by_one.clone()).await;
            let mut tasks = Vec::new();
            for word in ["at work", "damaged", "waits"] {
                tasks.push(bench.post(in_chat(word)).await.unwrap());
            }
            let at_work = async || bench.get(&tasks[0].id).await.unwrap().status.state;
            eventually(async || at_work().await == TaskState::Working).await;
            tasks
        });
        damage(directory.path(), how, &tasks[1]);
        life(async {
            let bench = bench(directory.path(), agent(), one_by_one).await;
            for task in [&tasks[0], &tasks[2]] {
                let done = async || bench.get(&task.id).await.unwrap().status.state.is_terminal();
                eventually(done).await;
            }
        });
    }
}

#[test]
fn tasks_of_an_unserved_agent_fail_except_damaged_ones() {
    let directory = tempfile::tempdir().unwrap();
    let stuck = || Script::new(|_| Box::pin(std::future::pending()));
    let tasks = life(async {
        let one = || Profile { concurrency: 1, ..profile() };
        let gone = Profile { name: "gone".into(), ..one() };
        let builder = Engine::builder(file(directory.path()));
        let builder = builder.agent(gone, stuck()).agent(one(), stuck());
        let engine = builder.build().unwrap();
        engine.start_work().await.unwrap();
        let route = AgentRoute { agent: Some("gone".into()), ..AgentRoute::default() };
        let bench = Bench { engine, caller: Caller::anonymous("".into()), route };
        let mut sends = JoinSet::new();
        // More than one batch.
        for _ in 0..120 {
            let bench = bench.clone();
            sends.spawn(async move { bench.post(say("hello")).await.unwrap() });
        }
        sends.join_all().await
    });
    damage(directory.path(), "UPDATE tasks SET unread = 'x' WHERE id = ?1", &tasks[0]);
    life(async {
        let settings = Settings { unserved_after: Duration::ZERO, ..Settings::default() };
        let store = reopened(directory.path()).await;
        let bench = Bench::on(store, agent(), profile(), settings, Clock::system()).await;
        assert_eq!(bench.get(&tasks[0].id).await.unwrap_err().kind, ErrorKind::Internal);
        for task in &tasks[1..] {
            let state = || async { bench.get(&task.id).await.unwrap().status.state };
            eventually(|| async { state().await == TaskState::Failed }).await;
            let status = bench.get(&task.id).await.unwrap().status;
            assert_eq!(failure_reason(&status), "AGENT_GONE");
        }
    });
}
