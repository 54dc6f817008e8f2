//! HTTP client for the OTLP collector.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use reqwest::{Certificate, redirect::Policy};
use tokio::{runtime::Handle, time::timeout};

/// The time limit of one batch.
const BATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a response.
const MAX_RESPONSE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Collector {
    connections: reqwest::Client,
    /// The runtime of the requests, since batches come from a thread without one.
    runtime: Handle,
    /// True if the last batch failed, so that a failure is logged once and not with every batch.
    failing: AtomicBool,
}

impl Collector {
    /// `roots`, in PEM, are trusted in addition to those of the system.
    pub(super) fn new(roots: Option<&[u8]>) -> anyhow::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            // Batches are seconds apart, and collectors close idle connections.
            .pool_idle_timeout(Duration::from_secs(20));
        if let Some(pem) = roots {
            let roots = Certificate::from_pem_bundle(pem).unwrap_or_default();
            ensure!(
                !roots.is_empty(),
                "the certificate file for the collector of traces contains no PEM certificate"
            );
            builder = builder.tls_certs_merge(roots);
        }
        let connections = builder.build().context("cannot create the client for traces")?;
        Ok(Self { connections, runtime: Handle::current(), failing: AtomicBool::new(false) })
    }

    fn note(&self, fault: Option<&str>) {
        let failed = fault.is_some();
        match (self.failing.swap(failed, Ordering::Relaxed), fault) {
            (false, Some(fault)) => {
                tracing::warn!(fault, "the collector of traces cannot be reached");
            }
            (true, None) => tracing::info!("the collector of traces can be reached again"),
            (true, Some(_)) | (false, None) => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let connections = self.connections.clone();
        let work = async { timeout(BATCH_TIMEOUT, post(connections, request)).await };
        let sent = self.runtime.spawn(work).await;
        let sent = sent.map_err(HttpError::from).and_then(|sent| sent?);
        match &sent {
            Ok(answer) if answer.status().is_success() => self.note(None),
            Ok(answer) => self.note(Some(answer.status().as_str())),
            Err(fault) => self.note(Some(&causes(&**fault))),
        }
        sent
    }
}

/// An error and its causes. The first alone does not say why a connection failed.
fn causes(fault: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(fault), |fault| fault.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn post(
    connections: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    // A URL may contain a secret.
    let shown = |fault: reqwest::Error| HttpError::from(fault.without_url());
    let sent = reqwest::Request::try_from(request)?;
    let mut answer = connections.execute(sent).await.map_err(shown)?;
    let mut head = Response::new(());
    *head.status_mut() = answer.status();
    *head.headers_mut() = answer.headers().clone();
    let mut body = BytesMut::new();
    while let Some(piece) = answer.chunk().await.map_err(shown)? {
        if body.len() + piece.len() > MAX_RESPONSE {
            return Err("the response is too long".into());
        }
        body.extend_from_slice(&piece);
    }
    Ok(head.map(|()| body.freeze()))
}
