//! Tests of `kind = "a2a"`: bindings, chains, kills and hostile agents.

mod credentials;
mod hostile;
mod identity;
mod leaving;
mod older;
pub(crate) mod passing;
mod raw;

use std::{net::TcpListener, time::Duration};

use serde_json::json;

use self::passing::{begun, draft, made, passing, told, upstream, url, word};
use crate::{
    http::Call,
    support::{Herald, Options, Random, SOON, eventually, number, uuid},
    tasks::{ended, failure, task},
    wire::{Draft, Frame, Wire, id, state},
};

/// Every way to a Herald that cards know of: a binding, a version, and their names in the metrics.
const WAYS: [(&str, &str, &str); 7] = [
    ("jsonrpc", "1.0", "jsonrpc"),
    ("http+json", "1.0", "rest"),
    ("grpc", "1.0", "grpc"),
    ("websocket", "1.0", "websocket"),
    ("jsonrpc", "0.3", "jsonrpc"),
    ("http+json", "0.3", "rest"),
    ("grpc", "0.3", "grpc"),
];

/// Lists all interfaces in the cards of a server.
const EVERY_INTERFACE: &str =
    "[card]\ninterfaces = [\"jsonrpc\", \"http+json\", \"grpc\", \"websocket\"]\n";

/// An agent of 0.2 is called as one of 0.3.
#[tokio::test]
async fn version_0_2_is_treated_as_0_3() {
    let behind = Herald::start(Options::config(STEERED)).await;
    let agent = passing("old", &url(&behind), "a2a_version = \"0.2\"");
    let before = Herald::start(Options::config(agent)).await;
    let done = told(&before, "", &draft("tck-complete-task")).await;
    assert_eq!((&*state(&done), word(&done)), ("completed", "Hello from TCK"));
    let metrics = behind.call(&Call::get("/metrics")).await;
    let called = "operation=\"SendMessage\",version=\"0.3\"";
    let streamed = "operation=\"SendStreamingMessage\",version=\"0.3\"";
    let text = metrics.text();
    assert!(text.contains(called) || text.contains(streamed), "{text}");
    let wrong =
        Options::config(passing("old", &url(&behind), "a2a_version = \"0.4\"")).refused().await;
    assert!(wrong.stderr.contains("`\"0.2\"`"), "{wrong:?}");
    let dialect =
        Options::config(format!("[dialects]\n\"0.2\" = false\n{STEERED}")).refused().await;
    assert!(dialect.stderr.contains("unknown version"), "{dialect:?}");
}

const STEERED: &str = "[[agents]]\nname = \"steered\"\nkind = \"conformance\"\n";

#[tokio::test]
async fn the_output_of_an_agent_is_passed_on_over_every_binding_and_version() {
    let behind = Herald::start(Options::config(STEERED)).await;
    let agent = |(at, (binding, version, _)): (usize, &(&str, &str, &str))| {
        let settings = format!("binding = \"{binding}\"\na2a_version = \"{version}\"");
        passing(&format!("way-{at}"), &url(&behind), &settings)
    };
    let agents: String = WAYS.iter().enumerate().map(agent).collect();
    let before = Herald::start(Options::config(agents)).await;
    for (at, way) in WAYS.iter().enumerate() {
        let agent = &format!("/agents/way-{at}");
        let call = Wire::Rest.stream(agent, &draft("tck-stream-chunked chunks=5 delay_ms=2"));
        let mut streamed = before.client().await.open(&call).await.unwrap();
        let frames = Wire::Rest.rest_of(&mut streamed).await.unwrap();
        let pieces: Vec<_> = frames.iter().filter_map(Frame::text).collect();
        assert_eq!(pieces, ["chunk 0 ", "chunk 1 ", "chunk 2 ", "chunk 3 ", "chunk 4 "], "{way:?}");
        let updates: Vec<_> =
            frames.iter().filter_map(|frame| frame.body.get("artifactUpdate")).collect();
        assert_eq!(updates[0]["artifact"]["artifactId"], "stream", "{way:?}");
        assert_eq!((updates[1]["append"] == true, updates[4]["lastChunk"] == true), (true, true));
        assert_eq!(frames.last().and_then(Frame::state).as_deref(), Some("completed"), "{way:?}");

        for (said, expected, word_of_it) in [
            ("tck-complete-task", "completed", "Hello from TCK"),
            ("tck-reject-task", "rejected", "Rejected on request"),
            ("tck-task-failure", "failed", "Failed on request"),
            ("tck-message-response", "completed", "Direct message response"),
        ] {
            let answer = told(&before, agent, &draft(said)).await;
            assert_eq!((&*state(&answer), word(&answer)), (expected, word_of_it), "{way:?}");
        }
        let data = told(&before, agent, &draft("tck-artifact-data")).await;
        assert_eq!(data["artifacts"][0]["parts"][0]["data"]["count"], 42, "{way:?}: {data}");
        let file = told(&before, agent, &draft("tck-artifact-file")).await;
        assert_eq!(file["artifacts"][0]["parts"][0]["filename"], "output.txt", "{way:?}: {file}");

        // Several turns are several turns of one task upstream.
        let asked = told(&before, agent, &draft("tck-multi-turn")).await;
        assert_eq!(state(&asked), "input-required", "{way:?}: {asked}");
        let again = told(&before, agent, &draft("more").to(id(&asked))).await;
        assert_eq!((&*state(&again), upstream(&again)), ("input-required", upstream(&asked)));
        let done = told(&before, agent, &draft("done").to(id(&asked))).await;
        assert_eq!((&*state(&done), word(&done)), ("completed", "Done"), "{way:?}");
        assert_eq!(upstream(&done), upstream(&asked), "{way:?}");
        let unsigned = told(&before, agent, &draft("tck-auth-required")).await;
        assert_eq!(state(&unsigned), "auth-required", "{way:?}");
        let signed = told(&before, agent, &draft("here").to(id(&unsigned))).await;
        assert_eq!((&*state(&signed), word(&signed)), ("completed", "Signed in"), "{way:?}");

        // A cancel reaches the last agent.
        let stuck = begun(&before, agent, &draft("tck-cancel")).await;
        eventually(SOON, "the agent behind has the task", async || {
            !upstream(&task(&before, &stuck).await).is_empty()
        })
        .await;
        let far = upstream(&task(&before, &stuck).await).to_owned();
        let canceled = Wire::Rest.result(&before.call(&Wire::Rest.cancel(&stuck)).await).unwrap();
        assert_eq!(state(&canceled), "canceled", "{way:?}");
        assert_eq!(state(&ended(&behind, &far).await), "canceled", "{way:?}");
    }
    let metrics = behind.call(&Call::get("/metrics")).await;
    for (_, version, binding) in WAYS {
        let called = metrics.text().lines().any(|line| {
            line.contains(&format!("version=\"{version}\",binding=\"{binding}\",outcome=\"ok\""))
        });
        assert!(called, "{binding} {version}: {}", metrics.text());
    }
}

/// Three servers: one that is called in 0.3, one behind it over gRPC, and behind that the agent.
struct Chain {
    first: Herald,
    second: Herald,
    third: Herald,
}

/// A port that is free now and that a server can come back to.
fn port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// A server that keeps its address across restarts.
async fn lasting(config: String) -> Herald {
    let port = port();
    let config = [EVERY_INTERFACE, &config].concat();
    Herald::start(Options::config(config).no_port().arguments(["--port", &port])).await
}

impl Chain {
    async fn start(settings: &str) -> Self {
        let third = lasting(STEERED.to_owned()).await;
        let settings =
            |binding: &str| format!("binding = \"{binding}\"\na2a_version = \"1.0\"\n{settings}");
        let second = lasting(passing("second", &url(&third), &settings("jsonrpc"))).await;
        let first = lasting(passing("first", &url(&second), &settings("grpc"))).await;
        Self { first, second, third }
    }

    /// The task at the last agent, once it exists.
    async fn far(&self, task_of_first: &str) -> String {
        let mut found = String::new();
        for (herald, next) in [(&self.first, true), (&self.second, false)] {
            let near = if next { task_of_first.to_owned() } else { found.clone() };
            eventually(SOON, "the next one has the task", async || {
                found = upstream(&task(herald, &near).await).to_owned();
                !found.is_empty()
            })
            .await;
        }
        found
    }
}

#[tokio::test]
async fn a_chain_of_three_agents_streams_pauses_resumes_and_cancels() {
    let chain = Chain::start("").await;
    let old = Wire::OldRpc;
    let call = old.stream("", &draft("tck-stream-chunked chunks=20 delay_ms=5"));
    let mut stream = chain.first.client().await.open(&call).await.unwrap();
    // The first chunk arrives before the agent has written the last.
    let mut frames = Vec::new();
    while frames.last().and_then(Frame::text).is_none() {
        frames.push(old.frame(&stream.next().await.unwrap().unwrap()));
    }
    let far = chain.far(&frames[0].task).await;
    assert_eq!(state(&task(&chain.third, &far).await), "working");
    frames.extend(old.rest_of(&mut stream).await.unwrap());
    let pieces: Vec<_> = frames.iter().filter_map(Frame::text).collect();
    let written: Vec<_> = (0..20).map(|index| format!("chunk {index} ")).collect();
    assert_eq!(pieces, written);
    assert_eq!(frames.last().unwrap().body["kind"], "status-update");
    assert_eq!(frames.last().unwrap().body["final"], true);
    assert_eq!(frames.last().and_then(Frame::state).as_deref(), Some("completed"));

    // It pauses for input and continues with it, as one task at every server.
    let send = async |draft: &Draft| old.sent(&chain.first.call(&old.send("", draft, false)).await);
    let asked = send(&draft("tck-multi-turn")).await.unwrap();
    assert_eq!(
        (&*state(&asked), word(&asked)),
        ("input-required", "Anything else? Say done to finish")
    );
    let far = chain.far(id(&asked)).await;
    assert_eq!(state(&task(&chain.third, &far).await), "input-required");
    assert_eq!(state(&send(&draft("more").to(id(&asked))).await.unwrap()), "input-required");
    let done = send(&draft("done").to(id(&asked))).await.unwrap();
    assert_eq!((&*state(&done), word(&done)), ("completed", "Done"));
    assert_eq!(state(&task(&chain.third, &far).await), "completed");

    // A cancel ends all three, at work and while it waits for input.
    for text in ["tck-cancel", "tck-multi-turn", "tck-auth-required"] {
        let sent = old.sent(&chain.first.call(&old.send("", &draft(text), true)).await).unwrap();
        let far = chain.far(id(&sent)).await;
        if text != "tck-cancel" {
            eventually(SOON, "it waits", async || {
                state(&task(&chain.first, id(&sent)).await).ends_with("required")
            })
            .await;
        }
        let canceled = old.result(&chain.first.call(&old.cancel(id(&sent))).await).unwrap();
        assert_eq!(state(&canceled), "canceled", "{text}");
        assert_eq!(state(&ended(&chain.third, &far).await), "canceled", "{text}");
    }
}

// proves: STR-030
#[tokio::test]
async fn a_server_killed_in_the_middle_of_a_chain_resumes_its_work() {
    let mut chain = Chain::start("idempotent = true").await;
    let text = "tck-stream-chunked chunks=60 delay_ms=20";
    let pieces: Vec<_> = (0..60).map(|index| format!("chunk {index} ")).collect();
    for (victim, seen) in [(1, 0), (1, 1), (0, 1), (1, 20), (0, 20), (0, 0)] {
        let begun = begun(&chain.first, "", &draft(text)).await;
        eventually(SOON, "it has come so far", async || {
            made(&task(&chain.first, &begun).await).len() >= seen
        })
        .await;
        let victim = if victim == 0 { &mut chain.first } else { &mut chain.second };
        victim.kill9().await;
        victim.restart().await;
        let done = ended(&chain.first, &begun).await;
        assert_eq!(state(&done), "completed", "after {seen}: {done}");
        assert_eq!(made(&done), pieces, "after {seen}");
    }
    // The long version of the same is many of them, at any moment.
    let rounds = number("HERALD_CHAIN_ROUNDS", 3);
    let mut random = Random::seeded("HERALD_CHAIN_SEED");
    println!("HERALD_CHAIN_SEED={} HERALD_CHAIN_ROUNDS={rounds}", random.0);
    for round in 0..rounds {
        let begun = begun(&chain.first, "", &draft(text)).await;
        tokio::time::sleep(Duration::from_millis(random.between(0, 1500))).await;
        let victims = [&mut chain.first, &mut chain.second, &mut chain.third];
        let first = random.between(0, 3);
        for (at, victim) in victims.into_iter().enumerate() {
            if at as u64 == first || random.between(0, 3) == 0 {
                victim.kill9().await;
                victim.restart().await;
            }
        }
        let done = ended(&chain.first, &begun).await;
        assert_eq!((&*state(&done), made(&done)), ("completed", pieces.clone()), "round {round}");
    }
    // Each message started exactly one task at the last agent.
    let far = chain.third.call(&crate::wire::list(None, 100, "")).await.json();
    assert_eq!(far["totalSize"], 6 + rounds, "{far}");
}

#[tokio::test]
async fn an_upstream_that_stays_dead_leaves_a_reason_and_its_output() {
    let mut behind = Herald::start(Options::config(STEERED)).await;
    let config = passing("up", &url(&behind), "retries = 1");
    let before = Herald::start(Options::config(config)).await;
    let mut tasks = Vec::new();
    for text in ["tck-stream-chunked chunks=10000 delay_ms=10", "tck-cancel", "tck-multi-turn"] {
        tasks.push(begun(&before, "", &draft(text)).await);
    }
    for begun in &tasks {
        eventually(SOON, "the agent has the task", async || {
            !upstream(&task(&before, begun).await).is_empty()
        })
        .await;
    }
    eventually(SOON, "it has written something", async || {
        made(&task(&before, &tasks[0]).await).len() > 3
    })
    .await;
    eventually(SOON, "it waits", async || {
        state(&task(&before, &tasks[2]).await) == "input-required"
    })
    .await;
    behind.kill9().await;
    for begun in &tasks[..2] {
        let failed = ended(&before, begun).await;
        let (text, reason) = failure(&failed);
        assert!(text.starts_with("agent up "), "{failed}");
        assert_eq!(reason, "AGENT_UNAVAILABLE", "{failed}");
    }
    assert!(made(&task(&before, &tasks[0]).await).len() > 3, "what came is kept");
    // The third task has no running turn, so only its next turn notices.
    assert_eq!(state(&task(&before, &tasks[2]).await), "input-required");
    let failed = told(&before, "", &draft("more").to(&tasks[2])).await;
    assert_eq!(failure(&failed), ("agent up cannot be reached", "AGENT_UNAVAILABLE"));
}

#[tokio::test]
async fn a_conversation_is_one_conversation_upstream() {
    let behind = Herald::start(Options::config(STEERED)).await;
    let before = Herald::start(Options::config(passing("up", &url(&behind), ""))).await;
    let contexts = async |context: &str| {
        let mut named = Vec::new();
        for text in ["one", "two"] {
            let mut message =
                json!({ "messageId": uuid(), "role": "ROLE_USER", "contextId": context });
            message["parts"] = json!([{ "text": text }]);
            let call = Call::post("/message:send", &json!({ "message": message }));
            let answer = before.call(&call.header("a2a-version", "1.0")).await.json();
            assert_eq!(made(&answer["task"]), [text], "{answer}");
            let far = task(&behind, upstream(&answer["task"])).await;
            named.push(far["contextId"].as_str().unwrap().to_owned());
        }
        named
    };
    let mine = contexts("mine").await;
    let other = contexts("other").await;
    assert_eq!((&mine[0], &other[0]), (&mine[1], &other[1]));
    assert_ne!(mine[0], other[0]);
    assert_ne!(mine[0], "mine", "it is the agent behind that names its conversations");
}

#[tokio::test]
async fn a_message_to_a_working_task_is_queued_upstream() {
    let behind = Herald::start(Options::config(STEERED)).await;
    let before = Herald::start(Options::config(passing("up", &url(&behind), ""))).await;
    let first = begun(&before, "", &draft("tck-stream-chunked chunks=3 delay_ms=100")).await;
    let done = told(&before, "", &draft("and then this").to(&first)).await;
    assert_eq!((id(&done), &*state(&done)), (&*first, "completed"), "{done}");
    assert_eq!(made(&done), ["chunk 0 ", "chunk 1 ", "chunk 2 ", "and then this"]);
    let far = behind.call(&crate::wire::list(None, 100, "")).await.json();
    let far = far["tasks"].as_array().unwrap();
    assert_eq!((far.len(), &far[0]["contextId"]), (2, &far[1]["contextId"]));
}

#[tokio::test]
async fn agents_that_call_each_other_in_a_loop_refuse() {
    // An agent that calls itself.
    let own = port();
    let config = passing("own", &format!("http://127.0.0.1:{own}"), "");
    let herald = Herald::start(Options::config(config).no_port().arguments(["--port", &own])).await;
    let refused = told(&herald, "", &draft("hello")).await;
    assert_eq!(state(&refused), "rejected", "{refused}");
    assert!(
        word(&refused).contains("agent own") && word(&refused).contains("would be a loop"),
        "{refused}"
    );
    let listed = herald.call(&crate::wire::list(None, 100, "")).await.json();
    assert_eq!(listed["totalSize"], 2, "it went round once: {listed}");

    // Two agents that call each other, over different bindings.
    let ports = [port(), port()];
    let config = |at: usize, binding: &str| {
        let settings = format!("binding = \"{binding}\"");
        let url = format!("http://127.0.0.1:{}", ports[1 - at]);
        [EVERY_INTERFACE, &passing("mutual", &url, &settings)].concat()
    };
    let start = async |at: usize, binding: &str| {
        let options = Options::config(config(at, binding)).no_port();
        Herald::start(options.arguments(["--port", &ports[at]])).await
    };
    let (one, other) = (start(0, "grpc").await, start(1, "websocket").await);
    for herald in [&one, &other] {
        let refused = told(herald, "", &draft("hello")).await;
        assert_eq!(state(&refused), "rejected", "{refused}");
        assert!(word(&refused).contains("would be a loop"), "{refused}");
    }

    // A chain that is too long, without a loop.
    let passed: Vec<_> = (0..16).map(|_| uuid()).collect();
    let mut message =
        json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": "x" }] });
    message["metadata"] = json!({ "herald.via": passed });
    let call = Call::post("/message:send", &json!({ "message": message }));
    let refused = one.call(&call.header("a2a-version", "1.0")).await.json()["task"].take();
    assert_eq!(state(&refused), "rejected", "{refused}");
    assert!(word(&refused).contains("16 agents"), "{refused}");
}

#[tokio::test]
async fn invalid_settings_of_an_upstream_are_refused_at_the_start() {
    for (settings, said) in [
        ("kind = \"a2a\"\n", "needs a url"),
        ("kind = \"a2a\"\nurl = \"file:///etc/card.json\"\n", "must begin with http"),
        ("kind = \"a2a\"\nurl = \"http://user:hunter2@a.example\"\n", "not in the URL"),
        ("kind = \"a2a\"\nurl = \"user:hunter2@a.example\"\n", "must begin with http"),
        (
            "kind = \"llm\"\nmodel = \"m\"\nurl = \"http://user:hunter2@a.example\"\n",
            "without credentials in it",
        ),
        ("kind = \"a2a\"\nurl = \"http://a.example\"\nbinding = \"soap\"\n", "`jsonrpc`"),
        ("kind = \"a2a\"\nurl = \"http://a.example\"\na2a_version = \"7\"\n", "\"1.0\""),
        (
            "kind = \"a2a\"\nurl = \"http://a.example\"\ntls = { key = \"x\" }\n",
            "both `certificate` and `key`",
        ),
        ("kind = \"a2a\"\nurl = \"http://a.example\"\ntls = { ca = \"none.pem\" }\n", "none.pem"),
        (
            "kind = \"a2a\"\nurl = \"http://a.example\"\nauth = { token = \"env:UNSET_A2A\" }\n",
            "UNSET_A2A",
        ),
        (
            "kind = \"a2a\"\nurl = \"http://a.example\"\ncommand = [\"wc\"]\n",
            "`command` belongs to",
        ),
        ("kind = \"echo\"\nurl = \"http://a.example\"\n", "`url` belongs to kind = \"a2a\""),
    ] {
        let config = format!("[[agents]]\nname = \"up\"\n{settings}");
        let refused = Options::config(config).refused().await;
        assert!(refused.stderr.contains(said), "{settings}: {}", refused.stderr);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
    }
}
