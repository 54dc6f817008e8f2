//! The client verbs of the binary under test, and agents that misbehave.

use std::{
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt, net::TcpListener, process::Command, task::JoinHandle, time::timeout,
};

use crate::{
    canary,
    support::{Ended, Herald, Options, SOON},
};

/// One run of `herald`, in a directory of its own and with a clean environment.
#[derive(Debug)]
pub(crate) struct Run {
    command: Command,
    stdin: Option<Vec<u8>>,
    _home: Arc<tempfile::TempDir>,
}

/// Begins a run.
pub(crate) fn cli<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Run {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.args(arguments).current_dir(home.path()).env_clear().env("HOME", home.path());
    Run { command, stdin: None, _home: Arc::new(home) }
}

impl Run {
    /// With a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// In this directory.
    pub(crate) fn at(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// With this on standard input.
    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// The process itself, for tests that look at it while it runs.
    pub(crate) fn spawn(mut self) -> tokio::process::Child {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.kill_on_drop(true).spawn().unwrap()
    }

    /// The process, with a pipe as its standard input.
    pub(crate) fn piped(mut self) -> tokio::process::Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.kill_on_drop(true).spawn().unwrap()
    }

    /// Runs it to its end, whatever that is.
    pub(crate) async fn end(mut self) -> Ended {
        let stdin = self.stdin.take();
        self.command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = self.command.spawn().unwrap();
        if let Some(bytes) = stdin {
            child.stdin.take().unwrap().write_all(&bytes).await.unwrap();
        }
        let output = timeout(SOON, child.wait_with_output()).await.expect("it ends in time");
        let output = output.unwrap();
        canary::scan("the output of a command", &output.stdout);
        canary::scan("the errors of a command", &output.stderr);
        let ended = Ended {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        ended
    }

    /// Runs it to its end, which must be a success.
    pub(crate) async fn ok(self) -> Ended {
        let ended = self.end().await;
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        ended
    }

    /// Runs it with `-o json` and returns the document.
    pub(crate) async fn json(mut self) -> Value {
        self.command.args(["-o", "json"]);
        let ended = self.ok().await;
        serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    }

    /// Runs it with `-o json` and checks how it failed: by status and code. Returns the error.
    pub(crate) async fn fails(mut self, status: i32, code: &str) -> Value {
        self.command.args(["-o", "json"]);
        let ended = self.end().await;
        assert_eq!(ended.status.code(), Some(status), "{ended:?}");
        let document: Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
        assert_eq!(document["error"]["code"], code, "{ended:?}");
        assert!(document["error"]["message"].is_string());
        document["error"].clone()
    }
}

impl Ended {
    /// The value of the first field with this label.
    pub(crate) fn field(&self, label: &str) -> &str {
        let found = self.stdout.lines().find_map(|line| line.strip_prefix(&format!("{label}: ")));
        found.unwrap_or_else(|| panic!("no {label:?} in {self:?}"))
    }

    /// The documents of a stream of lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"));
        self.stdout.lines().map(read).collect()
    }
}

/// A server with `echo` at the root and the `conformance` agent.
pub(crate) async fn herald() -> Herald {
    Herald::start(Options::agents()).await
}

/// The reference of the `conformance` agent.
pub(crate) fn steered(herald: &Herald) -> String {
    format!("http://{}/agents/conformance", herald.address)
}

/// A fake HTTP server, for behaviour that Herald does not have.
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    server: JoinHandle<()>,
}

/// A request that a fake got.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
    /// The body as it came.
    pub(crate) text: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_card(&self) -> bool {
        self.path.ends_with(".json")
    }
}

impl Fake {
    /// `answer` is given the server's URL and the request.
    pub(crate) async fn start(
        answer: impl Fn(&str, &Received) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (answer, log, own) = (Arc::new(answer), Arc::clone(&received), url.clone());
        let server = tokio::task::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (answer, log, own) = (Arc::clone(&answer), Arc::clone(&log), own.clone());
                tokio::task::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answer, log, own) =
                            (Arc::clone(&answer), Arc::clone(&log), own.clone());
                        async move {
                            let (head, body) = request.into_parts();
                            let bytes = body.collect().await?.to_bytes();
                            let received = Received {
                                method: head.method.to_string(),
                                path: head.uri.to_string(),
                                headers: head.headers,
                                body: serde_json::from_slice(&bytes).unwrap_or_default(),
                                text: String::from_utf8_lossy(&bytes).into_owned(),
                            };
                            log.lock().unwrap().push(received.clone());
                            Ok::<_, hyper::Error>(answer(&own, &received))
                        }
                    });
                    let io = TokioIo::new(socket);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await;
                });
            }
        });
        Self { url, received, server }
    }

    /// The requests, except those for its card.
    pub(crate) fn calls(&self) -> Vec<Received> {
        let all = self.received.lock().unwrap().clone();
        all.into_iter().filter(|request| !request.is_card()).collect()
    }

    /// The requests for its card.
    pub(crate) fn cards(&self) -> Vec<Received> {
        let all = self.received.lock().unwrap().clone();
        all.into_iter().filter(Received::is_card).collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// An answer with a body.
pub(crate) fn response(status: u16, kind: &str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header("content-type", kind);
    response.body(Full::new(body.into())).unwrap()
}

/// An answer of JSON.
pub(crate) fn answer(value: &Value) -> Response<Full<Bytes>> {
    response(200, "application/json", value.to_string())
}

/// A card whose only interface is JSON-RPC 1.0 at `url`.
pub(crate) fn card(url: &str) -> Value {
    json!({
        "name": "fake", "description": "An agent of the tests", "version": "1",
        "supportedInterfaces":
            [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "capabilities": {}, "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "x", "name": "x", "description": "x", "tags": [] }],
    })
}

/// The answer to a JSON-RPC call.
pub(crate) fn result(request: &Received, result: &Value) -> Response<Full<Bytes>> {
    answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": result }))
}

/// A task in a state.
pub(crate) fn task(state: &str) -> Value {
    json!({ "id": "t-1", "contextId": "c-1", "status": { "state": format!("TASK_STATE_{state}") } })
}

/// An agent that answers every send with this result, and every get with its task.
pub(crate) async fn agent(sent: Value) -> Fake {
    Fake::start(move |url, request| {
        if request.is_card() {
            answer(&card(url))
        } else if request.body["method"] == "SendMessage" {
            result(request, &sent)
        } else {
            result(request, &sent["task"])
        }
    })
    .await
}
