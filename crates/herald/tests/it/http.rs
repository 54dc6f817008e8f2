//! Small HTTP/1.1 client that returns broken connections as values.

use std::{collections::VecDeque, net::SocketAddr};

use bytes::Bytes;
use herald_protocol::sse::{Parser, SseEvent};
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};

use crate::{canary, support::SOON};

/// One persistent connection. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    /// The task of the connection; it stops when this is dropped.
    _connection: JoinSet<()>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A streaming response.
#[derive(Debug)]
pub(crate) struct Stream {
    client: Client,
    body: Incoming,
    parser: Parser,
    events: VecDeque<SseEvent>,
}

/// The connection broke before the response.
#[derive(Debug)]
#[expect(dead_code, reason = "read by whoever reads the failed test")]
pub(crate) struct Cut(String);

impl Call {
    fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::post_text(path, body.to_string())
    }

    pub(crate) fn post_text(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let mut call = Self::new("POST", path).header("content-type", "application/json");
        call.body = body.into();
        call
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The headers as service parameters, for a connection without headers.
    pub(crate) fn message(&self) -> Value {
        let mut message: Value = serde_json::from_slice(&self.body).unwrap();
        let headers = self.headers.iter();
        message["serviceParameters"] =
            headers.map(|(name, value)| ((*name).to_owned(), value.as_str())).collect();
        message
    }

    fn request(&self, address: SocketAddr) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method).uri(&self.path);
        request = request.header(header::HOST, address.to_string());
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Full::new(self.body.clone())).unwrap()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Cut> {
        let stream = TcpStream::connect(address).await.map_err(cut)?;
        stream.set_nodelay(true).map_err(cut)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(cut)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // The pending call gets the error.
            let _ = connection.await;
        });
        Ok(Self { address, sender, _connection: tasks })
    }

    /// The whole answer.
    pub(crate) async fn call(&mut self, call: &Call) -> Result<Answer, Cut> {
        let response = self.respond(call).await?;
        whole(response).await
    }

    /// The events of a stream; any other response is an error with its content.
    pub(crate) async fn open(mut self, call: &Call) -> Result<Stream, Cut> {
        let response = self.respond(call).await?;
        if !is_stream(response.headers()) {
            panic!("no stream: {:?}", whole(response).await);
        }
        let (parser, events) = (Parser::new(64 << 20), VecDeque::new());
        Ok(Stream { client: self, body: response.into_body(), parser, events })
    }

    async fn respond(&mut self, call: &Call) -> Result<Response<Incoming>, Cut> {
        let answered = async {
            self.sender.ready().await?;
            self.sender.send_request(call.request(self.address)).await
        };
        timeout(SOON, answered).await.expect("an answer in time").map_err(cut)
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|found| found == "text/event-stream")
}

async fn whole(response: Response<Incoming>) -> Result<Answer, Cut> {
    let (head, body) = response.into_parts();
    let body = timeout(SOON, body.collect()).await.expect("a body in time").map_err(cut)?;
    let answer =
        Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() };
    canary::scan("the headers of a response", format!("{:?}", answer.headers));
    canary::scan("a response", &answer.body);
    Ok(answer)
}

impl Answer {
    /// The body, or that of the only event in it.
    pub(crate) fn json(&self) -> Value {
        let only = self.text().strip_prefix("data: ").filter(|_| is_stream(&self.headers));
        let text = only.unwrap_or(self.text());
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Stream {
    /// The next event, or `None` after a clean end. A stream that breaks
    /// is an error.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, Cut> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let frame = timeout(SOON, self.body.frame()).await.expect("an event in time");
            let Some(frame) = frame else { return Ok(None) };
            if let Ok(bytes) = frame.map_err(cut)?.into_data() {
                canary::scan("a stream", &bytes);
                let mut events = Vec::new();
                self.parser.push(&bytes, &mut events).expect("events of a bearable size");
                self.events.extend(events);
            }
        }
    }

    /// The connection, for the next call, once the stream has ended.
    pub(crate) fn done(self) -> Client {
        self.client
    }
}

fn cut(error: impl std::fmt::Display) -> Cut {
    Cut(error.to_string())
}
