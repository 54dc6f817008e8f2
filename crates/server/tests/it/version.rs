//! Versions and extensions of requests.

use herald_protocol::MissingVersion;
use herald_server::Config;
use serde_json::json;

use crate::{
    client::{Call, message, old_message},
    hub::Hub,
};

// proves: VER-002, VER-004, VER-005, VER-011
#[tokio::test]
async fn the_version_chooses_the_shape_on_one_and_the_same_address() {
    let hub = Hub::start().await;
    for version in ["1.0", "1.0.7", " 1.0 "] {
        for header in ["A2A-Version", "a2a-version", "A2A-VERSION"] {
            let call = Call::old_rpc("SendMessage", &message("hello")).header(header, version);
            let state = hub.call(call).await.result()["task"]["status"]["state"].clone();
            assert_eq!(state, "TASK_STATE_COMPLETED", "{header}: {version}");
        }
    }
    for version in [None, Some(""), Some("0.3"), Some("0.3.0")] {
        let mut call = Call::old_rpc("message/send", &old_message("hello"));
        if let Some(version) = version {
            call = call.header("A2A-Version", version);
        }
        let result = hub.call(call).await.result();
        assert_eq!(result["status"]["state"], "completed", "{version:?}");
    }
}

// proves: VER-003, ERR-009, ERR-029
#[tokio::test]
async fn an_unknown_version_is_refused_with_the_list_of_known_ones() {
    let hub = Hub::start().await;
    for version in ["0.5", "2.0", "99.0", "1", "garbage", "1.1", "0.3;1.0"] {
        for call in [
            Call::rpc("SendMessage", &message("hello")),
            Call::rpc("message/send", &old_message("hello")),
        ] {
            let answer = hub.call(call.header("A2A-Version", version)).await;
            assert_eq!(answer.error(), (-32009, "VERSION_NOT_SUPPORTED".into()), "{version}");
            let metadata = &answer.json()["error"]["data"][0]["metadata"];
            assert_eq!(metadata["supportedVersions"], "1.0, 0.3");
        }
        for path in ["/message:send", "/v1/message:send", "/a2a/rest/message:send"] {
            let call = Call::post(path, &message("hello")).header("A2A-Version", version);
            let answer = hub.call(call).await;
            assert_eq!((answer.status(), answer.reason()), (400, "VERSION_NOT_SUPPORTED".into()));
        }
    }
}

// proves: VER-004
#[tokio::test]
async fn without_a_version_a_1_0_request_is_refused_unless_the_policy_is_lenient() {
    let strict = Hub::start().await;
    let calls = [
        Call::old_rpc("SendMessage", &message("hello")),
        Call::post("/message:send", &message("hello")),
        Call::get("/tasks"),
    ];
    for call in &calls {
        for call in [call.clone(), call.clone().header("A2A-Version", "0.3")] {
            assert!(strict.call(call).await.text().contains("VERSION_NOT_SUPPORTED"));
        }
    }
    let missing_version = MissingVersion::Lenient;
    let lenient = Hub::with(Config { missing_version, ..Config::default() }).await;
    for call in calls {
        let answer = lenient.call(call).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.json().get("error").is_none(), "{}", answer.text());
    }
}

// proves: VER-008
#[tokio::test]
async fn the_version_may_stand_in_the_query() {
    let hub = Hub::start().await;
    let call = Call::old_rpc("SendMessage", &message("hello")).at("/rpc?A2A-Version=1.0");
    assert!(hub.call(call).await.result()["task"].is_object());
    assert_eq!(hub.call(Call::get("/tasks?A2A-Version=1.0")).await.status(), 200);
    assert_eq!(hub.call(Call::get("/tasks?a2a-version=1.0")).await.status(), 200);
    let both = Call::get("/tasks?A2A-Version=1.0").header("A2A-Version", "9.9");
    assert_eq!(hub.call(both).await.status(), 400, "the header counts");
}

// proves: VER-012
#[tokio::test]
async fn a_method_of_0_3_does_not_exist_in_1_0() {
    let hub = Hub::start().await;
    let call = Call::rpc("message/send", &old_message("hello"));
    assert_eq!(hub.call(call).await.error(), (-32601, "METHOD_NOT_FOUND".into()));
    let call = Call::post("/v1/message:send", &old_message("hello")).v1();
    assert_eq!(hub.call(call).await.reason(), "VERSION_NOT_SUPPORTED");
}

// proves: EXT-002, EXT-003, EXT-004, EXT-006, EXT-007, EXT-010
#[tokio::test]
async fn extensions_the_agent_knows_are_named_in_the_answer() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendMessage", &message("hello"));
    let answer = hub.call(call.clone()).await;
    assert_eq!(answer.header("a2a-extensions"), None);
    let named = call.clone().header("A2A-Extensions", "urn:unknown, urn:known");
    assert_eq!(hub.call(named).await.header("a2a-extensions"), Some("urn:known"));
    let other = call.clone().header("A2A-Extensions", "urn:known/v2");
    assert_eq!(hub.call(other).await.header("a2a-extensions"), None);
    let old = Call::old_rpc("message/send", &old_message("hello"));
    let answer = hub.call(old.header("X-A2A-Extensions", "urn:known")).await;
    assert_eq!(answer.header("x-a2a-extensions"), Some("urn:known"));
    assert_eq!(answer.header("a2a-extensions"), None);
    let call = Call::rpc("SendStreamingMessage", &message("hello"));
    let stream = hub.client().await.open(call.header("A2A-Extensions", "urn:known")).await;
    assert_eq!(stream.head.header("a2a-extensions"), Some("urn:known"));
}

// proves: EXT-005, ERR-008, ERR-028
#[tokio::test]
async fn a_required_extension_must_be_named() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendMessage", &message("hello")).at("/agents/strict/rpc");
    let answer = hub.call(call.clone()).await;
    assert_eq!(answer.error(), (-32008, "EXTENSION_SUPPORT_REQUIRED".into()));
    let answer = hub.call(call.header("A2A-Extensions", "urn:needed")).await;
    assert!(answer.result()["task"].is_object());
    let call = Call::post("/agents/strict/message:send", &message("hello")).v1();
    let answer = hub.call(call).await;
    assert_eq!((answer.status(), answer.reason()), (400, "EXTENSION_SUPPORT_REQUIRED".into()));
}

#[tokio::test]
async fn under_a2a_rest_no_version_means_0_3_and_1_0_is_there_by_name() {
    let hub = Hub::start().await;
    let seed =
        json!({ "message": { "parts": [{ "type": "text", "content": "Count the apples" }] } });
    for path in ["/a2a/rest/message:send", "/a2a/rest/v1/message:send"] {
        let answer = hub.call(Call::post(path, &seed)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let id = answer.json()["task"]["id"].as_str().unwrap().to_owned();
        let answer = hub.call(Call::get(format!("/a2a/rest/tasks/{id}"))).await;
        assert_eq!(answer.json()["id"], id, "{}", answer.text());
    }
    let answer = hub.call(Call::post("/a2a/rest/message:send", &message("hello")).v1()).await;
    assert_eq!(answer.header("content-type"), Some("application/a2a+json"));
    assert_eq!(answer.json()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(hub.call(Call::get("/a2a/rest/tasks").v1()).await.status(), 200);
    let unversioned = hub.call(Call::get("/a2a/rest/tasks")).await;
    assert_eq!(unversioned.reason(), "VERSION_NOT_SUPPORTED", "0.3 does not list tasks");
}
