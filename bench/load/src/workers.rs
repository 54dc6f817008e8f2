//! Workers of one role: tasks are queued, the workers register, take all of them, and wait for more.
//!
//! Prints a line of JSON for each phase, and one for each fifth of the tasks. After `dispatched` it waits for a line on
//! standard input, so that the idle server can be measured, and goes on until the input ends.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use hyper::{Method, Uri};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use tokio::{
    io::{AsyncBufReadExt, BufReader, stdin},
    sync::Notify,
    time::timeout,
};
use uuid::Uuid;

use crate::{
    args::Args,
    connection::Connection,
    plan::percentile,
    wire::{self, Sent},
};

const ROLE: &str = "bench";

/// Connections that queue the tasks.
const SENDERS: u64 = 16;

/// Requests of each kind of discovery, and sends through idle workers.
const SAMPLES: usize = 200;

/// The longest time for all tasks, and for a single request.
const LIMIT: Duration = Duration::from_secs(900);

#[derive(Serialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
enum Line {
    Queued {
        per_second: f64,
    },
    /// Medians of the first and of the last tenth, in microseconds.
    Registered {
        first_us: f64,
        last_us: f64,
    },
    Progress {
        done: u64,
    },
    Dispatched {
        elapsed_s: f64,
        per_second: f64,
    },
    /// A search: its entries, and its latency in microseconds.
    Discovery {
        search: &'static str,
        entries: usize,
        p50_us: Option<f64>,
        p99_us: Option<f64>,
    },
    /// Sends that an idle worker answers.
    Sends {
        p50_us: Option<f64>,
        p99_us: Option<f64>,
    },
}

#[derive(Deserialize)]
struct Registered {
    name: String,
    session: String,
}

#[derive(Deserialize)]
struct Polled {
    assignments: Vec<Assigned>,
}

#[derive(Deserialize)]
struct Assigned {
    id: String,
    epoch: u64,
}

#[derive(Deserialize)]
struct Agents {
    agents: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Total {
    total_size: u64,
}

/// The tasks that all workers have ended, and the first error of any.
#[derive(Default)]
struct Ended {
    count: Cell<u64>,
    error: RefCell<Option<anyhow::Error>>,
    changed: Notify,
}

/// Workers are registered with a description of their own, ten to a skill, and one skill of all.
fn registration(number: u64) -> Bytes {
    format!(
        r#"{{"role":"{ROLE}","instance_id":"host-{}:{number}","description":"Worker {number} of the bench","skills":[{{"id":"review","tags":["python"]}},{{"id":"skill-{}","description":"One of a hundred"}}]}}"#,
        number % 10,
        number % 100
    )
    .into()
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let (tasks, workers) = (args.requests, args.concurrency);
    let path = format!("{}agents/{ROLE}", args.url);
    let role: Uri = path.parse().context("--url is not a URL")?;
    queue(&role, tasks).await?;
    let registered = register(args, workers).await?;
    let ended = Rc::new(Ended::default());
    let begun = Instant::now();
    for worker in registered {
        let (url, ended) = (args.url.clone(), Rc::clone(&ended));
        tokio::task::spawn_local(async move {
            if let Err(error) = work(&url, &worker, &ended).await {
                ended.error.borrow_mut().get_or_insert(error.context(worker.name));
                ended.changed.notify_one();
            }
        });
    }
    for part in 1..=5 {
        let part = tasks * part / 5;
        timeout(LIMIT, ended.reaches(part)).await.context("the tasks do not end")??;
        print(&Line::Progress { done: part })?;
    }
    let elapsed_s = begun.elapsed().as_secs_f64();
    check_completed(&role, tasks).await?;
    print(&Line::Dispatched { elapsed_s, per_second: tasks as f64 / elapsed_s })?;
    BufReader::new(stdin()).read_line(&mut String::new()).await?;
    discover(args, workers).await?;
    send(&role).await?;
    ended.result()
}

/// Queues tasks for the role, as fast as the server takes them.
async fn queue(role: &Uri, tasks: u64) -> anyhow::Result<()> {
    let (begun, next) = (Instant::now(), Cell::new(0));
    let senders = (0..SENDERS).map(|_| async {
        let mut connection = Connection::open(role).await?;
        while next.get() < tasks {
            let n = next.replace(next.get() + 1);
            let body = send_message(n, r#""returnImmediately":true"#);
            let Sent { task } = wire::result(n, &connection.call(body).await?)?;
            ensure!(task.status.state == "TASK_STATE_SUBMITTED", "it is {}", task.status.state);
        }
        anyhow::Ok(())
    });
    try_join_all(senders).await?;
    print(&Line::Queued { per_second: tasks as f64 / begun.elapsed().as_secs_f64() })
}

async fn register(args: &Args, workers: u64) -> anyhow::Result<Vec<Registered>> {
    let mut connection = Connection::open(&args.url).await?;
    let (mut registered, mut times) = (Vec::new(), Vec::new());
    for number in 0..workers {
        let begun = Instant::now();
        let reply = connection.api(Method::POST, "/api/agents", registration(number)).await?;
        times.push(begun.elapsed());
        registered.push(serde_json::from_slice(&reply)?);
    }
    let tenth = (times.len() / 10).max(1);
    let median = |times: &[Duration]| {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        percentile(&sorted, 50).unwrap_or(f64::NAN)
    };
    let (first_us, last_us) = (median(&times[..tenth]), median(&times[times.len() - tenth..]));
    print(&Line::Registered { first_us, last_us })?;
    Ok(registered)
}

/// Takes turns and ends them, for ever.
async fn work(url: &Uri, worker: &Registered, ended: &Ended) -> anyhow::Result<()> {
    let Registered { name, session } = worker;
    let mut connection = Connection::open(url).await?;
    let poll = Bytes::from(format!(r#"{{"session":"{session}","free":1,"turns":[]}}"#));
    loop {
        let path = format!("/api/agents/{name}/poll");
        let reply = connection.api(Method::POST, &path, poll.clone()).await?;
        let Polled { assignments } = serde_json::from_slice(&reply)?;
        for Assigned { id, epoch } in assignments {
            let path = format!("/api/agents/{name}/turns/{id}/end");
            let end = format!(
                r#"{{"session":"{session}","epoch":{epoch},"number":1,"outcome":{{"kind":"done"}}}}"#
            );
            connection.api(Method::POST, &path, end.into()).await?;
            ended.count.set(ended.count.get() + 1);
            ended.changed.notify_one();
        }
    }
}

/// Every task must be completed, and none twice.
async fn check_completed(role: &Uri, tasks: u64) -> anyhow::Result<()> {
    let mut connection = Connection::open(role).await?;
    let params = format!(r#"{{"pageSize":1,"status":"{}"}}"#, wire::COMPLETED);
    let answer = connection.call(wire::request("ListTasks", 0, &params)).await?;
    let Total { total_size } = wire::result(0, &answer)?;
    ensure!(total_size == tasks, "{total_size} tasks are completed, not {tasks}");
    Ok(())
}

async fn discover(args: &Args, workers: u64) -> anyhow::Result<()> {
    let mut connection = Connection::open(&args.url).await?;
    let one = workers / 2;
    for (search, query) in [
        ("all", String::new()),
        ("role", format!("?role={ROLE}")),
        ("skill", "?skill=skill-7".to_owned()),
        ("tag", "?tag=PYTHON".to_owned()),
        ("text", format!("?text=worker%20{one}%20of")),
    ] {
        let (path, mut times, mut entries) = (format!("/api/agents{query}"), Vec::new(), 0);
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            let reply = connection.api(Method::GET, &path, Bytes::new()).await?;
            times.push(begun.elapsed());
            let Agents { agents } = serde_json::from_slice(&reply)?;
            entries = agents.len();
        }
        ensure!(entries > 0, "the search {search} found nothing");
        times.sort_unstable();
        let (p50_us, p99_us) = (percentile(&times, 50), percentile(&times, 99));
        print(&Line::Discovery { search, entries, p50_us, p99_us })?;
    }
    Ok(())
}

/// Sends one message after the other, which wait for their outcome.
async fn send(role: &Uri) -> anyhow::Result<()> {
    let mut connection = Connection::open(role).await?;
    let mut times = Vec::new();
    for n in 0..SAMPLES as u64 {
        let begun = Instant::now();
        let answer = connection.call(send_message(n, r#""historyLength":0"#)).await?;
        times.push(begun.elapsed());
        let Sent { task } = wire::result(n, &answer)?;
        ensure!(task.is_completed(), "the task is {}", task.status.state);
    }
    times.sort_unstable();
    let (p50_us, p99_us) = (percentile(&times, 50), percentile(&times, 99));
    print(&Line::Sends { p50_us, p99_us })
}

fn send_message(n: u64, configuration: &str) -> Bytes {
    let id = Uuid::new_v4();
    let params = format!(
        r#"{{"configuration":{{{configuration}}},"message":{{"messageId":"{id}","role":"ROLE_USER","parts":[{{"text":"task {n}"}}]}}}}"#
    );
    wire::request("SendMessage", n, &params)
}

fn print(line: &Line) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

impl Ended {
    /// Waits until so many tasks have ended.
    async fn reaches(&self, count: u64) -> anyhow::Result<()> {
        while self.count.get() < count {
            self.result()?;
            self.changed.notified().await;
        }
        self.result()
    }

    fn result(&self) -> anyhow::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}
