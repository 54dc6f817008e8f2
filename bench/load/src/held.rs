//! Idle open streams, for measurements of the server's memory.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde::Serialize;
use tokio::io::{AsyncReadExt, stdin};

use crate::{
    args::Args,
    connection::{Connection, is_socket},
    exchange::Frames,
    socket::Socket,
    wire::{self, Event},
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// How many are being opened at a time: enough to be quick, too few to overrun a listen queue.
const OPENING: usize = 32;

/// An open stream, and the connection that would close with it.
enum Held {
    Http { frames: Frames, _connection: Box<Connection> },
    Socket(Box<Socket>),
}

#[derive(Serialize)]
struct Opened {
    mode: &'static str,
    open: usize,
    errors: usize,
    error: Option<String>,
    elapsed_s: f64,
}

#[derive(Serialize)]
struct Alive {
    alive: usize,
}

/// Prints one line when all are open, and one when standard input has ended and they are closed.
pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let start = Instant::now();
    let first_error = RefCell::new(None);
    let mut held: Vec<Held> = stream::iter(0..args.requests)
        .map(|n| open(args, n))
        .buffer_unordered(OPENING)
        .filter_map(async |opened| match opened {
            Ok(held) => Some(held),
            Err(error) => {
                first_error.borrow_mut().get_or_insert(format!("{error:#}"));
                None
            }
        })
        .collect()
        .await;
    let opened = Opened {
        mode: "open",
        open: held.len(),
        errors: args.requests as usize - held.len(),
        error: first_error.take(),
        elapsed_s: start.elapsed().as_secs_f64(),
    };
    println!("{}", serde_json::to_string(&opened)?);
    stdin().read_to_end(&mut Vec::new()).await?;
    let alive = held.iter_mut().map(Held::is_alive).filter(|alive| *alive).count();
    println!("{}", serde_json::to_string(&Alive { alive })?);
    Ok(())
}

/// Returns when the first frame is there. Its task never ends by itself, so a first frame proves that
/// the server does not wait for the end before it sends.
async fn open(args: &Args, n: u64) -> anyhow::Result<Held> {
    let opening = async {
        let body = wire::message("SendStreamingMessage", n, &format!("tck-cancel {n}"), "");
        let mut held = if is_socket(&args.url) {
            let mut socket = Box::new(Socket::open(&args.url).await?);
            socket.send(&body).await?;
            Held::Socket(socket)
        } else {
            let mut connection = Connection::open(&args.url).await?;
            let frames = Frames::new(connection.post(body, "text/event-stream").await?);
            Held::Http { frames, _connection: Box::new(connection) }
        };
        let first = held.next().await?.context("the stream ended at once")?;
        let _: Event = wire::result(n, &first)?;
        Ok(held)
    };
    let held = tokio::time::timeout(TIMEOUT, opening).await;
    ensure!(held.is_ok(), "no first frame within {TIMEOUT:?}");
    held?
}

impl Held {
    async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        match self {
            Self::Http { frames, .. } => frames.next().await,
            Self::Socket(socket) => socket.next().await,
        }
    }

    /// Whether the stream is still open, after everything that has arrived meanwhile.
    fn is_alive(&mut self) -> bool {
        loop {
            match self.next().now_or_never() {
                None => return true,
                Some(Ok(Some(_))) => {}
                Some(Ok(None) | Err(_)) => return false,
            }
        }
    }
}
