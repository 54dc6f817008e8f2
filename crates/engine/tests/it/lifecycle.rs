//! Life of a task: send, question, answer, cancel, failure.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use herald_engine::{
    Agent, AgentError, AgentRoute, Caller, Engine, Profile, Settings, Turn, store::sqlite::Sqlite,
};
use herald_protocol::{
    ErrorKind, Message, Metadata, Part, Request, SendResult, Task, TaskState,
    request::{CancelTask, SendMessage},
};

use tokio::sync::Notify;

use crate::support::{Bench, Script, answer, artifact_text, eventually, profile, say, text};

fn echo() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            turn.complete_with(text("answer", turn.message().text())).await?;
            Ok(())
        })
    })
}

fn asks_until_done() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() != "done" {
                turn.ask("what else?").await?;
            }
            Ok(())
        })
    })
}

/// Works until it is cancelled.
fn stubborn() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            turn.cancelled().cancelled().await;
            Err(AgentError::Stopped)
        })
    })
}

// proves: SEND-001, SEND-008, SEND-010, SEND-011, SEND-012, SEND-019, GET-001
#[tokio::test]
async fn a_send_waits_for_the_result_and_returns_it_whole() {
    let bench = Bench::new(echo()).await;
    let task = bench.send(say("hello")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "answer"), "hello");
    assert!(!task.id.is_empty() && !task.context_id.is_empty());
    assert_eq!(bench.get(&task.id).await.unwrap(), task);
}

// proves: SEND-002
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_ids_are_unique_among_a_thousand_at_once() {
    let bench = Bench::new(echo()).await;
    let mut sends = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let bench = bench.clone();
        sends.spawn(async move { bench.send(say("x")).await.unwrap().id });
    }
    let ids: std::collections::HashSet<_> = sends.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 1000);
}

// proves: SEND-003, GET-002, CAN-003, STR-017
#[tokio::test]
async fn an_unknown_task_is_not_found_by_any_operation() {
    let bench = Bench::new(echo()).await;
    let unknown = "no-such-task".into();
    let mut message = say("x");
    message.task_id = Some("no-such-task".into());
    for error in [
        bench.send(message).await.unwrap_err(),
        bench.get(&unknown).await.unwrap_err(),
        bench.cancel(&unknown).await.unwrap_err(),
        bench.subscribe(&unknown, None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::TaskNotFound);
    }
}

// proves: SEND-004, SEND-005, IMM-001, IMM-002, IMM-003, CAN-002
#[tokio::test]
async fn nothing_changes_a_task_that_has_ended() {
    let outcomes = [
        (echo(), TaskState::Completed),
        (
            Script::new(|_| Box::pin(async { Err(AgentError::failed("no luck")) })),
            TaskState::Failed,
        ),
        (
            Script::new(|turn| {
                Box::pin(async move {
                    turn.reject("no").await?;
                    Ok(())
                })
            }),
            TaskState::Rejected,
        ),
    ];
    for (agent, state) in outcomes {
        let bench = Bench::new(agent).await;
        let task = bench.send(say("go")).await.unwrap();
        assert_eq!(task.status.state, state);
        let refused = bench.send(answer(&task, "more")).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::TaskEnded);
        let refused = bench.cancel(&task.id).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::TaskNotCancelable);
        assert_eq!(bench.get(&task.id).await.unwrap(), task);
    }
}

// proves: IMM-002, SEND-020, SEND-026
#[tokio::test]
async fn a_finished_task_is_refined_by_a_new_one_in_its_context() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            let about = format!("about {:?}", turn.message().reference_task_ids);
            turn.complete_with(text("answer", about)).await?;
            Ok(())
        })
    }))
    .await;
    let first = bench.send(say("draw")).await.unwrap();
    let mut refinement = say("bigger");
    refinement.context_id = Some(first.context_id.clone());
    refinement.reference_task_ids = vec![first.id.clone()];
    let second = bench.send(refinement).await.unwrap();
    assert_ne!(second.id, first.id);
    assert_eq!(second.context_id, first.context_id);
    assert!(artifact_text(&second, "answer").contains(first.id.as_str()));
}

// proves: SEND-006, SEND-007, SEND-015, GET-003, GET-004, GET-006, GET-007, GET-010
#[tokio::test]
async fn a_task_asks_and_continues_with_the_answer() {
    let bench = Bench::new(asks_until_done()).await;
    let task = bench.send(say("one")).await.unwrap();
    assert_eq!(task.status.state, TaskState::InputRequired);
    let mut elsewhere = answer(&task, "two");
    elsewhere.context_id = Some("another-context".into());
    let refused = bench.send(elsewhere).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidParams);
    let again = bench.send(answer(&task, "two")).await.unwrap();
    assert_eq!(again.status.state, TaskState::InputRequired);
    assert_eq!(again.context_id, task.context_id);
    let done = bench.send(answer(&task, "done")).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
    let words: Vec<_> = done.history.unwrap().iter().map(|message| message.text()).collect();
    assert_eq!(words, ["one", "what else?", "two", "what else?", "done"]);
    for (length, expected) in
        [(0, None), (1, Some(vec!["done"])), (2, Some(vec!["what else?", "done"]))]
    {
        let mut get =
            herald_protocol::request::GetTask { id: task.id.clone(), ..Default::default() };
        get.history_length = Some(length);
        let herald_engine::Reply::Task(task) = bench.call(Request::GetTask(get)).await.unwrap()
        else {
            panic!("expected a task");
        };
        let task = task.decode().unwrap();
        let words =
            task.history.map(|history| history.iter().map(|m| m.text()).collect::<Vec<_>>());
        assert_eq!(words, expected.map(|words| words.into_iter().map(str::to_owned).collect()));
    }
}

// proves: SEND-016, SEC-013, SEC-015
#[tokio::test]
async fn a_send_returns_when_credentials_are_needed_and_the_task_accepts_messages() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "go" {
                turn.require_auth("sign in at the desk").await?;
            }
            Ok(())
        })
    }))
    .await;
    let task = bench.send(say("go")).await.unwrap();
    assert_eq!(task.status.state, TaskState::AuthRequired);
    assert_eq!(task.status.message.as_ref().unwrap().text(), "sign in at the desk");
    let task = bench.send(answer(&task, "signed in")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
}

// proves: SEND-013, CAN-001, CAN-005
#[tokio::test]
async fn a_send_need_not_wait_and_its_task_can_be_cancelled() {
    let bench = Bench::new(stubborn()).await;
    let task = bench.post(say("work")).await.unwrap();
    assert!(!task.status.state.is_terminal());
    let cancelled = bench.cancel(&task.id).await.unwrap();
    assert_eq!(cancelled.status.state, TaskState::Canceled);
    assert_eq!(bench.get(&task.id).await.unwrap().status.state, TaskState::Canceled);
    let refused = bench.cancel(&task.id).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TaskNotCancelable);
    assert_eq!(refused.detail.unwrap().metadata["state"], "TASK_STATE_CANCELED");
}

// proves: CAN-004
#[tokio::test]
async fn a_setting_makes_a_repeated_cancel_return_the_task() {
    let settings = Settings { repeat_cancel: true, ..Settings::default() };
    let bench = Bench::with(stubborn(), profile(), settings).await;
    let task = bench.post(say("work")).await.unwrap();
    let first = bench.cancel(&task.id).await.unwrap();
    assert_eq!(bench.cancel(&task.id).await.unwrap(), first);
}

// proves: CAN-006
#[tokio::test]
async fn the_metadata_of_a_cancel_reaches_the_agent() {
    let seen = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&seen);
    let bench = Bench::new(Script::new(move |turn| {
        let noted = Arc::clone(&noted);
        Box::pin(async move {
            turn.cancelled().cancelled().await;
            *noted.lock().unwrap() = turn.cancel_metadata();
            Err(AgentError::Stopped)
        })
    }))
    .await;
    let task = bench.post(say("work")).await.unwrap();
    let mut cancel = CancelTask { id: task.id, ..CancelTask::default() };
    cancel.metadata = Some([("why".to_owned(), "lunch".into())].into_iter().collect());
    bench.call(Request::CancelTask(cancel.clone())).await.unwrap();
    eventually(|| async { seen.lock().unwrap().is_some() }).await;
    assert_eq!(*seen.lock().unwrap(), cancel.metadata);
}

// proves: SEND-014, STR-002
#[tokio::test]
async fn a_direct_answer_is_a_message_and_leaves_no_task() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.reply(vec![Part::text("hi")]).await?;
            Ok(())
        })
    });
    let bench = Bench::new(agent.direct()).await;
    let mut send = SendMessage { message: say("hello"), ..SendMessage::default() };
    send.configuration.return_immediately = true;
    let SendResult::Message(reply) = bench.sent(send.clone()).await.unwrap() else {
        panic!("expected a message");
    };
    assert_eq!(reply.text(), "hi");
    assert_eq!(reply.task_id, None);
    let SendResult::Message(repeated) = bench.sent(send).await.unwrap() else {
        panic!("a retry gets the same message");
    };
    assert_eq!(repeated, reply);
    let items = crate::support::rest(&mut bench.stream(say("hello")).await.unwrap()).await;
    assert!(matches!(&items[..], [(_, herald_protocol::StreamEvent::Message(_))]), "{items:?}");
}

// proves: ERR-006
#[tokio::test]
async fn an_artifact_in_place_of_a_direct_answer_is_an_invalid_response() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.artifact(text("wrong", "not a message")).await?;
            Ok(())
        })
    });
    let bench = Bench::new(agent.direct()).await;
    let send = SendMessage { message: say("hello"), ..SendMessage::default() };
    let error = bench.sent(send).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidAgentResponse);
}

// proves: RPC-009
#[tokio::test]
async fn a_panicking_agent_fails_only_its_task_and_hides_the_cause() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            assert_ne!(turn.message().text(), "boom", "secret detail");
            Ok(())
        })
    }))
    .await;
    let task = bench.send(say("boom")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Failed);
    let said = serde_json::to_string(&task).unwrap();
    assert!(!said.contains("secret detail"), "{said}");
    assert!(said.contains("AGENT_CRASHED"));
    assert_eq!(bench.send(say("fine")).await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_message_to_a_working_task_becomes_its_next_turn() {
    let turns = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (counted, waited) = (Arc::clone(&turns), Arc::clone(&gate));
    let bench = Bench::new(Script::new(move |turn| {
        let (turns, gate) = (Arc::clone(&counted), Arc::clone(&waited));
        Box::pin(async move {
            turns.fetch_add(1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            turn.append(text("log", turn.message().text()), false).await?;
            Ok(())
        })
    }))
    .await;
    let task = bench.post(say("one ")).await.unwrap();
    eventually(|| async { turns.load(Ordering::SeqCst) == 1 }).await;
    bench.post(answer(&task, "two ")).await.unwrap();
    bench.post(answer(&task, "three")).await.unwrap();
    assert_eq!(turns.load(Ordering::SeqCst), 1, "one turn at a time");
    gate.add_permits(3);
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "log"), "one two three");
    assert_eq!(turns.load(Ordering::SeqCst), 3);
}

// proves: SEND-027, STR-030
#[tokio::test]
async fn a_caller_that_hangs_up_changes_nothing() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waited = Arc::clone(&gate);
    let bench = Bench::new(Script::new(move |turn| {
        let gate = Arc::clone(&waited);
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            turn.complete_with(text("answer", "still here")).await?;
            Ok(())
        })
    }))
    .await;
    let message = say("work");
    let hung_up = tokio::time::timeout(Duration::from_millis(50), bench.send(message.clone()));
    assert!(hung_up.await.is_err());
    gate.add_permits(1);
    let task = bench.send(message).await.unwrap();
    assert_eq!(artifact_text(&task, "answer"), "still here");
}

// proves: SEND-017
#[tokio::test]
async fn a_media_type_the_agent_does_not_take_is_refused_and_leaves_no_task() {
    let bench = Bench::new(echo()).await;
    let mut message = say("x");
    message.parts[0].media_type = Some("application/x-unknown".to_owned());
    let error = bench.send(message).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ContentTypeNotSupported);
    let herald_engine::Reply::Tasks(page) =
        bench.call(Request::ListTasks(Default::default())).await.unwrap()
    else {
        panic!("expected a list");
    };
    assert_eq!(page.total_size, 0);
}

#[tokio::test]
async fn a_blocking_send_returns_the_unfinished_task_after_its_timeout() {
    let settings = Settings { send_wait: Duration::from_millis(30), ..Settings::default() };
    let bench = Bench::with(stubborn(), profile(), settings).await;
    let task = bench.send(say("work")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Working);
}

#[tokio::test]
async fn metadata_of_a_status_is_kept_in_the_task_and_metadata_of_a_cancel_is_not() {
    let note = |name: &str, value: u32| Metadata::from_iter([(name.to_owned(), value.into())]);
    let agent = Script::new(move |turn| {
        Box::pin(async move {
            turn.relay(TaskState::Working, None, Some(note("first", 1))).await?;
            turn.relay(TaskState::Working, None, Some(note("second", 2))).await?;
            let words = Message::agent("theirs", "nearly");
            turn.relay(TaskState::InputRequired, Some(words.into()), Some(note("first", 3)))
                .await?;
            Ok(())
        })
    });
    let bench = Bench::new(agent).await;
    let asked = bench.send(say("work")).await.unwrap();
    let kept =
        Metadata::from_iter([("first".to_owned(), 3.into()), ("second".to_owned(), 2.into())]);
    assert_eq!(asked.metadata, Some(kept.clone()));
    assert_eq!(asked.status.message.unwrap().message_id.as_str(), "theirs");
    let metadata = Some(note("third", 4));
    let cancel = CancelTask { id: asked.id.clone(), metadata, ..CancelTask::default() };
    bench.call(Request::CancelTask(cancel)).await.unwrap();
    assert_eq!(bench.get(&asked.id).await.unwrap().metadata, Some(kept));
}

/// Asks, and records the tasks that ended while they waited.
#[derive(Debug, Default, Clone)]
struct Asking(Arc<Mutex<Vec<EndedTask>>>);

type EndedTask = (TaskState, Option<Metadata>);

#[async_trait]
impl Agent for Asking {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        turn.ask("which?").await?;
        Ok(())
    }

    async fn task_ended(&self, task: &Task, metadata: Option<Metadata>) {
        self.0.lock().unwrap().push((task.status.state, metadata));
    }
}

#[tokio::test]
async fn an_agent_is_notified_of_a_task_that_ends_while_it_waits() {
    let agent = Asking::default();
    let declared = Profile { paused_timeout: Some(Duration::ZERO), ..profile() };
    let store = Arc::new(Sqlite::memory().unwrap());
    let engine = Engine::builder(store).agent(declared, agent.clone()).build().unwrap();
    engine.start_work().await.unwrap();
    let bench =
        Bench { engine, caller: Caller::anonymous("".into()), route: AgentRoute::default() };
    let told = || agent.0.lock().unwrap().clone();

    let asked = bench.send(say("work")).await.unwrap();
    let metadata = Some(Metadata::from_iter([("why".to_owned(), "no need".into())]));
    let cancel = CancelTask { id: asked.id, metadata: metadata.clone(), ..CancelTask::default() };
    bench.call(Request::CancelTask(cancel)).await.unwrap();
    eventually(async || told() == [(TaskState::Canceled, metadata.clone())]).await;

    bench.send(say("work")).await.unwrap();
    eventually(async || {
        bench.engine.sweep().await.unwrap();
        told().get(1) == Some(&(TaskState::Failed, None))
    })
    .await;
}

#[tokio::test]
async fn a_failed_task_ends_before_its_agent_has_cleaned_up() {
    let away = Arc::new(Notify::new());
    let tidy = Arc::clone(&away);
    let bench = Bench::new(Script::new(move |turn| {
        let tidy = Arc::clone(&tidy);
        Box::pin(async move {
            let error = AgentError::ProtocolViolation("it makes no sense".to_owned());
            turn.fail_while(&error, tidy.notified()).await;
            Err(error)
        })
    }))
    .await;
    let error = bench.send(say("go")).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidAgentResponse);
    assert_eq!(bench.engine.at_work().len(), 1, "it keeps its permit");
    away.notify_one();
    eventually(async || bench.engine.at_work().is_empty()).await;
}
