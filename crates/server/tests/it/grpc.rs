//! gRPC, driven by tonic's client: an implementation that shares nothing with ours but the wire.

mod calls;
mod errors;
mod frames;
mod health;
mod push;
mod streams;

use herald_protocol::grpc::{
    generated::{v1, v03},
    status::{ErrorInfo, RpcStatus as Rich},
};
use prost::Message;
use tokio::time::timeout;
use tonic::{
    Code, Extensions, Status, Streaming,
    client::Grpc,
    metadata::MetadataMap,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use crate::hub::{Hub, SOON};

const V1: &str = "lf.a2a.v1.A2AService";
const V03: &str = "a2a.v1.A2AService";

/// A channel, and what goes along with each call on it.
#[derive(Debug, Clone)]
struct Client {
    grpc: Grpc<Channel>,
    metadata: MetadataMap,
}

impl Client {
    /// A client of the 1.0 service.
    async fn v1(hub: &Hub) -> Self {
        Self::plain(hub).await.with("a2a-version", "1.0")
    }

    /// A client that says nothing about itself.
    async fn plain(hub: &Hub) -> Self {
        let channel = Endpoint::from_shared(hub.url("")).unwrap().connect().await.unwrap();
        Self { grpc: Grpc::new(channel), metadata: MetadataMap::new() }
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.metadata.insert(name, value.parse().unwrap());
        self
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        tonic::Request::from_parts(self.metadata.clone(), Extensions::new(), message)
    }

    async fn call<Q, A>(&self, service: &str, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        self.answer(service, method, message).await.map(tonic::Response::into_inner)
    }

    async fn answer<Q, A>(
        &self,
        service: &str,
        method: &str,
        message: Q,
    ) -> Result<tonic::Response<A>, Status>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        let path = format!("/{service}/{method}").parse().unwrap();
        let called = grpc.unary(self.request(message), path, ProstCodec::default());
        timeout(SOON, called).await.unwrap()
    }

    async fn stream<Q, A>(
        &self,
        service: &str,
        method: &str,
        message: Q,
    ) -> Result<tonic::Response<Streaming<A>>, Status>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.unwrap();
        let path = format!("/{service}/{method}").parse().unwrap();
        let called = grpc.server_streaming(self.request(message), path, ProstCodec::default());
        timeout(SOON, called).await.unwrap()
    }

    async fn send(&self, text: &str) -> Result<v1::Task, Status> {
        let answer: v1::SendMessageResponse = self.call(V1, "SendMessage", send(text)).await?;
        match answer.payload {
            Some(v1::send_message_response::Payload::Task(task)) => Ok(task),
            other => panic!("no task: {other:?}"),
        }
    }

    async fn get(&self, id: &str) -> Result<v1::Task, Status> {
        let id = id.to_owned();
        self.call(V1, "GetTask", v1::GetTaskRequest { id, ..Default::default() }).await
    }
}

fn send(text: &str) -> v1::SendMessageRequest {
    let part =
        v1::Part { content: Some(v1::part::Content::Text(text.to_owned())), ..v1::Part::default() };
    let message = v1::Message {
        message_id: "m-1".to_owned(),
        role: v1::Role::User.into(),
        parts: vec![part],
        ..v1::Message::default()
    };
    v1::SendMessageRequest { message: Some(message), ..Default::default() }
}

fn old_send(text: &str) -> v03::SendMessageRequest {
    let part =
        v03::Part { part: Some(v03::part::Part::Text(text.to_owned())), ..v03::Part::default() };
    let message = v03::Message {
        message_id: "m-1".to_owned(),
        role: v03::Role::User.into(),
        content: vec![part],
        ..v03::Message::default()
    };
    let configuration = v03::SendMessageConfiguration { blocking: true, ..Default::default() };
    v03::SendMessageRequest {
        request: Some(message),
        configuration: Some(configuration),
        ..Default::default()
    }
}

/// Every item of a stream, and how it ended.
async fn all<T>(mut stream: Streaming<T>) -> (Vec<T>, Option<Status>) {
    let mut items = Vec::new();
    loop {
        match timeout(SOON, stream.message()).await.unwrap() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, None),
            Err(status) => return (items, Some(status)),
        }
    }
}

/// The code and the reason of an error, which also must say where the reason is defined.
#[track_caller]
fn reason(status: &Status) -> (Code, String) {
    let rich = Rich::decode(status.details()).unwrap();
    assert_eq!((rich.code, rich.message.as_str()), (status.code() as i32, status.message()));
    assert_eq!(rich.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    let info = ErrorInfo::decode(&*rich.details[0].value).unwrap();
    assert_eq!(info.domain, "a2a-protocol.org");
    (status.code(), info.reason)
}

fn text_of(task: &v1::Task) -> &str {
    match &task.artifacts[0].parts[0].content {
        Some(v1::part::Content::Text(text)) => text,
        other => panic!("no text: {other:?}"),
    }
}
