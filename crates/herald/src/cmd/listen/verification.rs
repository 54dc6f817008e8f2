//! Verifier of the receiver, from its arguments.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use herald_client::WebhookVerifier;
use http_body_util::{BodyExt, Limited};
use reqwest::{Body, Url};
use tokio::time::timeout;

use super::forward::http_client;
use crate::{
    args::Listen,
    client::error::{CliError, CliErrorKind, sentence},
};

/// The most bytes of a set of keys.
const LARGEST_KEYS: usize = 256 << 10;
/// The time limit of the request for keys.
const KEYS_TIMEOUT: Duration = Duration::from_secs(10);

/// A verifier with the token and the keys of the arguments.
pub(super) async fn verifier(args: &Listen) -> Result<WebhookVerifier, CliError> {
    let wrong = |error: herald_client::Error| CliError::usage(error.to_string());
    let mut verifier = WebhookVerifier::new();
    if let Some(token) = &args.token {
        verifier = verifier.token(&token.0);
    }
    for secret in &args.secret {
        verifier = verifier.secret(&secret.0).map_err(wrong)?;
    }
    for key in &args.public_key {
        verifier = verifier.public_key(key).map_err(wrong)?;
    }
    if let Some(url) = &args.jwks {
        let url = key_set_url(url)?;
        let keys = fetch(&url).await?;
        let fault = |error| CliError::internal(format!("{url}: {error}"));
        verifier = verifier.jwks(keys).map_err(fault)?;
    }
    Ok(if args.is_verified() { verifier } else { verifier.danger_accept_anyone() })
}

/// The URL of a key set; for a server without a path, its well-known one.
fn key_set_url(url: &Url) -> Result<Url, CliError> {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse();
    let is_local = host == "localhost" || address.is_ok_and(|ip: IpAddr| ip.is_loopback());
    if url.scheme() != "https" && !(url.scheme() == "http" && is_local) {
        let text = format!("keys from {url} cannot be trusted: anyone on the way can replace them");
        return Err(CliError::usage(text).hint("use https, or a server on this machine"));
    }
    let mut url = url.clone();
    if url.path() == "/" {
        url.set_path("/.well-known/jwks.json");
    }
    Ok(url)
}

async fn fetch(url: &Url) -> Result<Bytes, CliError> {
    let unreachable = |why: &str| {
        let text = format!("the keys at {url} cannot be fetched: {why}");
        CliError::new(CliErrorKind::Unreachable, text).hint("is the server running?")
    };
    let lost = |error: reqwest::Error| unreachable(&sentence(&error.without_url()));
    let request = async {
        let response = http_client().map_err(lost)?.get(url.clone()).send().await.map_err(lost)?;
        if !response.status().is_success() {
            return Err(unreachable(&format!("the response is {}", response.status())));
        }
        let body = Limited::new(Body::from(response), LARGEST_KEYS).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| unreachable(&sentence(&*error)))
    };
    let late = |_| unreachable("there is no answer within 10 seconds");
    timeout(KEYS_TIMEOUT, request).await.map_err(late)?
}
