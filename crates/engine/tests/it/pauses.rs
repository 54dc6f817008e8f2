//! Turns that keep their resources while they wait for their caller.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::{AgentError, Clock, Profile, Settings, store::sqlite::Sqlite};
use herald_protocol::{Content, ErrorKind, Part, Task, TaskState, Timestamp};
use serde_json::Value;
use tokio::sync::{Semaphore, oneshot};

use crate::support::{
    Bench, Script, answer, artifact_text, eventually, failure_reason, profile, say, text,
};

/// Asks, and continues with the answer. `held` is dropped with its turn.
fn asking(held: oneshot::Sender<()>) -> Script {
    let held = Arc::new(Mutex::new(Some(held)));
    Script::new(move |turn| {
        let held = held.lock().unwrap().take();
        Box::pin(async move {
            assert!(held.is_some(), "there is one turn");
            turn.ask_within_turn(vec![Part::text("may I?")]).await?;
            let answered = tokio::select! {
                answered = turn.answered() => answered,
                () = turn.cancelled().cancelled() => false,
            };
            if answered {
                let answer = turn.take_answer().await?;
                turn.append(text("out", format!("heard {}", answer.text())), true).await?;
            }
            Ok::<(), AgentError>(())
        })
    })
}

async fn paused(bench: &Bench) -> Task {
    let task = bench.send(say("work")).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired);
    task
}

#[tokio::test]
async fn a_turn_continues_with_the_answer_and_its_resources() {
    let (gone, watched) = oneshot::channel();
    let bench = Bench::new(asking(gone)).await;
    let task = paused(&bench).await;
    let task = bench.send(answer(&task, "yes")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "heard yes");
    watched.await.unwrap_err();
    let states = task.history.unwrap();
    assert_eq!(states.len(), 3, "the question is sent once: {states:?}");
}

#[tokio::test]
async fn a_waiting_turn_stops_after_a_cancel() {
    let (gone, watched) = oneshot::channel();
    let bench = Bench::new(asking(gone)).await;
    let task = paused(&bench).await;
    assert_eq!(bench.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
    watched.await.unwrap_err();
}

#[tokio::test]
async fn a_waiting_turn_ends_with_a_task_that_nobody_answered() {
    let (gone, watched) = oneshot::channel();
    let clock = Clock::manual(Timestamp::from_millis(1_000));
    let profile = Profile { paused_timeout: Some(Duration::from_millis(100)), ..profile() };
    let store = Arc::new(Sqlite::memory().unwrap());
    let agent = asking(gone);
    let bench = Bench::on(store, agent, profile, Settings::default(), clock.clone()).await;
    let task = paused(&bench).await;
    watched.await.unwrap_err();
    clock.set(Timestamp::from_millis(20_000));
    eventually(|| async {
        bench.engine.sweep().await.unwrap();
        bench.get(&task.id).await.unwrap().status.state == TaskState::Failed
    })
    .await;
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(failure_reason(&task.status), "UNANSWERED");
}

#[tokio::test]
async fn a_waiting_turn_does_not_delay_a_shutdown_and_its_task_stays_paused() {
    let (gone, watched) = oneshot::channel();
    let bench = Bench::new(asking(gone)).await;
    let task = paused(&bench).await;
    bench.engine.drain(Duration::from_secs(60)).await;
    watched.await.unwrap_err();
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired);
}

#[tokio::test]
async fn the_wait_for_the_caller_does_not_count_against_timeouts() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.ask_within_turn(vec![Part::text("may I?")]).await?;
            let wait = tokio::time::timeout(Duration::from_secs(6), turn.answered());
            wait.await.unwrap_err();
            turn.progress("goes on without an answer").await?;
            Ok::<(), AgentError>(())
        })
    });
    let limit = Some(Duration::from_secs(5));
    let limited = Profile { timeout: limit, idle_timeout: limit, ..profile() };
    let bench = Bench::with(agent, limited, Settings::default()).await;
    let task = paused(&bench).await;
    eventually(|| async {
        let now = bench.get(&task.id).await.unwrap();
        assert_ne!(now.status.state, TaskState::Failed, "{now:?}");
        now.status.state == TaskState::Completed
    })
    .await;
}

#[tokio::test]
async fn waiting_turns_return_their_permits_up_to_a_limit() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "ask" {
                turn.ask("may I?").await?;
                let answered = tokio::select! {
                    answered = turn.answered() => answered,
                    () = turn.cancelled().cancelled() => false,
                };
                if answered {
                    turn.take_answer().await?;
                }
            }
            if turn.message().text() == "hang" {
                turn.cancelled().cancelled().await;
            }
            Ok::<(), AgentError>(())
        })
    });
    let limited = Profile { concurrency: 1, max_waiting: 2, ..profile() };
    let bench = Bench::with(agent, limited, Settings::default()).await;
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(bench.send(say("ask")).await.unwrap());
        let other = bench.send(say("work")).await.unwrap();
        assert_eq!(other.status.state, TaskState::Completed, "the permit is free");
    }
    let turns = || bench.engine.at_work().into_iter().map(|(_, turns)| turns).sum::<usize>();
    eventually(|| async { turns() == 2 }).await;

    // A third turn may not wait in addition to them: it keeps its running permit.
    asked.push(bench.send(say("ask")).await.unwrap());
    let queued = bench.post(say("work")).await.unwrap();
    assert_eq!(turns(), 3);
    assert_eq!(bench.get(&queued.id).await.unwrap().status.state, TaskState::Submitted);
    // It was answered, and the permit is free again.
    assert_eq!(answered(&bench, &asked[2]).await, TaskState::Completed);
    eventually(|| async { bench.get(&queued.id).await.unwrap().status.state.is_terminal() }).await;

    // An answer is read even if all permits are taken.
    let hangs = bench.post(say("hang")).await.unwrap();
    assert_eq!(answered(&bench, &asked[0]).await, TaskState::Completed);
    assert_eq!(answered(&bench, &asked[1]).await, TaskState::Completed);
    bench.cancel(&hangs.id).await.unwrap();
    eventually(|| async { turns() == 0 }).await;
}

/// The state of a task after it was answered.
async fn answered(bench: &Bench, task: &Task) -> TaskState {
    assert_eq!(task.status.state, TaskState::InputRequired);
    bench.send(answer(task, "yes")).await.unwrap().status.state
}

#[tokio::test]
async fn data_answers_a_question_of_an_agent_that_takes_only_text() {
    let (gone, watched) = oneshot::channel();
    let bench = Bench::new(asking(gone)).await;
    let task = paused(&bench).await;
    let mut data = answer(&task, "yes");
    data.parts.push(Part::new(Content::Data(true.into())));
    let mut file = data.clone();
    file.message_id = "file".into();
    file.parts.push(Part::new(Content::Raw(b"x".to_vec())));
    let error = bench.send(file).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContentTypeNotSupported);
    let done = bench.send(data).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
    watched.await.unwrap_err();
}

#[tokio::test]
async fn a_message_before_a_question_does_not_answer_it() {
    let (gate, waited) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (opened, begun) = (Arc::clone(&gate), Arc::clone(&waited));
    let agent = Script::new(move |turn| {
        let (gate, begun) = (Arc::clone(&opened), Arc::clone(&begun));
        Box::pin(async move {
            if turn.message().text() != "work" {
                turn.append(text("out", format!("then {}. ", turn.message().text())), true).await?;
                return Ok::<(), AgentError>(());
            }
            begun.add_permits(1);
            gate.acquire().await.unwrap().forget();
            for question in ["first", "second"] {
                turn.ask_within_turn(vec![Part::text(question)]).await?;
                assert!(turn.answered().await);
                let answer = turn.take_answer().await?.text();
                turn.append(text("out", format!("{question}: {answer}. ")), false).await?;
            }
            Ok(())
        })
    });
    let bench = Bench::new(agent).await;
    let task = bench.post(say("work")).await.unwrap();
    waited.acquire().await.unwrap().forget();
    bench.post(answer(&task, "early")).await.unwrap();
    gate.add_permits(1);
    let asks = |question: &'static str| {
        let (bench, id) = (bench.clone(), task.id.clone());
        eventually(move || {
            let (bench, id) = (bench.clone(), id.clone());
            async move {
                let words = bench.get(&id).await.unwrap().status.message;
                words.is_some_and(|words| words.text() == question)
            }
        })
    };
    asks("first").await;
    bench.post(answer(&task, "one")).await.unwrap();
    asks("second").await;
    bench.post(answer(&task, "two")).await.unwrap();
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(artifact_text(&task, "out"), "first: one. second: two. then early. ");
}

#[tokio::test]
async fn content_that_cannot_be_decoded_again_is_refused() {
    let deep = (0..120).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let agent = Script::new(move |turn| {
        let deep = deep.clone();
        Box::pin(async move {
            let parts = vec![Part::new(Content::Data(deep.into()))];
            turn.report(TaskState::InputRequired, parts).await?;
            Ok::<(), AgentError>(())
        })
    });
    let bench = Bench::new(agent).await;
    let error = bench.send(say("work")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidAgentResponse);
    assert!(error.message.contains("nested too deeply"), "{error}");
}
