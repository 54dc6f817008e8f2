//! The way to a collector: plain HTTP, one connection per batch.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::{net::TcpStream, runtime::Handle, task::JoinSet, time::timeout};

/// How long one batch may take.
const BATCH: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const ANSWER: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Collector {
    /// Batches come from a thread that has none.
    runtime: Handle,
    /// Whether the last batch was lost, so that it is said once and not with every batch.
    failing: AtomicBool,
}

impl Collector {
    pub(super) fn new() -> Self {
        Self { runtime: Handle::current(), failing: AtomicBool::new(false) }
    }

    fn note(&self, fault: Option<&str>) {
        let failed = fault.is_some();
        match (self.failing.swap(failed, Ordering::Relaxed), fault) {
            (false, Some(fault)) => tracing::warn!(fault, "traces do not reach their collector"),
            (true, None) => tracing::info!("traces reach their collector again"),
            (true, Some(_)) | (false, None) => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let work = async { timeout(BATCH, post(request)).await };
        let sent = self.runtime.spawn(work).await;
        let sent = sent.map_err(HttpError::from).and_then(|sent| sent?);
        match &sent {
            Ok(answer) if answer.status().is_success() => self.note(None),
            Ok(answer) => self.note(Some(answer.status().as_str())),
            Err(fault) => self.note(Some(&fault.to_string())),
        }
        sent
    }
}

async fn post(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (mut head, body) = request.into_parts();
    let authority = head.uri.authority().ok_or("the collector's URL names no host")?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // Whoever waits for the answer is told.
        let _ = connection.await;
    });
    head.headers.insert(header::HOST, HeaderValue::try_from(authority.as_str())?);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = Uri::try_from(path)?;
    let answer = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}
