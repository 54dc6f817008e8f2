//! Tests of misbehaving agents and clients, which affect their own tasks only.

use std::{fs, time::Duration};

use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    http::{Call, Client},
    support::{AGENTS, CONFORMANCE, Herald, Options, Random, SOON, eventually, uuid},
    wire::{Draft, Frame, Wire, id, is_terminal, list, state},
};

async fn send(herald: &Herald, wire: Wire, agent: &str, text: &str) -> Value {
    let call = wire.send(agent, &Draft::new(uuid(), text), false);
    wire.sent(&herald.call(&call).await).unwrap()
}

fn reason(task: &Value) -> &str {
    task["status"]["message"]["metadata"]["reason"].as_str().unwrap_or_default()
}

// proves: RPC-009
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_panics_fails_its_own_task_and_no_other() {
    let herald = Herald::start(Options::agents()).await;
    let mut sends = JoinSet::new();
    for (index, wire) in Wire::ALL.into_iter().cycle().take(120).enumerate() {
        let address = herald.address;
        sends.spawn(async move {
            let text = ["tck-crash", "tck-complete-task", "tck-crash"][index % 3];
            let mut client = Client::connect(address).await.unwrap();
            let call = wire.send(CONFORMANCE, &Draft::new(uuid(), text), false);
            let answer = client.call(&call).await.unwrap();
            let task = wire.sent(&answer).unwrap();
            // The panic message is not shown to callers.
            let said = answer.text().replace("tck-crash", "");
            for inner in ["panicked", "on request", ".rs"] {
                assert!(!said.contains(inner), "{said}");
            }
            (text, task)
        });
    }
    for (text, task) in sends.join_all().await {
        match text {
            "tck-crash" => {
                assert_eq!(state(&task), "failed");
                assert_eq!(reason(&task), "AGENT_CRASHED");
            }
            _ => assert_eq!(state(&task), "completed"),
        }
    }
    herald.ready().await;
    assert_eq!(herald.call(&list(Some("FAILED"), 1, "")).await.json()["totalSize"], 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_hangs_is_ended_by_its_deadlines() {
    let agent = |name: &str, keys: &str| {
        format!(
            "[[agents]]\nname = \"{name}\"\nkind = \"conformance\"\nkill_grace = \"100ms\"\n{keys}\n"
        )
    };
    let slow = agent("slow", "timeout = \"1s\"\nconcurrency = 5");
    let silent = agent("silent", "idle_timeout = \"300ms\"");
    let herald = Herald::start(Options::config(format!("{slow}{silent}"))).await;
    let mut sends = JoinSet::new();
    for (index, wire) in Wire::ALL.into_iter().cycle().take(40).enumerate() {
        let address = herald.address;
        // Half of them never end; the other half writes, but too slowly.
        let (agent, text, expected) = match index % 4 {
            0 | 1 => ("/agents/slow", "tck-cancel", "TIMED_OUT"),
            2 => ("/agents/silent", "tck-long-running delay_ms=60000", "IDLE"),
            _ => ("/agents/slow", "tck-stream-chunked chunks=1000 delay_ms=20", "TIMED_OUT"),
        };
        sends.spawn(async move {
            let mut client = Client::connect(address).await.unwrap();
            let call = wire.send(agent, &Draft::new(uuid(), text), false);
            let task = wire.sent(&client.call(&call).await.unwrap()).unwrap();
            assert_eq!((state(&task).as_str(), reason(&task)), ("failed", expected));
        });
    }
    sends.join_all().await;
    let after = send(&herald, Wire::Rpc, "/agents/slow", "tck-complete-task").await;
    assert_eq!(state(&after), "completed");
}

// proves: SEC-009
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_floods_is_stopped_at_the_limit() {
    let limits = "[limits]\ntask_events = 60\ntask_bytes = \"256KiB\"\nbody = \"64KiB\"\n";
    let herald = Herald::start(Options::config(format!("{limits}{AGENTS}"))).await;
    for (text, most) in [
        ("tck-stream-chunked chunks=5000 size=32", 62),
        ("tck-stream-chunked chunks=50 size=100000", 10),
    ] {
        let task = send(&herald, Wire::Rest, CONFORMANCE, text).await;
        assert_eq!(state(&task), "failed");
        assert!(task["status"]["message"]["parts"][0]["text"].to_string().contains("limit"));
        let client = herald.client().await;
        let (_, log) = Wire::Rest.replay(client, id(&task)).await.unwrap();
        assert!(log.len() <= most, "{}", log.len());
    }
    for wire in Wire::ALL {
        let large = Draft::new(uuid(), "x".repeat(70 << 10));
        let answer = herald.call(&wire.send("", &large, false)).await;
        let fault = wire.sent(&answer).unwrap_err();
        assert_eq!(fault.reason, "TOO_LARGE", "{fault:?}");
    }
    assert_eq!(state(&send(&herald, Wire::Rpc, "", "small").await), "completed");
}

// proves: SEND-027, STR-030
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_changes_no_task() {
    let herald = Herald::start(Options::agents()).await;
    let mut random = Random::seeded("HERALD_HANG_UP_SEED");
    println!("HERALD_HANG_UP_SEED={}", random.0);
    let mut clients = JoinSet::new();
    for wire in Wire::ALL.into_iter().cycle().take(60) {
        let (address, frames) = (herald.address, random.between(1, 12));
        clients.spawn(async move {
            let draft = Draft::new(uuid(), "tck-stream-chunked chunks=10 delay_ms=2");
            let client = Client::connect(address).await.unwrap();
            let mut stream = client.open(&wire.stream(CONFORMANCE, &draft)).await.unwrap();
            let mut task = String::new();
            for _ in 0..frames {
                let event = stream.next().await.unwrap().expect("the stream goes on");
                task = wire.frame(&event).task;
            }
            task
        });
    }
    // Some clients disconnect while they wait for a response.
    for wire in Wire::ALL.into_iter().cycle().take(20) {
        let draft = Draft::new(uuid(), "tck-long-running delay_ms=2000");
        let call = wire.send(CONFORMANCE, &draft, false);
        let mut client = herald.client().await;
        let left = tokio::time::timeout(Duration::from_millis(20), client.call(&call)).await;
        assert!(left.is_err(), "it was answered: {left:?}");
        drop(client);
        let again = wire.sent(&herald.call(&wire.send(CONFORMANCE, &draft, true)).await).unwrap();
        clients.spawn(async move { id(&again).to_owned() });
    }
    let tasks = clients.join_all().await;
    for task in &tasks {
        eventually(SOON, "the task ends", async || {
            let found = herald.call(&Wire::Rest.get(task)).await;
            is_terminal(&state(&Wire::Rest.result(&found).unwrap()))
        })
        .await;
        let (_, log) = Wire::Rest.replay(herald.client().await, task).await.unwrap();
        assert_eq!(log.last().and_then(Frame::state).as_deref(), Some("completed"));
    }
    assert_eq!(herald.call(&list(Some("COMPLETED"), 1, "")).await.json()["totalSize"], 80);
}

#[tokio::test]
async fn an_invalid_cursor_is_refused() {
    let herald = Herald::start(Options::agents()).await;
    let task = send(&herald, Wire::Rpc, "", "hello").await;
    let other = send(&herald, Wire::Rpc, "", "hello").await;
    for wire in Wire::ALL {
        let foreign = format!("{}:2", id(&other));
        let future = format!("{}:5", id(&task));
        for cursor in [&*foreign, &future, "99", "-1", "x", "1x", ":", "18446744073709551616"] {
            let call = wire.subscribe(id(&task)).header("last-event-id", cursor);
            let fault = wire.result(&herald.call(&call).await).unwrap_err();
            assert_eq!(fault.reason, "INVALID_PARAMS", "{cursor}: {fault:?}");
            assert!(fault.message.contains("Last-Event-ID"), "{cursor}: {fault:?}");
        }
        // A cursor at the end is valid and has no events after it.
        let end = wire.resume(id(&task), 4);
        let mut stream = herald.client().await.open(&end).await.unwrap();
        assert_eq!(wire.rest_of(&mut stream).await.unwrap(), []);
    }
}

/// CPU time of a process in ticks of 10 ms.
fn spent(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_file_descriptors_it_waits_and_streams_continue() {
    let herald = Herald::start(Options::agents().shell("ulimit -n 64")).await;
    let mut client = herald.client().await;
    let call = Wire::Rpc.send(CONFORMANCE, &Draft::new(uuid(), "tck-cancel"), true);
    let task = Wire::Rpc.sent(&client.call(&call).await.unwrap()).unwrap();
    let call = Wire::Rpc.subscribe(id(&task));
    let mut stream = herald.client().await.open(&call).await.unwrap();
    stream.next().await.unwrap().expect("the task as it is");

    let mut crowd = Vec::new();
    for _ in 0..150 {
        crowd.push(Client::connect(herald.address).await.unwrap());
    }
    sleep(Duration::from_millis(200)).await;
    let before = spent(herald.id());
    sleep(Duration::from_secs(1)).await;
    let spent = spent(herald.id()) - before;
    assert!(spent <= 20, "it spends {spent} % of a processor on waiting");
    assert!(herald.log().contains("cannot accept connections"), "{}", herald.log());

    // Existing streams still get their events.
    let answer = client.call(&Wire::Rpc.cancel(id(&task))).await.unwrap();
    assert_eq!(state(&Wire::Rpc.result(&answer).unwrap()), "canceled");
    let rest = Wire::Rpc.rest_of(&mut stream).await.unwrap();
    assert_eq!(rest.last().and_then(Frame::state).as_deref(), Some("canceled"));

    drop(crowd);
    assert_eq!(herald.call(&Call::get("/readyz")).await.status, 200);
}
