//! A client that sends exactly what it is told to.

use std::net::SocketAddr;

use herald_protocol::sse::{Parser, SseEvent};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::{canary, hub::SOON};

/// One HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    address: SocketAddr,
    /// What was received and not yet used.
    received: Vec<u8>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// A response without its body.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

/// A whole response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// A response that goes on.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) head: Head,
    pub(crate) client: Client,
    parser: Parser,
    events: std::collections::VecDeque<SseEvent>,
    /// Everything that came, without the chunks' framing.
    pub(crate) raw: Vec<u8>,
}

impl Call {
    pub(crate) fn new(method: &str, path: impl Into<String>) -> Self {
        Self { method: method.into(), path: path.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    /// A POST with a JSON body.
    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path).body(body.to_string()).header("Content-Type", "application/json")
    }

    /// A JSON-RPC call of 1.0.
    pub(crate) fn rpc(method: &str, params: &Value) -> Self {
        Self::post("/a2a/jsonrpc", &envelope(method, params)).v1()
    }

    /// A JSON-RPC call of 0.3.
    pub(crate) fn old_rpc(method: &str, params: &Value) -> Self {
        Self::post("/a2a/jsonrpc", &envelope(method, params))
    }

    pub(crate) fn v1(self) -> Self {
        self.header("A2A-Version", "1.0")
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a header, also beside another of the same name.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("Host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

pub(crate) fn envelope(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": "call-1", "method": method, "params": params })
}

/// The parameters of a 1.0 send.
pub(crate) fn message(text: &str) -> Value {
    json!({ "message": {
        "messageId": "label", "role": "ROLE_USER", "parts": [{ "text": text }]
    } })
}

/// The parameters of a 0.3 send.
pub(crate) fn old_message(text: &str) -> Value {
    json!({ "message": {
        "kind": "message", "messageId": "label", "role": "user",
        "parts": [{ "kind": "text", "text": text }]
    } })
}

/// A connection from 127.0.0.`host`, which limits take for a host of its own.
pub(crate) async fn connect_from(host: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    socket.connect(address).await.unwrap()
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), address)
    }

    /// A connection of another host, 127.0.0.`host`.
    pub(crate) async fn connect_from(host: u8, address: SocketAddr) -> Self {
        Self::over(connect_from(host, address).await, address)
    }

    fn over(stream: TcpStream, address: SocketAddr) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, address, received: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    pub(crate) async fn send(&mut self, call: &Call) {
        self.write(call.bytes(self.address)).await;
    }

    pub(crate) async fn call(&mut self, call: Call) -> Answer {
        self.send(&call).await;
        let head = self.head().await;
        let bodiless = call.method == "HEAD" || head.status == 204 || head.status == 304;
        let body = if bodiless { Vec::new() } else { self.whole(&head).await };
        Answer { head, body }
    }

    pub(crate) async fn open(mut self, call: Call) -> Stream {
        self.send(&call).await;
        let head = self.head().await;
        assert_eq!(head.status, 200, "{head:?} {:?}", String::from_utf8_lossy(&self.received));
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
        let events = std::collections::VecDeque::new();
        Stream { head, client: self, parser: Parser::new(16 << 20), events, raw: Vec::new() }
    }

    /// The whole response, or the head of a stream and its first chunk, if that is awaited.
    pub(crate) async fn first(&mut self, call: Call, await_chunk: bool) -> (Head, Vec<u8>) {
        self.send(&call).await;
        let head = self.head().await;
        // An error of a stream can be a whole response with one event.
        let is_stream = head.header("content-type") == Some("text/event-stream")
            && head.header("transfer-encoding") == Some("chunked");
        let body = match (is_stream, await_chunk) {
            (true, true) => self.chunk().await.expect("a whole chunk").unwrap_or_default(),
            (true, false) => Vec::new(),
            (false, _) => self.whole(&head).await,
        };
        (head, body)
    }

    /// The next response, whatever was sent.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = self.head().await;
        let body = self.whole(&head).await;
        Answer { head, body }
    }

    /// Whether the server hangs up, having sent nothing more.
    pub(crate) async fn is_closed(&mut self) -> bool {
        assert!(self.received.is_empty(), "{:?}", String::from_utf8_lossy(&self.received));
        let mut buffer = [0; 1024];
        match timeout(SOON, self.stream.read(&mut buffer)).await.expect("the server hangs up") {
            Ok(read) => read == 0,
            Err(_) => true,
        }
    }

    async fn fill(&mut self) -> bool {
        let mut buffer = [0; 4 << 10];
        let read = timeout(SOON, self.stream.read(&mut buffer)).await.expect("an answer in time");
        let read = read.unwrap_or(0);
        self.received.extend_from_slice(&buffer[..read]);
        read > 0
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.received.drain(..end + 2).collect();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.received.len() < count {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.received.drain(..count).collect())
    }

    /// The next bytes, so many.
    pub(crate) async fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.take(count).await.expect("more bytes")
    }

    /// The head of the next response.
    pub(crate) async fn head(&mut self) -> Head {
        let status = self.line().await.expect("a response");
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line().await.expect("whole headers");
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        canary::scan("the headers of a response", format!("{headers:?}"));
        Head { status, headers }
    }

    async fn whole(&mut self, head: &Head) -> Vec<u8> {
        if head.header("transfer-encoding") == Some("chunked") {
            let mut body = Vec::new();
            while let Some(chunk) = self.chunk().await.expect("a whole body") {
                body.extend(chunk);
            }
            canary::scan("a response", &body);
            return body;
        }
        let length = head.header("content-length").map_or(0, |length| length.parse().unwrap());
        let body = self.take(length).await.expect("a whole body");
        canary::scan("a response", &body);
        body
    }

    /// The next chunk, `Some(None)` at the proper end, or `None` if the connection broke off.
    async fn chunk(&mut self) -> Option<Option<Vec<u8>>> {
        let size = self.line().await?;
        let size = usize::from_str_radix(&size, 16).unwrap();
        let mut chunk = self.take(size + 2).await?;
        chunk.truncate(size);
        Some((size > 0).then_some(chunk))
    }
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body, or the data of the only event in it.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = self.text();
        let text = text.strip_prefix("data: ").unwrap_or(text);
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
    }

    /// The result of a JSON-RPC call that must have one.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let json = self.json();
        assert_eq!(self.status(), 200, "{json}");
        assert!(json.get("error").is_none(), "{json}");
        json["result"].clone()
    }

    /// The code and the reason of a JSON-RPC call that must have failed.
    #[track_caller]
    pub(crate) fn error(&self) -> (i64, String) {
        let json = self.json();
        assert!(json.get("result").is_none(), "{json}");
        let error = &json["error"];
        assert!(!error["message"].as_str().unwrap().is_empty(), "{json}");
        (error["code"].as_i64().unwrap(), reason(&error["data"]))
    }

    /// The reason of a REST request that must have failed.
    #[track_caller]
    pub(crate) fn reason(&self) -> String {
        let json = self.json();
        assert_eq!(json["error"]["code"], self.status(), "{json}");
        assert!(!json["error"]["message"].as_str().unwrap().is_empty(), "{json}");
        assert!(json["error"]["status"].is_string(), "{json}");
        reason(&json["error"]["details"])
    }
}

#[track_caller]
fn reason(details: &Value) -> String {
    let details = details.as_array().unwrap();
    assert!(details.iter().all(|detail| detail["@type"].is_string()), "{details:?}");
    let info = details
        .iter()
        .find(|detail| detail["@type"] == "type.googleapis.com/google.rpc.ErrorInfo")
        .unwrap();
    assert_eq!(info["domain"], "a2a-protocol.org");
    info["reason"].as_str().unwrap().to_owned()
}

impl Stream {
    /// The next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let chunk = self.client.chunk().await.expect("the stream must end properly")?;
            self.push(&chunk);
        }
    }

    fn push(&mut self, chunk: &[u8]) {
        canary::scan("a stream", chunk);
        let mut events = Vec::new();
        self.parser.push(chunk, &mut events).unwrap();
        self.raw.extend_from_slice(chunk);
        self.events.extend(events);
    }

    /// The next event's data.
    pub(crate) async fn json(&mut self) -> Value {
        serde_json::from_str(&self.next().await.expect("another event").data).unwrap()
    }

    /// Everything up to the proper end.
    pub(crate) async fn rest(&mut self) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Reads until something that is not an event has come, such as a comment.
    pub(crate) async fn raw_until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.raw).contains(text) {
            let chunk = self.client.chunk().await.expect("the stream goes on").unwrap();
            self.push(&chunk);
        }
    }
}

/// The data of each event.
pub(crate) fn data(events: &[SseEvent]) -> Vec<Value> {
    events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect()
}
