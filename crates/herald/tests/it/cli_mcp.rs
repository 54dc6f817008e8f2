//! Tests of `herald mcp`, the bridge to the MCP tools of a server.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
};

use crate::{
    canary,
    cli_support::{cli, herald},
    support::{Ended, Herald, Options},
};

fn url(herald: &Herald) -> String {
    format!("http://{}", herald.address)
}

fn request(id: impl Into<Value>, method: &str, params: &Value) -> String {
    let id = id.into();
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn initialize() -> String {
    let client = json!({ "name": "test", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    request(1, "initialize", &params)
}

fn send(id: impl Into<Value>, message: &str) -> String {
    let arguments = json!({ "agent_name": "echo", "message": message });
    request(id, "tools/call", &json!({ "name": "send_to_agent", "arguments": arguments }))
}

/// Runs the bridge with this input, which must succeed.
async fn bridged(herald: &Herald, input: String) -> Ended {
    cli(["mcp", "--server", &url(herald)]).stdin(input).ok().await
}

/// The reply with this id.
#[track_caller]
fn reply(ended: &Ended, id: impl Into<Value>) -> Value {
    let id = id.into();
    let found = ended.lines().into_iter().find(|line| line["id"] == id);
    found.unwrap_or_else(|| panic!("no reply to {id}: {ended:?}"))
}

#[tokio::test]
async fn messages_go_to_the_server_and_replies_come_back() {
    let herald = herald().await;
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let mut input = initialize() + &format!("\n{initialized}\n  \n");
    for number in 0..50 {
        input += &send(format!("send {number}"), &format!("hello {number}"));
    }
    // The last line has no end.
    let ended = bridged(&herald, input + request(2, "tools/list", &json!({})).trim_end()).await;
    assert_eq!(ended.lines().len(), 52, "{ended:?}");
    assert_eq!(reply(&ended, 1)["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(reply(&ended, 1)["result"]["serverInfo"]["name"], "herald");
    assert!(reply(&ended, 2)["result"]["tools"].as_array().unwrap().len() > 10);
    for number in 0..50 {
        let result = reply(&ended, format!("send {number}"))["result"].clone();
        assert_eq!(result["isError"], false, "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("hello {number}\n")), "{text}");
    }
    assert!(ended.stderr.contains("Serving: MCP of http://"), "{ended:?}");
}

#[tokio::test]
async fn a_message_that_is_none_is_answered_and_the_next_one_works() {
    let herald = herald().await;
    let huge = format!("{{\"x\": \"{}\"}}\n", "x".repeat(17 << 20));
    let input = initialize() + "nonsense\n[1]\n" + &huge + &request(2, "no/such", &json!({}));
    let ended = bridged(&herald, input + &send(3, "still here")).await;
    let errors = ended.lines().iter().filter(|line| line["id"].is_null()).count();
    assert_eq!(errors, 3, "{ended:?}");
    assert!(reply(&ended, 2)["error"]["code"].is_number(), "{ended:?}");
    assert!(reply(&ended, 3).to_string().contains("still here"));
    assert!(ended.stderr.contains("is not a message of MCP"), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_is_no_herald_or_cannot_be_reached_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap().to_string();
    drop(closed);
    let ended = cli(["mcp", "--server", &address]).end().await;
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(3), ""), "{ended:?}");
    assert!(ended.stderr.contains("does not answer"), "{ended:?}");
    let off = Herald::start(Options::config("[mcp]\nenabled = false\n")).await;
    // Standard output has messages only, also with -o json.
    let ended = cli(["mcp", "--server", &url(&off), "-o", "json"]).end().await;
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(3), ""), "{ended:?}");
    assert!(ended.stderr.contains("does not serve MCP of Herald at /mcp (404"), "{ended:?}");
    assert!(ended.stderr.contains("[mcp] enabled"), "{ended:?}");
    let ended = cli(["mcp", "--help"]).ok().await;
    assert!(ended.stdout.contains("claude mcp add herald -- herald mcp --server"), "{ended:?}");
}

#[tokio::test]
async fn a_refused_credential_is_told_on_standard_error() {
    let (good, wrong) = (canary::secret("good"), canary::secret("wrong"));
    let config = format!(
        "[auth]\ntokens = [{{ token = \"{good}\", tenant = \"acme\", principal = \"ci\" }}]\n"
    );
    let herald = Herald::start(Options::config(config)).await;
    for token in ["", &wrong] {
        let run = cli(["mcp", "--server", &url(&herald)]).env("A2ACLI_BEARER", token);
        let ended = run.stdin(initialize()).end().await;
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(4), ""), "{ended:?}");
        assert!(ended.stderr.contains("A2ACLI_BEARER"), "{ended:?}");
    }
    // Also with the URL for clients that need no bridge.
    let run =
        cli(["mcp", "--server", &format!("{}/mcp", url(&herald))]).env("A2ACLI_BEARER", &good);
    let ended = run.stdin(initialize() + &send(2, "hello")).ok().await;
    assert!(reply(&ended, 2).to_string().contains("hello"), "{ended:?}");
}

#[tokio::test]
async fn a_server_that_restarts_is_used_again() {
    let mut herald = herald().await;
    let mut child = cli(["mcp", "--server", &url(&herald)]).piped();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let mut ask = async |text: String| -> Value {
        input.write_all(text.as_bytes()).await.unwrap();
        serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap()
    };
    assert!(ask(initialize()).await["result"].is_object());
    // The same port again.
    let port = herald.address.port().to_string();
    *herald.options() = Options::agents().no_port().arguments(["--port", &port]);
    herald.kill9().await;
    let lost = ask(send(2, "anybody?")).await;
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(2), &json!(-32000)), "{lost}");
    assert!(lost["error"]["message"].as_str().unwrap().contains("does not answer"), "{lost}");
    herald.restart().await;
    let back = ask(send(3, "hello again")).await;
    assert!(back["result"].to_string().contains("hello again"), "{back}");
}
