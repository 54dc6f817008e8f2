//! Many turns of one task, one after the other.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;
use uuid::Uuid;

use crate::{
    args::Args,
    connection::Connection,
    wire::{self, Sent},
};

const PAUSED: &str = "TASK_STATE_INPUT_REQUIRED";

/// The printed tables. Times are medians in microseconds.
#[derive(Serialize)]
struct Report {
    sent_bytes: usize,
    first_quarter_us: f64,
    last_quarter_us: f64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let mut connection = Connection::open(&args.url).await?;
    let (mut task, mut times, mut sent_bytes) = (None, Vec::new(), 0);
    for n in 0..args.requests {
        let text = format!("tck-input-required {}", "x".repeat(args.bytes));
        let id = Uuid::new_v4();
        let which = task.map(|task| format!(r#""taskId":"{task}","#)).unwrap_or_default();
        // Without the history in the answer, its size does not grow with the task.
        let params = format!(
            r#"{{"configuration":{{"historyLength":0}},"message":{{"messageId":"{id}",{which}"role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}"#
        );
        let body = wire::request("SendMessage", n, &params);
        sent_bytes += body.len();
        let begun = Instant::now();
        let answer = connection.call(body).await?;
        times.push(begun.elapsed());
        let Sent { task: answered } = wire::result(n, &answer)?;
        ensure!(answered.status.state == PAUSED, "turn {n} is {}", answered.status.state);
        task = Some(answered.id);
    }
    let quarter = (times.len() / 4).max(1);
    let report = Report {
        sent_bytes,
        first_quarter_us: median(&times[..quarter]),
        last_quarter_us: median(&times[times.len() - quarter..]),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2].as_nanos() as f64 / 1e3
}
