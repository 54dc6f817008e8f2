//! Crash test of workers: three of one role under load, killed with -9 at random and replaced, then the
//! server as well. `HERALD_WORKER_TASKS` is the number of tasks.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    http::Call,
    support::{Herald, Random, eventually, number},
    tasks::{printed, task},
    wire::{is_terminal, state},
    worker_process::{WorkerProcess, log_of, queued, server_on_fixed_port},
};

/// Three lines with pauses, so that many turns are interrupted between two writes.
const PROGRAM: &str = "read -r said; for line in 1 2 3; do echo \"$said $line\"; sleep 0.15; done";

const WORKERS: u64 = 3;

/// The longest time until all tasks have ended after the last kill.
const SETTLED: Duration = Duration::from_secs(180);

/// A place for a worker, and how often it was filled.
#[derive(Debug)]
struct Replaceable {
    worker: WorkerProcess,
    lives: u64,
}

async fn start(herald: &Herald, slot: u64, life: u64) -> WorkerProcess {
    let instance = format!("w{slot}-{life}");
    let arguments =
        ["--exec", PROGRAM, "--attempts", "100", "--concurrency", "2", "--instance", &instance];
    WorkerProcess::start(herald, &arguments).await
}

/// Kills a worker and starts another: half of the times under the same name, whose turns are due at
/// once, and otherwise under a new one, so that only the lease ends the former life.
async fn replace(herald: &Herald, slots: &mut [Replaceable], random: &mut Random) {
    let chosen = random.between(0, WORKERS);
    let slot = &mut slots[usize::try_from(chosen).unwrap()];
    slot.worker.kill9().await;
    slot.lives += random.between(0, 2);
    slot.worker = start(herald, chosen, slot.lives).await;
}

async fn open_tasks(herald: &Herald, tasks: &[String]) -> usize {
    let mut open = 0;
    for id in tasks {
        open += usize::from(!is_terminal(&state(&task(herald, id).await)));
    }
    open
}

/// The times from acceptance to claim of tasks that meet idle workers, in milliseconds.
async fn idle_claims(herald: &Herald) -> Vec<i128> {
    let mut waits = Vec::new();
    for _ in 0..5 {
        let id = queued(herald, "idle").await;
        eventually(SETTLED, "it ends", async || state(&task(herald, &id).await) == "completed")
            .await;
        waits.push(claimed_after(&log_of(herald, &id).await));
    }
    waits
}

fn claimed_after(log: &[Value]) -> i128 {
    let claimed = log.iter().find(|entry| entry["state"] == "TASK_STATE_WORKING").unwrap();
    time_of(claimed).duration_since(time_of(&log[0])).as_millis()
}

fn time_of(entry: &Value) -> Timestamp {
    entry["at"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_task_is_completed_once_while_workers_and_server_are_killed() {
    let count = number("HERALD_WORKER_TASKS", 30);
    let mut random = Random::seeded("HERALD_CRASH_SEED");
    println!("HERALD_CRASH_SEED={} HERALD_WORKER_TASKS={count}", random.0);
    let mut herald = server_on_fixed_port().await;
    let mut slots = Vec::new();
    for slot in 0..WORKERS {
        slots.push(Replaceable { worker: start(&herald, slot, 0).await, lives: 0 });
    }
    let idle = idle_claims(&herald).await;
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..count {
        tasks.push(queued(&herald, &format!("task-{number}")).await);
    }
    let half = tasks.len() / 2;
    let (mut worker_kills, mut server_kills) = (0, 0);
    while open_tasks(&herald, &tasks).await > 0 && begun.elapsed() < SETTLED {
        sleep(Duration::from_millis(random.between(100, 900))).await;
        if worker_kills < count / 5 {
            replace(&herald, &mut slots, &mut random).await;
            worker_kills += 1;
        }
        // The server dies once under full load and once more with half of it.
        let is_due = server_kills == 0 || open_tasks(&herald, &tasks).await <= half;
        if server_kills < 2 && worker_kills > 1 && is_due {
            herald.kill9().await;
            sleep(Duration::from_millis(random.between(0, 500))).await;
            herald.restart().await;
            server_kills += 1;
        }
    }
    eventually(SETTLED, "every task has ended", async || open_tasks(&herald, &tasks).await == 0)
        .await;
    let took = begun.elapsed();
    let (mut waits, mut repeated) = (Vec::new(), 0);
    for (number, id) in tasks.iter().enumerate() {
        let done = task(&herald, id).await;
        assert_eq!(state(&done), "completed", "{done}");
        // A write of a lost claim would be in the text beside those of the last attempt.
        let expected: String = (1..=3).map(|line| format!("task-{number} {line}\n")).collect();
        assert_eq!(printed(&done), expected);
        let log = log_of(&herald, id).await;
        let completed = log.iter().filter(|entry| entry["state"] == "TASK_STATE_COMPLETED").count();
        assert_eq!(completed, 1, "{log:?}");
        assert_eq!(log.last().unwrap()["state"], "TASK_STATE_COMPLETED", "{log:?}");
        waits.push(claimed_after(&log));
        let detail = herald.call(&Call::get(format!("/api/tasks/{id}"))).await.json();
        let attempt = detail.pointer("/head/turn/attempt");
        repeated += usize::from(attempt.and_then(Value::as_u64).expect("a turn has attempts") > 1);
    }
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    println!(
        "{count} tasks in {took:.1?}, {worker_kills} workers and {server_kills} servers killed, {repeated} tasks \
         run again; lost 0, completed twice 0; from acceptance to claim under load: p50 {} ms, p99 {} ms, \
         max {} ms; by an idle worker: {idle:?} ms",
        at(50),
        at(99),
        at(100)
    );
    assert!(worker_kills > 0 && server_kills > 0, "nothing was killed");
}
