//! Feed of all events of a caller's tasks.

use std::{sync::Arc, time::Duration};

use herald_engine::{
    Engine, Profile, Scopes,
    store::{flaky::Flaky, sqlite::Sqlite},
};
use herald_protocol::sse::SseEvent;
use herald_server::{Config, Limits, Timeouts, Token};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Call, Stream, message},
    errors,
    hub::{Hub, SOON},
};

async fn follow(hub: &Hub) -> Stream {
    hub.client().await.open(Call::get("/events").v1()).await
}

/// Sends and waits for the end; the id of the task.
async fn run(hub: &Hub, text: &str) -> String {
    let sent = hub.call(Call::rpc("SendMessage", &message(text))).await.result();
    sent["task"]["id"].as_str().unwrap().to_owned()
}

fn params(event: &SseEvent) -> Value {
    let json: Value = serde_json::from_str(&event.data).unwrap();
    assert_eq!((&json["jsonrpc"], &json["method"]), (&json!("2.0"), &json!("tasks/event")));
    assert!(json.get("id").is_none(), "{json}");
    json["params"].clone()
}

fn task(event: &SseEvent) -> String {
    let params = params(event);
    let update = params.as_object().unwrap().values().next().unwrap();
    update["taskId"].as_str().unwrap_or_else(|| panic!("{params}")).to_owned()
}

fn position(event: &SseEvent) -> u64 {
    event.id.as_ref().expect("every event has an id").parse().unwrap()
}

fn ends(event: &SseEvent) -> bool {
    params(event)["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
}

/// The events up to the end of so many tasks.
async fn until(stream: &mut Stream, mut tasks: usize) -> Vec<SseEvent> {
    let mut events = Vec::new();
    while tasks > 0 {
        let event = tokio::time::timeout(SOON, stream.next()).await.expect("in time").unwrap();
        tasks -= usize::from(ends(&event));
        events.push(event);
    }
    events
}

#[tokio::test]
async fn all_that_happens_from_now_on_is_shown_in_order() {
    let hub = Hub::start().await;
    run(&hub, "before anybody listens").await;
    let mut stream = follow(&hub).await;
    assert_eq!(stream.head.header("x-accel-buffering"), Some("no"));
    let first = run(&hub, "chunks 3").await;
    let second = run(&hub, "hello").await;
    let events = until(&mut stream, 2).await;
    assert!(events.windows(2).all(|pair| position(&pair[0]) < position(&pair[1])));
    let of = |id: &str| events.iter().filter(|one| task(one) == id).map(params).collect::<Vec<_>>();
    let (first, second) = (of(&first), of(&second));
    assert_eq!(first.len() + second.len(), events.len());
    // The message as the state it led to, the work, the pieces, the end.
    let state = |one: &Value| one["statusUpdate"]["status"]["state"].clone();
    assert_eq!(state(&first[0]), "TASK_STATE_SUBMITTED");
    assert_eq!(state(&first[1]), "TASK_STATE_WORKING");
    assert_eq!(first.iter().filter(|one| one["artifactUpdate"].is_object()).count(), 3);
    assert_eq!(state(first.last().unwrap()), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn the_version_says_how_events_look() {
    let hub = Hub::start().await;
    let mut newer = follow(&hub).await;
    let mut named = hub.client().await.open(Call::get("/events?A2A-Version=0.3")).await;
    let mut unnamed = hub.client().await.open(Call::get("/events")).await;
    let id = run(&hub, "hello").await;
    let count = until(&mut newer, 1).await.len();
    for index in 1..=count {
        let event = params(&named.next().await.unwrap());
        assert_eq!(event["taskId"], id.as_str(), "{event}");
        let kind = event["kind"].as_str().unwrap();
        assert!(["status-update", "artifact-update"].contains(&kind), "{event}");
        if kind == "status-update" {
            assert_eq!(event["final"], index == count, "{event}");
        }
    }
    // Without a version they look as they did on the servers that had this path first.
    for index in 1..=count {
        let event = params(&unnamed.next().await.unwrap());
        assert_eq!((&event["id"], &event["kind"]), (&json!(id), &Value::Null), "{event}");
        match event.get("artifact") {
            Some(artifact) => assert_eq!(artifact["index"], 0, "{event}"),
            None => assert_eq!(event["final"], index == count, "{event}"),
        }
    }
    let other = hub.call(Call::get("/events").header("A2A-Version", "7.0")).await;
    assert!(other.status() == 400 && other.text().contains("VERSION_NOT_SUPPORTED"));
}

#[tokio::test]
async fn cut_at_any_event_it_goes_on_after_it_across_tasks() {
    let hub = Hub::start().await;
    let mut stream = follow(&hub).await;
    for text in ["chunks 2", "hello", "chunks 3"] {
        run(&hub, text).await;
    }
    let all = until(&mut stream, 3).await;
    for (index, last) in all.iter().enumerate() {
        let id = last.id.as_deref().unwrap();
        let call = match index % 2 {
            0 => Call::get("/events").v1().header("Last-Event-ID", id),
            _ => Call::get(format!("/events?lastEventId={id}")).v1(),
        };
        let left = all[index + 1..].iter().filter(|one| ends(one)).count();
        let mut stream = hub.client().await.open(call).await;
        assert_eq!(until(&mut stream, left).await, all[index + 1..]);
    }
}

#[tokio::test]
async fn one_who_heard_of_nothing_can_still_go_on() {
    let hub = Hub::start().await;
    run(&hub, "before").await;
    let mut quiet = follow(&hub).await;
    quiet.raw_until("\n\n").await;
    let raw = String::from_utf8(quiet.raw.clone()).unwrap();
    let id = raw.strip_prefix("id: ").unwrap().trim().to_owned();
    drop(quiet);
    let meanwhile = run(&hub, "meanwhile").await;
    let call = Call::get("/events").v1().header("Last-Event-ID", &id);
    let events = until(&mut hub.client().await.open(call).await, 1).await;
    assert!(events.iter().all(|one| task(one) == meanwhile), "{events:#?}");
}

#[tokio::test]
async fn it_goes_on_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let start = async || {
        let script = Script::new();
        let store = Sqlite::open(&path, Default::default()).unwrap();
        let engine = Engine::builder(Arc::new(store))
            .agent(Profile::new("script", "Does what it is told"), script.clone())
            .build()
            .unwrap();
        Hub::over(engine, script, |builder| builder).await
    };
    let mut hub = start().await;
    let mut stream = follow(&hub).await;
    run(&hub, "hello").await;
    let seen = until(&mut stream, 1).await;
    let missed = run(&hub, "missed").await;
    let expected = until(&mut stream, 1).await;
    hub.stop();
    // The stream ends properly, and not in the middle.
    assert_eq!(stream.next().await, None);
    hub.stopped().await;
    drop(hub);
    let hub = start().await;
    let last = seen.last().unwrap().id.as_deref().unwrap();
    let call = Call::get("/events").v1().header("Last-Event-ID", last);
    let mut stream = hub.client().await.open(call).await;
    let events = until(&mut stream, 1).await;
    assert_eq!(events, expected);
    assert!(events.iter().all(|one| task(one) == missed));
}

#[tokio::test]
async fn it_can_be_narrowed_to_tasks_and_to_an_agent() {
    let hub = Hub::start().await;
    let begin = async |path: &str, text: &str| {
        let mut params = message(text);
        params["configuration"] = json!({ "returnImmediately": true });
        let call = Call::rpc("SendMessage", &params).at(path);
        hub.call(call).await.result()["task"]["id"].as_str().unwrap().to_owned()
    };
    let first = begin("/rpc", "wait a").await;
    let second = begin("/rpc", "wait b").await;
    let third = begin("/agents/files/rpc", "wait c").await;
    let open = async |path: String| hub.client().await.open(Call::get(path).v1()).await;
    let mut one = open(format!("/events?task_ids={first}")).await;
    let mut two = open(format!("/events?task_ids={first},{third}")).await;
    let mut same = open(format!("/events?task_ids={first}&task_ids={third}")).await;
    let mut agent = open("/agents/files/events".into()).await;
    hub.release(3);
    for (stream, tasks) in [
        (&mut one, vec![&first]),
        (&mut two, vec![&first, &third]),
        (&mut same, vec![&first, &third]),
        (&mut agent, vec![&third]),
    ] {
        let events = until(stream, tasks.len()).await;
        assert!(events.iter().all(|event| tasks.contains(&&task(event))), "{events:#?}");
        assert!(!tasks.contains(&&second));
    }
    for path in [
        "/events?task_ids=nope".into(),
        format!("/events?task_ids={first},nope"),
        format!("/agents/files/events?task_ids={first}"),
    ] {
        let answer = hub.call(Call::get(path).v1()).await;
        assert_eq!((answer.status(), answer.reason()), (404, "TASK_NOT_FOUND".into()));
    }
    let many = vec!["x"; 101].join(",");
    let answer = hub.call(Call::get(format!("/events?task_ids={many}")).v1()).await;
    assert_eq!((answer.status(), answer.reason()), (400, "INVALID_PARAMS".into()));
}

#[tokio::test]
async fn a_direct_answer_and_an_agent_that_does_not_stream_are_not_shown() {
    let hub = Hub::start().await;
    let mut stream = follow(&hub).await;
    hub.call(Call::rpc("SendMessage", &message("reply hello"))).await.result();
    hub.call(Call::rpc("SendMessage", &message("hush")).at("/agents/silent/rpc")).await.result();
    let shown = run(&hub, "hello").await;
    let events = until(&mut stream, 1).await;
    assert!(events.iter().all(|one| task(one) == shown), "{events:#?}");
    let answer = hub.call(Call::get("/agents/silent/events").v1()).await;
    assert_eq!((answer.status(), answer.reason()), (400, "UNSUPPORTED_OPERATION".into()));
}

#[tokio::test]
async fn nobody_sees_what_is_anothers() {
    let token = |name: &str, scopes| Token {
        secret: format!("canary-7c5e-{name}"),
        tenant: "acme".into(),
        principal: name.into(),
        scopes,
        ..Token::default()
    };
    let blind = Scopes::SEND;
    let tokens = vec![token("ann", Scopes::ALL), token("bob", Scopes::ALL), token("eve", blind)];
    let hub = Hub::with(Config { tokens, ..Config::default() }).await;
    let by = |call: Call, name: &str| {
        call.header("Authorization", &format!("Bearer canary-7c5e-{name}"))
    };
    let answer = hub.call(Call::get("/events").v1()).await;
    assert_eq!(answer.status(), 401);
    assert!(answer.header("www-authenticate").is_some());
    assert_eq!(hub.call(by(Call::get("/events").v1(), "eve")).await.status(), 403);
    let foreign = hub.call(by(Call::get("/events?tenant=other").v1(), "ann")).await;
    assert_eq!(foreign.status(), 403);
    let mut ann = hub.client().await.open(by(Call::get("/events").v1(), "ann")).await;
    let mut bob = hub.client().await.open(by(Call::get("/events").v1(), "bob")).await;
    let mut tasks = Vec::new();
    for name in ["ann", "bob", "ann", "bob"] {
        let call = by(Call::rpc("SendMessage", &message(name)), name);
        tasks.push(hub.call(call).await.result()["task"]["id"].as_str().unwrap().to_owned());
    }
    for (stream, own) in [(&mut ann, [0, 2]), (&mut bob, [1, 3])] {
        let events = until(stream, 2).await;
        let own = own.map(|index| &tasks[index]);
        assert!(events.iter().all(|one| own.contains(&&task(one))), "{events:#?}");
    }
    let call = Call::get(format!("/events?task_ids={}", tasks[0])).v1();
    assert_eq!(hub.call(by(call, "bob")).await.status(), 404);
    // From the beginning of everything it is the same.
    let call = by(Call::get("/events").v1().header("Last-Event-ID", "0"), "bob");
    let events = until(&mut hub.client().await.open(call).await, 2).await;
    assert!(events.iter().all(|one| [&tasks[1], &tasks[3]].contains(&&task(one))));
}

#[tokio::test]
async fn one_that_breaks_off_says_so_and_can_be_taken_up() {
    let store = Arc::new(Flaky::new().unwrap());
    let hub = errors::over(&store).await;
    run(&hub, "chunks 100").await;
    store.fail_reads_after(3);
    let call = Call::get("/events").v1().header("Last-Event-ID", "0");
    let seen = hub.client().await.open(call).await.rest().await;
    let (last, seen) = seen.split_last().unwrap();
    assert_eq!(last.event.as_deref(), Some("error"));
    assert!(last.data.contains("-32603") && !last.data.contains("disk"), "{}", last.data);
    assert!(seen.len() > 10, "{}", seen.len());
    store.fail_reads_after(usize::MAX);
    let id = seen.last().unwrap().id.as_deref().unwrap();
    let call = Call::get("/events").v1().header("Last-Event-ID", id);
    let rest = until(&mut hub.client().await.open(call).await, 1).await;
    assert_eq!(seen.len() + rest.len(), 103, "nothing is lost and nothing comes twice");
}

#[tokio::test]
async fn a_cursor_that_is_none_or_has_not_been_yet_is_refused() {
    let hub = Hub::start().await;
    run(&hub, "hello").await;
    for cursor in ["999999", "x", "-1", "+1", "1.5", "task:3", "99999999999999999999"] {
        let answer = hub.call(Call::get("/events").v1().header("Last-Event-ID", cursor)).await;
        let refused = (answer.status(), answer.reason());
        assert_eq!(refused, (400, "INVALID_PARAMS".into()), "{cursor}");
    }
    // What is no text is no id; an escape that is none stays as it is, as in every path.
    assert_eq!(hub.call(Call::get("/events?task_ids=%FF").v1()).await.status(), 400);
    assert_eq!(hub.call(Call::get("/events?task_ids=%zz").v1()).await.status(), 404);
    assert_eq!(hub.call(Call::post("/events", &json!({}))).await.status(), 405);
    let page = Call::get("/events").v1().header("Origin", "https://evil.example");
    assert_eq!(hub.call(page).await.status(), 403);
}

#[tokio::test]
async fn it_shows_that_it_lives_and_counts_as_a_stream() {
    let timeouts = Timeouts { keep_alive: Duration::from_millis(20), ..Timeouts::default() };
    let limits = Limits { streams_per_caller: 1, ..Limits::default() };
    let hub = Hub::with(Config { timeouts, limits, ..Config::default() }).await;
    let mut stream = follow(&hub).await;
    stream.raw_until(": keep-alive\n\n").await;
    let answer = hub.call(Call::get("/events").v1()).await;
    assert_eq!((answer.status(), answer.reason()), (429, "LIMIT_EXCEEDED".into()));
}
