//! Test of the bytes written in a long conversation in one task.
//!
//! `HERALD_TURNS` is the number of messages. The published figures are for 216.

use std::{fs, time::Duration};

use serde_json::json;
use tokio::time::Instant;

use crate::{
    http::Call,
    support::{CONFORMANCE, Herald, Options, SOON, eventually, number, uuid},
    wire::{Wire, id, state},
};

const MESSAGE: usize = 100 << 10;

/// Bytes that a process has given to `write`: the write-ahead log, checkpoints, its own log, and
/// answers, which are small here.
fn written(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z"))
}

fn message(task: Option<&str>, text: &str) -> Call {
    let mut message =
        json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": text }] });
    if let Some(task) = task {
        message["taskId"] = task.into();
    }
    let body = json!({ "message": message, "configuration": { "historyLength": 0 } });
    Call::post(format!("{CONFORMANCE}/message:send"), &body).header("a2a-version", "1.0")
}

fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap()
}

#[tokio::test]
async fn a_turn_of_a_long_task_writes_its_additions_only() {
    let turns = usize::try_from(number("HERALD_TURNS", 48)).unwrap();
    let mut herald = Herald::start(Options::agents()).await;
    let mut client = herald.client().await;
    let begun = client.call(&message(None, "tck-multi-turn")).await.unwrap();
    let task = id(&Wire::Rest.sent(&begun).unwrap()).to_owned();
    let before = written(herald.id());
    let mut times = Vec::new();
    for turn in 0..turns {
        let text = format!("{turn} {}", "x".repeat(MESSAGE));
        let sent = Instant::now();
        let answer = client.call(&message(Some(&task), &text)).await.unwrap();
        times.push(sent.elapsed());
        assert_eq!(state(&Wire::Rest.sent(&answer).unwrap()), "input-required");
    }
    let mut bytes = written(herald.id()) - before;
    let paused = herald.call(&Wire::Rest.get(&task)).await.json();
    let before = written(herald.id());
    // The shutdown checkpoints the rest of the write-ahead log, which counts.
    let pid = herald.id();
    herald.terminate().await;
    eventually(SOON, "it ends", async || has_ended(pid)).await;
    bytes += written(pid) - before;
    assert!(herald.wait(SOON).await.success());
    let sent = (turns * MESSAGE) as u64;
    println!(
        "{turns} turns, {sent} bytes sent, {bytes} written ({:.2} times as much); a turn took {:?} \
         at first and {:?} at last",
        bytes as f64 / sent as f64,
        mean(&times[..turns / 8]),
        mean(&times[turns - turns / 8..]),
    );
    assert!(bytes <= 6 * sent, "{bytes} for {sent}");

    herald.restart().await;
    let stored = herald.call(&Wire::Rest.get(&task)).await.json();
    assert_eq!(stored, paused, "a paused task is its last snapshot and the events since");
    let history = stored["history"].as_array().unwrap();
    let texts = history.iter().filter(|message| message["role"] == "ROLE_USER");
    let texts: Vec<_> =
        texts.map(|message| message["parts"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), turns + 1);
    let in_order = |(turn, text): (usize, &&str)| text.starts_with(&format!("{turn} x"));
    assert!(texts[1..].iter().enumerate().all(in_order));
    let done = herald.call(&message(Some(&task), "done")).await;
    assert_eq!(state(&Wire::Rest.sent(&done).unwrap()), "completed");
}
