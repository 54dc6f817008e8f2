//! Receiver of webhooks in this process: counts deliveries and notes how late they are, or never answers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A receiver on a port of its own. Its threads end with this process.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    deliveries: u64,
    /// Milliseconds from the last status of a task to the arrival of its delivery.
    late_ms: Vec<f64>,
}

impl Receiver {
    /// Answers each delivery with 200.
    pub(crate) fn start() -> anyhow::Result<Self> {
        Self::with(answer)
    }

    /// Accepts connections and never answers.
    pub(crate) fn hanging() -> anyhow::Result<Self> {
        Self::with(|socket, _| {
            let mut socket = socket;
            // Until the sender gives up.
            drop(socket.read_to_end(&mut Vec::new()));
            Ok(())
        })
    }

    fn with(serve: fn(TcpStream, &Mutex<Seen>) -> anyhow::Result<()>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::default());
        let all = Arc::clone(&seen);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let seen = Arc::clone(&all);
                // An error is a connection that the sender closed.
                thread::spawn(move || drop(serve(socket, &seen)));
            }
        });
        Ok(Self { address, seen })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The number of deliveries until now.
    pub(crate) fn deliveries(&self) -> u64 {
        lock(&self.seen).deliveries
    }

    /// Forgets the deliveries, and returns their delays in milliseconds, the shortest first.
    pub(crate) fn take_delays(&self) -> Vec<f64> {
        let mut late = std::mem::take(&mut *lock(&self.seen)).late_ms;
        late.sort_by(f64::total_cmp);
        late
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(socket: TcpStream, seen: &Mutex<Seen>) -> anyhow::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut socket = socket;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().context("the length of a delivery")?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let late = late_ms(&String::from_utf8_lossy(&body));
        let mut seen = lock(seen);
        seen.deliveries += 1;
        seen.late_ms.extend(late);
        drop(seen);
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}

/// The delay of the delivery of a completed task.
#[expect(
    clippy::disallowed_methods,
    reason = "the delay is the difference to a time of the server, on the same machine"
)]
fn late_ms(body: &str) -> Option<f64> {
    if !body.contains("TASK_STATE_COMPLETED") {
        return None;
    }
    let at = body.rfind("\"timestamp\":\"")? + "\"timestamp\":\"".len();
    // As in 2026-11-18T00:42:38.976Z: the time of the day is enough.
    let time = body.get(at + 11..at + 23)?;
    let (hours, rest) = time.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':')?;
    let minutes = hours.parse::<f64>().ok()? * 60.0 + minutes.parse::<f64>().ok()?;
    let then = (minutes * 60.0 + seconds.parse::<f64>().ok()?) * 1000.0;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64() * 1000.0;
    let day = DAY_MS as f64;
    Some((now.rem_euclid(day) - then).rem_euclid(day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_task_has_a_delay() {
        assert_eq!(late_ms(r#"{"status":{"state":"TASK_STATE_WORKING"}}"#), None);
        let late =
            late_ms(r#"{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-18T00:42:38.976Z"}"#);
        assert!((0.0..DAY_MS as f64).contains(&late.unwrap()));
    }
}
