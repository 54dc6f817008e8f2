//! Idempotent sends: a repeated send finds the task of the first one.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use herald_engine::{Clock, Reply, Settings};
use herald_protocol::{
    ErrorKind, Request, SendResult,
    request::{Cursor, SendMessage},
};

use crate::support::{Bench, Script, answer, file, profile, rest, say, text};

fn counting(runs: &Arc<AtomicUsize>) -> Script {
    let runs = Arc::clone(runs);
    Script::new(move |turn| {
        let runs = Arc::clone(&runs);
        Box::pin(async move {
            runs.fetch_add(1, Ordering::SeqCst);
            if turn.message().text() == "ask" {
                turn.ask("what?").await?;
            } else {
                turn.complete_with(text("out", "done")).await?;
            }
            Ok(())
        })
    })
}

// proves: SEND-025
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_message_id_runs_the_agent_once() {
    let runs = Arc::new(AtomicUsize::new(0));
    let directory = tempfile::tempdir().unwrap();
    let message = say("go");
    let task = {
        let store = file(directory.path());
        let bench =
            Bench::on(store, counting(&runs), profile(), Settings::default(), Clock::system())
                .await;
        let mut sends = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (bench, message) = (bench.clone(), message.clone());
            sends.spawn(async move { bench.send(message).await.unwrap() });
        }
        let tasks = sends.join_all().await;
        assert!(tasks.iter().all(|task| task == &tasks[0]));
        let first = rest(&mut bench.stream(message.clone()).await.unwrap()).await;
        let again = rest(&mut bench.stream(message.clone()).await.unwrap()).await;
        assert_eq!(first, again, "a repeated stream has the same events");
        bench.engine.drain(std::time::Duration::from_secs(5)).await;
        tasks[0].clone()
    };
    let store = file(directory.path());
    let bench =
        Bench::on(store, counting(&runs), profile(), Settings::default(), Clock::system()).await;
    assert_eq!(bench.send(message).await.unwrap(), task);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn other_content_under_the_same_key_is_refused() {
    let runs = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new(counting(&runs)).await;
    let message = say("go");
    bench.send(message.clone()).await.unwrap();
    let mut other = message;
    other.parts = say("something else").parts;
    let refused = bench.send(other).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::IdempotencyConflict);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_key_makes_a_labelled_message_idempotent_and_a_label_alone_does_not() {
    let runs = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new(counting(&runs)).await;
    let mut message = say("go");
    message.message_id = "msg-1".into();
    let first = bench.send(message.clone()).await.unwrap();
    let second = bench.send(message.clone()).await.unwrap();
    assert_ne!(first.id, second.id);
    let send = SendMessage {
        message,
        idempotency_key: Some("order 66".to_owned()),
        ..SendMessage::default()
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let SendResult::Task(task) = bench.sent(send.clone()).await.unwrap() else {
            panic!("expected a task");
        };
        ids.push(task.id);
    }
    assert_eq!(ids[0], ids[1]);
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_repeated_answer_finds_its_ended_task() {
    let runs = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new(counting(&runs)).await;
    let task = bench.send(say("ask")).await.unwrap();
    let message = answer(&task, "this");
    let first = bench.send(message.clone()).await.unwrap();
    assert!(first.status.state.is_terminal());
    assert_eq!(bench.send(message).await.unwrap(), first);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn keys_of_other_callers_have_no_effect() {
    let runs = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new(counting(&runs)).await;
    let message = say("go");
    let mine = bench.send(message.clone()).await.unwrap();
    let mut other = bench.clone();
    other.caller = herald_engine::Caller::anonymous("elsewhere".into());
    let theirs = other.send(message).await.unwrap();
    assert_ne!(mine.id, theirs.id);
    assert_eq!(other.get(&mine.id).await.unwrap_err().kind, ErrorKind::TaskNotFound);
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_cursor_applies_only_to_a_repeated_send() {
    let runs = Arc::new(AtomicUsize::new(0));
    let bench = Bench::new(counting(&runs)).await;
    let stream = async |message: &herald_protocol::Message, task: Option<&str>, seq| {
        let after = Some(Cursor { task: task.map(Into::into), seq });
        let send = SendMessage { message: message.clone(), after, ..SendMessage::default() };
        match bench.call(Request::SendStreamingMessage(Box::new(send))).await? {
            Reply::Stream(mut stream) => Ok(rest(&mut stream).await),
            other => panic!("expected a stream, not {other:?}"),
        }
    };
    let message = say("go");
    let first = stream(&message, Some("another-task"), 999).await.unwrap();
    assert_eq!(first.len(), 4, "a new send starts at its beginning");
    assert_eq!(stream(&message, None, 2).await.unwrap()[..], first[2..]);
    for (task, seq) in [(Some("another-task"), 2), (None, 999)] {
        let refused: Result<_, herald_protocol::Error> = stream(&message, task, seq).await;
        assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidParams);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
