//! Redirect listener of a browser login: a loopback port for one request (RFC 8252).

use std::time::Duration;

use aws_lc_rs::{digest, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Url;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

use crate::{error::Error, proof::Secret};

/// Largest request, in bytes.
const LIMIT: usize = 16 << 10;
/// Limit of concurrent connections, and the timeout of a request on each.
const VISITS: usize = 16;
const VISIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Redirect {
    listener: TcpListener,
    pub(super) url: String,
}

/// The parameters of the redirect.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) code: Secret,
    /// The issuer of the code.
    pub(super) issuer: Option<String>,
}

impl Redirect {
    pub(super) async fn listen() -> Result<Self, Error> {
        let fault = |fault| Error::setup(format!("no port can be opened for the browser: {fault}"));
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        Ok(Self { listener, url: format!("http://{address}/callback") })
    }

    /// Waits for the redirect and returns its code. Requests with another `state` are refused.
    pub(super) async fn answer(&self, state: &str) -> Result<Visit, Error> {
        // Browsers open spare connections without a request.
        let mut visits = JoinSet::new();
        loop {
            let visit = tokio::select! {
                Some(visit) = visits.join_next() => visit,
                accepted = self.listener.accept(), if visits.len() < VISITS => {
                    let fault = |fault| Error::broken("no connection of the browser can be accepted", fault);
                    let (stream, _) = accepted.map_err(fault)?;
                    visits.spawn(timeout(VISIT, target(stream)));
                    continue;
                }
            };
            let Ok(Ok(Some((mut stream, url)))) = visit else { continue };
            let get = |name: &str| {
                let mut pairs = url.query_pairs();
                pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
            };
            if url.path() != "/callback" || get("state").as_deref() != Some(state) {
                answer(
                    &mut stream,
                    "404 Not Found",
                    "Unknown request: the path or the state does not match.",
                )
                .await;
                continue;
            }
            return match get("code") {
                Some(code) => {
                    answer(&mut stream, "200 OK", "You are logged in and can close this page.")
                        .await;
                    Ok(Visit { code: Secret::new(code), issuer: get("iss") })
                }
                None => {
                    answer(&mut stream, "200 OK", "The login failed; you can close this page.")
                        .await;
                    let why = get("error").unwrap_or_default();
                    let why: String = why.chars().filter(|c| !c.is_control()).take(100).collect();
                    Err(Error::setup(format!("the login failed: {why}")))
                }
            };
        }
    }
}

/// The target of a request.
async fn target(mut stream: TcpStream) -> Option<(TcpStream, Url)> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > LIMIT || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = std::str::from_utf8(&head).ok()?.lines().next()?;
    let target = line.strip_prefix("GET ")?.split(' ').next()?;
    let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
    Some((stream, url))
}

async fn answer(stream: &mut TcpStream, status: &str, text: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    // A failed write does not matter: the code has arrived.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// 256 random bits as text.
pub(super) fn random() -> String {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).expect("the system has randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The code challenge of a verifier (RFC 7636).
pub(super) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}
