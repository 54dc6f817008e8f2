//! The official SDK servers: Python and JavaScript of both generations, and Rust. `cargo xtask test`
//! installs them.

use std::{env, net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use herald_client::{
    Binding, Client, SendMessage, SendResult, StreamEvent, Task, TaskState, Timeouts,
    protocol::{
        ErrorKind, Message, Version,
        push::{PushAuthentication, PushConfig},
        request::{ListPushConfigs, ListTasks},
    },
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{
    hub::{all, over, pieces, soon},
    proxy::Proxy,
};

/// An agent on an official SDK, killed at the end of the test.
struct Official {
    name: &'static str,
    url: String,
    address: SocketAddr,
    version: Version,
    _process: Child,
}

impl Official {
    async fn start(
        name: &'static str,
        version: Version,
        program: PathBuf,
        script: Option<PathBuf>,
    ) -> Self {
        let mut process = Command::new(program)
            .args(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let start = Duration::from_secs(180);
        let port = tokio::time::timeout(start, lines.next_line()).await.expect("it starts");
        let address = format!("127.0.0.1:{}", port.unwrap().expect("a port")).parse().unwrap();
        Self { name, url: format!("http://{address}"), address, version, _process: process }
    }

    async fn python(name: &'static str, version: Version) -> Self {
        let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers");
        let program = installed().join(name).join("bin/python");
        Self::start(name, version, program, Some(sources.join(name).join("server.py"))).await
    }

    async fn javascript(name: &'static str, version: Version) -> Self {
        let script = installed().join(name).join("server.mjs");
        Self::start(name, version, "node".into(), Some(script)).await
    }

    async fn rust() -> Self {
        let program = installed().join("rust/official-rust-server");
        Self::start("rust", Version::V1_0, program, None).await
    }

    async fn client(&self, binding: Binding) -> Client {
        let client = over(binding, self.version).connect(&self.url).await.unwrap();
        crate::hub::assert_way(&client.interface(), binding, self.version);
        client
    }

    /// A client whose connections can be cut.
    async fn behind_a_proxy(&self, binding: Binding) -> (Client, Proxy) {
        let client = self.client(binding).await;
        // gRPC has another address.
        let address = client.interface().url.parse().unwrap_or(self.address);
        let proxy = Proxy::start(address).await;
        let mut card = client.card();
        for interface in &mut card.supported_interfaces {
            interface.url = interface.url.replace(&address.to_string(), &proxy.address.to_string());
        }
        // Some servers send the head of a stream only with its next event.
        let timeouts = Timeouts { connect: Duration::from_secs(2), ..Timeouts::default() };
        (over(binding, self.version).timeouts(timeouts).card(card).unwrap(), proxy)
    }
}

pub(crate) fn installed() -> PathBuf {
    let directory = env::var_os("HERALD_TEST_SERVERS");
    directory.expect("the servers are not installed; run `cargo xtask test`").into()
}

const BINDINGS: [Binding; 3] = [Binding::JsonRpc, Binding::Rest, Binding::Grpc];

#[track_caller]
fn task(result: SendResult) -> Task {
    match result {
        SendResult::Task(task) => task,
        SendResult::Message(message) => panic!("expected a task, got {message:?}"),
    }
}

/// True if a chunk came as an event, or in a snapshot that replaces missed events.
fn shows(events: &[StreamEvent], piece: &str) -> bool {
    events.iter().any(|event| match event {
        StreamEvent::Task(task) => task.text().contains(piece),
        StreamEvent::ArtifactUpdate(update) => update.artifact.text().as_deref() == Some(piece),
        StreamEvent::StatusUpdate(_) | StreamEvent::Message(_) => false,
    })
}

/// Sends, gets, streams, answers, cancels, subscribes.
async fn life_of_a_task(server: &Official, binding: Binding) {
    let client = server.client(binding).await;
    let done = task(client.send("hello").await.unwrap());
    assert_eq!((done.status.state, done.text()), (TaskState::Completed, "hello".to_owned()));
    assert_eq!(client.get(done.id.clone()).await.unwrap().text(), "hello");
    let failed = task(client.send("fail").await.unwrap());
    assert_eq!(failed.status.state, TaskState::Failed);
    assert_eq!(failed.error().as_deref(), Some("it broke"));
    assert_eq!(client.send("reply to me").await.unwrap().text(), "to me");

    let events = all(client.stream("chunks 5").await.unwrap()).await;
    assert_eq!(pieces(&events), "1;2;3;4;5;");
    assert_eq!(
        events.iter().filter_map(StreamEvent::state).next_back(),
        Some(TaskState::Completed)
    );
    let events = all(client.stream("reply at once").await.unwrap()).await;
    assert!(matches!(&events[..], [StreamEvent::Message(_)]), "{events:?}");

    let asked = task(client.send("ask").await.unwrap());
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let mut answer = Message::user("", "this one");
    (answer.task_id, answer.context_id) = (Some(asked.id.clone()), Some(asked.context_id));
    let answered = task(client.send(answer).await.unwrap());
    assert_eq!((answered.id, answered.status.state), (asked.id, TaskState::Completed));

    let mut now = SendMessage::from("steps");
    now.configuration.return_immediately = true;
    let waiting = task(client.send(now.clone()).await.unwrap());
    assert!(!waiting.status.state.is_terminal());
    let following = client.subscribe(waiting.id.clone()).await.unwrap();
    client.send("release").await.unwrap();
    let events = all(following).await;
    assert!(shows(&events, "2;"), "{events:?}");
    assert_eq!(
        events.iter().filter_map(StreamEvent::state).next_back(),
        Some(TaskState::Completed)
    );

    let doomed = task(client.send(now).await.unwrap());
    let canceled = client.cancel(doomed.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
}

/// Adds, gets, lists and removes a webhook.
async fn webhooks(server: &Official, binding: Binding) {
    let client = server.client(binding).await;
    let done = task(client.send("hello").await.unwrap());
    let wanted = PushConfig {
        id: Some("one".into()),
        task_id: Some(done.id.clone()),
        url: "https://example.com/hook".into(),
        token: Some("token".into()),
        authentication: Some(PushAuthentication {
            scheme: "Bearer".into(),
            credentials: Some("secret".into()),
        }),
        ..PushConfig::default()
    };
    let created = client.create_push_config(wanted.clone()).await.unwrap();
    assert_eq!((&created.url, &created.task_id), (&wanted.url, &wanted.task_id));
    let found = client.push_config_of(done.id.clone(), "one").await.unwrap();
    assert_eq!((found.url, found.token), (wanted.url.clone(), wanted.token.clone()));
    assert_eq!(found.authentication, wanted.authentication);
    // The Python SDK of 0.3 implements the rest on JSON-RPC only.
    if server.name != "python03" || binding == Binding::JsonRpc {
        let query = ListPushConfigs { task_id: done.id.clone(), ..ListPushConfigs::default() };
        let page = client.push_configs(query.clone()).await.unwrap();
        assert_eq!(page.configs.len(), 1, "{page:?}");
        client.delete_push_config(done.id.clone(), "one").await.unwrap();
        assert!(client.push_configs(query).await.unwrap().configs.is_empty());
    }
}

/// Errors keep their kind.
async fn refusals(server: &Official, binding: Binding) {
    let client = server.client(binding).await;
    let error = client.get("nowhere").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "{error:?}");
    let error = client.cancel("nowhere").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound), "{error:?}");
    let done = task(client.send("hello").await.unwrap());
    let error = client.cancel(done.id.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotCancelable), "{error:?}");
    let mut late = Message::user("", "too late");
    (late.task_id, late.context_id) = (Some(done.id), Some(done.context_id));
    let error = client.send(late).await.unwrap_err();
    assert!(error.protocol().is_some(), "{error:?}");
}

/// Lists all tasks, two at a time.
async fn pages(client: &Client) {
    let mut pages = client.list(ListTasks { page_size: Some(2), ..ListTasks::default() });
    let (mut count, mut total) = (0, 0);
    while let Some(page) = pages.next().await.unwrap() {
        count += page.tasks.len();
        total = page.total_size;
    }
    assert!(count > 2 && count as u64 == total, "{count} of {total}");
}

/// Cuts the connection in the middle of a stream, which resumes.
async fn a_cut_stream_resumes(server: &Official, binding: Binding) {
    let (client, proxy) = server.behind_a_proxy(binding).await;
    let other = server.client(binding).await;
    for finish_first in [false, true] {
        let mut events = client.stream("steps").await.unwrap();
        let mut seen = Vec::new();
        while !pieces(&seen).contains("1;") {
            seen.push(soon(events.next()).await.unwrap().unwrap());
        }
        proxy.cut_now();
        let id = events.task_id().unwrap().clone();
        if finish_first {
            other.send("release").await.unwrap();
            let stands = SendResult::Task(other.get(id.clone()).await.unwrap());
            other.finish(stands).await.unwrap();
        } else {
            // The next event is of the resumed stream.
            seen.push(soon(events.next()).await.unwrap().unwrap());
            other.send("release").await.unwrap();
        }
        seen.extend(all(events).await);
        let last = seen.iter().filter_map(StreamEvent::state).next_back();
        assert_eq!(last, Some(TaskState::Completed), "{seen:?}");
        // The SDK of 0.3 adds a piece once for every stream that reads it.
        let whole = other.get(id).await.unwrap().text();
        assert!(whole.starts_with("1;2;"), "{whole}");
        assert!(shows(&seen, "2;"), "{seen:?}");
    }
}

/// All operations over every binding. The JavaScript servers refuse their `extended` card to callers without
/// credentials.
async fn every_way(server: Official, extended: &str) {
    for binding in BINDINGS {
        life_of_a_task(&server, binding).await;
        webhooks(&server, binding).await;
        refusals(&server, binding).await;
        let client = server.client(binding).await;
        if server.version == Version::V1_0 {
            pages(&client).await;
        }
        assert_eq!(client.extended_card().await.unwrap().name, extended);
    }
}

async fn cut_in_every_way(server: Official) {
    for binding in BINDINGS {
        a_cut_stream_resumes(&server, binding).await;
    }
}

/// Two tests for each server.
macro_rules! servers {
    ($($name:ident: $start:expr, extended $extended:literal;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn is_called_in_every_way() {
                every_way($start.await, $extended).await;
            }

            #[tokio::test]
            async fn goes_on_with_a_stream_that_was_cut() {
                cut_in_every_way($start.await).await;
            }
        }
    )*};
}

servers! {
    python_1_x: Official::python("python1", Version::V1_0), extended "python1 extended";
    python_0_3: Official::python("python03", Version::V0_3), extended "python03 extended";
    javascript_1_x: Official::javascript("js1", Version::V1_0), extended "js1";
    javascript_0_3: Official::javascript("js03", Version::V0_3), extended "js03";
    rust: Official::rust(), extended "rust extended";
}
