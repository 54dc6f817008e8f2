//! Task ids that callers chose, and other behaviour of protocol versions before 1.0.

use herald_engine::{Caller, Reply, Scopes};
use herald_protocol::{
    ErrorKind, Part, Request, Role, SendResult, Task, TaskId, TaskState,
    request::{CancelTask, SendMessage},
};

use crate::support::{Bench, Script, say, text};

fn echo() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            turn.complete_with(text("answer", turn.message().text())).await?;
            Ok(())
        })
    })
}

fn named(id: &str, words: &str) -> SendMessage {
    let own_task = Some(TaskId::from(id));
    SendMessage { message: say(words), own_task, task_only: true, ..SendMessage::default() }
}

async fn sent(bench: &Bench, send: SendMessage) -> Task {
    match bench.sent(send).await.unwrap() {
        SendResult::Task(task) => task,
        SendResult::Message(message) => panic!("expected a task, not {message:?}"),
    }
}

// proves: SEND-023, SEND-024
#[tokio::test]
async fn an_id_of_the_caller_creates_a_task_and_then_names_it() {
    let asks = Script::new(|turn| {
        Box::pin(async move {
            match turn.message().text().as_str() {
                "first" => turn.ask("and?").await?,
                _ => turn.complete_with(text("answer", "done")).await?,
            }
            Ok(())
        })
    });
    let bench = Bench::new(asks).await;
    let first = sent(&bench, named("mine", "first")).await;
    assert_eq!((first.id.as_str(), first.status.state), ("mine", TaskState::InputRequired));
    let second = sent(&bench, named("mine", "second")).await;
    assert_eq!((second.id.as_str(), second.status.state), ("mine", TaskState::Completed));
    let refused = bench.sent(named("mine", "third")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TaskEnded);
    let mut elsewhere = named("mine", "fourth");
    elsewhere.message.context_id = Some("another".into());
    assert_eq!(bench.sent(elsewhere).await.unwrap_err().kind, ErrorKind::InvalidParams);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sends_with_one_new_id_create_one_task_and_lose_no_message() {
    let bench = Bench::new(echo()).await;
    for round in 0..20 {
        let mut sends = tokio::task::JoinSet::new();
        for number in 0..8 {
            let bench = bench.clone();
            let send = named(&format!("race {round}"), &number.to_string());
            sends.spawn(async move { bench.sent(send).await });
        }
        let mut taken = 0;
        for sent in sends.join_all().await {
            match sent {
                Ok(_) => taken += 1,
                // A send after the end gets an error.
                Err(error) => assert_eq!(error.kind, ErrorKind::TaskEnded),
            }
        }
        let task = bench.get(&TaskId::from(format!("race {round}"))).await.unwrap();
        assert_eq!(task.status.state, TaskState::Completed);
        let history = task.history.unwrap_or_default();
        let users = history.iter().filter(|message| message.role == Role::User);
        assert_eq!(users.count(), taken, "{history:?}");
    }
}

#[tokio::test]
async fn a_task_id_belongs_to_its_caller() {
    let bench = Bench::new(echo()).await;
    let other = Bench { caller: Caller::new("".into(), "other", Scopes::ALL), ..bench.clone() };
    for (who, words) in [(&bench, "one"), (&other, "two")] {
        let task = sent(who, named("same", words)).await;
        assert_eq!(task.history.unwrap().len(), 1, "{words}");
    }
}

#[tokio::test]
async fn a_direct_answer_completes_the_task_if_the_caller_asked_for_a_task() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.reply(vec![Part::text("hi")]).await?;
            Ok(())
        })
    });
    let bench = Bench::new(agent.direct()).await;
    let task = sent(&bench, named("mine", "hello")).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.status.message.as_ref().unwrap().text(), "hi");
    assert_eq!(bench.get(&task.id).await.unwrap(), task, "a later get returns it");
}

#[tokio::test]
async fn a_cancel_that_accepts_ended_tasks_returns_the_task() {
    let bench = Bench::new(echo()).await;
    let task = sent(&bench, named("mine", "hello")).await;
    let cancel = CancelTask { id: task.id.clone(), ..CancelTask::default() };
    let refused = bench.call(Request::CancelTask(cancel.clone())).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TaskNotCancelable);
    let cancel = Request::CancelTask(CancelTask { return_ended: true, ..cancel });
    let Reply::Task(returned) = bench.call(cancel).await.unwrap() else { panic!("no task") };
    assert_eq!(returned.decode().unwrap(), task);
}

#[tokio::test]
async fn an_unknown_agent_is_refused_by_name() {
    let bench = Bench::new(echo()).await;
    let mut send = named("mine", "hello");
    send.agent = Some("script".into());
    assert_eq!(sent(&bench, send.clone()).await.status.state, TaskState::Completed);
    send.agent = Some("nobody".into());
    let refused = bench.sent(send).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidParams);
    assert!(refused.message.contains("script"), "{}", refused.message);
}
