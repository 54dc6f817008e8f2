//! Requests of each kind, and the checks of their responses.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{
    connection::Connection,
    wire::{self, Event, Listed, Sent, Task},
};

const CHUNKS: usize = 10;

/// Chunks of a live stream, and the milliseconds between two of them: as language models write.
const LIVE_CHUNKS: usize = 200;
const LIVE_DELAY: u64 = 50;

const PAGE: usize = 50;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Send,
    Get,
    List,
    Stream,
    Live,
}

/// The measurements of one exchange.
pub(crate) struct Sample {
    pub(crate) total: Duration,
    /// Until the first frame, for streams.
    pub(crate) first: Option<Duration>,
    /// The task it made.
    pub(crate) task: Option<String>,
}

/// The frames of an event stream as they arrive.
pub(crate) struct Frames {
    body: Incoming,
    cutter: Cutter,
}

/// Cuts bytes into frames at blank lines, wherever the network has cut them.
#[derive(Default)]
struct Cutter {
    buffer: Vec<u8>,
}

/// The sum of the frames of one stream.
#[derive(Default)]
struct Heard {
    chunks: usize,
    completed: bool,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Get => "get",
            Self::List => "list",
            Self::Stream => "stream",
            Self::Live => "live",
        }
    }

    /// `n` is unique among the requests of this run; `target` is the task to get; `data` goes along with messages.
    pub(crate) async fn once(
        self,
        connection: &mut Connection,
        n: u64,
        target: Option<&str>,
        data: &str,
    ) -> anyhow::Result<Sample> {
        let start = Instant::now();
        let (first, task) = match self {
            Self::Send => (None, Some(send(connection, n, data).await?)),
            Self::Get => (None, get(connection, n, target.context("no task to get")?).await?),
            Self::List => (None, list(connection, n).await?),
            Self::Stream => {
                let text = format!("tck-stream-chunked chunks={CHUNKS} n={n}");
                (Some(stream(connection, n, &text, CHUNKS, data, start).await?), None)
            }
            Self::Live => {
                let text = format!(
                    "tck-stream-chunked chunks={LIVE_CHUNKS} size=16 delay_ms={LIVE_DELAY} n={n}"
                );
                (Some(stream(connection, n, &text, LIVE_CHUNKS, data, start).await?), None)
            }
        };
        Ok(Sample { total: start.elapsed(), first, task })
    }
}

async fn send(connection: &mut Connection, n: u64, data: &str) -> anyhow::Result<String> {
    // Different in every request, so that the response to another request is recognised as wrong.
    let text = format!("measure {n} of this server, which says it again as it was said");
    if let Some(grpc) = connection.grpc() {
        return grpc.send(&text).await;
    }
    let answer = connection.call(wire::message("SendMessage", n, &text, data)).await?;
    let Sent { task } = wire::result(n, &answer)?;
    ensure!(task.is_completed(), "the task is {}", task.status.state);
    ensure!(task.says(&text), "the answer does not contain the question");
    Ok(task.id)
}

async fn get(connection: &mut Connection, n: u64, id: &str) -> anyhow::Result<Option<String>> {
    if let Some(grpc) = connection.grpc() {
        return grpc.get(id).await.map(|()| None);
    }
    let params = format!(r#"{{"id":"{id}"}}"#);
    let answer = connection.call(wire::request("GetTask", n, &params)).await?;
    let task: Task = wire::result(n, &answer)?;
    ensure!(task.id == id, "asked for {id}, got {}", task.id);
    ensure!(task.is_completed(), "the task is {}", task.status.state);
    Ok(None)
}

async fn list(connection: &mut Connection, n: u64) -> anyhow::Result<Option<String>> {
    let params = format!(r#"{{"pageSize":{PAGE}}}"#);
    let answer = connection.call(wire::request("ListTasks", n, &params)).await?;
    let Listed { tasks } = wire::result(n, &answer)?;
    ensure!(tasks.len() == PAGE, "asked for {PAGE} tasks, got {}", tasks.len());
    Ok(None)
}

/// Returns when the first frame came, having read all of them.
async fn stream(
    connection: &mut Connection,
    n: u64,
    text: &str,
    chunks: usize,
    data: &str,
    start: Instant,
) -> anyhow::Result<Duration> {
    let body = wire::message("SendStreamingMessage", n, text, data);
    let mut frames = Frames::new(connection.post(body, "text/event-stream").await?);
    let mut heard = Heard::default();
    let mut first = None;
    while let Some(frame) = frames.next().await? {
        first.get_or_insert_with(|| start.elapsed());
        heard.take(wire::result(n, &frame)?);
    }
    ensure!(heard.chunks == chunks, "{} chunks instead of {chunks}", heard.chunks);
    ensure!(heard.completed, "the stream ended before the task");
    first.context("a stream without frames")
}

impl Heard {
    fn take(&mut self, event: Event) {
        self.chunks += usize::from(event.artifact_update.is_some());
        // The last status counts: nothing may follow the terminal one.
        if let Some(update) = event.status_update {
            self.completed = update.status.state == wire::COMPLETED;
        }
    }
}

impl Frames {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, cutter: Cutter::default() }
    }

    /// The data of the next frame; comments and other fields are skipped.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            if let Some(data) = self.cutter.next() {
                return Ok(Some(data));
            }
            let Some(chunk) = self.body.frame().await else { return Ok(None) };
            if let Ok(bytes) = chunk?.into_data() {
                self.cutter.push(&bytes);
            }
        }
    }
}

impl Cutter {
    fn push(&mut self, bytes: &[u8]) {
        // Some servers end lines with CR LF. JSON never holds a bare CR.
        self.buffer.extend(bytes.iter().filter(|byte| **byte != b'\r'));
    }

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")? + 2;
            let rest = self.buffer.split_off(end);
            let frame = std::mem::replace(&mut self.buffer, rest);
            let mut lines = frame.split(|byte| *byte == b'\n');
            if let Some(data) = lines.find_map(|line| line.strip_prefix(b"data:")) {
                return Some(Bytes::copy_from_slice(data.trim_ascii()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_may_arrive_in_any_pieces() {
        let mut cutter = Cutter::default();
        for byte in b": hello\n\nid: 7\ndata: {\"a\":1}\n\ndata:" {
            cutter.push(&[*byte]);
        }
        assert_eq!(cutter.next().as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(cutter.next(), None);
        cutter.push(b"2\r\n\r\n");
        assert_eq!(cutter.next().as_deref(), Some(&b"2"[..]));
    }

    #[test]
    fn a_stream_that_goes_on_after_its_end_is_not_completed() {
        let mut heard = Heard::default();
        for state in [wire::COMPLETED, "TASK_STATE_WORKING"] {
            let event = format!(r#"{{"statusUpdate":{{"status":{{"state":"{state}"}}}}}}"#);
            heard.take(serde_json::from_str(&event).unwrap());
        }
        assert!(!heard.completed);
    }
}
