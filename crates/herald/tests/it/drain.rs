//! Tests of the shutdown: streams end cleanly, tasks are stored, and the process ends in time.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::{
    http::{Call, Client, Stream},
    support::{AGENTS, CONFORMANCE, Herald, Options, SOON, eventually, uuid},
    wire::{Draft, Frame, Wire, id, is_terminal, state},
};

fn drains_within(limit: &str) -> Options {
    Options::config(format!("[server]\ndrain = \"{limit}\"\n{AGENTS}"))
}

/// Starts a task and returns its id without waiting for it.
async fn begin(herald: &Herald, text: &str) -> String {
    let call = Wire::Rest.send(CONFORMANCE, &Draft::new(uuid(), text), true);
    let sent = Wire::Rest.sent(&herald.call(&call).await).unwrap();
    id(&sent).to_owned()
}

async fn look(herald: &Herald, task: &str) -> String {
    state(&Wire::Rest.result(&herald.call(&Wire::Rest.get(task)).await).unwrap())
}

/// Streams of these tasks, and the last frame of each.
async fn follow(herald: &Herald, tasks: &[String], count: usize) -> Vec<(Wire, Stream, Frame)> {
    let mut streams = Vec::new();
    for (wire, task) in Wire::ALL.into_iter().cycle().zip(tasks.iter().cycle()).take(count) {
        let client = herald.client().await;
        let mut stream = client.open(&wire.subscribe(task)).await.unwrap();
        let event = stream.next().await.unwrap().expect("the task as it is");
        let frame = wire.frame(&event);
        streams.push((wire, stream, frame));
    }
    streams
}

/// No response, or one that the server does not serve.
async fn is_away(herald: &Herald) -> bool {
    let Ok(mut client) = Client::connect(herald.address).await else { return true };
    client.call(&Call::get("/readyz")).await.map_or(true, |answer| answer.status == 503)
}

// proves: SEND-027
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_every_stream_and_keeps_every_task() {
    let mut herald = Herald::start(drains_within("10s")).await;
    let mut tasks = Vec::new();
    for _ in 0..10 {
        tasks.push(begin(&herald, "tck-cancel").await);
    }
    let paused = begin(&herald, "tck-input-required").await;
    eventually(SOON, "it asks", async || look(&herald, &paused).await == "input-required").await;
    tasks.push(paused.clone());
    let streams = follow(&herald, &tasks, 50).await;
    // A waiting send is answered with the current task.
    let (address, draft) = (herald.address, Draft::new(uuid(), "tck-cancel"));
    let call = Wire::Rpc.send(CONFORMANCE, &draft, false);
    let mut waiting = tokio::task::JoinSet::new();
    waiting
        .spawn(async move { Client::connect(address).await.unwrap().call(&call).await.unwrap() });
    eventually(SOON, "all of them are at work", async || {
        let call = crate::wire::list(Some("WORKING"), 1, "");
        herald.call(&call).await.json()["totalSize"] == 11
    })
    .await;

    herald.terminate().await;
    let told = Instant::now();
    eventually(SOON, "it is not ready", async || is_away(&herald).await).await;
    let mut seen = Vec::new();
    for (wire, mut stream, first) in streams {
        // A broken stream would be an error here.
        let rest = timeout(SOON, wire.rest_of(&mut stream)).await;
        let rest = rest.expect("the stream ends").unwrap();
        seen.push((wire, rest.last().unwrap_or(&first).clone()));
    }
    // Long before the drain timeout.
    assert!(told.elapsed() < Duration::from_secs(10), "streams took {:?}", told.elapsed());
    let answer = waiting.join_next().await.unwrap().unwrap();
    let waited = Wire::Rpc.sent(&answer).unwrap();
    assert_eq!(state(&waited), "working");
    tasks.push(id(&waited).to_owned());
    let status = herald.wait(SOON).await;
    assert!(status.success(), "{status}");

    herald.restart().await;
    herald.ready().await;
    for task in &tasks {
        let expected = if *task == paused { "input-required" } else { "working" };
        assert_eq!(look(&herald, task).await, expected);
    }
    for (wire, last) in seen {
        let call = wire.resume(&last.task, last.seq);
        let mut stream = herald.client().await.open(&call).await.unwrap();
        if last.task != paused {
            // The next attempt has begun, or is about to.
            let event = stream.next().await.unwrap().expect("the task goes on");
            assert_eq!(wire.frame(&event).seq, last.seq + 1);
        }
    }
    for task in &tasks {
        let answer = herald.call(&Wire::Rest.cancel(task)).await;
        assert_eq!(state(&Wire::Rest.result(&answer).unwrap()), "canceled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_running_turns_it_stops_at_once_despite_open_streams() {
    let mut herald = Herald::start(drains_within("1h")).await;
    let paused = begin(&herald, "tck-input-required").await;
    eventually(SOON, "it asks", async || look(&herald, &paused).await == "input-required").await;
    let streams = follow(&herald, &[paused], 50).await;
    // Idle connections must not delay the stop.
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = herald.client().await;
        assert_eq!(client.call(&Call::get("/healthz")).await.unwrap().status, 200);
        idle.push(client);
    }
    herald.signal("INT").await;
    for (wire, mut stream, _) in streams {
        assert_eq!(wire.rest_of(&mut stream).await.unwrap(), []);
    }
    assert!(herald.wait(SOON).await.success());
    assert!(!herald.log().contains("waiting up to"), "{}", herald.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_can_finish_in_time_do() {
    let mut herald = Herald::start(drains_within("1h")).await;
    let task = begin(&herald, "tck-long-running delay_ms=700").await;
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    herald.restart().await;
    let answer = herald.call(&Wire::Rest.get(&task)).await;
    let found = Wire::Rest.result(&answer).unwrap();
    assert_eq!(state(&found), "completed");
    // One attempt was enough: received, working, the result, the end.
    let (_, log) = Wire::Rest.replay(herald.client().await, &task).await.unwrap();
    assert_eq!(log.len(), 4, "{log:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_stops_it_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "TERM"), ("INT", "INT")] {
        let mut herald = Herald::start(drains_within("1h")).await;
        let task = begin(&herald, "tck-cancel").await;
        let mut streams = follow(&herald, std::slice::from_ref(&task), 4).await;
        herald.signal(first).await;
        // The streams end when the first signal has arrived.
        for (wire, stream, _) in &mut streams {
            let rest = wire.rest_of(stream).await.unwrap();
            assert!(rest.iter().all(|frame| !is_terminal(&frame.state().unwrap())));
        }
        let said = "waiting up to 1h for 1 task at work: conformance (1). Press Ctrl-C again";
        assert!(herald.log().contains(said), "{}", herald.log());
        herald.signal(second).await;
        let status = herald.wait(SOON).await;
        assert!(status.success(), "{status}");
        assert!(herald.log().contains("stopped at once; the next start recovers unfinished tasks"));
        herald.restart().await;
        eventually(SOON, "it is taken up", async || look(&herald, &task).await == "working").await;
        let answer = herald.call(&Wire::Rest.cancel(&task)).await;
        assert_eq!(state(&Wire::Rest.result(&answer).unwrap()), "canceled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_ends_no_server_and_no_task() {
    let herald = Herald::start(Options::agents()).await;
    let task = begin(&herald, "tck-cancel").await;
    eventually(SOON, "it is at work", async || look(&herald, &task).await == "working").await;
    for count in 1..=2 {
        herald.signal("HUP").await;
        eventually(SOON, "the log tells of the signal", async || {
            herald.log().matches("SIGHUP").count() == count
        })
        .await;
    }
    assert!(herald.log().contains("reloaded the tokens"), "{}", herald.log());
    assert_eq!(look(&herald, &task).await, "working");
    let answer = herald.call(&Wire::Rest.cancel(&task)).await;
    assert_eq!(state(&Wire::Rest.result(&answer).unwrap()), "canceled");
}

/// SIGHUP also reaches a server on standard input.
#[tokio::test]
async fn sighup_does_not_end_a_server_on_standard_input() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let home = tempfile::tempdir().unwrap();
    let mut child = Options::default().no_port().spawn_stdio(home.path());
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut logged = async |word: &str| loop {
        let line = timeout(SOON, log.next_line()).await.expect(word).unwrap();
        if line.unwrap_or_else(|| panic!("it ended before it logged {word}")).contains(word) {
            return;
        }
    };
    logged("serving standard input").await;
    let id = child.id().unwrap().to_string();
    let sent = tokio::process::Command::new("kill").args(["-s", "HUP", &id]).status().await;
    assert!(sent.unwrap().success());
    logged("SIGHUP").await;
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ListTasks\"}\n").await.unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer = timeout(SOON, output.next_line()).await.unwrap().unwrap();
    assert!(answer.is_some_and(|answer| answer.contains("totalSize")));
    drop(input);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}
