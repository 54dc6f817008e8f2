//! Tests of `herald serve --stdio`.

use std::{collections::HashSet, process::ExitStatus};

use herald_client::{
    Client, SendResult, TaskState,
    protocol::{ErrorKind, request::ListTasks},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::support::{AGENTS, Options, SOON, uuid};

/// The default agent is `conformance`.
pub(crate) const CONFORMANCE_FIRST: &str =
    "[[agents]]\nname = \"conformance\"\nkind = \"conformance\"\n";

#[derive(Debug)]
pub(crate) struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    home: TempDir,
}

impl Pipe {
    fn start(config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), config)
    }

    fn start_in(home: TempDir, config: &str) -> Self {
        Self::with(home, &Options::config(config))
    }

    pub(crate) fn with(home: TempDir, options: &Options) -> Self {
        let mut child = options.spawn_stdio(home.path());
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output, home }
    }

    pub(crate) async fn write(&mut self, text: impl AsRef<[u8]>) {
        let input = self.input.as_mut().expect("the input is open");
        input.write_all(text.as_ref()).await.unwrap();
        input.flush().await.unwrap();
    }

    async fn send(&mut self, id: impl Into<Value>, method: &str, params: &Value) {
        let call = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.write(format!("{call}\n")).await;
    }

    /// The next line, which must be JSON: nothing else belongs there.
    async fn line(&mut self) -> Option<Value> {
        let line = timeout(SOON, self.output.next_line()).await.expect("a line in time").unwrap();
        line.map(|line| serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}")))
    }

    pub(crate) async fn next(&mut self) -> Value {
        self.line().await.expect("another line")
    }

    async fn ended(&mut self) -> (ExitStatus, String) {
        let status = timeout(SOON, self.child.wait()).await.expect("it ends").unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
        assert!(!log.contains("panicked"), "{log}");
        (status, log)
    }
}

fn say(text: &str) -> Value {
    json!({ "message": {
        "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": text }]
    } })
}

fn state(answer: &Value) -> &str {
    answer["result"]["task"]["status"]["state"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn one_line_is_one_message_and_nothing_else_is_printed() {
    let mut pipe = Pipe::start(AGENTS);
    pipe.send(1, "SendMessage", &say("hello")).await;
    let answer = pipe.next().await;
    assert_eq!((&answer["id"], state(&answer)), (&json!(1), "TASK_STATE_COMPLETED"));
    let old = json!({ "message": { "kind": "message", "messageId": "m", "role": "user",
        "parts": [{ "kind": "text", "text": "hi\nthere" }] } });
    pipe.send("two", "message/send", &old).await;
    let answer = pipe.next().await;
    assert_eq!((&answer["id"], &answer["result"]["kind"]), (&json!("two"), &json!("task")));
    pipe.send(3, "SendStreamingMessage", &say("stream")).await;
    let mut seen = Vec::new();
    loop {
        let line = pipe.next().await;
        if line["method"] == "stream/end" {
            assert_eq!(line["params"]["id"], 3);
            break;
        }
        assert!(line["eventId"].is_string(), "{line}");
        seen.push(line);
    }
    assert!(seen[0]["result"]["task"].is_object() && seen.len() >= 3, "{seen:#?}");
    pipe.input = None;
    assert_eq!(pipe.line().await, None);
    let (status, log) = pipe.ended().await;
    assert!(status.success(), "{status} {log}");
    assert!(log.contains("standard input"), "{log}");
}

#[tokio::test]
async fn the_log_says_that_tasks_are_in_memory_only() {
    let options = Options::default().no_data().arguments(["--ephemeral"]);
    let mut pipe = Pipe::with(tempfile::tempdir().unwrap(), &options);
    pipe.input = None;
    let (status, log) = pipe.ended().await;
    assert!(status.success() && log.contains("in memory only: all tasks are lost"), "{log}");
}

#[tokio::test]
async fn bad_lines_are_refused_one_by_one() {
    let config = format!("[limits]\nbody = \"64KiB\"\n{AGENTS}");
    let mut pipe = Pipe::start(&config);
    let long = format!("{}\n", json!({ "x": "y".repeat(200 << 10) }));
    for (line, code) in [
        ("hello\n", -32700),
        ("{\"jsonrpc\":\"2.0\",\n", -32700),
        ("[]\n", -32600),
        (long.as_str(), -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"Nothing\"}\n", -32601),
    ] {
        pipe.write(line).await;
        let answer = pipe.next().await;
        let found = (&answer["error"]["code"], &answer["id"]);
        assert_eq!(found, (&json!(code), &Value::Null), "{answer}");
    }
    pipe.write(b"\xff\xfe\n\n  \n").await;
    assert_eq!(pipe.next().await["error"]["code"], -32700);
    pipe.send(1, "SendMessage", &say("still here")).await;
    assert_eq!(state(&pipe.next().await), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn requests_are_answered_after_the_end_of_the_input() {
    let mut pipe = Pipe::start(CONFORMANCE_FIRST);
    for id in 0..10 {
        let text = format!("tck-long-running delay_ms={}", 200 + 20 * id);
        pipe.send(id, "SendMessage", &say(&text)).await;
    }
    pipe.send("stream", "SendStreamingMessage", &say("tck-long-running delay_ms=600")).await;
    // The last line needs no line break.
    let call = json!({ "jsonrpc": "2.0", "id": "last", "method": "SendMessage",
        "params": say("tck-long-running delay_ms=100") });
    pipe.write(call.to_string()).await;
    pipe.input = None;
    let mut answered = HashSet::new();
    let mut over = false;
    while let Some(line) = pipe.line().await {
        if line["method"] == "stream/end" {
            over = true;
        } else if line["id"] != "stream" {
            assert_eq!(state(&line), "TASK_STATE_COMPLETED");
            assert!(answered.insert(line["id"].to_string()));
        }
    }
    assert_eq!((answered.len(), over), (11, true));
    assert!(pipe.ended().await.0.success());
}

#[tokio::test]
async fn unfinished_tasks_are_stored_and_recovered_by_the_next_start() {
    let config = format!("[server]\ndrain = \"500ms\"\n{CONFORMANCE_FIRST}");
    let mut pipe = Pipe::start(&config);
    pipe.send(1, "SendStreamingMessage", &say("tck-cancel")).await;
    let first = pipe.next().await;
    let task = first["result"]["task"]["id"].clone();
    pipe.input = None;
    while let Some(line) = pipe.line().await {
        assert_ne!(line["method"], "stream/end", "the stream is not over");
    }
    assert!(pipe.ended().await.0.success());
    let mut next = Pipe::start_in(pipe.home, &config);
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "SubscribeToTask",
        "params": { "id": task }, "serviceParameters": { "Last-Event-ID": first["eventId"] } });
    next.write(format!("{call}\n")).await;
    assert_eq!(next.next().await["id"], 2);
    next.send(3, "CancelTask", &json!({ "id": task })).await;
    let canceled = loop {
        let line = next.next().await;
        if line["id"] == 3 {
            break line;
        }
    };
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn a_signal_stops_it_although_the_input_is_open() {
    let mut pipe = Pipe::start(CONFORMANCE_FIRST);
    pipe.send(1, "SendMessage", &say("tck-complete-task")).await;
    pipe.next().await;
    let id = pipe.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().await.unwrap().success());
    assert!(pipe.ended().await.0.success());
}

#[tokio::test]
async fn a_closed_output_stops_it() {
    let Pipe { mut child, input, output, home: _home } = Pipe::start(AGENTS);
    drop(output);
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": say("x") });
    let mut input = input.unwrap();
    input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
    let status = timeout(SOON, child.wait()).await.expect("it ends").unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn the_local_user_needs_no_token() {
    let config = format!(
        "[server]\nhost = \"0.0.0.0\"\n[auth]\nrequired = true\ntokens = \
         [{{ token = \"hush\", tenant = \"a\", principal = \"p\" }}]\n{AGENTS}"
    );
    let mut pipe = Pipe::start(&config);
    pipe.send(1, "SendMessage", &say("hello")).await;
    assert_eq!(state(&pipe.next().await), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_client_library_starts_the_binary_and_calls_it() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("herald.toml");
    std::fs::write(&config, CONFORMANCE_FIRST).unwrap();
    let arguments =
        ["serve", "--stdio", "--ephemeral", "--config", config.to_str().expect("a plain path")];
    let client = Client::builder().command(env!("CARGO_BIN_EXE_herald"), arguments).unwrap();
    let SendResult::Task(done) = client.send("hello").await.unwrap() else { panic!("no task") };
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(client.get(done.id.clone()).await.unwrap().id, done.id);
    let error = client.cancel(done.id.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotCancelable));
    let mut events = client.stream("hello").await.unwrap();
    let mut last = None;
    while let Some(event) = timeout(SOON, events.next()).await.expect("in time").unwrap() {
        last = event.state().or(last);
    }
    assert_eq!(last, Some(TaskState::Completed));
    let page = client.list(ListTasks::default()).next().await.unwrap().unwrap();
    assert_eq!(page.total_size, 2);
}
