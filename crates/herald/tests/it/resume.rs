//! Tests of resumed streams, repeated sends, and races between ends of a task.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    http::{Call, Client, Stream},
    support::{AGENTS, CONFORMANCE, Herald, Options, Random, SOON, number, uuid},
    wire::{self, Draft, Frame, Wire, asked, id, is_terminal, state},
};

fn chunked(chunks: usize, delay: u64) -> Draft {
    Draft::new(uuid(), format!("tck-stream-chunked chunks={chunks} size=32 delay_ms={delay}"))
}

async fn open(herald: &Herald, call: &Call) -> Stream {
    herald.client().await.open(call).await.unwrap()
}

/// This many frames of a stream that continues.
async fn take(wire: Wire, stream: &mut Stream, count: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let event = stream.next().await.unwrap().expect("the stream goes on");
        frames.push(wire.frame(&event));
    }
    frames
}

fn seqs(frames: &[Frame]) -> Vec<u64> {
    frames.iter().map(|frame| frame.seq).collect()
}

/// Compares the two parts of a stream with the log.
async fn check_whole(herald: &Herald, wire: Wire, seen: &[Frame]) {
    let (_, log) = wire.replay(herald.client().await, &seen[0].task).await.unwrap();
    assert_eq!(seqs(seen), (1..=log.len() as u64).collect::<Vec<_>>());
    // The first frame of a stream is the task at that time.
    assert_eq!(seen[1..], log[1..]);
    let ends = log.iter().filter(|frame| frame.state().is_some_and(|state| is_terminal(&state)));
    assert_eq!(ends.count(), 1);
}

async fn task(herald: &Herald, wire: Wire, task: &str) -> serde_json::Value {
    wire.result(&herald.call(&wire.get(task)).await).unwrap()
}

async fn total(herald: &Herald) -> u64 {
    herald.call(&wire::list(None, 1, "")).await.json()["totalSize"].as_u64().unwrap()
}

// proves: STR-019, STR-020, STR-030, SEND-027
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_after_any_frame_resumes_with_exactly_the_next() {
    const CHUNKS: usize = 12;
    let herald = Herald::start(Options::agents()).await;
    for wire in Wire::ALL {
        let mut cuts = JoinSet::new();
        // Received, working, the chunks and the end.
        for after in 1..CHUNKS + 3 {
            let address = herald.address;
            cuts.spawn(async move {
                let draft = chunked(CHUNKS, 1);
                let connect = async || Client::connect(address).await.unwrap();
                let call = wire.stream(CONFORMANCE, &draft);
                let mut stream = connect().await.open(&call).await.unwrap();
                let mut seen = take(wire, &mut stream, after).await;
                // Disconnects, whatever the task's state.
                drop(stream);
                let cursor = format!("{}:{}", seen[0].task, seen[after - 1].seq);
                let call = match after % 3 {
                    0 => wire.resume(&seen[0].task, seen[after - 1].seq),
                    // A bare number works, and so does the same send again.
                    1 => wire.subscribe(&seen[0].task).header("last-event-id", after.to_string()),
                    _ => call.header("last-event-id", cursor),
                };
                let mut stream = connect().await.open(&call).await.unwrap();
                let missing = wire.rest_of(&mut stream).await.unwrap();
                assert_eq!(missing.first().map(|frame| frame.seq), Some(after as u64 + 1));
                seen.extend(missing);
                assert_eq!(seen.len(), CHUNKS + 3, "{seen:#?}");
                seen
            });
        }
        for seen in cuts.join_all().await {
            check_whole(&herald, wire, &seen).await;
        }
    }
}

// proves: STR-020
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_resumes_after_a_clean_restart() {
    let mut herald =
        Herald::start(Options::config(format!("[server]\ndrain = \"100ms\"\n{AGENTS}"))).await;
    let (mut open_streams, mut seen) = (Vec::new(), Vec::new());
    for (index, wire) in Wire::ALL.into_iter().cycle().take(8).enumerate() {
        let mut stream = open(&herald, &wire.stream(CONFORMANCE, &chunked(30, 20))).await;
        seen.push((wire, take(wire, &mut stream, index + 1).await));
        open_streams.push(stream);
    }
    herald.terminate().await;
    for ((wire, seen), mut stream) in seen.iter_mut().zip(open_streams) {
        // Until the server ends the stream cleanly.
        seen.extend(wire.rest_of(&mut stream).await.unwrap());
    }
    assert!(herald.wait(SOON).await.success());
    herald.restart().await;
    for (wire, mut seen) in seen {
        let last = seen.last().unwrap();
        assert!(!is_terminal(&last.state().unwrap_or_default()), "it was still at work: {last:?}");
        let mut stream = open(&herald, &wire.resume(&last.task, last.seq)).await;
        seen.extend(wire.rest_of(&mut stream).await.unwrap());
        check_whole(&herald, wire, &seen).await;
        let last = task(&herald, Wire::Rest, &seen[0].task).await;
        assert_eq!(state(&last), "completed");
        // The output of the first attempt is replaced.
        assert_eq!(last["artifacts"][0]["parts"].as_array().unwrap().len(), 30);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_pauses_for_thousands_of_events_gets_them_all() {
    const CHUNKS: usize = 5000;
    // On a file system in memory if there is one, since disk flushes are not tested here.
    let fast = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let herald = Herald::start(Options::agents().data(fast.path())).await;
    let draft = Draft::new(uuid(), format!("tck-stream-chunked chunks={CHUNKS} size=1000"));
    let mut sleeper = open(&herald, &Wire::Rpc.stream(CONFORMANCE, &draft)).await;
    let mut seen = take(Wire::Rpc, &mut sleeper, 1).await;
    let mut old = open(&herald, &Wire::OldRpc.subscribe(&seen[0].task)).await;
    let mut seen_old = take(Wire::OldRpc, &mut old, 1).await;
    // One event is read per look, which is slow and yet no stall, and the agent does not wait for the reader.
    let id = seen[0].task.clone();
    loop {
        let answer = herald.call(&Wire::Rpc.get(&id)).await;
        if is_terminal(&state(&Wire::Rpc.result(&answer).unwrap())) {
            break;
        }
        seen.extend(take(Wire::Rpc, &mut sleeper, 1).await);
        seen_old.extend(take(Wire::OldRpc, &mut old, 1).await);
        sleep(Duration::from_millis(200)).await;
    }
    seen.extend(Wire::Rpc.rest_of(&mut sleeper).await.unwrap());
    assert_eq!(seqs(&seen), (1..=CHUNKS as u64 + 3).collect::<Vec<_>>());
    let texts: Vec<_> = seen.iter().filter_map(Frame::text).collect();
    assert_eq!(texts.len(), CHUNKS);
    for (index, text) in texts.iter().enumerate() {
        assert!(text.starts_with(&format!("chunk {index} ")), "{text}");
    }
    let from = seen_old[0].seq;
    seen_old.extend(Wire::OldRpc.rest_of(&mut old).await.unwrap());
    assert_eq!(seqs(&seen_old), (from..=CHUNKS as u64 + 3).collect::<Vec<_>>());
    assert_eq!(seen_old.last().unwrap().body["final"], json!(true));
}

// proves: EQV-003, VER-002, STR-020
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_is_the_same_in_1_0_and_0_3() {
    let herald = Herald::start(Options::agents()).await;
    for (make, watch, end) in [
        (Wire::Rpc, Wire::OldRpc, Wire::Rest),
        (Wire::Rest, Wire::OldRest, Wire::Rpc),
        (Wire::OldRpc, Wire::Rpc, Wire::OldRest),
        (Wire::OldRest, Wire::Rest, Wire::OldRpc),
    ] {
        let draft = Draft::new(uuid(), "tck-cancel");
        let made = make.sent(&herald.call(&make.send(CONFORMANCE, &draft, true)).await).unwrap();
        let mut stream = open(&herald, &watch.subscribe(id(&made))).await;
        let snapshot = take(watch, &mut stream, 1).await;
        assert_eq!(snapshot[0].task, id(&made));
        let ended = end.result(&herald.call(&end.cancel(id(&made))).await).unwrap();
        assert_eq!(state(&ended), "canceled");
        let events = watch.rest_of(&mut stream).await.unwrap();
        assert_eq!(events.last().and_then(Frame::state).as_deref(), Some("canceled"));
        // Each in its own format: `final` of 0.3 does not exist in 1.0.
        let last = &events.last().unwrap().body;
        match watch {
            Wire::OldRpc => {
                assert_eq!(last["kind"], "status-update");
                assert_eq!(last["final"], true);
            }
            Wire::FirstRpc => assert_eq!(last["final"], true),
            Wire::OldRest => assert_eq!(last["statusUpdate"]["final"], true),
            Wire::Rpc | Wire::Rest => assert_eq!(last["statusUpdate"].get("final"), None),
        }
        for wire in Wire::ALL {
            let found = task(&herald, wire, id(&made)).await;
            assert_eq!(state(&found), "canceled");
            assert_eq!(asked(&found), [draft.id.as_str()]);
            assert_eq!(found["contextId"], made["contextId"]);
            let (_, log) = wire.replay(herald.client().await, id(&made)).await.unwrap();
            assert_eq!(seqs(&log), [1, 2, 3]);
        }
    }
}

// proves: SEND-025
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_with_a_uuid_runs_once_however_often_it_is_sent() {
    let mut herald = Herald::start(Options::agents()).await;
    let draft = Draft::new(uuid(), "once");
    let first = herald.call(&Wire::Rpc.send("", &draft, false)).await;
    let first = Wire::Rpc.sent(&first).unwrap();
    assert_eq!(state(&first), "completed");
    for wire in Wire::ALL.into_iter().chain(Wire::ALL) {
        let again = wire.sent(&herald.call(&wire.send("", &draft, false)).await).unwrap();
        assert_eq!(id(&again), id(&first));
        // A repeated stream is the same log.
        let mut stream = open(&herald, &wire.stream("", &draft)).await;
        let frames = wire.rest_of(&mut stream).await.unwrap();
        assert!(frames.iter().all(|frame| frame.task == id(&first)));
        assert_eq!(seqs(&frames), (1..=frames.len() as u64).collect::<Vec<_>>());
    }
    assert_eq!(total(&herald).await, 1);

    herald.restart_cleanly().await;
    let again = Wire::Rpc.sent(&herald.call(&Wire::Rpc.send("", &draft, false)).await).unwrap();
    assert_eq!(again, first);
    herald.kill9().await;
    herald.restart().await;
    let again = Wire::Rpc.sent(&herald.call(&Wire::Rpc.send("", &draft, false)).await).unwrap();
    assert_eq!(again, first);
    assert_eq!(total(&herald).await, 1);

    // Other content with the same id is a conflict.
    let other = Draft { text: "twice".into(), ..draft.clone() };
    for wire in Wire::ALL {
        let fault = wire.sent(&herald.call(&wire.send("", &other, false)).await).unwrap_err();
        assert_eq!(fault.reason, "IDEMPOTENCY_CONFLICT", "{fault:?}");
    }
    // The id is free at another agent.
    let elsewhere = herald.call(&Wire::Rpc.send(CONFORMANCE, &draft, false)).await;
    assert_ne!(id(&Wire::Rpc.sent(&elsewhere).unwrap()), id(&first));
    assert_eq!(total(&herald).await, 2);
}

// proves: SEND-025
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_concurrent_copies_of_a_message_make_one_task() {
    let herald = Herald::start(Options::agents()).await;
    for round in 0..10 {
        // The task may end before, between or after the copies.
        let text = ["tck-long-running delay_ms=50", "tck-complete-task"][round % 2];
        let draft = Draft::new(uuid(), text);
        let mut sends = JoinSet::new();
        for wire in Wire::ALL.into_iter().cycle().take(20) {
            let (address, draft) = (herald.address, draft.clone());
            sends.spawn(async move {
                let mut client = Client::connect(address).await.unwrap();
                let answer = client.call(&wire.send(CONFORMANCE, &draft, false)).await.unwrap();
                let task = wire.sent(&answer).unwrap();
                assert_eq!(state(&task), "completed");
                id(&task).to_owned()
            });
        }
        let tasks: HashSet<_> = sends.join_all().await.into_iter().collect();
        assert_eq!(tasks.len(), 1, "{tasks:?}");
        assert_eq!(total(&herald).await, round as u64 + 1);
        let task = task(&herald, Wire::Rest, tasks.iter().next().unwrap()).await;
        assert_eq!(asked(&task), [draft.id.as_str()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_id_that_is_not_a_uuid_can_be_reused() {
    let herald = Herald::start(Options::agents()).await;
    let mut tasks = BTreeSet::new();
    for wire in Wire::ALL {
        for text in ["one", "one", "another"] {
            let draft = Draft::new("msg-1", text);
            let sent = wire.sent(&herald.call(&wire.send("", &draft, false)).await).unwrap();
            assert!(tasks.insert(id(&sent).to_owned()), "{sent}");
        }
    }
    assert_eq!(total(&herald).await, 12);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_makes_two_sends_one() {
    let mut herald = Herald::start(Options::agents()).await;
    let keyed = |wire: Wire, key: &str, draft: &Draft| {
        wire.send("", draft, false).header("idempotency-key", key)
    };
    let draft = Draft::new("msg-1", "once");
    let mut sends = JoinSet::new();
    for wire in Wire::ALL.into_iter().cycle().take(20) {
        let (address, call) = (herald.address, keyed(wire, "key-1", &draft));
        sends.spawn(async move {
            let mut client = Client::connect(address).await.unwrap();
            let task = wire.sent(&client.call(&call).await.unwrap()).unwrap();
            id(&task).to_owned()
        });
    }
    let tasks: HashSet<_> = sends.join_all().await.into_iter().collect();
    assert_eq!(tasks.len(), 1);
    herald.restart_cleanly().await;
    for wire in Wire::ALL {
        let again = wire.sent(&herald.call(&keyed(wire, "key-1", &draft)).await).unwrap();
        assert!(tasks.contains(id(&again)));
        let other = Draft::new("msg-1", "not that");
        let fault = wire.sent(&herald.call(&keyed(wire, "key-1", &other)).await).unwrap_err();
        assert_eq!(fault.reason, "IDEMPOTENCY_CONFLICT", "{fault:?}");
        let fault = wire.sent(&herald.call(&keyed(wire, "", &draft)).await).unwrap_err();
        assert_eq!(fault.reason, "INVALID_PARAMS", "{fault:?}");
    }
    assert_eq!(total(&herald).await, 1);
    // Another key, another task, even for a message whose id is a UUID.
    let draft = Draft::new(uuid(), "with a key each");
    for key in ["key-2", "key-3"] {
        Wire::Rpc.sent(&herald.call(&keyed(Wire::Rpc, key, &draft)).await).unwrap();
    }
    assert_eq!(total(&herald).await, 3);
}

/// The outcome of a task in the response, the stream, the log and the list.
#[derive(Debug)]
struct Race {
    #[expect(dead_code, reason = "read by whoever reads the failed test")]
    task: String,
    /// True if the cancel was answered with the cancelled task.
    cancelled: bool,
    streamed: Option<String>,
    replayed: Option<String>,
    kept: String,
}

// proves: CAN-005
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_readers_agree_on_the_outcome_of_a_race() {
    let races = number("HERALD_RACES", 1000);
    let mut random = Random::seeded("HERALD_RACE_SEED");
    println!("HERALD_RACE_SEED={} HERALD_RACES={races}", random.0);
    let herald = Herald::start(Options::agents()).await;
    let begun = Instant::now();
    let mut lanes = JoinSet::new();
    for (lane, wire) in Wire::ALL.into_iter().cycle().take(8).enumerate() {
        let (address, random) = (herald.address, random.branch());
        let count = races / 8 + u64::from((lane as u64) < races % 8);
        lanes.spawn(async move { race(address, wire, count, random).await });
    }
    let results: Vec<Race> = lanes.join_all().await.into_iter().flatten().collect();
    assert_eq!(results.len() as u64, races);
    let won = results.iter().filter(|race| race.cancelled).count();
    let disagree: Vec<_> = results.iter().filter(|race| !race.agree()).collect();
    println!(
        "{races} races in {:?}, {won} cancelled, {} disagree",
        begun.elapsed(),
        disagree.len()
    );
    assert!(disagree.is_empty(), "{disagree:#?}");
    assert!(won > 0 && won < results.len(), "no race: {won} of {races} were cancelled");
}

impl Race {
    fn agree(&self) -> bool {
        let end = if self.cancelled { "canceled" } else { "completed" };
        self.streamed.as_deref() == Some(end)
            && self.replayed.as_deref() == Some(end)
            && self.kept == end
    }
}

async fn race(
    address: std::net::SocketAddr,
    wire: Wire,
    count: u64,
    mut random: Random,
) -> Vec<Race> {
    let connect = async || Client::connect(address).await.unwrap();
    let (mut streaming, mut cancelling) = (connect().await, connect().await);
    let mut results = Vec::new();
    for _ in 0..count {
        let delay = random.between(0, 8);
        let draft = Draft::new(random.uuid(), format!("tck-long-running delay_ms={delay}"));
        let mut stream = streaming.open(&wire.stream(CONFORMANCE, &draft)).await.unwrap();
        let task = take(wire, &mut stream, 1).await.remove(0).task;
        sleep(Duration::from_micros(random.between(0, 12_000))).await;
        let cancel = wire.cancel(&task);
        let (answer, frames) = tokio::join!(cancelling.call(&cancel), wire.rest_of(&mut stream));
        let (answer, frames) = (answer.unwrap(), frames.unwrap());
        let cancelled = match wire.result(&answer) {
            Ok(task) => {
                assert_eq!(state(&task), "canceled");
                true
            }
            Err(fault) => {
                assert_eq!(fault.reason, "TASK_NOT_CANCELABLE", "{fault:?}");
                false
            }
        };
        let streamed = frames.last().and_then(Frame::state);
        let (client, log) = wire.replay(stream.done(), &task).await.unwrap();
        streaming = client;
        assert_eq!(seqs(&log), (1..=log.len() as u64).collect::<Vec<_>>());
        assert_eq!(log[1..], frames[..], "the stream is the log");
        let ends = log.iter().filter(|frame| frame.state().is_some_and(|end| is_terminal(&end)));
        assert_eq!(ends.count(), 1, "{log:?}");
        let replayed = log.last().and_then(Frame::state);
        let answer = cancelling.call(&wire.get(&task)).await.unwrap();
        let kept = state(&wire.result(&answer).unwrap());
        results.push(Race { task, cancelled, streamed, replayed, kept });
    }
    results
}
