//! An echo agent on the official Rust SDK's server, in memory, as its examples set one up:
//! `official-rust --port 8000`.

use std::{net::Ipv4Addr, sync::Arc};

use a2a::{
    A2AError, AgentCard, Artifact, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent,
    TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use a2a_server::{
    AgentExecutor, DefaultRequestHandler, ExecutorContext, InMemoryTaskStore, StaticAgentCard,
    agent_card::agent_card_router, jsonrpc::jsonrpc_router,
};
use anyhow::Context;
use axum::serve::ListenerExt;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::net::TcpListener;

type Events = BoxStream<'static, Result<StreamResponse, A2AError>>;

struct Echo;

/// The ids that every event of one run repeats.
struct Run {
    task: String,
    context: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip_while(|word| word != "--port").skip(1);
    let port: u16 = args.next().context("usage: official-rust --port PORT")?.parse()?;
    let handler = Arc::new(DefaultRequestHandler::new(Echo, InMemoryTaskStore::new()));
    let card = Arc::new(StaticAgentCard::new(card(port)?));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    // As everywhere in this benchmark: without it a stream stalls for 40 ms.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    Ok(axum::serve(listener, jsonrpc_router(handler).merge(agent_card_router(card))).await?)
}

impl AgentExecutor for Echo {
    fn execute(&self, turn: ExecutorContext) -> Events {
        let run = Run::of(&turn);
        let text = turn.message.as_ref().and_then(Message::text).unwrap_or_default().to_owned();
        let mut events = vec![run.submitted(turn.message), run.status(TaskState::Working)];
        if text.starts_with("tck-cancel") {
            return stream::iter(events).map(Ok).chain(stream::pending()).boxed();
        }
        if text.starts_with("tck-stream-chunked") {
            events.extend((0..10).map(|n| run.chunk(format!("chunk {n} "), n > 0, n == 9)));
        } else {
            events.push(run.chunk(text, false, true));
        }
        events.push(run.status(TaskState::Completed));
        stream::iter(events).map(Ok).boxed()
    }

    fn cancel(&self, turn: ExecutorContext) -> Events {
        let canceled = Run::of(&turn).status(TaskState::Canceled);
        stream::iter([Ok(canceled)]).boxed()
    }
}

impl Run {
    fn of(turn: &ExecutorContext) -> Self {
        Self { task: turn.task_id.clone(), context: turn.context_id.clone() }
    }

    fn submitted(&self, message: Option<Message>) -> StreamResponse {
        StreamResponse::Task(Task {
            id: self.task.clone(),
            context_id: self.context.clone(),
            status: status(TaskState::Submitted),
            artifacts: None,
            history: message.map(|message| vec![message]),
            metadata: None,
        })
    }

    fn status(&self, state: TaskState) -> StreamResponse {
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            status: status(state),
            metadata: None,
        })
    }

    fn chunk(&self, text: String, append: bool, last: bool) -> StreamResponse {
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            artifact: Artifact {
                artifact_id: "answer".to_owned(),
                name: Some("echo".to_owned()),
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

fn status(state: TaskState) -> TaskStatus {
    TaskStatus { state, message: None, timestamp: Some(chrono::Utc::now()) }
}

fn card(port: u16) -> anyhow::Result<AgentCard> {
    Ok(serde_json::from_value(serde_json::json!({
        "name": "official-rust", "description": "Echoes", "version": "1.0.0",
        "capabilities": { "streaming": true },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "echo", "name": "Echo", "description": "Says it again", "tags": ["echo"] }],
        "supportedInterfaces": [{ "url": format!("http://127.0.0.1:{port}/"),
            "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    }))?)
}
