//! Fake upstream agents that answer with raw bytes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::Notify,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// An agent over JSON-RPC 1.0 with scripted answers. Every connection has one request.
#[derive(Debug)]
pub(crate) struct Raw {
    url: String,
    calls: Arc<Mutex<Vec<Received>>>,
    _serving: JoinSet<()>,
}

/// A call as received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) text: String,
    /// The text, if it is JSON.
    pub(crate) body: Value,
}

/// The reaction to a call.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    /// Send these bytes and close the connection.
    Close(Vec<u8>),
    /// Send these bytes, wait until the test says so, and send the others.
    Then(Vec<u8>, Arc<Notify>, Vec<u8>),
    /// Send the first bytes, then the others for ever.
    Endless(Vec<u8>, Vec<u8>),
}

impl Raw {
    pub(crate) async fn start(
        answer: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::guarded(&json!({}), answer).await
    }

    /// An agent with these members in its card; `{}` is replaced by its own URL.
    pub(crate) async fn guarded(
        card: &Value,
        answer: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::serving(None, card, answer).await
    }

    /// An agent with TLS.
    pub(crate) async fn secure(
        tls: TlsAcceptor,
        card: &Value,
        answer: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::serving(Some(tls), card, answer).await
    }

    /// An agent without streaming.
    pub(crate) async fn silent(
        answer: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        Self::guarded(&json!({ "capabilities": { "streaming": false } }), answer).await
    }

    async fn serving(
        tls: Option<TlsAcceptor>,
        also: &Value,
        answer: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
        let card = card(&url, also);
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen, card) = (Arc::new(answer), Arc::clone(&calls), Arc::new(card));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                let (card, tls) = (Arc::clone(&card), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, &card, &*answer, &seen).await,
                        Some(tls) => {
                            serve(tls.accept(stream).await.ok()?, &card, &*answer, &seen).await
                        }
                    }
                });
            }
        });
        Self { url, calls, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Every request so far, also those for its card.
    pub(crate) fn all(&self) -> Vec<Received> {
        self.calls.lock().unwrap().clone()
    }

    /// The calls of this method so far.
    pub(crate) fn calls(&self, method: &str) -> Vec<Received> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|call| call.body["method"] == method).cloned().collect()
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    card: &str,
    answer: &(impl Fn(&Received) -> Reaction + Sync),
    seen: &Mutex<Vec<Received>>,
) -> Option<()> {
    let received = read(&mut stream).await?;
    seen.lock().unwrap().push(received.clone());
    if received.path.ends_with(".json") {
        let head =
            format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}", card.len());
        return stream.write_all(format!("{head}\r\n\r\n{card}").as_bytes()).await.ok();
    }
    match answer(&received) {
        Reaction::Close(bytes) => stream.write_all(&bytes).await.ok(),
        Reaction::Then(bytes, go, rest) => {
            stream.write_all(&bytes).await.ok()?;
            go.notified().await;
            stream.write_all(&rest).await.ok()
        }
        Reaction::Endless(head, bytes) => {
            stream.write_all(&head).await.ok()?;
            while stream.write_all(&bytes).await.is_ok() {}
            Some(())
        }
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let pair = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
    };
    let headers: HashMap<_, _> = lines.filter_map(pair).collect();
    let mut body = bytes.split_off(end);
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8(body).unwrap();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Some(Received { path, headers, text, body })
}

fn card(url: &str, also: &Value) -> String {
    let mut card = json!({
        "name": "raw", "description": "Bytes", "version": "1",
        "capabilities": { "streaming": true },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    });
    card.as_object_mut().unwrap().extend(also.as_object().unwrap().clone());
    card.to_string().replace("{}/", &format!("{url}/"))
}

/// A whole answer.
pub(crate) fn result(call: &Received, result: &Value) -> Reaction {
    let body = json!({ "jsonrpc": "2.0", "id": call.body["id"], "result": result }).to_string();
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json";
    let length = body.len();
    Reaction::Close(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes())
}

/// The head of a stream and its first items.
pub(crate) fn stream(call: &Received, items: &[Value]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n";
    [head.as_bytes(), &more(call, items)].concat()
}

/// Further items of a stream.
pub(crate) fn more(call: &Received, items: &[Value]) -> Vec<u8> {
    let id = &call.body["id"];
    let item = |item: &Value| {
        format!("data: {}\n\n", json!({ "jsonrpc": "2.0", "id": id, "result": item }))
    };
    items.iter().map(item).collect::<String>().into_bytes()
}

pub(crate) fn task(state: &str) -> Value {
    json!({ "id": "t", "contextId": "c", "status": { "state": format!("TASK_STATE_{state}") } })
}

pub(crate) fn whole(state: &str) -> Value {
    json!({ "task": task(state) })
}

pub(crate) fn status(task: &str, state: &str) -> Value {
    let status = json!({ "state": format!("TASK_STATE_{state}") });
    json!({ "statusUpdate": { "taskId": task, "contextId": "c", "status": status } })
}

/// A chunk of an artifact; `how` has `append` and `lastChunk`.
pub(crate) fn piece(task: &str, text: &str, how: (bool, bool)) -> Value {
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": text }] });
    let (append, last) = how;
    json!({ "artifactUpdate": {
        "taskId": task, "contextId": "c", "artifact": artifact, "append": append, "lastChunk": last,
    } })
}
