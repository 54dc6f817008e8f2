//! Trace context of messages, kept across queues and restarts.

use std::sync::{Arc, Mutex};

use herald_engine::{Clock, Settings};
use herald_protocol::{Request, TraceContext, request::SendMessage};
use tokio::sync::Semaphore;

use crate::support::{Bench, Script, answer, eventually, file, profile, say};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

type Seen = Arc<Mutex<Vec<Option<TraceContext>>>>;

/// Records the trace context of every turn, and holds the turn until the gate opens.
fn agent(seen: &Seen, gate: &Arc<Semaphore>) -> Script {
    let (seen, gate) = (Arc::clone(seen), Arc::clone(gate));
    Script::new(move |turn| {
        let (seen, gate) = (Arc::clone(&seen), Arc::clone(&gate));
        Box::pin(async move {
            seen.lock().unwrap().push(turn.trace().cloned());
            gate.acquire().await.unwrap().forget();
            Ok(())
        })
    })
}

fn parent() -> TraceContext {
    TraceContext::read(PARENT, Some("vendor=1")).unwrap()
}

fn traced(message: herald_protocol::Message) -> Request {
    let mut send = SendMessage { message, trace: Some(parent()), ..SendMessage::default() };
    send.configuration.return_immediately = true;
    Request::SendMessage(Box::new(send))
}

fn tracing() -> Settings {
    Settings { trace: Some(0.0), ..Settings::default() }
}

#[track_caller]
fn is_child(context: Option<&TraceContext>) {
    let context = context.expect("the turn has a trace context");
    assert_eq!((context.trace, context.sampled), (parent().trace, true));
    assert_ne!(context.span, parent().span, "it is a new span");
    assert_eq!(context.state, parent().state);
}

#[tokio::test]
async fn without_tracing_an_agent_gets_the_trace_context_of_its_caller() {
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(2)));
    let bench = Bench::new(agent(&seen, &gate)).await;
    bench.call(traced(say("traced"))).await.unwrap();
    eventually(|| async { seen.lock().unwrap().len() == 1 }).await;
    bench.send(say("untraced")).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [Some(parent()), None]);
}

#[tokio::test]
async fn a_queued_turn_is_a_span_below_its_message() {
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let bench = Bench::with(agent(&seen, &gate), profile(), tracing()).await;
    let first = bench.post(say("untraced")).await.unwrap();
    eventually(|| async { seen.lock().unwrap().len() == 1 }).await;
    // It waits for the running turn.
    bench.call(traced(answer(&first, "traced"))).await.unwrap();
    gate.add_permits(2);
    eventually(|| async { seen.lock().unwrap().len() == 2 }).await;
    let seen = seen.lock().unwrap();
    let root = seen[0].as_ref().unwrap();
    assert_ne!(root.trace, parent().trace, "a message without a trace begins one");
    assert!(!root.sampled, "no new trace is sampled");
    is_child(seen[1].as_ref());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_turn_belongs_to_the_same_trace() {
    let directory = tempfile::tempdir().unwrap();
    let (seen, gate) = (Seen::default(), Arc::new(Semaphore::new(0)));
    let life = |agent| {
        let path = directory.path().to_owned();
        async move { Bench::on(file(&path), agent, profile(), tracing(), Clock::system()).await }
    };
    // A separate runtime, because dropping it aborts everything, as a crash does.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (first, noted) = (life(agent(&seen, &gate)), Arc::clone(&seen));
    runtime
        .spawn(async move {
            let bench = first.await;
            bench.call(traced(say("traced"))).await.unwrap();
            eventually(|| async { noted.lock().unwrap().len() == 1 }).await;
        })
        .await
        .unwrap();
    runtime.shutdown_background();
    let path = directory.path().join("test.db");
    eventually(|| async {
        herald_engine::store::sqlite::Sqlite::open(&path, Default::default()).is_ok()
    })
    .await;
    gate.add_permits(1);
    let _bench = life(agent(&seen, &gate)).await;
    eventually(|| async { seen.lock().unwrap().len() == 2 }).await;
    let seen = seen.lock().unwrap();
    is_child(seen[0].as_ref());
    is_child(seen[1].as_ref());
    assert_ne!(seen[0], seen[1], "each attempt is a new span");
}
