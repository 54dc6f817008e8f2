//! The command line.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use hyper::Uri;

use crate::exchange::Kind;

const USAGE: &str = "usage: load MODE --url http://HOST:PORT/PATH --requests N --concurrency N
  send    blocking sends, each answered with the completed task
  fill    the same without latency figures, to create N tasks
  get     reads the tasks named in --ids, in a scattered order
  list    reads the first page of 50 tasks
  stream  streams of 10 chunks
  live    streams of 200 chunks, one each 50 ms, as language models make them
  open    opens N streams, says so, and holds them until standard input ends
  large   N messages of --bytes bytes and of one --shape, all at once; with a path that ends in
          message:send over REST
  turns   N turns of one task, each with --bytes bytes of text
  flood   N connections of a --shape from another address, or N resets, until the server closes them
  workers N tasks of a role, which --concurrency workers register for and take; goes on after a line on
          standard input
  A URL that begins with grpc:// sends and gets over gRPC, all on one connection, as its clients do;
  with grpc-each:// each of those at once has a connection to itself.
  A URL that begins with ws:// sends and opens over WebSockets, one stream on each.
  --ids FILE   send and fill append the ids of the tasks they made; get reads them
  --data N     send, fill and stream add a data part of about N bytes to each message
  --shape S    objects, arrays, numbers, strings, nested, metadata or parts; of a flood silent, silent-http2,
               slow-head, slow-body, headers, bodies, pings or resets
  --pause MS   the pause after each exchange of a connection
  --bytes N    the size of a large message or of the text of a turn
  LOAD_TOKEN   the bearer token of requests over HTTP/1.1
  LOAD_WEBHOOK the webhook of each message: a URL, or several with commas between them, which take turns";

pub(crate) struct Args {
    pub(crate) mode: Mode,
    pub(crate) url: Uri,
    pub(crate) requests: u64,
    pub(crate) concurrency: u64,
    pub(crate) ids: Option<PathBuf>,
    pub(crate) data: usize,
    pub(crate) shape: Option<String>,
    pub(crate) bytes: usize,
    pub(crate) pause: Duration,
}

#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// A number of requests with an end to each.
    Exchange(Kind),
    /// Streams that stay open.
    Open,
    /// Large messages, all at once.
    Large,
    /// Turns of one task.
    Turns,
    /// Connections without good requests.
    Flood,
    /// Workers of a role.
    Workers,
}

impl Args {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mode = Mode::parse(&words.next().context(USAGE)?)?;
        let (mut url, mut ids, mut shape) = (None, None, None);
        let (mut data, mut bytes) = (0, 4 << 20);
        let (mut requests, mut concurrency, mut pause) = (1000, 1, 0);
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--url" => url = Some(value.parse().context("--url is not a URL")?),
                "--requests" => requests = value.parse().context("--requests is not a number")?,
                "--concurrency" => {
                    concurrency = value.parse().context("--concurrency is not a number")?;
                }
                "--ids" => ids = Some(value.into()),
                "--data" => data = value.parse().context("--data is not a number")?,
                "--shape" => shape = Some(value),
                "--bytes" => bytes = value.parse().context("--bytes is not a number")?,
                "--pause" => pause = value.parse().context("--pause is not a number")?,
                _ => bail!("unknown option {word}\n{USAGE}"),
            }
        }
        let url = url.context("--url is missing")?;
        let pause = Duration::from_millis(pause);
        Ok(Self { mode, url, requests, concurrency, ids, data, shape, bytes, pause })
    }
}

impl Mode {
    fn parse(word: &str) -> anyhow::Result<Self> {
        Ok(match word {
            "send" | "fill" => Self::Exchange(Kind::Send),
            "get" => Self::Exchange(Kind::Get),
            "list" => Self::Exchange(Kind::List),
            "stream" => Self::Exchange(Kind::Stream),
            "live" => Self::Exchange(Kind::Live),
            "open" => Self::Open,
            "large" => Self::Large,
            "turns" => Self::Turns,
            "flood" => Self::Flood,
            "workers" => Self::Workers,
            _ => bail!("unknown mode {word}\n{USAGE}"),
        })
    }
}
