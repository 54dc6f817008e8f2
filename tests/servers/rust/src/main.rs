//! An agent on the official Rust SDK; see ../../README.md.

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Mutex},
};

use a2a::{
    A2AError, AgentCapabilities, AgentCard, Artifact, Message, Part, Role, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_grpc::GrpcHandler;
use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryPushConfigStore,
    InMemoryTaskStore, StaticAgentCard, agent_card::agent_card_router, jsonrpc::jsonrpc_router,
    rest::rest_router,
};
use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream},
};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_stream::wrappers::TcpListenerStream;

type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

/// Does what the first word of a message says.
#[derive(Default)]
struct Script {
    /// Those who wait for `release`, by task.
    waiting: Mutex<VecDeque<(String, oneshot::Sender<()>)>>,
}

/// The ids that every event of one run repeats.
#[derive(Clone)]
struct Run {
    task: String,
    context: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let grpc_listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, grpc_address) = (listener.local_addr()?, grpc_listener.local_addr()?);
    let card = |name: &str| -> anyhow::Result<AgentCard> {
        let interface = |binding: &str, url: String| {
            serde_json::json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" })
        };
        Ok(serde_json::from_value(serde_json::json!({
            "name": name, "description": "Does what it is told", "version": "1.0.0",
            "capabilities": {
                "streaming": true, "pushNotifications": true, "extendedAgentCard": true,
            },
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [
                { "id": "script", "name": "Script", "description": "Obeys", "tags": ["test"] },
            ],
            "supportedInterfaces": [
                interface("JSONRPC", format!("http://{address}/")),
                interface("HTTP+JSON", format!("http://{address}/rest")),
                interface("GRPC", grpc_address.to_string()),
            ],
        }))?)
    };
    let handler = DefaultRequestHandler::new(Script::default(), InMemoryTaskStore::new())
        .with_capabilities(AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(true),
            extended_agent_card: Some(true),
            ..AgentCapabilities::default()
        })
        .with_push_config_store(InMemoryPushConfigStore::new())
        .with_extended_agent_card(card("rust extended")?);
    let handler = Arc::new(handler);
    let app = jsonrpc_router(Arc::clone(&handler))
        .merge(agent_card_router(Arc::new(StaticAgentCard::new(card("rust")?))))
        .nest("/rest", rest_router(Arc::clone(&handler)));
    let grpc = tonic::transport::Server::builder()
        .add_service(A2aServiceServer::new(GrpcHandler::new(handler)))
        .serve_with_incoming(TcpListenerStream::new(grpc_listener));
    let mut out = std::io::stdout();
    writeln!(out, "{}", address.port())?;
    out.flush()?;
    tokio::try_join!(
        async { axum::serve(listener, app).await.map_err(anyhow::Error::from) },
        async { grpc.await.map_err(anyhow::Error::from) },
    )?;
    Ok(())
}

impl AgentExecutor for Script {
    fn execute(&self, turn: ExecutorContext) -> Events {
        let run = Run { task: turn.task_id.clone(), context: turn.context_id.clone() };
        let text = turn.message.as_ref().and_then(Message::text).unwrap_or_default().to_owned();
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        if word == "reply" {
            let mut reply = Message::new(Role::Agent, vec![Part::text(rest)]);
            reply.context_id = Some(run.context);
            return stream::iter([Ok(StreamResponse::Message(reply))]).boxed();
        }
        let mut events = Vec::new();
        if turn.stored_task.is_none() {
            events.push(run.submitted(turn.message.clone()));
        }
        events.push(run.status(TaskState::Working, None));
        match word {
            "ask" => events.push(run.status(TaskState::InputRequired, Some("which one?"))),
            "fail" => events.push(run.status(TaskState::Failed, Some("it broke"))),
            "chunks" => {
                let count: usize = rest.parse().unwrap_or_default();
                let chunk = |n| run.chunk(format!("{n};"), n > 1, n == count);
                events.extend((1..=count).map(chunk));
                events.push(run.status(TaskState::Completed, None));
            }
            "steps" => {
                events.push(run.chunk("1;".to_owned(), false, false));
                let (go, gone) = oneshot::channel();
                self.waiting.lock().unwrap().push_back((run.task.clone(), go));
                let end = [
                    run.chunk("2;".to_owned(), true, true),
                    run.status(TaskState::Completed, None),
                ];
                let end = gone.map(move |_| stream::iter(end)).flatten_stream();
                return stream::iter(events).chain(end).map(Ok).boxed();
            }
            _ => {
                if word == "release"
                    && let Some((_, go)) = self.waiting.lock().unwrap().pop_front()
                {
                    // Whoever waited may have been cancelled.
                    let _ = go.send(());
                }
                events.push(run.chunk(text, false, true));
                events.push(run.status(TaskState::Completed, None));
            }
        }
        stream::iter(events).map(Ok).boxed()
    }

    fn cancel(&self, turn: ExecutorContext) -> Events {
        // What it waited for will not come.
        self.waiting.lock().unwrap().retain(|(task, _)| *task != turn.task_id);
        let run = Run { task: turn.task_id, context: turn.context_id };
        stream::iter([Ok(run.status(TaskState::Canceled, None))]).boxed()
    }
}

impl Run {
    fn submitted(&self, message: Option<Message>) -> StreamResponse {
        StreamResponse::Task(Task {
            id: self.task.clone(),
            context_id: self.context.clone(),
            status: status(TaskState::Submitted, None),
            artifacts: None,
            history: message.map(|message| vec![message]),
            metadata: None,
        })
    }

    fn status(&self, state: TaskState, said: Option<&str>) -> StreamResponse {
        let message = said.map(|said| {
            let mut message = Message::new(Role::Agent, vec![Part::text(said)]);
            message.task_id = Some(self.task.clone());
            message.context_id = Some(self.context.clone());
            message
        });
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            status: status(state, message),
            metadata: None,
        })
    }

    fn chunk(&self, text: String, append: bool, last: bool) -> StreamResponse {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            artifact: Artifact {
                artifact_id: "answer".to_owned(),
                name: Some("answer".to_owned()),
                description: None,
                parts: vec![Part::text(text)],
                metadata: None,
                extensions: None,
            },
            append: Some(append),
            last_chunk: Some(last),
            metadata: None,
        })
    }
}

fn status(state: TaskState, message: Option<Message>) -> TaskStatus {
    TaskStatus { state, message, timestamp: Some(chrono::Utc::now()) }
}
