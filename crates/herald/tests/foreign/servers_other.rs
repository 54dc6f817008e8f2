//! Tests of agents on servers of other projects and of older SDKs, called by `herald send` and behind Herald.
//! `cargo xtask test` installs them.

use serde_json::json;

use crate::{
    cli_support::cli,
    passing::{draft, made, passing, told, word},
    servers_upstream::Official,
    support::{Herald, Options},
    tasks::failure,
    wire::state,
};

/// The token of the agent on selectools.
const TOKEN: &str = "canary-7c5e-selectools";

/// `herald send` to an agent before 1.0: the version is asked for, as the command line specification requires.
async fn sends(url: &str, version: &str, token: Option<&str>) {
    let send = ["send", url, "hello"];
    let error = cli(send).fails(1, "VersionNotSupportedError").await;
    assert_eq!(error["hint"], format!("add --a2a-version {version}"), "{error}");
    let run = cli(send.into_iter().chain(["--a2a-version", version]));
    let task = match token {
        Some(token) => run.env("A2ACLI_BEARER", token).json().await,
        None => run.json().await,
    };
    assert_eq!(task["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(made(&task["task"]), ["hello"], "{task}");
}

/// Herald with one agent that forwards to `url`.
async fn before(url: &str, settings: &str) -> Herald {
    Herald::start(Options::config(passing("other", url, settings))).await
}

/// The whole conversation with an agent that does what the first word of a message says.
async fn obeys(herald: &Herald) {
    let done = told(herald, "", &draft("chunks 3")).await;
    assert_eq!((&*state(&done), made(&done).concat()), ("completed", "1;2;3;".to_owned()));
    let asked = told(herald, "", &draft("ask")).await;
    assert_eq!((&*state(&asked), word(&asked)), ("input-required", "which one?"));
    let done = told(herald, "", &draft("that one").to(crate::wire::id(&asked))).await;
    assert_eq!((&*state(&done), made(&done).concat()), ("completed", "that one".to_owned()));
    let failed = told(herald, "", &draft("fail")).await;
    assert_eq!(failure(&failed), ("it broke", "AGENT_FAILED"));
    let reply = told(herald, "", &draft("reply directly")).await;
    assert_eq!((&*state(&reply), word(&reply)), ("completed", "directly"));
}

#[tokio::test]
async fn a_selectools_server_is_called_although_its_card_has_no_url() {
    let server = Official::start("selectools").await;
    sends(&server.url, "0.2", Some(TOKEN)).await;
    let herald = before(&server.url, &format!("auth = {{ token = \"{TOKEN}\" }}")).await;
    let done = told(&herald, "", &draft("hello")).await;
    assert_eq!((&*state(&done), made(&done)), ("completed", vec!["hello".to_owned()]));
    let failed = told(&herald, "", &draft("fail")).await;
    assert_eq!(failure(&failed), ("Agent execution failed (RuntimeError)", "AGENT_FAILED"));
    let closed = before(&server.url, "").await;
    let failed = told(&closed, "", &draft("hello")).await;
    assert!(failure(&failed).0.contains("does not accept our credentials"), "{failed}");
}

#[tokio::test]
async fn the_python_sdk_of_0_2_is_called() {
    let server = Official::start("python02").await;
    sends(&server.url, "0.2", None).await;
    obeys(&before(&server.url, "").await).await;
}

#[tokio::test]
async fn the_javascript_sdk_of_0_2_is_called_although_its_card_has_no_version() {
    let server = Official::start("js02").await;
    sends(&server.url, "0.2", None).await;
    obeys(&before(&server.url, "").await).await;
}

#[tokio::test]
async fn the_python_and_javascript_sdks_of_0_3_are_called() {
    for name in ["python0322", "python03", "js03"] {
        let server = Official::start(name).await;
        sends(&server.url, "0.3", None).await;
        obeys(&before(&server.url, "").await).await;
    }
}

#[tokio::test]
async fn a_fasta2a_server_is_called() {
    let server = Official::start("fasta2a").await;
    let task = cli(["send", &server.url, "hello"]).json().await;
    assert_eq!(made(&task["task"]), ["hello"], "{task}");
    let herald = before(&server.url, "").await;
    let done = told(&herald, "", &draft("hello")).await;
    assert_eq!((&*state(&done), made(&done)), ("completed", vec!["hello".to_owned()]));
    assert_eq!(failure(&told(&herald, "", &draft("fail")).await).1, "AGENT_FAILED");
}

#[tokio::test]
async fn an_agent_of_google_adk_is_called() {
    let server = Official::start("adk").await;
    let task = cli(["send", &server.url, "hello"]).json().await;
    assert_eq!(made(&task["task"]), ["hello"], "{task}");
    let herald = before(&server.url, "").await;
    let done = told(&herald, "", &draft("hello")).await;
    assert_eq!((&*state(&done), made(&done)), ("completed", vec!["hello".to_owned()]));
    assert_eq!(failure(&told(&herald, "", &draft("fail")).await).1, "AGENT_FAILED");
}

/// python-a2a answers JSON-RPC at its URL with a status 500 and a bare message, so nobody can call it by its card. It may
/// have acted on the call, which is therefore not repeated.
#[tokio::test]
async fn a_python_a2a_server_is_refused_with_the_reason() {
    let server = Official::start("python-a2a").await;
    let send = ["send", &server.url, "hello", "--a2a-version", "0.3"];
    let error = cli(send).fails(1, "InvalidAgentResponseError").await;
    assert!(error["message"].as_str().unwrap().contains("HTTP status 500"), "{error}");
    assert_eq!(error["a2aCode"], json!(-32006));
}
