//! gRPC calls of A2A 1.0, over an HTTP/2 connection of their own or one that all callers share.

use anyhow::{Context, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Uri,
    client::conn::http2::{SendRequest, handshake},
    header::{CONTENT_TYPE, TE},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;
use uuid::Uuid;

const COMPLETED: i32 = 3;
const ROLE_USER: i32 = 1;
/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

#[derive(Clone)]
pub(crate) struct Grpc {
    sender: SendRequest<Full<Bytes>>,
    url: Uri,
}

#[derive(prost::Message)]
struct SendMessageRequest {
    #[prost(message, tag = 2)]
    message: Option<Message>,
}

#[derive(prost::Message)]
struct Message {
    #[prost(string, tag = 1)]
    message_id: String,
    #[prost(int32, tag = 4)]
    role: i32,
    #[prost(message, repeated, tag = 5)]
    parts: Vec<Part>,
}

#[derive(prost::Message)]
struct Part {
    #[prost(string, tag = 1)]
    text: String,
}

#[derive(prost::Message)]
struct SendMessageResponse {
    #[prost(message, tag = 1)]
    task: Option<Task>,
}

#[derive(prost::Message)]
struct GetTaskRequest {
    #[prost(string, tag = 2)]
    id: String,
}

#[derive(prost::Message)]
struct Task {
    #[prost(string, tag = 1)]
    id: String,
    #[prost(message, tag = 3)]
    status: Option<Status>,
    #[prost(message, repeated, tag = 4)]
    artifacts: Vec<Artifact>,
}

#[derive(prost::Message)]
struct Status {
    #[prost(int32, tag = 1)]
    state: i32,
}

#[derive(prost::Message)]
struct Artifact {
    #[prost(message, repeated, tag = 4)]
    parts: Vec<Part>,
}

impl Grpc {
    pub(crate) async fn open(url: &Uri) -> anyhow::Result<Self> {
        let authority = url.authority().context("the URL has no host")?;
        let socket = TcpStream::connect(authority.as_str()).await?;
        socket.set_nodelay(true)?;
        let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
        // Its error is the error of the request that was under way, and is reported there.
        tokio::task::spawn_local(async move { drop(driver.await) });
        Ok(Self { sender, url: format!("http://{authority}").parse()? })
    }

    /// Sends `text` and checks that it comes back. Returns the id of the task.
    pub(crate) async fn send(&mut self, text: &str) -> anyhow::Result<String> {
        let message = Message {
            message_id: Uuid::new_v4().to_string(),
            role: ROLE_USER,
            parts: vec![Part { text: text.to_owned() }],
        };
        let request = SendMessageRequest { message: Some(message) };
        let answer = self.call("SendMessage", &request.encode_to_vec()).await?;
        let task = SendMessageResponse::decode(answer)?.task.context("an answer without a task")?;
        task.check()?;
        let mut parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
        ensure!(parts.any(|part| part.text.contains(text)), "the answer lacks the question");
        Ok(task.id)
    }

    pub(crate) async fn get(&mut self, id: &str) -> anyhow::Result<()> {
        let request = GetTaskRequest { id: id.to_owned() };
        let answer = self.call("GetTask", &request.encode_to_vec()).await?;
        let task = Task::decode(answer)?;
        ensure!(task.id == id, "asked for {id}, got {}", task.id);
        task.check()
    }

    /// Calls a method with an encoded message and returns the encoded answer.
    pub(crate) async fn call(&mut self, method: &str, message: &[u8]) -> anyhow::Result<Bytes> {
        let mut body = BytesMut::with_capacity(PREFIX + message.len());
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len())?);
        body.put(message);
        self.sender.ready().await?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}lf.a2a.v1.A2AService/{method}", self.url))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header("a2a-version", "1.0")
            .body(Full::new(body.freeze()))?;
        let response = self.sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let status = body.trailers().unwrap_or(&head.headers).get("grpc-status");
        ensure!(status.is_some_and(|status| status == "0"), "gRPC status {status:?}");
        let mut bytes = body.to_bytes();
        ensure!(bytes.len() >= PREFIX, "an answer without a message");
        Ok(bytes.split_off(PREFIX))
    }
}

impl Task {
    fn check(&self) -> anyhow::Result<()> {
        let state = self.status.as_ref().map(|status| status.state);
        ensure!(state == Some(COMPLETED), "the task is in state {state:?}");
        Ok(())
    }
}
