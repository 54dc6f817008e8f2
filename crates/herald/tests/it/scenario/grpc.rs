//! Route over gRPC with tonic's client. Its results become the JSON of 1.0, so that all routes are read
//! in one form.

use std::{net::SocketAddr, pin::Pin};

use futures_util::{Stream, StreamExt};
use herald_protocol::grpc::{
    generated,
    status::{ErrorInfo, RpcStatus as Rich},
};
use prost::Message;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{
    Extensions, Request, Status,
    metadata::MetadataMap,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::route::{Ask, Watch};
use crate::{
    support::SOON,
    wire::{Draft, Fault, Frame},
};

/// A client of one of the services.
#[derive(Debug)]
pub(crate) struct Grpc {
    client: tonic::client::Grpc<Channel>,
    service: Service,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    V1,
    V03,
}

/// The events of a stream, whose headers have the id of the first.
pub(crate) struct Events {
    task: String,
    next: u64,
    items: Pin<Box<dyn Stream<Item = Value> + Send>>,
}

impl Events {
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let body = timeout(SOON, self.items.next()).await.expect("an event in time")?;
        self.next += 1;
        Some(Frame { task: self.task.clone(), seq: self.next - 1, body })
    }
}

impl Grpc {
    pub(crate) async fn connect(address: SocketAddr, service: Service) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await.unwrap();
        Self { client: tonic::client::Grpc::new(channel), service }
    }

    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Result<Value, Fault> {
        match (self.service, ask) {
            (Service::V1, Ask::Send { draft, wait }) => {
                self.unary("SendMessage", new::send(draft, wait), new::sent).await
            }
            (Service::V03, Ask::Send { draft, wait }) => {
                self.unary("SendMessage", old::send(draft, wait), old::sent).await
            }
            (Service::V1, Ask::Get(id)) => self.unary("GetTask", new::get(id), new::task).await,
            (Service::V03, Ask::Get(id)) => self.unary("GetTask", old::get(id), old::task).await,
            (Service::V1, Ask::Cancel(id)) => {
                self.unary("CancelTask", new::cancel(id), new::task).await
            }
            (Service::V03, Ask::Cancel(id)) => {
                self.unary("CancelTask", old::cancel(id), old::task).await
            }
            (Service::V1, Ask::List { context }) => {
                self.unary("ListTasks", new::list(context), new::page).await
            }
            (Service::V03, Ask::List { .. }) => self.unary("ListTasks", (), nothing).await,
            (Service::V1 | Service::V03, Ask::Nothing) => {
                self.unary("DoNothing", (), nothing).await
            }
        }
    }

    pub(crate) async fn watch(&self, watch: Watch<'_>) -> Events {
        let send = "SendStreamingMessage";
        match (self.service, watch) {
            (Service::V1, Watch::Send(draft)) => {
                self.stream(send, new::send(draft, false), None, new::event).await
            }
            (Service::V03, Watch::Send(draft)) => {
                self.stream(send, old::send(draft, false), None, old::event).await
            }
            (Service::V1, Watch::After(id, seq)) => {
                let seen = Some(format!("{id}:{seq}"));
                self.stream("SubscribeToTask", new::subscribe(id), seen, new::event).await
            }
            (Service::V03, Watch::After(id, seq)) => {
                let seen = Some(format!("{id}:{seq}"));
                self.stream("TaskSubscription", old::subscribe(id), seen, old::event).await
            }
        }
    }

    async fn unary<Q, A>(
        &self,
        method: &str,
        message: Q,
        show: fn(A) -> Value,
    ) -> Result<Value, Fault>
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        let mut client = self.client.clone();
        client.ready().await.unwrap();
        let request = self.request(message, None);
        let called = client.unary(request, self.path(method), ProstCodec::<Q, A>::default());
        let answered = timeout(SOON, called).await.expect("an answer in time");
        answered.map(|answer| show(answer.into_inner())).map_err(|status| fault(&status))
    }

    async fn stream<Q, A>(
        &self,
        method: &str,
        message: Q,
        seen: Option<String>,
        show: fn(A) -> Value,
    ) -> Events
    where
        Q: Message + Send + 'static,
        A: Message + Default + Send + 'static,
    {
        let mut client = self.client.clone();
        client.ready().await.unwrap();
        let (request, path) = (self.request(message, seen), self.path(method));
        let called = client.server_streaming(request, path, ProstCodec::<Q, A>::default());
        let answer = timeout(SOON, called).await.expect("an answer in time").unwrap();
        let first = answer.metadata().get("first-event-id").unwrap().to_str().unwrap();
        let Frame { task, seq: next, .. } = Frame::new(first, Value::Null);
        let items = Box::pin(answer.into_inner().map(move |item| show(item.unwrap())));
        Events { task, next, items }
    }

    fn request<Q>(&self, message: Q, seen: Option<String>) -> Request<Q> {
        let mut metadata = MetadataMap::new();
        if self.service == Service::V1 {
            metadata.insert("a2a-version", "1.0".parse().unwrap());
        }
        if let Some(seen) = seen {
            metadata.insert("last-event-id", seen.parse().unwrap());
        }
        Request::from_parts(metadata, Extensions::new(), message)
    }

    fn path(&self, method: &str) -> http::uri::PathAndQuery {
        let service = match self.service {
            Service::V1 => "lf.a2a.v1.A2AService",
            Service::V03 => "a2a.v1.A2AService",
        };
        format!("/{service}/{method}").parse().unwrap()
    }
}

fn nothing((): ()) -> Value {
    Value::Null
}

fn fault(status: &Status) -> Fault {
    let rich = Rich::decode(status.details()).unwrap();
    let info = rich.details.first().map(|info| ErrorInfo::decode(&*info.value).unwrap());
    Fault {
        status: 200,
        code: i64::from(status.code() as i32),
        reason: info.map(|info| info.reason).unwrap_or_default(),
        message: status.message().to_owned(),
        task: None,
    }
}

/// Accessors that both generations of the messages have: the text of a part, the parts of a message, the
/// message of a status.
macro_rules! messages {
    ($text:path, $content:ident, $parts:ident, $said:ident) => {
        pub(super) fn sent(answer: a2a::SendMessageResponse) -> Value {
            match answer.payload {
                Some(a2a::send_message_response::Payload::Task(found)) => task(found),
                other => panic!("no task: {other:?}"),
            }
        }

        pub(super) fn task(task: a2a::Task) -> Value {
            json!({
                "id": task.id,
                "contextId": task.context_id,
                "status": status(task.status),
                "artifacts": task.artifacts.iter().map(artifact).collect::<Vec<_>>(),
                "history": task.history.iter().map(said).collect::<Vec<_>>(),
            })
        }

        pub(super) fn event(event: a2a::StreamResponse) -> Value {
            use a2a::stream_response::Payload;
            match event.payload {
                Some(Payload::Task(found)) => json!({ "task": task(found) }),
                Some(Payload::StatusUpdate(update)) => {
                    json!({ "statusUpdate": { "status": status(update.status) } })
                }
                Some(Payload::ArtifactUpdate(update)) => {
                    json!({ "artifactUpdate": { "artifact": artifact(&update.artifact.unwrap()) } })
                }
                other => panic!("no event of a task: {other:?}"),
            }
        }

        fn status(status: Option<a2a::TaskStatus>) -> Value {
            let status = status.unwrap();
            json!({ "state": status.state().as_str_name(), "message": status.$said.as_ref().map(said) })
        }

        fn artifact(artifact: &a2a::Artifact) -> Value {
            json!({ "parts": parts(&artifact.parts) })
        }

        fn said(message: &a2a::Message) -> Value {
            json!({ "role": message.role().as_str_name(), "parts": parts(&message.$parts) })
        }

        fn parts(parts: &[a2a::Part]) -> Vec<Value> {
            let text = |part: &a2a::Part| match &part.$content {
                Some($text(text)) => json!({ "text": text }),
                other => panic!("no text: {other:?}"),
            };
            parts.iter().map(text).collect()
        }

        fn message(draft: &Draft) -> Option<a2a::Message> {
            let content = Some($text(draft.text.clone()));
            let part = a2a::Part { $content: content, ..Default::default() };
            Some(a2a::Message {
                message_id: draft.id.clone(),
                task_id: draft.task.clone().unwrap_or_default(),
                role: a2a::Role::User.into(),
                $parts: if draft.text.is_empty() { Vec::new() } else { vec![part] },
                ..Default::default()
            })
        }
    };
}

mod new {
    use super::{Draft, Value, generated::v1 as a2a, json};

    messages!(a2a::part::Content::Text, content, parts, message);

    pub(super) fn send(draft: &Draft, wait: bool) -> a2a::SendMessageRequest {
        let configuration =
            a2a::SendMessageConfiguration { return_immediately: !wait, ..Default::default() };
        let (message, configuration) = (message(draft), Some(configuration));
        a2a::SendMessageRequest { message, configuration, ..Default::default() }
    }

    pub(super) fn get(id: &str) -> a2a::GetTaskRequest {
        a2a::GetTaskRequest { id: id.to_owned(), ..Default::default() }
    }

    pub(super) fn cancel(id: &str) -> a2a::CancelTaskRequest {
        a2a::CancelTaskRequest { id: id.to_owned(), ..Default::default() }
    }

    pub(super) fn subscribe(id: &str) -> a2a::SubscribeToTaskRequest {
        a2a::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() }
    }

    pub(super) fn list(context: &str) -> a2a::ListTasksRequest {
        a2a::ListTasksRequest { context_id: context.to_owned(), ..Default::default() }
    }

    pub(super) fn page(page: a2a::ListTasksResponse) -> Value {
        json!({ "tasks": page.tasks.into_iter().map(task).collect::<Vec<_>>() })
    }
}

mod old {
    use super::{Draft, Value, generated::v03 as a2a, json};

    messages!(a2a::part::Part::Text, part, content, update);

    pub(super) fn send(draft: &Draft, wait: bool) -> a2a::SendMessageRequest {
        let configuration = a2a::SendMessageConfiguration { blocking: wait, ..Default::default() };
        let (request, configuration) = (message(draft), Some(configuration));
        a2a::SendMessageRequest { request, configuration, ..Default::default() }
    }

    pub(super) fn get(id: &str) -> a2a::GetTaskRequest {
        a2a::GetTaskRequest { name: format!("tasks/{id}"), ..Default::default() }
    }

    pub(super) fn cancel(id: &str) -> a2a::CancelTaskRequest {
        a2a::CancelTaskRequest { name: format!("tasks/{id}") }
    }

    pub(super) fn subscribe(id: &str) -> a2a::TaskSubscriptionRequest {
        a2a::TaskSubscriptionRequest { name: format!("tasks/{id}") }
    }
}
