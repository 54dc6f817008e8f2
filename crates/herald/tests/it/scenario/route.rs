//! Routes of the scenario: a binding and a version each, with the same operations.

use std::{fmt, net::SocketAddr, sync::Arc};

use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    grpc::{self, Grpc, Service},
    session::{Line, Peer},
};
use crate::{
    http::{Call, Client, Stream},
    stdio::Pipe,
    support::{Herald, SOON, eventually},
    wire::{self, Draft, Fault, Frame, Wire},
};

/// A binding and a version, ready to be called.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) binding: Binding,
    pub(crate) version: Version,
    through: Through,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    Rest,
    Grpc,
    WebSocket,
    Stdio,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V03,
    V01,
}

/// The transport of a route.
#[derive(Debug)]
enum Through {
    Http(Wire, SocketAddr),
    Session(Wire, Peer),
    Grpc(Grpc),
}

/// A unary call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask<'a> {
    Send { draft: &'a Draft, wait: bool },
    Get(&'a str),
    Cancel(&'a str),
    List { context: &'a str },
    Nothing,
}

/// A streaming call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Watch<'a> {
    Send(&'a Draft),
    /// A task, after this event.
    After(&'a str, u64),
}

/// A task in one form for all routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) context: String,
    pub(crate) state: String,
    /// The texts of its artifacts.
    pub(crate) texts: Vec<String>,
    /// The texts of its user's messages.
    pub(crate) asked: Vec<String>,
}

/// An event of a task and its sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) task: String,
    pub(crate) seq: u64,
    pub(crate) step: Step,
}

/// The content of an event in one form for all routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The task in this state.
    Task(String),
    /// A new state, and the agent's message.
    Status(String, String),
    /// A chunk of an artifact.
    Piece(String),
}

/// An open stream.
pub(crate) enum Events {
    Http(Wire, Box<Stream>),
    Session(Wire, Line),
    Grpc(grpc::Events),
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.binding, self.version)
    }
}

impl Version {
    const ALL: [Self; 3] = [Self::V1, Self::V03, Self::V01];

    const fn json_rpc(self) -> Wire {
        match self {
            Self::V1 => Wire::Rpc,
            Self::V03 => Wire::OldRpc,
            Self::V01 => Wire::FirstRpc,
        }
    }
}

impl Route {
    /// All routes of a server on the network.
    pub(crate) async fn network(herald: &Herald) -> Vec<Self> {
        let address = herald.address;
        let mut routes = Vec::new();
        for version in Version::ALL {
            let wire = version.json_rpc();
            let others = match version {
                Version::V1 => Some((Wire::Rest, Service::V1)),
                Version::V03 => Some((Wire::OldRest, Service::V03)),
                // 0.1 has JSON-RPC only.
                Version::V01 => None,
            };
            let mut add = |binding, through| routes.push(Self { binding, version, through });
            add(Binding::JsonRpc, Through::Http(wire, address));
            add(Binding::WebSocket, Through::Session(wire, Peer::Socket(address)));
            if let Some((rest, service)) = others {
                add(Binding::Rest, Through::Http(rest, address));
                add(Binding::Grpc, Through::Grpc(Grpc::connect(address, service).await));
            }
        }
        routes
    }

    /// All routes of a server that is a child process.
    pub(crate) fn stdio(pipe: Pipe) -> Vec<Self> {
        let pipe = Arc::new(Mutex::new(pipe));
        let route = |version: Version| {
            let through = Through::Session(version.json_rpc(), Peer::Pipe(Arc::clone(&pipe)));
            Self { binding: Binding::Stdio, version, through }
        };
        Version::ALL.map(route).into()
    }

    async fn ask(&self, ask: Ask<'_>) -> Result<Value, Fault> {
        match &self.through {
            Through::Http(wire, address) => {
                let mut client = Client::connect(*address).await.unwrap();
                wire.result(&client.call(&ask.call(*wire)).await.unwrap())
            }
            Through::Session(wire, peer) => {
                let mut line = peer.open().await;
                line.ask(*wire, ask.call(*wire)).await;
                wire.outcome(200, line.next().await)
            }
            Through::Grpc(grpc) => grpc.ask(ask).await,
        }
    }

    /// Sends a message, and optionally waits for the outcome.
    pub(crate) async fn send(&self, draft: &Draft, wait: bool) -> Result<Seen, Fault> {
        let seen = Seen::read(&self.ask(Ask::Send { draft, wait }).await?);
        // In 0.1 a send never waits.
        if wait && self.version == Version::V01 {
            Ok(self.settled(&seen.id).await)
        } else {
            Ok(seen)
        }
    }

    pub(crate) async fn get(&self, task: &str) -> Result<Seen, Fault> {
        self.ask(Ask::Get(task)).await.map(|task| Seen::read(&task))
    }

    /// The task once it has ended or waits for its user.
    pub(crate) async fn settled(&self, task: &str) -> Seen {
        let mut seen = None;
        eventually(SOON, "the task is settled", async || {
            let found = self.get(task).await.unwrap();
            let settled = !["submitted", "working"].contains(&found.state.as_str());
            seen = Some(found).filter(|_| settled);
            settled
        })
        .await;
        seen.expect("it was waited for")
    }

    pub(crate) async fn cancel(&self, task: &str) -> Result<Seen, Fault> {
        self.ask(Ask::Cancel(task)).await.map(|task| Seen::read(&task))
    }

    /// The ids and the states of the tasks of a context.
    pub(crate) async fn list(&self, context: &str) -> Result<Vec<(String, String)>, Fault> {
        let page = self.ask(Ask::List { context }).await?;
        let tasks = page["tasks"].as_array().unwrap_or_else(|| panic!("no list: {page}"));
        Ok(tasks.iter().map(|task| (wire::id(task).to_owned(), wire::state(task))).collect())
    }

    /// Calls an unknown method.
    pub(crate) async fn nothing(&self) -> Result<Value, Fault> {
        self.ask(Ask::Nothing).await
    }

    pub(crate) async fn watch(&self, watch: Watch<'_>) -> Events {
        match &self.through {
            Through::Http(wire, address) => {
                let client = Client::connect(*address).await.unwrap();
                let stream = client.open(&watch.call(*wire)).await.unwrap();
                Events::Http(*wire, Box::new(stream))
            }
            Through::Session(wire, peer) => {
                let mut line = peer.open().await;
                line.ask(*wire, watch.call(*wire)).await;
                Events::Session(*wire, line)
            }
            Through::Grpc(grpc) => Events::Grpc(grpc.watch(watch).await),
        }
    }

    /// The interface of this route on the card, if it is listed there.
    pub(crate) fn interface(&self) -> Option<(&'static str, &'static str)> {
        const WEB_SOCKET: &str = "https://github.com/herald-a2a/herald/bindings/websocket/v1";
        let version = match self.version {
            Version::V1 => "1.0",
            Version::V03 => "0.3",
            Version::V01 => return None,
        };
        match self.binding {
            Binding::JsonRpc => Some(("JSONRPC", version)),
            Binding::Rest => Some(("HTTP+JSON", version)),
            Binding::Grpc => Some(("GRPC", version)),
            // Custom bindings exist in 1.0 only.
            Binding::WebSocket => (self.version == Version::V1).then_some((WEB_SOCKET, version)),
            Binding::Stdio => None,
        }
    }
}

impl Ask<'_> {
    fn call(self, wire: Wire) -> Call {
        match self {
            Self::Send { draft, wait } => wire.send("", draft, !wait),
            Self::Get(task) => wire.get(task),
            Self::Cancel(task) => wire.cancel(task),
            Self::List { context } => wire.list(context),
            Self::Nothing => wire.nothing(),
        }
    }
}

impl Watch<'_> {
    fn call(self, wire: Wire) -> Call {
        match self {
            Self::Send(draft) => wire.stream("", draft),
            Self::After(task, seen) => wire.resume(task, seen),
        }
    }
}

impl Events {
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let frame = match self {
            Self::Http(wire, stream) => stream.next().await.unwrap().map(|item| wire.frame(&item)),
            Self::Session(wire, line) => line.frame(*wire).await,
            Self::Grpc(events) => events.next().await,
        };
        frame.map(|Frame { task, seq, body }| Event { task, seq, step: Step::read(&body) })
    }

    /// This many events.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.next().await.expect("another event"));
        }
        events
    }

    /// The remaining events, up to the end.
    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Disconnects from the stream.
    pub(crate) async fn cut(self) {
        match self {
            Self::Http(..) | Self::Grpc(_) => {}
            Self::Session(_, line) => line.cut().await,
        }
    }
}

impl Seen {
    fn read(answer: &Value) -> Self {
        let task = answer.get("task").unwrap_or(answer);
        let context = task["contextId"].as_str().or_else(|| task["sessionId"].as_str());
        let users = |one: &&Value| ["ROLE_USER", "user"].contains(&one["role"].as_str().unwrap());
        Self {
            id: wire::id(task).to_owned(),
            context: context.unwrap_or_else(|| panic!("no context: {task}")).to_owned(),
            state: wire::state(task),
            texts: items(&task["artifacts"]).flat_map(texts).collect(),
            asked: items(&task["history"]).filter(users).flat_map(texts).collect(),
        }
    }
}

impl Step {
    fn read(body: &Value) -> Self {
        let members = ["task", "statusUpdate", "artifactUpdate"];
        let told = members.iter().find_map(|member| body.get(member)).unwrap_or(body);
        if let Some(artifact) = told.get("artifact") {
            return Self::Piece(texts(artifact).collect());
        }
        let state = wire::state(told);
        if body.get("task").is_some() || body["kind"] == "task" {
            Self::Task(state)
        } else {
            Self::Status(state, texts(&told["status"]["message"]).collect())
        }
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The texts of a message or an artifact.
fn texts(of: &Value) -> impl Iterator<Item = String> {
    let parts = of.get("parts").or_else(|| of.get("content")).unwrap_or(&Value::Null);
    items(parts).map(|part| part["text"].as_str().unwrap().to_owned())
}
