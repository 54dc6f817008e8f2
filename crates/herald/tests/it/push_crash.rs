//! Deliveries to webhooks while the server is killed: every event arrives, in order, and a repeated one has
//! the same id and the same bytes.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    http::Call,
    receiver::{Received, Receiver, ReceiverAnswer},
    support::{CONFORMANCE, Herald, Options, Random, SOON, eventually, number, uuid},
};

/// The events of one task: accepted, working, its chunks, completed.
const CHUNKS: u64 = 46;
const EVENTS: u64 = CHUNKS + 3;

fn id(one: &Received) -> &str {
    one.header("webhook-id").unwrap()
}

/// The deliveries of one webhook, each event once, in the order of their first arrival.
fn first_arrivals(received: &[Received]) -> BTreeMap<String, Vec<Received>> {
    let mut by_path: BTreeMap<String, Vec<Received>> = BTreeMap::new();
    for one in received {
        let known = by_path.entry(one.path.clone()).or_default();
        match known.iter().find(|other| id(other) == id(one)) {
            Some(first) => assert_eq!(first.body, one.body, "{} has other bytes", id(one)),
            None => known.push(one.clone()),
        }
    }
    by_path
}

// proves: PUSH-007, PUSH-011, PUSH-029
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_is_delivered_in_order_although_the_server_is_killed() {
    let kills = number("HERALD_PUSH_KILLS", 6);
    let tasks = number("HERALD_PUSH_TASKS", 12);
    let mut random = Random::seeded("HERALD_CRASH_SEED");
    println!("HERALD_CRASH_SEED={} HERALD_PUSH_KILLS={kills}", random.0);
    let receiver = Receiver::start(|_| ReceiverAnswer::status(200, "")).await;
    let allowed = receiver.address.to_string();
    let options = Options::agents().environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", &allowed);
    let mut herald = Herald::start(options).await;
    for number in 0..tasks {
        let text = format!("tck-stream-chunked chunks={CHUNKS} size=16 delay_ms=1");
        let message = json!({
            "message": { "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": text }] },
            "configuration": {
                "returnImmediately": true,
                "taskPushNotificationConfig": { "url": format!("http://{}/{number}", receiver.address) },
            },
        });
        let path = format!("{CONFORMANCE}/message:send");
        let call = Call::post(&path, &message).header("a2a-version", "1.0");
        assert_eq!(herald.call(&call).await.status, 200);
    }
    // The kills are spread over the deliveries, however fast the machine is.
    let events = usize::try_from(tasks * EVENTS).unwrap();
    for kill in 0..kills {
        let target = events * usize::try_from(kill).unwrap() / usize::try_from(kills).unwrap();
        eventually(SOON, "enough deliveries", async || {
            receiver.received().len() >= target.min(events / 2)
        })
        .await;
        sleep(Duration::from_millis(random.between(1, 30))).await;
        herald.kill9().await;
        herald.restart().await;
    }
    let arrived = |path: &str| -> Vec<Received> {
        first_arrivals(&receiver.received()).remove(path).unwrap_or_default()
    };
    let ended = |one: &Received| {
        let body: Value = serde_json::from_slice(&one.body).unwrap();
        let state = body["statusUpdate"]["status"]["state"].as_str().unwrap_or_default();
        matches!(state, "TASK_STATE_COMPLETED" | "TASK_STATE_FAILED")
    };
    eventually(SOON, "the end of each task is delivered", async || {
        (0..tasks).all(|number| arrived(&format!("/{number}")).last().is_some_and(ended))
    })
    .await;
    let received = receiver.received();
    let by_path = first_arrivals(&received);
    assert_eq!(by_path.len() as u64, tasks);
    let mut distinct = 0;
    for (path, arrivals) in &by_path {
        let numbers: Vec<u64> = arrivals
            .iter()
            .map(|one| id(one).rsplit('_').next().unwrap().parse().unwrap())
            .collect();
        let expected: Vec<u64> = (1..=numbers.len() as u64).collect();
        assert_eq!(numbers, expected, "{path}: each event once, in order, without a gap");
        distinct += numbers.len();
    }
    println!(
        "{kills} kills, {tasks} tasks, {distinct} events, {} of them delivered again",
        received.len() - distinct
    );
}
