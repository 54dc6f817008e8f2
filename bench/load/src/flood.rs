//! Floods: connections from another loopback address that stay silent, drip, or send what nobody asked for,
//! until the server closes them.

use std::{
    cell::Cell,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use serde::Serialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream, tcp::OwnedWriteHalf},
    time::{sleep, timeout},
};

use crate::args::Args;

/// The host that floods. Limits by address take it for another one than 127.0.0.1.
const HOST: [u8; 4] = [127, 0, 0, 66];

/// A connection that is open for longer is closed here, and counts as not closed by the server.
const PATIENCE: Duration = Duration::from_secs(120);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Resets in one write.
const RESETS: u32 = 100;

#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Sends nothing.
    Silent,
    /// Opens HTTP/2 and sends no request.
    SilentHttp2,
    /// Sends a byte of a header each second.
    SlowHead,
    /// Sends a byte of a body each second.
    SlowBody,
    /// Sends headers without end.
    Headers,
    /// Sends a body without end.
    Bodies,
    /// Sends pings without end.
    Pings,
    /// Begins requests and resets them.
    Resets,
}

#[derive(Serialize)]
struct Flooded {
    connections: u64,
    /// Connections that the server closed.
    closed: u64,
    /// The longest time that one was open.
    longest_s: f64,
    /// Requests that were reset.
    resets: u64,
    elapsed_s: f64,
}

/// One connection.
struct Visit {
    open: Duration,
    closed: bool,
    resets: u64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let shape = Shape::parse(args.shape.as_deref().unwrap_or_default())?;
    let address = SocketAddr::new(
        args.url.host().context("--url has no host")?.parse()?,
        args.url.port_u16().context("--url has no port")?,
    );
    let begun = Instant::now();
    let (resets, wanted) = (Cell::new(0), args.requests);
    let visits = stream::iter(0..).map(|_| visit(shape, address));
    let visits = visits.buffer_unordered(args.concurrency.max(1) as usize);
    let mut flooded =
        Flooded { connections: 0, closed: 0, longest_s: 0.0, resets: 0, elapsed_s: 0.0 };
    let mut visits = Box::pin(visits.take_while(|_| {
        let is_done = shape == Shape::Resets && resets.get() >= wanted;
        async move { !is_done }
    }));
    while let Some(visit) = visits.next().await {
        // A connection that could not be opened was refused by the system.
        let Ok(visit) = visit else { continue };
        flooded.connections += 1;
        flooded.closed += u64::from(visit.closed);
        flooded.longest_s = flooded.longest_s.max(visit.open.as_secs_f64());
        flooded.resets += visit.resets;
        resets.set(flooded.resets);
        if shape != Shape::Resets && flooded.connections >= wanted {
            break;
        }
    }
    flooded.elapsed_s = begun.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&flooded)?);
    Ok(())
}

async fn visit(shape: Shape, address: SocketAddr) -> anyhow::Result<Visit> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((HOST, 0).into())?;
    let stream: TcpStream = socket.connect(address).await?;
    let begun = Instant::now();
    let (mut read, mut write) = stream.into_split();
    let closed = async {
        let mut buffer = [0; 4096];
        while matches!(read.read(&mut buffer).await, Ok(read) if read > 0) {}
    };
    let resets = Cell::new(0);
    let sending = async {
        // An error is the end of the connection, which the other half sees too.
        let _ = shape.send(&mut write, &resets).await;
        std::future::pending::<()>().await;
    };
    let ended = timeout(PATIENCE, async {
        tokio::select! {
            () = closed => {}
            () = sending => {}
        }
    });
    let closed = ended.await.is_ok();
    Ok(Visit { open: begun.elapsed(), closed, resets: resets.get() })
}

impl Shape {
    fn parse(name: &str) -> anyhow::Result<Self> {
        Ok(match name {
            "silent" => Self::Silent,
            "silent-http2" => Self::SilentHttp2,
            "slow-head" => Self::SlowHead,
            "slow-body" => Self::SlowBody,
            "headers" => Self::Headers,
            "bodies" => Self::Bodies,
            "pings" => Self::Pings,
            "resets" => Self::Resets,
            _ => bail!("unknown --shape {name}"),
        })
    }

    /// Sends until the connection ends, or all that the shape has.
    async fn send(self, write: &mut OwnedWriteHalf, resets: &Cell<u64>) -> std::io::Result<()> {
        let post = "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\
                    Content-Type: application/json\r\n";
        match self {
            Self::Silent => Ok(()),
            Self::SilentHttp2 => write.write_all(PREFACE).await,
            Self::SlowHead => {
                write.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await?;
                drip(write).await
            }
            Self::SlowBody => {
                write
                    .write_all(format!("{post}Content-Length: 4000000\r\n\r\n").as_bytes())
                    .await?;
                drip(write).await
            }
            Self::Headers => {
                write.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n").await?;
                repeat(write, "X-Header: value\r\n".repeat(1000).as_bytes()).await
            }
            Self::Bodies => {
                write
                    .write_all(format!("{post}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
                    .await?;
                let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                repeat(write, chunk.as_bytes()).await
            }
            Self::Pings => {
                write.write_all(PREFACE).await?;
                repeat(write, &PING.repeat(1000)).await
            }
            Self::Resets => {
                write.write_all(PREFACE).await?;
                let mut next = 1;
                loop {
                    let mut frames = Vec::new();
                    for _ in 0..RESETS {
                        frames.extend(begun_and_reset(next));
                        next += 2;
                    }
                    write.write_all(&frames).await?;
                    resets.set(resets.get() + u64::from(RESETS));
                }
            }
        }
    }
}

async fn drip(write: &mut OwnedWriteHalf) -> std::io::Result<()> {
    loop {
        sleep(Duration::from_secs(1)).await;
        write.write_all(b"x").await?;
    }
}

async fn repeat(write: &mut OwnedWriteHalf, bytes: &[u8]) -> std::io::Result<()> {
    loop {
        write.write_all(bytes).await?;
    }
}

/// The frames of a request on this stream that is reset at once.
fn begun_and_reset(stream: u32) -> Vec<u8> {
    // POST, http, / and the authority, by their places in the table of HPACK.
    let block = b"\x83\x86\x84\x41\x09localhost";
    let [a, b, c, d] = stream.to_be_bytes();
    let mut frames = vec![0, 0, block.len() as u8, 1, 4, a, b, c, d];
    frames.extend_from_slice(block);
    frames.extend([0, 0, 4, 3, 0, a, b, c, d, 0, 0, 0, 8]);
    frames
}
