//! Old versions that are switched off: refused with a sentence that says what to use instead, and
//! promised by no card.

use herald_protocol::Version;
use herald_server::{Config, Server, ServerBuildError, SwitchedOff};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Call, envelope, message, old_message},
    hub::{Hub, engine},
};

fn off(agent: Option<&str>, version: Version) -> Config {
    let off = SwitchedOff { agent: agent.map(Into::into), version };
    Config { switched_off: vec![off], ..Config::default() }
}

async fn without_0_3() -> Hub {
    Hub::with(off(None, Version::V0_3)).await
}

/// What an error says for programs.
#[track_caller]
fn metadata(error: &Value) -> Value {
    let details = error["data"].as_array().or(error["details"].as_array()).unwrap();
    let info = details.iter().find(|detail| detail["reason"].is_string()).unwrap();
    info["metadata"].clone()
}

#[tokio::test]
async fn a_version_that_is_switched_off_is_refused_on_json_rpc() {
    let hub = without_0_3().await;
    for version in [None, Some("0.3")] {
        let mut call = Call::old_rpc("message/send", &old_message("hello"));
        if let Some(version) = version {
            call = call.header("A2A-Version", version);
        }
        let answer = hub.call(call).await;
        assert_eq!(answer.error(), (-32009, "VERSION_NOT_SUPPORTED".into()));
        let error = &answer.json()["error"];
        let sentence = "Version not supported: A2A 0.3 is switched off here; call SendMessage with A2A-Version: 1.0";
        assert_eq!(error["message"], sentence);
        let said = metadata(error);
        assert_eq!(
            (&said["supportedVersions"], &said["requestedVersion"]),
            (&json!("1.0"), &json!("0.3"))
        );
        assert_eq!(said["hint"], "call SendMessage with A2A-Version: 1.0");
    }
    assert!(
        hub.call(Call::rpc("SendMessage", &message("hello"))).await.result()["task"].is_object()
    );
}

#[tokio::test]
async fn a_version_that_is_switched_off_is_refused_on_rest() {
    let hub = without_0_3().await;
    for path in ["/v1/message:send", "/a2a/rest/message:send", "/a2a/rest/v1/message:send"] {
        for version in ["", "0.3", "1.0"] {
            if path == "/a2a/rest/message:send" && version == "1.0" {
                continue;
            }
            let call = Call::post(path, &old_message("hello")).header("A2A-Version", version);
            let answer = hub.call(call).await;
            assert_eq!((answer.status(), answer.reason()), (400, "VERSION_NOT_SUPPORTED".into()));
            let error = &answer.json()["error"];
            let text = error["message"].as_str().unwrap();
            assert!(text.contains("0.3 is switched off") && text.contains("1.0"), "{text}");
            assert_eq!(metadata(error)["supportedVersions"], "1.0");
        }
    }
    assert_eq!(hub.call(Call::post("/message:send", &message("hello")).v1()).await.status(), 200);
}

#[tokio::test]
async fn a_version_that_is_switched_off_is_not_in_the_card() {
    let hub = without_0_3().await;
    let card = hub.call(Call::get("/.well-known/agent-card.json")).await.json();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 2);
    assert!(interfaces.iter().all(|interface| interface["protocolVersion"] == "1.0"), "{card}");
    for member in ["protocolVersion", "url", "preferredTransport", "additionalInterfaces"] {
        assert!(card.get(member).is_none(), "{member} in {card}");
    }
}

#[tokio::test]
async fn a_version_can_be_switched_off_for_one_agent() {
    let hub = Hub::with(off(Some("files"), Version::V0_3)).await;
    let call = Call::old_rpc("message/send", &old_message("hello"));
    assert!(hub.call(call.clone()).await.result().is_object());
    let refused = hub.call(call.at("/agents/files/rpc")).await;
    assert_eq!(refused.error(), (-32009, "VERSION_NOT_SUPPORTED".into()));
    for (path, legacy) in [("", true), ("/agents/silent", true), ("/agents/files", false)] {
        let card = hub.call(Call::get(format!("{path}/.well-known/agent-card.json"))).await;
        assert_eq!(card.text().contains("\"0.3\""), legacy, "{path}");
    }
}

#[tokio::test]
async fn only_older_versions_can_be_switched_off() {
    let engine = engine(&Script::new());
    for version in [Version::V1_0, Version { major: 0, minor: 9 }] {
        let refused =
            Server::builder(engine.clone()).config(off(None, version)).build().unwrap_err();
        assert!(
            matches!(refused, ServerBuildError::SwitchedOff(one, _) if one == version),
            "{refused}"
        );
    }
}

// proves: ERR-009, VER-012
#[tokio::test]
async fn every_mistake_about_versions_and_methods_is_explained_in_a_sentence() {
    let hub = Hub::start().await;
    let call = |method: &str, version: Option<&str>| {
        let call = Call::post("/a2a/jsonrpc", &envelope(method, &json!({})));
        version.map_or(call.clone(), |version| call.header("A2A-Version", version))
    };
    for (method, version, code, hint) in [
        ("message/send", Some("1.0"), -32601, "call SendMessage"),
        ("sendmessage", Some("1.0"), -32601, "did you mean SendMessage?"),
        ("message/sned", None, -32601, "did you mean message/send?"),
        ("tasks/list", None, -32601, "call ListTasks with A2A-Version: 1.0"),
        ("frobnicate", Some("1.0"), -32601, "SendMessage"),
        ("SendMessage", None, -32009, "add the header A2A-Version: 1.0"),
        ("SendMessage", Some("0.3"), -32009, "set the header A2A-Version to 1.0"),
        ("SendMessage", Some("2.0"), -32009, "send A2A-Version: 1.0"),
        ("message/send", Some("2.0"), -32009, "send A2A-Version: 1.0"),
    ] {
        let answer = hub.call(call(method, version)).await;
        assert_eq!(answer.error().0, code, "{method} {version:?}");
        let said = metadata(&answer.json()["error"]);
        let text = said["hint"].as_str().unwrap_or_else(|| panic!("{method} {version:?}: {said}"));
        assert!(text.contains(hint), "{method} {version:?}: {text}");
    }
}
