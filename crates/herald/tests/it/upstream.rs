//! Other A2A agents behind Herald: over every binding, in a chain, killed, and hostile.

use serde_json::Value;

use crate::{
    exec::{ended, task},
    http::Call,
    support::{Herald, Options, SOON, eventually, uuid},
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

const STEERED: &str = "[[agents]]\nname = \"steered\"\nkind = \"conformance\"\n";

fn url(herald: &Herald) -> String {
    format!("http://{}", herald.address)
}

/// An agent that passes everything on to `url`.
fn passing(name: &str, url: &str, settings: &str) -> String {
    format!("[[agents]]\nname = \"{name}\"\nkind = \"a2a\"\nurl = \"{url}\"\n{settings}\n")
}

fn draft(text: &str) -> Draft {
    Draft::new(uuid(), text)
}

async fn told(herald: &Herald, agent: &str, draft: &Draft) -> Value {
    Wire::Rest.sent(&herald.call(&Wire::Rest.send(agent, draft, false)).await).unwrap()
}

async fn begun(herald: &Herald, agent: &str, draft: &Draft) -> String {
    let task = Wire::Rest.sent(&herald.call(&Wire::Rest.send(agent, draft, true)).await).unwrap();
    id(&task).to_owned()
}

/// What the agent says about a task's state.
fn word(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

/// What the agent behind calls the task.
fn upstream(task: &Value) -> &str {
    task["metadata"]["herald.upstream"]["taskId"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn what_an_agent_says_passes_through_every_binding_and_version() {
    let behind = Herald::start(Options::config(STEERED)).await;
    let agent = |(at, (binding, version, _)): (usize, &(&str, &str, &str))| {
        let settings = format!("binding = \"{binding}\"\nversion = \"{version}\"");
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

        // Several turns are several turns of one task behind.
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

        // A cancel goes all the way.
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
