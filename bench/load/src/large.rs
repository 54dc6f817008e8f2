//! Large messages of one shape, all at once: how many are served and how many are refused.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures::future::join_all;
use hyper::Uri;
use serde::{Serialize, de::IgnoredAny};
use uuid::Uuid;

use crate::{
    args::Args,
    connection::{Connection, is_grpc},
    protobuf,
    shapes::{DEPTH, Shape},
    wire,
};

/// A server under memory pressure may let callers wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// One level of JSON is up to three of protobuf, whose readers allow 100.
const GRPC_DEPTH: usize = 24;

/// The printed table.
#[derive(Serialize)]
struct Report {
    /// Of one request on the wire.
    bytes: usize,
    served: usize,
    refused: usize,
    error: Option<String>,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<()> {
    let shape = Shape::ALL.into_iter().find(|shape| Some(shape.name()) == args.shape.as_deref());
    let shape = shape.context("--shape is missing or unknown")?;
    let bodies = (0..args.requests).map(|_| body(&args.url, shape, args.bytes));
    let bodies: Vec<Bytes> = bodies.collect::<anyhow::Result<_>>()?;
    let bytes = bodies.iter().map(Bytes::len).max().unwrap_or_default();
    let sends = bodies.into_iter().map(|body| async {
        let sent = tokio::time::timeout(TIMEOUT, send(&args.url, body)).await;
        sent.unwrap_or_else(|_| anyhow::bail!("no answer within {TIMEOUT:?}"))
    });
    let results = join_all(sends).await;
    let served = results.iter().filter(|result| result.is_ok()).count();
    let error = results.iter().find_map(|result| result.as_ref().err());
    let error = error.map(|error| format!("{error:#}").chars().take(200).collect());
    let report = Report { bytes, served, refused: results.len() - served, error };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// One request of at most `bytes` bytes, with a message that no server has seen before.
fn body(url: &Uri, shape: Shape, bytes: usize) -> anyhow::Result<Bytes> {
    let id = Uuid::new_v4().to_string();
    if is_grpc(url) {
        let encode = |bytes| {
            let message = shape.message(&id, bytes, GRPC_DEPTH);
            protobuf::send_request(&serde_json::from_str(&message)?)
        };
        let size = encode(bytes)?.len() as f64;
        // Protobuf is of another size than JSON, and in the same ratio for a shorter message.
        return Ok(encode((bytes as f64 * (bytes as f64 / size) * 0.999) as usize)?.into());
    }
    // Space for the envelope of the message.
    let message = shape.message(&id, bytes - 100, DEPTH);
    if is_rest(url) {
        return Ok(format!(r#"{{"message":{message}}}"#).into());
    }
    Ok(wire::request("SendMessage", 1, &format!(r#"{{"message":{message}}}"#)))
}

async fn send(url: &Uri, body: Bytes) -> anyhow::Result<()> {
    let mut connection = Connection::open(url).await?;
    if let Some(grpc) = connection.grpc() {
        return grpc.call("SendMessage", &body).await.map(drop);
    }
    let answer = connection.call(body).await?;
    if is_rest(url) {
        ensure!(answer.starts_with(br#"{"task""#), "no task");
        return Ok(());
    }
    wire::result::<IgnoredAny>(1, &answer).map(drop)
}

fn is_rest(url: &Uri) -> bool {
    url.path().ends_with("/message:send")
}
