//! HTTP server with scripted answers, byte by byte.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

use crate::canary;

/// A server on a port of its own. Every connection carries one request.
#[derive(Debug, Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Received>>>,
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reaction {
    /// Send these bytes and hang up.
    Answer(Vec<u8>),
    /// Send these bytes and wait for the client to hang up.
    Hold(Vec<u8>),
    /// Send the first bytes, then the others for ever.
    Endless(Vec<u8>, Vec<u8>),
    /// Hang up without an answer.
    HangUp,
}

impl Fake {
    /// The closure gets the server's URL, and each request with the number of those before it.
    pub(crate) async fn start(
        answer: impl Fn(&str, usize, &Received) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        canary::watch_log();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Self { address, seen: Arc::default() };
        let (tasks, serving, answer) = (TaskTracker::new(), fake.clone(), Arc::new(answer));
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, answer) = (serving.clone(), Arc::clone(&answer));
                tasks.spawn(async move { serving.serve(stream, &*answer).await });
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, those for a card left out. None of them logged a secret.
    pub(crate) fn calls(&self) -> Vec<Received> {
        canary::check_log();
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|request| !request.is_card()).cloned().collect()
    }

    /// The requests for a card so far.
    pub(crate) fn cards(&self) -> Vec<Received> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|request| request.is_card()).cloned().collect()
    }

    async fn serve(
        self,
        mut stream: TcpStream,
        answer: &(impl Fn(&str, usize, &Received) -> Reaction + Sync),
    ) -> Option<()> {
        let request = Received::read(&mut stream).await?;
        let reaction = {
            let mut seen = self.seen.lock().unwrap();
            let before = seen.iter().filter(|one| one.is_card() == request.is_card()).count();
            seen.push(request.clone());
            answer(&self.url(), before, &request)
        };
        match reaction {
            Reaction::Answer(bytes) => stream.write_all(&bytes).await.ok(),
            Reaction::Hold(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                let _ = stream.read(&mut [0; 1]).await;
                Some(())
            }
            Reaction::Endless(head, bytes) => {
                stream.write_all(&head).await.ok()?;
                while stream.write_all(&bytes).await.is_ok() {}
                Some(())
            }
            Reaction::HangUp => None,
        }
    }
}

impl Received {
    pub(crate) fn is_card(&self) -> bool {
        self.path.split('?').next().is_some_and(|path| path.ends_with(".json"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    async fn read(stream: &mut TcpStream) -> Option<Self> {
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
        let mut first = lines.next()?.split(' ');
        let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
        let pair = |line: &str| {
            line.split_once(':').map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        };
        let headers = lines.filter_map(pair).collect();
        let mut request = Self { method, path, headers, body: bytes.split_off(end) };
        let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
        while request.body.len() < length {
            if stream.read_buf(&mut request.body).await.ok()? == 0 {
                return None;
            }
        }
        Some(request)
    }
}

/// A response with these headers.
pub(crate) fn response(status: u16, headers: &[(&str, &str)], body: &str) -> Reaction {
    let mut text = format!("HTTP/1.1 {status} Any\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    Reaction::Answer(text.into_bytes())
}

/// A response of JSON.
pub(crate) fn answer(status: u16, body: &Value) -> Reaction {
    response(status, &[("Content-Type", "application/json")], &body.to_string())
}

/// The answer to a JSON-RPC call.
pub(crate) fn result(request: &Received, result: &Value) -> Reaction {
    answer(200, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result }))
}

/// The start of a stream with these results for a JSON-RPC call.
pub(crate) fn stream(request: &Received, items: &[Value]) -> Vec<u8> {
    let id = &request.json()["id"];
    let items: Vec<_> =
        items.iter().map(|item| json!({ "jsonrpc": "2.0", "id": id, "result": item })).collect();
    events(&items)
}

/// The start of a stream of these events.
pub(crate) fn events(items: &[Value]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    for item in items {
        bytes.extend_from_slice(format!("data: {item}\n\n").as_bytes());
    }
    bytes
}

/// A card of 1.0 with these interfaces: URL, binding and version.
pub(crate) fn card(interfaces: &[(&str, &str, &str)]) -> Value {
    let interface = |(url, binding, version): &(&str, &str, &str)| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version });
    json!({
        "name": "fake", "description": "A fake", "version": "1",
        "capabilities": { "streaming": true },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
        "supportedInterfaces": interfaces.iter().map(interface).collect::<Vec<_>>(),
    })
}

/// The card of a fake with JSON-RPC 1.0.
pub(crate) fn rpc_card(url: &str) -> Reaction {
    answer(200, &card(&[(url, "JSONRPC", "1.0")]))
}

/// A task in this state.
pub(crate) fn task(id: &str, state: &str) -> Value {
    json!({ "id": id, "contextId": "c", "status": { "state": format!("TASK_STATE_{state}") } })
}

/// A change of a task's state.
pub(crate) fn status(id: &str, state: &str) -> Value {
    let status = json!({ "state": format!("TASK_STATE_{state}") });
    json!({ "statusUpdate": { "taskId": id, "contextId": "c", "status": status } })
}

/// A piece of a task's artifact.
pub(crate) fn piece(id: &str, text: &str) -> Value {
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": text }] });
    json!({ "artifactUpdate": { "taskId": id, "contextId": "c", "artifact": artifact, "append": true } })
}
