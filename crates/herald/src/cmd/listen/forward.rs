//! Forwarding of verified webhooks to another URL.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode, header};
use reqwest::{Client, Url, redirect::Policy};

use crate::client::error::{CliError, sentence};

/// The time limit of a request, below that of the sender's connection.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(20);

/// Headers of one connection, which are not passed on.
const CONNECTION_HEADERS: [HeaderName; 9] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
];

/// A client for one URL.
#[derive(Debug)]
pub(super) struct Forwarder {
    client: Client,
    url: Url,
}

impl Forwarder {
    pub(super) fn new(url: &Url) -> Result<Self, CliError> {
        let client = http_client().map_err(|error| CliError::internal(sentence(&error)))?;
        Ok(Self { client, url: url.clone() })
    }

    /// Posts a webhook. Returns the status of the answer, and the reason if there is none.
    pub(super) async fn post(
        &self,
        headers: &HeaderMap,
        body: Bytes,
    ) -> (StatusCode, Option<String>) {
        let mut headers = headers.clone();
        for name in CONNECTION_HEADERS {
            headers.remove(name);
        }
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        match request.timeout(FORWARD_TIMEOUT).send().await {
            Ok(response) => (response.status(), None),
            Err(error) if error.is_timeout() => {
                let reason = "the receiver behind --forward did not answer within 20 seconds";
                (StatusCode::GATEWAY_TIMEOUT, Some(reason.to_owned()))
            }
            Err(error) => {
                let why = sentence(&error.without_url());
                (StatusCode::BAD_GATEWAY, Some(format!("cannot forward the webhook: {why}")))
            }
        }
    }
}

/// Redirects and proxies could lead webhooks and keys to other places.
pub(super) fn http_client() -> Result<Client, reqwest::Error> {
    Client::builder().redirect(Policy::none()).no_proxy().build()
}
