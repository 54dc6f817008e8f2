//! Agents before 1.0 whose cards have no URL, no version or a wrong one.

use herald_client::{Binding, Client, Credential, SendResult, TaskState, protocol::Version};
use serde_json::{Value, json};

use crate::{
    canary,
    fake::{Fake, Reaction, Received, answer, card, response},
    hub::{assert_way, quick, soon},
};

/// The card that selectools serves, at the path of 0.2 only.
fn without_url() -> Value {
    json!({
        "protocolVersion": "0.2.6", "name": "researcher", "url": "", "version": "0.21.0",
        "description": "Research agent that summarizes topics",
        "capabilities": { "streaming": false, "pushNotifications": false, "stateTransitionHistory": false },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "summarize", "name": "summarize", "description": "Summarize a text", "tags": ["tool"] }],
    })
}

/// The card of CodeTether: names in snake case, a list of schemes, and no version.
fn in_snake_case(url: &str) -> Value {
    json!({
        "name": "CodeTether Server", "description": "Production A2A coordination server", "url": url,
        "version": "1.0.0", "provider": { "organization": "CodeTether", "url": "https://codetether.run" },
        "capabilities": { "streaming": true, "push_notifications": true, "state_transition_history": true },
        "skills": [{ "id": "task-coordination", "name": "Task Coordination", "description": "Coordinate" }],
        "authentication": [{ "scheme": "bearer" }],
    })
}

/// A server with this card at a well-known path below `base`, and JSON-RPC with these methods at `path`.
async fn serving(
    base: &'static str,
    card: fn(&str) -> Value,
    path: &'static str,
    methods: &'static [&'static str],
) -> Fake {
    Fake::start(move |url, _, request| {
        if request.path == format!("{base}/.well-known/agent.json") {
            answer(200, &card(url))
        } else if request.path == path {
            performed(request, methods)
        } else {
            response(404, &[], "Not Found")
        }
    })
    .await
}

fn performed(request: &Received, methods: &[&str]) -> Reaction {
    let body = request.json();
    let method = body["method"].as_str().unwrap();
    if !methods.contains(&method) {
        let error = json!({ "code": -32601, "message": "Method not found" });
        return answer(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "error": error }));
    }
    let status = json!({ "state": "completed" });
    let result = match method {
        "tasks/send" => json!({ "id": body["params"]["id"], "sessionId": "s", "status": status }),
        "SendMessage" => {
            let status = json!({ "state": "TASK_STATE_COMPLETED" });
            json!({ "task": { "id": "t", "contextId": "c", "status": status } })
        }
        _ => json!({ "kind": "task", "id": "t", "contextId": "c", "status": status }),
    };
    answer(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }))
}

/// Path and method of each call so far.
fn calls(fake: &Fake) -> Vec<(String, String)> {
    let call = |call: Received| {
        let method = call.json()["method"].as_str().unwrap_or_default().to_owned();
        (call.path, method)
    };
    fake.calls().into_iter().map(call).collect()
}

fn expected(calls: &[(&str, &str)]) -> Vec<(String, String)> {
    calls.iter().map(|(path, method)| ((*path).to_owned(), (*method).to_owned())).collect()
}

async fn completes(client: &Client) {
    let SendResult::Task(task) = soon(client.send("hello")).await.unwrap() else { panic!() };
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_card_without_a_url_is_called_at_its_own_origin() {
    let card: fn(&str) -> Value = |_| without_url();
    let fake = serving("", card, "/a2a", &["message/send"]).await;
    let client = quick().connect(&fake.url()).await.unwrap();
    completes(&client).await;
    assert_eq!(calls(&fake), expected(&[("/a2a", "message/send")]));
    assert_eq!(client.interface().url, format!("{}/a2a", fake.url()));

    // Without `/a2a` the origin itself is called, and from then on only that.
    let fake = serving("", card, "/", &["message/send"]).await;
    let client = quick().connect(&fake.url()).await.unwrap();
    completes(&client).await;
    completes(&client).await;
    let at_root = [("/a2a", "message/send"), ("/", "message/send"), ("/", "message/send")];
    assert_eq!(calls(&fake), expected(&at_root));

    // A server that is mounted below a path, and a URL that cannot be called.
    let unusable: fn(&str) -> Value = |_| {
        let mut card = without_url();
        card["url"] = "localhost:8041".into();
        card
    };
    let fake = serving("/mounted", unusable, "/mounted/a2a", &["message/send"]).await;
    let client = quick().connect(&format!("{}/mounted", fake.url())).await.unwrap();
    completes(&client).await;
    assert_eq!(calls(&fake), expected(&[("/mounted/a2a", "message/send")]));
}

#[tokio::test]
async fn a_card_without_a_url_in_a_file_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("card.json");
    std::fs::write(&path, without_url().to_string()).unwrap();
    let error = quick().connect(&format!("file://{}", path.display())).await.unwrap_err();
    assert!(error.is_setup(), "{error:?}");
    assert!(error.to_string().contains("JSONRPC 0.2 without a URL"), "{error}");
}

#[tokio::test]
async fn a_card_in_snake_case_is_one_of_0_3_with_its_credentials() {
    let token = canary::secret("token");
    for (path, before) in [("/", &[][..]), ("/a2a/jsonrpc", &[("/", "message/send")])] {
        let fake = serving("", in_snake_case, path, &["message/send"]).await;
        let builder = quick().credential(Credential::bearer(&token));
        let client = builder.connect(&fake.url()).await.unwrap();
        assert_way(&client.interface(), Binding::JsonRpc, Version::V0_3);
        assert_eq!(client.card().capabilities.push_notifications, Some(true));
        assert_eq!(client.card().capabilities.state_transition_history, Some(true));
        assert!(client.card().security_schemes.contains_key("bearer"));
        completes(&client).await;
        let all = [before, &[(path, "message/send")]].concat();
        assert_eq!(calls(&fake), expected(&all));
        let sent = fake.calls().pop().unwrap();
        let bearer = format!("Bearer {token}");
        assert_eq!(sent.header("authorization"), Some(bearer.as_str()));
    }
}

#[tokio::test]
async fn the_newest_version_that_both_sides_know_is_called() {
    for versions in [["0.3", "1.0"], ["1.0", "0.3"]] {
        let fake = Fake::start(move |url, _, request| {
            if request.is_card() {
                let urls = versions.map(|version| format!("{url}/{version}"));
                let interfaces = [0, 1].map(|at| (&*urls[at], "JSONRPC", versions[at]));
                answer(200, &card(&interfaces))
            } else {
                performed(request, &["SendMessage", "message/send"])
            }
        })
        .await;
        completes(&quick().connect(&fake.url()).await.unwrap()).await;
        let pinned = quick().version(Version::V0_3).connect(&fake.url()).await.unwrap();
        completes(&pinned).await;
        let both = [("/1.0", "SendMessage"), ("/0.3", "message/send")];
        assert_eq!(calls(&fake), expected(&both));
    }
}

/// An agent whose card says one version, and which has the methods of another.
async fn lying(version: &'static str, methods: &'static [&'static str]) -> Fake {
    Fake::start(move |url, _, request| {
        if request.is_card() {
            answer(200, &card(&[(&format!("{url}/rpc"), "JSONRPC", version)]))
        } else {
            performed(request, methods)
        }
    })
    .await
}

#[tokio::test]
async fn an_agent_whose_card_names_a_wrong_version_is_called_in_the_one_it_has() {
    let order = [
        ("1.0", ["SendMessage", "message/send", "tasks/send"]),
        ("0.3", ["message/send", "tasks/send", "SendMessage"]),
        ("0.1", ["tasks/send", "message/send", "SendMessage"]),
    ];
    for (version, methods) in order {
        for known in 0..methods.len() {
            let methods: &'static [&'static str] = Vec::from(methods).leak();
            let fake = lying(version, &methods[known..=known]).await;
            let client = quick().connect(&fake.url()).await.unwrap();
            completes(&client).await;
            completes(&client).await;
            // Each method once until one is known, then that one only.
            let mut called: Vec<_> = methods[..=known].iter().map(|one| ("/rpc", *one)).collect();
            called.push(("/rpc", methods[known]));
            assert_eq!(calls(&fake), expected(&called), "{version}");
        }
    }
}

#[tokio::test]
async fn the_error_about_a_wrong_card_says_what_was_tried_in_order() {
    let fake = lying("1.0", &["ping"]).await;
    let error = quick().connect(&fake.url()).await.unwrap().send("hello").await.unwrap_err();
    let tried: Vec<_> = error.attempts().iter().map(ToString::to_string).collect();
    let at = format!("at {}/rpc (Method not found)", fake.url());
    let expected = ["1.0", "0.3", "0.1"].map(|version| format!("JSONRPC {version} {at}"));
    assert_eq!(tried, expected);
    let text = error.to_string();
    assert!(text.contains("; tried, in order: ") && text.contains(&expected.join(", ")), "{text}");

    // A pinned version is the only one.
    let pinned = quick().version(Version::V1_0).connect(&fake.url()).await.unwrap();
    let error = pinned.send("hello").await.unwrap_err();
    assert!(error.attempts().is_empty(), "{error}");
    assert_eq!(fake.calls().len(), 4);
}

/// Everything but a missing path and an unknown method may come from an agent that has the message.
#[tokio::test]
async fn a_message_that_may_have_arrived_is_not_sent_in_another_version() {
    let internal = |request: &Received| {
        let error = json!({ "code": -32603, "message": "Internal error" });
        answer(200, &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }))
    };
    type React = fn(&Received) -> Reaction;
    let reactions: [React; 5] = [
        |_| response(500, &[], "Internal Server Error"),
        |_| response(400, &[], "Bad Request"),
        |_| answer(200, &json!({ "half": "an answer" })),
        |_| Reaction::HangUp,
        internal,
    ];
    for (at, react) in reactions.into_iter().enumerate() {
        let fake = Fake::start(move |_, _, request| {
            if request.is_card() { answer(200, &without_url()) } else { react(request) }
        })
        .await;
        let client = quick().connect(&fake.url()).await.unwrap();
        soon(client.send("hello")).await.unwrap_err();
        assert_eq!(calls(&fake), expected(&[("/a2a", "message/send")]), "{at}");
    }
}

#[tokio::test]
async fn an_agent_that_has_answered_is_not_asked_in_other_versions() {
    let fake = lying("0.3", &["message/send"]).await;
    let client = quick().connect(&fake.url()).await.unwrap();
    completes(&client).await;
    let error = client.get("t").await.unwrap_err();
    assert!(error.attempts().is_empty(), "{error}");
    assert_eq!(calls(&fake), expected(&[("/rpc", "message/send"), ("/rpc", "tasks/get")]));
}
