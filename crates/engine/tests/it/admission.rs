//! Admission: agents that decline a message before its turn begins.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use herald_engine::{Admission, AgentError, Clock, Profile, Recovery, Settings};
use herald_protocol::{StreamEvent, Task, TaskState};
use tokio::sync::Semaphore;

use crate::support::{
    Bench, Script, answer, artifact_text, crashed, eventually, failure_reason, file, profile,
    reopened, rest, say, text,
};

/// An agent that decides by the text of the message: `reject`, `auth`, `fail`, `panic`, `hang`, or anything else.
fn gatekeeper() -> Script {
    working().admitting(|candidate| {
        Box::pin(async move {
            match candidate.message.text().as_str() {
                "reject" => Ok(Admission::reject("not for me")),
                "auth" => Ok(Admission::require_auth("sign in at https://example.com")),
                "fail" => Err(AgentError::failed("no decision")),
                "panic" => panic!("no decision"),
                "hang" => std::future::pending().await,
                _ => Ok(Admission::Accept),
            }
        })
    })
}

/// An agent that repeats the text of its message.
fn working() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            turn.artifact(text("out", turn.message().text())).await?;
            Ok(())
        })
    })
}

/// The states that a stream shows.
fn states(items: &[(u64, StreamEvent)]) -> Vec<TaskState> {
    let state = |event: &StreamEvent| match event {
        StreamEvent::Task(task) => Some(task.status.state),
        StreamEvent::StatusUpdate(update) => Some(update.status.state),
        StreamEvent::ArtifactUpdate(_) | StreamEvent::Message(_) => None,
    };
    items.iter().filter_map(|(_, event)| state(event)).collect()
}

async fn streamed(bench: &Bench, text: &str) -> Vec<TaskState> {
    let mut stream = bench.stream(say(text)).await.unwrap();
    states(&rest(&mut stream).await)
}

fn shown(task: &Task) -> String {
    task.status.message.as_ref().map(|message| message.text()).unwrap_or_default()
}

#[tokio::test]
async fn a_message_is_rejected_straight_from_submitted() {
    let bench = Bench::new(gatekeeper()).await;
    let (submitted, rejected) = (TaskState::Submitted, TaskState::Rejected);
    assert_eq!(streamed(&bench, "reject").await, [submitted, rejected]);
    let task = bench.send(say("reject")).await.unwrap();
    assert_eq!((task.status.state, shown(&task).as_str()), (rejected, "not for me"));
    let accepted = streamed(&bench, "hello").await;
    assert_eq!(accepted, [submitted, TaskState::Working, TaskState::Completed]);
}

#[tokio::test]
async fn credentials_are_asked_for_straight_from_submitted_and_the_answer_is_decided_too() {
    let bench = Bench::new(gatekeeper()).await;
    let task = bench.send(say("auth")).await.unwrap();
    assert_eq!(task.status.state, TaskState::AuthRequired);
    assert_eq!(shown(&task), "sign in at https://example.com");
    let mut stream = bench.stream(answer(&task, "auth")).await.unwrap();
    let events = [stream.next().await.unwrap(), stream.next().await.unwrap()];
    let events = events.map(|item| item.unwrap());
    let events = events.map(|item| (item.seq, serde_json::from_slice(&item.body).unwrap()));
    assert_eq!(states(&events), [TaskState::Submitted, TaskState::AuthRequired]);
    drop(stream);
    let done = bench.send(answer(&task, "signed in")).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&done, "out"), "signed in");
}

#[tokio::test]
async fn an_admission_that_fails_crashes_or_does_not_end_fails_the_task() {
    let declared = Profile { admission_timeout: Duration::from_millis(50), ..profile() };
    let bench = Bench::with(gatekeeper(), declared, Settings::default()).await;
    for (text, reason) in
        [("fail", "AGENT_FAILED"), ("panic", "AGENT_CRASHED"), ("hang", "TIMED_OUT")]
    {
        let task = bench.send(say(text)).await.unwrap();
        assert_eq!(task.status.state, TaskState::Failed, "{text}");
        assert_eq!(failure_reason(&task.status), reason);
    }
    assert_eq!(bench.send(say("hello")).await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_cancel_ends_an_admission() {
    let bench = Bench::new(gatekeeper()).await;
    let task = bench.post(say("hang")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Submitted);
    assert_eq!(bench.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
    // Its permit is free again.
    let declared = Profile { concurrency: 1, ..profile() };
    let bench = Bench::with(gatekeeper(), declared, Settings::default()).await;
    let task = bench.post(say("hang")).await.unwrap();
    bench.cancel(&task.id).await.unwrap();
    assert_eq!(bench.send(say("hello")).await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_message_that_arrives_during_an_admission_has_its_own() {
    let gate = Arc::new(Semaphore::new(0));
    let waited = Arc::clone(&gate);
    let agent = working().admitting(move |candidate| {
        let gate = Arc::clone(&waited);
        Box::pin(async move {
            if candidate.message.text() != "first" {
                return Ok(Admission::Accept);
            }
            gate.acquire().await.unwrap().forget();
            Ok(Admission::require_auth("who are you?"))
        })
    });
    let bench = Bench::new(agent).await;
    let task = bench.post(say("first")).await.unwrap();
    bench.post(answer(&task, "second")).await.unwrap();
    gate.add_permits(1);
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "second");
}

#[tokio::test]
async fn the_messages_of_a_serial_agent_are_decided_in_their_order() {
    let declared = Profile { serial: true, ..profile() };
    let bench = Bench::with(gatekeeper(), declared, Settings::default()).await;
    let first = bench.send(say("auth")).await.unwrap();
    assert_eq!(first.status.state, TaskState::AuthRequired);
    let mut second = say("reject");
    second.context_id = Some(first.context_id.clone());
    assert_eq!(bench.send(second).await.unwrap().status.state, TaskState::Rejected);
    let done = bench.send(answer(&first, "signed in")).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_direct_answer_has_no_admission() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.reject("not for me").await?;
            Ok(())
        })
    });
    let agent = agent.direct().admitting(|_| Box::pin(async { Ok(Admission::reject("admitted")) }));
    let bench = Bench::new(agent).await;
    let task = bench.send(say("hello")).await.unwrap();
    assert_eq!((task.status.state, shown(&task).as_str()), (TaskState::Rejected, "not for me"));
}

/// An agent whose turn decides, by the text of the message.
fn deferring() -> Script {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            match turn.message().text().as_str() {
                "reject" => turn.reject("not for me").await?,
                "auth" => turn.require_auth("who are you?").await?,
                "later" => {
                    turn.progress("reading").await?;
                    turn.reject("not after all").await?;
                }
                "ask" => turn.ask("which one?").await?,
                "fail" => return Err(AgentError::failed("broken")),
                "hang" => turn.cancelled().cancelled().await,
                "write" => turn.artifact(text("out", "done")).await?,
                _ => {}
            }
            Ok(())
        })
    });
    agent.admitting(|_| Box::pin(async { Ok(Admission::Defer) }))
}

#[tokio::test]
async fn the_first_write_of_a_turn_decides_if_its_agent_defers() {
    use TaskState::{Completed, Failed, Rejected, Submitted, Working};
    let bench = Bench::new(deferring()).await;
    for (text, expected) in [
        ("reject", &[Submitted, Rejected][..]),
        ("later", &[Submitted, Working, Working, Rejected]),
        ("write", &[Submitted, Working, Completed]),
        ("nothing", &[Submitted, Working, Completed]),
        ("fail", &[Submitted, Failed]),
    ] {
        assert_eq!(streamed(&bench, text).await, expected, "{text}");
    }
    for (text, state) in [("auth", TaskState::AuthRequired), ("ask", TaskState::InputRequired)] {
        let task = bench.send(say(text)).await.unwrap();
        assert_eq!(task.status.state, state);
        let done = bench.send(answer(&task, "write")).await.unwrap();
        assert_eq!(done.status.state, Completed, "{text}");
    }
}

#[tokio::test]
async fn a_turn_that_stays_silent_has_accepted_its_message() {
    let declared = Profile { admission_timeout: Duration::from_millis(20), ..profile() };
    let bench = Bench::with(deferring(), declared, Settings::default()).await;
    let task = bench.post(say("hang")).await.unwrap();
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state == TaskState::Working })
        .await;
    assert_eq!(bench.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
}

/// An agent that hangs in its admission, and counts the admissions.
fn hanging(count: &Arc<AtomicUsize>) -> Script {
    let count = Arc::clone(count);
    working().admitting(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admission_that_a_crash_interrupts_is_repeated() {
    let declared = Profile { recovery: Recovery::Fail, ..profile() };
    for (crashes, state) in [(1, TaskState::Completed), (3, TaskState::Failed)] {
        let directory = tempfile::tempdir().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let mut accepted: Option<Task> = None;
        for life in 1..=crashes {
            let (path, declared, counted) =
                (directory.path().to_owned(), declared.clone(), Arc::clone(&count));
            let known = accepted.clone();
            let task = crashed(async move {
                let store = if known.is_some() { reopened(&path).await } else { file(&path) };
                let (agent, settings) = (hanging(&counted), Settings::default());
                let bench = Bench::on(store, agent, declared, settings, Clock::system()).await;
                let task = match known {
                    Some(task) => task,
                    None => bench.post(say("work")).await.unwrap(),
                };
                eventually(|| async { counted.load(Ordering::SeqCst) == life }).await;
                task
            })
            .await;
            assert_eq!(task.status.state, TaskState::Submitted);
            accepted = Some(task);
        }
        let task = accepted.unwrap();
        let (store, settings) = (reopened(directory.path()).await, Settings::default());
        let bench =
            Bench::on(store, gatekeeper(), declared.clone(), settings, Clock::system()).await;
        eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() })
            .await;
        let task = bench.get(&task.id).await.unwrap();
        assert_eq!(task.status.state, state, "{task:?}");
        if state == TaskState::Failed {
            assert_eq!(failure_reason(&task.status), "INTERRUPTED");
        } else {
            assert_eq!(artifact_text(&task, "out"), "work");
        }
    }
}
