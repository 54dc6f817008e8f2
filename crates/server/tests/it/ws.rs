//! JSON-RPC both ways over a WebSocket.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt};
use herald_engine::{Scopes, store::flaky::Flaky};
use herald_server::{Config, Limits, Timeouts, Token};
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        http::{HeaderName, HeaderValue, Request, Response},
        protocol::frame::{
            Frame,
            coding::{CloseCode, Data, OpCode},
        },
    },
};

use crate::{
    canary,
    client::{Call, data, message, old_message},
    errors,
    hub::{Hub, SOON},
};

/// One WebSocket.
pub(crate) struct Socket {
    stream: WebSocketStream<TcpStream>,
    answer: Response<Option<Vec<u8>>>,
}

const V1: &[(&str, &str)] = &[("A2A-Version", "1.0")];

impl Socket {
    pub(crate) async fn open(hub: &Hub) -> Self {
        Self::at(hub, "/ws", V1).await.unwrap()
    }

    async fn at(hub: &Hub, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{}{path}", hub.address).into_client_request().unwrap();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        let stream = TcpStream::connect(hub.address).await.unwrap();
        Self::over(stream, request).await
    }

    /// One whose peer has hardly any buffer, so that what it does not read stays with the server.
    async fn stalling(hub: &Hub) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        let stream = socket.connect(hub.address).await.unwrap();
        let request = format!("ws://{}/ws", hub.address).into_client_request().unwrap();
        Self::over(stream, request).await.unwrap()
    }

    async fn over(stream: TcpStream, request: Request<()>) -> Result<Self, u16> {
        match timeout(SOON, client_async(request, stream)).await.unwrap() {
            Ok((stream, answer)) => Ok(Self { stream, answer }),
            Err(Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn write(&mut self, text: impl Into<String>) {
        self.stream.send(Message::text(text.into())).await.unwrap();
    }

    async fn send(&mut self, id: impl Into<Value>, method: &str, params: &Value) {
        let call = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        self.write(call.to_string()).await;
    }

    async fn tell(&mut self, method: &str, params: &Value) {
        let call = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(call.to_string()).await;
    }

    /// What comes next, unless it is the end.
    async fn frame(&mut self) -> Result<Message, Option<Error>> {
        match timeout(SOON, self.stream.next()).await.expect("something in time") {
            Some(Ok(frame)) => Ok(frame),
            Some(Err(error)) => Err(Some(error)),
            None => Err(None),
        }
    }

    async fn next(&mut self) -> Value {
        loop {
            match self.frame().await.expect("another message") {
                Message::Text(text) => {
                    canary::scan("a message", &text);
                    return serde_json::from_str(&text).unwrap();
                }
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Close(_) | Message::Frame(_) => panic!("no text"),
            }
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: &Value) -> Value {
        self.send("one", method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], "one", "{answer}");
        answer
    }

    /// The events of a call's stream, up to the word that says that it is over.
    async fn rest(&mut self, id: &Value) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let answer = self.next().await;
            if answer["method"] == "stream/end" {
                assert_eq!(answer["params"], json!({ "id": id }));
                return events;
            }
            assert_eq!(&answer["id"], id, "{answer}");
            assert!(answer.get("error").is_none(), "{answer}");
            events.push(answer);
        }
    }

    /// The code that the server closes the socket with.
    async fn code(&mut self) -> CloseCode {
        loop {
            match self.frame().await {
                Ok(Message::Close(frame)) => return frame.expect("a reason").code,
                Ok(_) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

fn state(event: &Value) -> Option<&str> {
    event["result"]["statusUpdate"]["status"]["state"].as_str()
}

fn sent_task(answer: &Value) -> String {
    answer["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

// proves: EQV-001, EQV-005
#[tokio::test]
async fn every_operation_is_there_and_answers_as_over_http() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    let task = sent_task(&socket.call("SendMessage", &message("ask")).await);
    for (method, params) in [
        ("GetTask", json!({ "id": task })),
        ("GetTask", json!({ "id": "nope" })),
        ("GetTask", json!({})),
        ("ListTasks", json!({ "pageSize": 5 })),
        ("SubscribeToTask", json!({ "id": "nope" })),
        ("CancelTask", json!({ "id": task })),
        ("CancelTask", json!({ "id": task })),
        ("CreateTaskPushNotificationConfig", json!({ "taskId": task, "url": "https://x.example" })),
        ("GetTaskPushNotificationConfig", json!({ "taskId": task, "id": "x" })),
        ("ListTaskPushNotificationConfigs", json!({ "taskId": task })),
        ("DeleteTaskPushNotificationConfig", json!({ "taskId": task, "id": "x" })),
        ("GetExtendedAgentCard", json!({})),
        ("tasks/get", json!({ "id": task })),
        ("Nothing", json!({})),
    ] {
        let over_socket = socket.call(method, &params).await;
        if method == "CancelTask" && over_socket.get("result").is_some() {
            continue;
        }
        let over_http = hub.call(Call::rpc(method, &params)).await.json();
        for member in ["result", "error"] {
            assert_eq!(over_socket.get(member), over_http.get(member), "{method} {params}");
        }
    }
}

// proves: CARD-005
#[tokio::test]
async fn the_card_says_where_it_is_and_that_answers_for_its_agent() {
    let hub = Hub::listing_everything().await;
    for prefix in ["", "/agents/files"] {
        let card =
            hub.call(Call::get(format!("{prefix}/.well-known/agent-card.json"))).await.json();
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        let url = interfaces.iter().find_map(|one| one["url"].as_str()?.strip_prefix("ws://"));
        let path = url.unwrap().strip_prefix(&hub.address.to_string()).unwrap();
        let mut socket = Socket::at(&hub, path, V1).await.unwrap();
        let task = sent_task(&socket.call("SendMessage", &message("hello")).await);
        let call = Call::rpc("GetTask", &json!({ "id": task })).at("/agents/files/rpc");
        assert_eq!(hub.call(call).await.json().get("result").is_some(), !prefix.is_empty());
    }
}

#[tokio::test]
async fn the_method_tells_the_version_unless_the_handshake_or_the_call_does() {
    let hub = Hub::start().await;
    let mut plain = Socket::at(&hub, "/ws", &[]).await.unwrap();
    sent_task(&plain.call("SendMessage", &message("hello")).await);
    let old = plain.call("message/send", &old_message("hello")).await;
    assert_eq!(old["result"]["kind"], "task", "{old}");
    // What the handshake says holds for every call.
    for path in ["/ws?A2A-Version=0.3", "/agents/script/ws?a2a-version=0.3"] {
        let mut older = Socket::at(&hub, path, &[]).await.unwrap();
        assert_eq!(code(&older.call("SendMessage", &message("hello")).await), -32009);
    }
    let mut newer = Socket::open(&hub).await;
    assert_eq!(code(&newer.call("message/send", &old_message("hello")).await), -32601);
    // What a call says counts for more, and for this call only.
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": old_message("hello"),
        "serviceParameters": { "a2a-VERSION": "0.3", "X-Unknown": "is left alone" },
    });
    newer.write(call.to_string()).await;
    assert_eq!(newer.next().await["result"]["kind"], "task");
    assert_eq!(code(&newer.call("message/send", &old_message("hello")).await), -32601);
}

#[tokio::test]
async fn calls_are_answered_as_they_are_done_and_not_as_they_came() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    let mut expected = HashSet::new();
    for id in 0..50 {
        socket.send(id, "SendMessage", &message("wait x")).await;
        expected.insert(id);
    }
    // Those wait; this one does not.
    sent_task(&socket.call("SendMessage", &message("hello")).await);
    hub.release(50);
    while !expected.is_empty() {
        let answer = socket.next().await;
        sent_task(&answer);
        assert!(expected.remove(&answer["id"].as_i64().unwrap()), "{answer}");
    }
}

// proves: STR-004
#[tokio::test]
async fn two_streams_on_one_socket_keep_their_events_apart() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    for id in ["a", "b"] {
        socket.send(id, "SendStreamingMessage", &message("chunks 30")).await;
    }
    let mut seen: std::collections::HashMap<String, Vec<Value>> = [].into();
    let mut over = 0;
    while over < 2 {
        let answer = socket.next().await;
        if answer["method"] == "stream/end" {
            over += 1;
            continue;
        }
        seen.entry(answer["id"].as_str().unwrap().to_owned()).or_default().push(answer);
    }
    for events in seen.values() {
        let task = events[0]["result"]["task"]["id"].as_str().unwrap();
        let number = |event: &Value| {
            let id = event["eventId"].as_str().unwrap();
            id.strip_prefix(&format!("{task}:")).expect("of its own task").parse::<u64>().unwrap()
        };
        let numbers: Vec<_> = events.iter().map(number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
        assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_COMPLETED"));
        let pieces = events.iter().filter(|one| one["result"]["artifactUpdate"].is_object());
        assert_eq!(pieces.count(), 30);
    }
}

#[tokio::test]
async fn a_stream_cut_at_any_event_is_taken_up_after_it() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    socket.send(1, "SendStreamingMessage", &message("chunks 12")).await;
    let all = socket.rest(&json!(1)).await;
    let task = all[0]["result"]["task"]["id"].clone();
    for (index, last) in all.iter().enumerate() {
        let mut socket = Socket::at(&hub, "/ws", &[]).await.unwrap();
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": { "id": task },
            "serviceParameters": { "Last-Event-ID": last["eventId"] },
        });
        socket.write(call.to_string()).await;
        assert_eq!(socket.rest(&json!(1)).await, all[index + 1..], "after {index}");
    }
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": { "id": task },
        "serviceParameters": { "Last-Event-ID": "other:3" },
    });
    socket.write(call.to_string()).await;
    assert_eq!(code(&socket.next().await), -32602);
}

// proves: STR-029
#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_to_its_call() {
    let store = Arc::new(Flaky::new().unwrap());
    let hub = errors::over(&store).await;
    let mut socket = Socket::open(&hub).await;
    let task = sent_task(&socket.call("SendMessage", &message("chunks 100")).await);
    let mut call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": { "id": task },
        "serviceParameters": { "Last-Event-ID": "0" },
    });
    store.fail_reads_after(2);
    socket.write(call.to_string()).await;
    let mut seen = Vec::new();
    let last = loop {
        let answer = socket.next().await;
        if answer.get("error").is_some() {
            break answer;
        }
        seen.push(answer);
    };
    assert_eq!((code(&last), &last["id"]), (-32603, &json!(1)));
    assert!(last.get("eventId").is_none() && !last.to_string().contains("disk"), "{last}");
    store.fail_reads_after(usize::MAX);
    // On the same socket, under the same id.
    call["serviceParameters"]["Last-Event-ID"] = seen.last().unwrap()["eventId"].clone();
    socket.write(call.to_string()).await;
    let rest = socket.rest(&json!(1)).await;
    assert_eq!(seen.len() + rest.len(), 103, "nothing is lost and nothing comes twice");
}

#[tokio::test]
async fn ten_thousand_events_reach_a_reader_that_stalls() {
    const EVENTS: usize = 10_000;
    const READERS: usize = 10;
    let hub = Hub::start().await;
    let mut first = Socket::stalling(&hub).await;
    let text = format!("bulk {EVENTS} 1000");
    first.send(1, "SendStreamingMessage", &message(&text)).await;
    let task = first.next().await["result"]["task"]["id"].clone();
    let mut others = Vec::new();
    for _ in 0..READERS {
        let mut other = Socket::stalling(&hub).await;
        other.send(1, "SubscribeToTask", &json!({ "id": task })).await;
        assert!(other.next().await["result"]["task"].is_object());
        others.push(other);
    }
    // Nobody reads any more until the task is over, which it is all the same.
    let before = resident();
    loop {
        let call = Call::rpc("ListTasks", &json!({ "status": "TASK_STATE_COMPLETED" }));
        if hub.call(call).await.result()["totalSize"] == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The log itself is in memory here, and so is the task. With a queue of its own each of the
    // readers would take ten megabytes on top of that.
    let grown = resident().saturating_sub(before);
    assert!(grown < 80 << 20, "{grown} bytes more, with readers that stall");
    drop(others);
    let events = first.rest(&json!(1)).await;
    let pieces: Vec<_> =
        events.iter().filter_map(|one| one["result"].get("artifactUpdate")).collect();
    assert_eq!(pieces.len(), EVENTS);
    for (index, piece) in pieces.iter().enumerate() {
        let text = piece["artifact"]["parts"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(&format!("{};", index + 1)), "{index}: {text}");
    }
    assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_COMPLETED"));
}

/// Bytes of memory that this process takes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn tokens() -> Config {
    let token = |name: &str| Token {
        secret: format!("canary-7c5e-{name}"),
        tenant: "acme".into(),
        principal: name.into(),
        scopes: Scopes::ALL,
        ..Token::default()
    };
    Config { tokens: vec![token("ann"), token("bob")], ..Config::default() }
}

// proves: SEC-007
#[tokio::test]
async fn credentials_are_checked_before_the_switch_and_open_only_ones_own_tasks() {
    let hub = Hub::with(tokens()).await;
    assert_eq!(Socket::at(&hub, "/ws", V1).await.err(), Some(401));
    let wrong = [("Authorization", "Bearer nobody")];
    assert_eq!(Socket::at(&hub, "/ws", &wrong).await.err(), Some(401));
    let mut sockets = Vec::new();
    for name in ["ann", "bob"] {
        let token = format!("Bearer canary-7c5e-{name}");
        let headers = [("Authorization", token.as_str()), ("A2A-Version", "1.0")];
        sockets.push(Socket::at(&hub, "/ws", &headers).await.unwrap());
    }
    let [mut ann, mut bob]: [Socket; 2] = sockets.try_into().ok().unwrap();
    ann.send(1, "SendStreamingMessage", &message("steps 3")).await;
    let task = ann.next().await["result"]["task"]["id"].clone();
    for method in ["GetTask", "SubscribeToTask", "CancelTask"] {
        assert_eq!(code(&bob.call(method, &json!({ "id": task })).await), -32001);
    }
    // No call can bring credentials of its own.
    let call = json!({
        "jsonrpc": "2.0", "id": "x", "method": "GetTask", "params": { "id": task },
        "serviceParameters": { "authorization": "Bearer canary-7c5e-ann" },
    });
    bob.write(call.to_string()).await;
    assert_eq!(code(&bob.next().await), -32602);
    hub.release(3);
    assert!(!ann.rest(&json!(1)).await.is_empty());
    // Nothing of it came to the other, whose next message is the answer to its next call.
    assert_eq!(bob.call("ListTasks", &json!({})).await["result"]["totalSize"], 0);
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_open_one() {
    let hub = Hub::start().await;
    let hijack = [("Origin", "https://evil.example")];
    assert_eq!(Socket::at(&hub, "/ws", &hijack).await.err(), Some(403));
    assert_eq!(Socket::at(&hub, "/ws", &[("Host", "evil.example")]).await.err(), Some(421));
    let own = format!("http://{}", hub.address);
    assert!(Socket::at(&hub, "/ws", &[("Origin", &own)]).await.is_ok());
}

#[tokio::test]
async fn what_is_no_handshake_is_told_what_is_missing() {
    let hub = Hub::start().await;
    let answer = hub.call(Call::get("/ws")).await;
    assert_eq!((answer.status(), answer.header("upgrade")), (426, Some("websocket")));
    assert!(answer.text().contains("Sec-WebSocket-Version: 13"));
    let upgrade = Call::get("/ws").header("Upgrade", "websocket").header("Connection", "Upgrade");
    let old = upgrade.clone().header("Sec-WebSocket-Version", "8");
    let answer = hub.call(old).await;
    assert_eq!((answer.status(), answer.header("sec-websocket-version")), (426, Some("13")));
    let keyless = upgrade.header("Sec-WebSocket-Version", "13");
    assert_eq!(hub.call(keyless.clone()).await.status(), 400);
    assert_eq!(hub.call(keyless.header("Sec-WebSocket-Key", "short")).await.status(), 400);
    assert_eq!(hub.call(Call::post("/ws", &json!({}))).await.status(), 405);
    assert_eq!(Socket::at(&hub, "/agents/nobody/ws", &[]).await.err(), Some(404));
}

#[tokio::test]
async fn a_subprotocol_is_taken_if_it_is_ours_and_offered() {
    let hub = Hub::start().await;
    for (offered, taken) in [("x, a2a.jsonrpc", Some("a2a.jsonrpc")), ("", None)] {
        let headers = [("Sec-WebSocket-Protocol", offered)];
        let headers = if offered.is_empty() { &[][..] } else { &headers[..] };
        let socket = Socket::at(&hub, "/ws", headers).await.unwrap();
        let found = socket.answer.headers().get("sec-websocket-protocol");
        assert_eq!(found.map(|one| one.to_str().unwrap()), taken);
        assert!(!socket.answer.headers().contains_key("sec-websocket-extensions"));
    }
}

// proves: RPC-005, RPC-006
#[tokio::test]
async fn what_is_malformed_is_refused_and_the_socket_stays() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    for (text, expected) in [
        ("", -32700),
        ("hello", -32700),
        ("{\"jsonrpc\":\"2.0\"", -32700),
        ("[]", -32600),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\"}]", -32600),
        ("42", -32600),
        ("{}", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":null,\"method\":\"GetTask\"}", -32600),
    ] {
        socket.write(text).await;
        let answer = socket.next().await;
        assert_eq!((code(&answer), &answer["id"]), (expected, &Value::Null), "{text}");
    }
    let noise = Message::binary(&b"\xff\xfe"[..]);
    socket.stream.send(noise).await.unwrap();
    assert_eq!(code(&socket.next().await), -32700);
    // Bytes are taken for text where they are.
    let call = json!({ "jsonrpc": "2.0", "id": 5, "method": "SendMessage",
        "params": message("hello") });
    socket.stream.send(Message::binary(call.to_string())).await.unwrap();
    sent_task(&socket.next().await);
    for parameters in
        [json!([]), json!("1.0"), json!({ "A2A-Version": 1 }), json!({ "a2a-version": "\n" })]
    {
        let call = json!({ "jsonrpc": "2.0", "id": 6, "method": "ListTasks", "params": {},
            "serviceParameters": parameters });
        socket.write(call.to_string()).await;
        assert_eq!(code(&socket.next().await), -32602, "{parameters}");
    }
    sent_task(&socket.call("SendMessage", &message("still here")).await);
}

#[tokio::test]
async fn an_id_is_free_again_once_its_call_is_answered() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    socket.send(7, "SendMessage", &message("wait x")).await;
    socket.send(7, "SendMessage", &message("hello")).await;
    let refused = socket.next().await;
    assert_eq!((code(&refused), &refused["id"]), (-32600, &Value::Null), "{refused}");
    // Another type is another id.
    socket.send("7", "SendMessage", &message("hello")).await;
    assert_eq!(socket.next().await["id"], "7");
    hub.release(1);
    assert_eq!(socket.next().await["id"], 7);
    socket.send(7, "SendMessage", &message("hello")).await;
    sent_task(&socket.next().await);
}

#[tokio::test]
async fn a_notification_is_done_and_not_answered() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    for method in ["SendMessage", "SendStreamingMessage", "GetTask", "Nothing"] {
        socket.tell(method, &message("hello")).await;
    }
    loop {
        // Only answers to these calls come back.
        if socket.call("ListTasks", &json!({})).await["result"]["totalSize"] == 2 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_can_be_given_up_and_its_task_goes_on() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    socket.send("stream", "SendStreamingMessage", &message("wait x")).await;
    let task = socket.next().await["result"]["task"]["id"].clone();
    socket.send("send", "SendMessage", &message("wait y")).await;
    for id in ["stream", "send"] {
        socket.tell("$/cancelRequest", &json!({ "id": id })).await;
        let last = loop {
            let answer = socket.next().await;
            if answer.get("error").is_some() {
                break answer;
            }
            assert_eq!(answer["id"], "stream", "an event that was on its way");
        };
        assert_eq!((code(&last), &last["id"]), (-32800, &json!(id)));
    }
    // What is not under way, and what names nothing, is nobody's business.
    socket.tell("$/cancelRequest", &json!({ "id": "nobody" })).await;
    socket.tell("$/cancelRequest", &json!({})).await;
    hub.release(2);
    loop {
        let found = socket.call("GetTask", &json!({ "id": task })).await;
        if found["result"]["status"]["state"] == "TASK_STATE_COMPLETED" {
            break;
        }
    }
}

#[tokio::test]
async fn too_many_calls_at_once_wait_their_turn() {
    let limits = Limits { requests_per_connection: 2, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    for id in 0..20 {
        socket.send(id, "SendMessage", &message("wait x")).await;
    }
    let mut left: HashSet<i64> = (0..20).collect();
    while !left.is_empty() {
        hub.release(1);
        assert!(left.remove(&socket.next().await["id"].as_i64().unwrap()));
        let under_way = hub.call(Call::rpc("ListTasks", &json!({ "pageSize": 1 }))).await;
        let begun = under_way.result()["totalSize"].as_i64().unwrap();
        assert!(begun <= 20 - left.len() as i64 + 2, "{begun} begun, {} answered", 20 - left.len());
    }
}

#[tokio::test]
async fn a_call_can_be_given_up_while_no_further_one_may_begin() {
    let limits = Limits { requests_per_connection: 1, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    for id in 1..=3 {
        socket.send(id, "SendMessage", &message("wait x")).await;
    }
    // One that only waits, then the one that is under way.
    for id in [3, 1] {
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": id } });
        socket.write(cancel.to_string()).await;
        let answer = socket.next().await;
        assert_eq!((&answer["id"], code(&answer)), (&json!(id), -32800));
    }
    hub.release(3);
    let answer = socket.next().await;
    assert_eq!((&answer["id"], answer["result"].is_object()), (&json!(2), true), "{answer}");
}

#[tokio::test]
async fn streams_count_against_the_callers_own() {
    let limits = Limits { streams_per_caller: 1, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    socket.send(1, "SendStreamingMessage", &message("wait x")).await;
    assert_eq!(socket.next().await["id"], 1);
    let answer = socket.call_beside("SendStreamingMessage", &message("hello")).await;
    assert_eq!(code(&answer), -31014);
}

impl Socket {
    /// A call while a stream is open, whose events are left out.
    async fn call_beside(&mut self, method: &str, params: &Value) -> Value {
        self.send("beside", method, params).await;
        loop {
            let answer = self.next().await;
            if answer["id"] == "beside" {
                return answer;
            }
        }
    }
}

#[tokio::test]
async fn a_message_over_the_limit_closes_the_socket_with_the_reason() {
    let limits = Limits { body: 4096, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    sent_task(&socket.call("SendMessage", &message("hello")).await);
    socket.write("x".repeat(5000)).await;
    assert_eq!(socket.code().await, CloseCode::Size);
    let mut socket = Socket::open(&hub).await;
    socket.write(json!({ "text": "x".repeat(1 << 20) }).to_string()).await;
    assert_eq!(socket.code().await, CloseCode::Size);
}

#[tokio::test]
async fn all_messages_on_their_way_in_share_the_room_of_bodies() {
    let limits = Limits { bodies: 200 << 10, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    let text = "x".repeat(150 << 10);
    for _ in 0..3 {
        // It fits, and makes room again.
        sent_task(&socket.call("SendMessage", &message(&text)).await);
    }
    socket.write("x".repeat(300 << 10)).await;
    assert_eq!(socket.code().await, CloseCode::Again);
    let mut socket = Socket::open(&hub).await;
    sent_task(&socket.call("SendMessage", &message(&text)).await);
}

#[tokio::test]
async fn pieces_that_carry_nothing_do_not_use_up_the_room_of_bodies() {
    let limits = Limits { body: 16 << 10, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    let piece = |code| Message::Frame(Frame::message(Vec::new(), OpCode::Data(code), false));
    socket.stream.send(piece(Data::Text)).await.unwrap();
    let mut pieces = 0;
    // Six bytes each: it is refused long before the room of all bodies is gone.
    while pieces < 100_000 && socket.stream.send(piece(Data::Continue)).await.is_ok() {
        pieces += 1;
    }
    assert!(pieces < 100_000, "they were all taken");
}

#[tokio::test]
async fn a_large_answer_arrives_whole() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    let answer = socket.call("SendMessage", &message("big 2")).await;
    let parts = answer["result"]["task"]["artifacts"][0]["parts"].as_array().unwrap();
    assert_eq!(
        parts.iter().map(|part| part["text"].as_str().unwrap().len()).sum::<usize>(),
        2 << 20
    );
}

#[tokio::test]
async fn a_socket_shows_that_it_lives_and_hears_whether_the_peer_does() {
    let timeouts = Timeouts { keep_alive: Duration::from_millis(500), ..Timeouts::default() };
    let hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    for _ in 0..5 {
        // Reading answers the pings by itself.
        assert!(matches!(socket.frame().await, Ok(Message::Ping(_))));
    }
    sent_task(&socket.call("SendMessage", &message("hello")).await);
    // A peer that never answers is given up, and its call with it.
    let mut silent = hub.client().await;
    let handshake = Call::get("/ws")
        .header("Upgrade", "websocket")
        .header("Connection", "Upgrade")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    silent.send(&handshake).await;
    let head = silent.head().await;
    assert_eq!(head.status, 101);
    assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    timeout(SOON, async {
        use tokio::io::AsyncReadExt;
        let mut sink = Vec::new();
        let _ = silent.stream.read_to_end(&mut sink).await;
    })
    .await
    .expect("the server hangs up");
}

#[tokio::test]
async fn an_idle_socket_is_closed_and_one_with_a_call_is_not() {
    let timeouts = Timeouts {
        keep_alive: Duration::from_secs(1),
        idle: Duration::from_secs(3),
        ..Timeouts::default()
    };
    let hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut busy = Socket::open(&hub).await;
    busy.send(1, "SendStreamingMessage", &message("wait x")).await;
    busy.next().await;
    let mut idle = Socket::open(&hub).await;
    let id = json!(1);
    let ((), events) = tokio::join!(
        async {
            assert_eq!(idle.code().await, CloseCode::Normal);
            hub.release(1);
        },
        busy.rest(&id),
    );
    assert!(!events.is_empty());
}

#[tokio::test]
async fn a_slow_message_is_given_up() {
    let timeouts = Timeouts {
        keep_alive: Duration::from_millis(500),
        body: Duration::from_secs(1),
        ..Timeouts::default()
    };
    let hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    // The first piece of a message that never ends; the pings are answered all the while.
    let piece = Frame::message(&b"{"[..], OpCode::Data(Data::Text), false);
    socket.stream.send(Message::Frame(piece)).await.unwrap();
    assert_eq!(socket.code().await, CloseCode::Policy);
}

#[tokio::test]
async fn a_shutdown_answers_what_it_can_and_says_goodbye() {
    let mut hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    socket.send("stream", "SendStreamingMessage", &message("wait x")).await;
    let first = socket.next().await;
    assert!(first["result"]["task"].is_object(), "{first}");
    socket.send("send", "SendMessage", &message("wait y")).await;
    // It is under way once its task is there.
    while hub.call(Call::rpc("ListTasks", &json!({}))).await.result()["totalSize"] != 2 {}
    hub.stop();
    let mut answered = false;
    let code = loop {
        match socket.frame().await.unwrap() {
            Message::Text(text) => {
                let answer: Value = serde_json::from_str(&text).unwrap();
                assert_ne!(answer["method"], "stream/end", "the stream is not over");
                answered |= answer["id"] == "send";
            }
            Message::Close(frame) => break frame.unwrap().code,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    };
    assert_eq!(code, CloseCode::Away);
    assert!(answered, "one who waits is answered with the task as it stands");
    hub.stopped().await;
}

#[tokio::test]
async fn a_peer_that_leaves_gives_its_calls_up_and_nothing_else() {
    let limits = Limits { streams_per_caller: 1, connections: 3, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut socket = Socket::open(&hub).await;
    socket.send(1, "SendStreamingMessage", &message("wait x")).await;
    let task = socket.next().await["result"]["task"]["id"].clone();
    drop(socket);
    // The place of the stream and that of the connection are free again.
    let mut next = Socket::open(&hub).await;
    let mut stream = loop {
        next.send(1, "SubscribeToTask", &json!({ "id": task })).await;
        let answer = next.next().await;
        if answer.get("result").is_some() {
            break vec![answer];
        }
        assert_eq!(code(&answer), -31014);
    };
    hub.release(1);
    stream.extend(next.rest(&json!(1)).await);
    assert_eq!(state(stream.last().unwrap()), Some("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn a_retried_stream_follows_the_same_task_over_either_binding() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message("chunks 3"),
        "serviceParameters": { "Idempotency-Key": "key-1" },
    });
    let mut seen = Vec::new();
    for _ in 0..2 {
        socket.write(call.to_string()).await;
        seen.push(socket.rest(&json!(1)).await);
    }
    assert_eq!(seen[0], seen[1]);
    let over_http =
        Call::rpc("SendStreamingMessage", &message("chunks 3")).header("Idempotency-Key", "key-1");
    let events = data(&hub.client().await.open(over_http).await.rest().await);
    let results =
        |events: &[Value]| events.iter().map(|one| one["result"].clone()).collect::<Vec<_>>();
    assert_eq!(results(&events), results(&seen[0]));
    // A key at the handshake would make one send of all: it is not taken.
    let mut keyed = Socket::at(&hub, "/ws", &[("Idempotency-Key", "key-2")]).await.unwrap();
    let first = sent_task(&keyed.call("SendMessage", &message("one")).await);
    assert_ne!(sent_task(&keyed.call("SendMessage", &message("two")).await), first);
}

#[tokio::test]
async fn calls_in_progress_take_memory() {
    // Memory for eight calls of everybody, and for 14 more of each host.
    let limits = Limits { responses: 64 * (8 << 10), ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut sockets = [Socket::open(&hub).await, Socket::open(&hub).await];
    for call in 0..8 + 14 {
        sockets[call % 2].send(call, "SendMessage", &message("wait x")).await;
    }
    let begun = async {
        let list = || Call::rpc("ListTasks", &json!({ "pageSize": 1 }));
        while hub.call_from(2, list()).await.result()["totalSize"] != 8 + 14 {}
    };
    timeout(SOON, begun).await.unwrap();
    sockets[0].send("late", "GetTask", &json!({ "id": "x" })).await;
    let early = timeout(Duration::from_millis(200), sockets[0].next()).await;
    assert!(early.is_err(), "{early:?}");
    hub.release(1);
    hub.release(8 + 13);
    let answered = async { while sockets[0].next().await["id"] != "late" {} };
    timeout(SOON, answered).await.expect("a call that waits for memory is answered later");
}
