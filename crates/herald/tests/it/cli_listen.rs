//! Tests of `herald listen`: a real receiver, and the requests of genuine senders, forgers and others.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jsonwebtoken::{Algorithm, EncodingKey, crypto};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

use crate::{
    canary,
    cli_support::{Fake, Run, answer, cli, response, task},
    http::{Call, Client},
    support::{Herald, Options, SOON, uuid},
};

const TOKEN: &str = "canary-7c5e-token";

/// A running `herald listen` on a free port.
struct Listener {
    child: Child,
    address: SocketAddr,
    /// The lines that it printed at its start.
    introduction: Vec<String>,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Listener {
    async fn start(arguments: &[&str]) -> Self {
        let arguments = ["listen", "--port", "0"].iter().chain(arguments).copied();
        Self::of(cli(arguments), 4).await
    }

    /// A run that prints so many lines at its start.
    async fn of(run: Run, lines: usize) -> Self {
        let mut child = run.spawn();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut introduction = Vec::new();
        for _ in 0..lines {
            let line = timeout(SOON, stderr.next_line()).await.unwrap().unwrap().unwrap();
            introduction.push(line);
        }
        let url = introduction.iter().find_map(|line| line.strip_prefix("Listening: http://"));
        let url = url.unwrap();
        let address = url.trim_end_matches('/').parse().unwrap();
        Self { child, address, introduction, stdout, stderr }
    }

    async fn post(&self, call: &Call) -> u16 {
        let mut client = Client::connect(self.address).await.unwrap();
        client.call(call).await.unwrap().status
    }

    /// The next line of standard output.
    async fn line(&mut self) -> String {
        let line = timeout(SOON, self.stdout.next_line()).await.unwrap().unwrap().unwrap();
        canary::scan("the output of listen", &line);
        line
    }

    async fn json(&mut self) -> Value {
        serde_json::from_str(&self.line().await).unwrap()
    }

    /// The exit status, after it ended by itself.
    async fn end(mut self) -> Option<i32> {
        let ended = timeout(SOON, self.child.wait()).await.unwrap().unwrap();
        while let Some(line) = timeout(SOON, self.stderr.next_line()).await.unwrap().unwrap() {
            canary::scan("the errors of listen", &line);
        }
        assert_eq!(timeout(SOON, self.stdout.next_line()).await.unwrap().unwrap(), None);
        ended.code()
    }

    async fn interrupt(&self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().await.unwrap().success());
    }
}

/// A shared secret in the form of Standard Webhooks.
fn secret(name: &str) -> String {
    format!("whsec_{}", STANDARD.encode(padded(name)))
}

fn padded(name: &str) -> String {
    format!("{:-<32}", canary::secret(name))
}

/// A key that signs webhooks.
enum Signer {
    Hmac(EncodingKey),
    Ed25519(KeyPair),
}

impl Signer {
    fn hmac(name: &str) -> Self {
        Self::Hmac(EncodingKey::from_secret(padded(name).as_bytes()))
    }

    fn ed25519() -> Self {
        Self::Ed25519(KeyPair::generate_for(&PKCS_ED25519).unwrap())
    }

    /// The bytes of the public key.
    fn public(&self) -> &[u8] {
        let Self::Ed25519(key) = self else { panic!("a shared secret has no public key") };
        key.der_bytes()
    }

    fn signature(&self, text: &[u8]) -> String {
        match self {
            Self::Hmac(key) => {
                let signature = crypto::sign(text, key, Algorithm::HS256).unwrap();
                format!("v1,{}", STANDARD.encode(URL_SAFE_NO_PAD.decode(signature).unwrap()))
            }
            Self::Ed25519(key) => format!("v1a,{}", STANDARD.encode(key.sign(text).unwrap())),
        }
    }

    /// A signed webhook.
    fn call(&self, id: &str, body: &Value) -> Call {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let signature = self.signature(format!("{id}.{now}.{body}").as_bytes());
        Call::post("/", body)
            .header("webhook-id", id)
            .header("webhook-timestamp", now.to_string())
            .header("webhook-signature", signature)
    }
}

fn update() -> Value {
    json!({ "statusUpdate": { "taskId": "t-1", "contextId": "c-1",
        "status": { "state": "TASK_STATE_WORKING" } } })
}

#[tokio::test]
async fn listen_prints_the_lines_that_lead_webhooks_to_it() {
    let listener = Listener::start(&["--token", TOKEN]).await;
    let address = listener.address;
    assert_eq!(
        listener.introduction,
        [
            format!("Listening: http://{address}/"),
            format!(
                "Register: herald task push-config create AGENT ID --url http://{address}/ --token TOKEN"
            ),
            format!(
                "Allow: [push] allowed_hosts = [\"{address}\"] in herald.toml of the agent's server"
            ),
            format!("Or set: PUSH_NOTIFICATION_ALLOWED_HOSTS={address}"),
        ]
    );
    let everywhere = Listener::start(&["--host", "0.0.0.0"]).await;
    let port = everywhere.address.port();
    let register =
        format!("Register: herald task push-config create AGENT ID --url http://HOST:{port}/");
    assert_eq!(everywhere.introduction[1], register);
}

// proves: PUSH-019, PUSH-020
#[tokio::test]
async fn listen_prints_notifications_with_the_right_token() {
    let mut listener = Listener::start(&["--token", TOKEN, "--count", "3", "-o", "json"]).await;
    let call = |body: &Value, header: Option<(&'static str, &str)>| {
        let call = Call::post("/", body);
        header.into_iter().fold(call, |call, (name, value)| call.header(name, value))
    };
    let token = Some(("x-a2a-notification-token", TOKEN));
    let wrong = Some(("x-a2a-notification-token", "canary-7c5e-guess"));
    let bearer = Some(("authorization", "Bearer canary-7c5e-token"));
    let current = update();
    let whole = json!({ "task": task("COMPLETED") });
    let older = json!({ "kind": "task", "id": "t-2", "contextId": "c", "status": { "state": "completed" } });
    for (call, status) in [
        (call(&current, None), 401),
        (call(&current, wrong), 401),
        (call(&json!({ "hello": 1 }), token), 400),
        (Call::get("/"), 405),
    ] {
        assert_eq!(listener.post(&call).await, status);
        let line = listener.json().await;
        assert_eq!((&line["verdict"], &line["status"]), (&json!("refused"), &json!(status)));
        assert!(line["reason"].is_string() && line["verifiedBy"] == json!([]), "{line}");
    }
    let genuine = [
        (&current, token, "1.0", "x-a2a-notification-token", "…"),
        (&whole, bearer, "1.0", "authorization", "Bearer …"),
        (&older, token, "0.3", "x-a2a-notification-token", "…"),
    ];
    for (body, header, version, name, masked) in genuine {
        assert_eq!(listener.post(&call(body, header)).await, 200);
        let line = listener.json().await;
        assert_eq!(line["verdict"], "accepted", "{line}");
        assert_eq!(line["body"], *body);
        assert_eq!(line["protocolVersion"], version);
        assert_eq!(line["verifiedBy"], json!(["token"]));
        assert_eq!(line["headers"]["content-type"], "application/json");
        assert_eq!(line["headers"][name], masked);
    }
    assert_eq!(listener.end().await, Some(0));
}

// proves: PUSH-020, PUSH-022
#[tokio::test]
async fn a_wrong_signature_is_refused_and_a_repeat_is_named() {
    let (old, new) = (secret("old"), secret("new"));
    let mut listener = Listener::start(&["--secret", &old, "--secret", &new, "--count", "3"]).await;
    let genuine = Signer::hmac("new").call("m-1", &update());
    let forged = Signer::hmac("guess").call("m-1", &update());
    let changed = Signer::hmac("new").call("m-1", &update()).header("webhook-id", "m-2");
    let line = |line: String, words: &str| {
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(time.ends_with('Z'), "{line}");
        assert_eq!(rest, words);
    };
    assert_eq!(listener.post(&forged).await, 401);
    let reason = "no signature of the webhook is by a known key";
    line(listener.line().await, &format!("401 refused id m-1: {reason}"));
    assert_eq!(listener.post(&changed).await, 400);
    let reason = "the header webhook-id is repeated or malformed";
    line(listener.line().await, &format!("400 refused id m-1: {reason}"));
    assert_eq!(listener.post(&genuine).await, 200);
    line(listener.line().await, "200 accepted status WORKING of task t-1 id m-1 verified by hmac");
    assert_eq!(listener.post(&genuine).await, 200);
    line(listener.line().await, "200 repeated status WORKING of task t-1 id m-1 verified by hmac");
    assert_eq!(listener.post(&Signer::hmac("old").call("m-2", &update())).await, 200);
    line(listener.line().await, "200 accepted status WORKING of task t-1 id m-2 verified by hmac");
    assert_eq!(listener.end().await, Some(0));
}

#[tokio::test]
async fn the_published_keys_of_a_server_verify_its_webhooks() {
    let signer = Signer::ed25519();
    let x = URL_SAFE_NO_PAD.encode(signer.public());
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": x }] });
    let server = Fake::start(move |_, request| {
        if request.path == "/.well-known/jwks.json" {
            answer(&set)
        } else {
            response(404, "text/plain", "")
        }
    })
    .await;
    let mut listener = Listener::start(&["--jwks", &server.url, "-o", "json"]).await;
    assert_eq!(listener.post(&signer.call("m-1", &update())).await, 200);
    assert_eq!(listener.json().await["verifiedBy"], json!(["ed25519"]));
    assert_eq!(listener.post(&Signer::ed25519().call("m-2", &update())).await, 401);
    assert_eq!(listener.json().await["verdict"], "refused");

    let key = format!("whpk_{}", STANDARD.encode(signer.public()));
    let mut listener = Listener::start(&["--public-key", &key, "-o", "json"]).await;
    assert_eq!(listener.post(&signer.call("m-3", &update())).await, 200);
    assert_eq!(listener.json().await["id"], "m-3");

    let none = format!("{}/other.json", server.url);
    let error = cli(["listen", "--jwks", &none]).fails(3, "A2ACLI_ERR_UNREACHABLE").await;
    assert!(error["message"].as_str().unwrap().contains("404"), "{error}");
}

/// Sends a text to an agent, with the listener as its webhook, in 1.0 or 0.3.
async fn send(herald: &Herald, version: &str, agent: &str, text: &str, listener: &Listener) {
    let webhook = json!({ "url": format!("http://{}/", listener.address), "token": TOKEN });
    let call = if version == "1.0" {
        let message = json!({
            "message": { "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": text }] },
            "configuration": { "taskPushNotificationConfig": webhook },
        });
        Call::post(format!("/agents/{agent}/message:send"), &message).header("a2a-version", "1.0")
    } else {
        let params = json!({
            "message": { "messageId": uuid(), "kind": "message", "role": "user",
                "parts": [{ "kind": "text", "text": text }] },
            "configuration": { "pushNotificationConfig": webhook },
        });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params });
        Call::post(format!("/agents/{agent}/"), &call)
    };
    let answer = herald.call(&call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json()["error"].is_null(), "{}", answer.text());
}

// proves: PUSH-019, PUSH-020
#[tokio::test]
async fn the_webhooks_of_a_herald_server_are_verified() {
    let options = Options::agents().environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", "127.0.0.1");
    let herald = Herald::start(options).await;
    let keys = format!("http://{}", herald.address);
    let mut listener = Listener::start(&["--token", TOKEN, "--jwks", &keys, "-o", "json"]).await;
    for (version, completed) in [("1.0", "TASK_STATE_COMPLETED"), ("0.3", "completed")] {
        send(&herald, version, "echo", "hello", &listener).await;
        let mut ids = BTreeSet::new();
        loop {
            let line = listener.json().await;
            assert_eq!(line["verdict"], "accepted", "{line}");
            assert_eq!(line["verifiedBy"], json!(["token", "ed25519"]), "{line}");
            assert_eq!(line["protocolVersion"], version, "{line}");
            assert!(ids.insert(line["id"].as_str().unwrap().to_owned()), "{line}");
            let body = &line["body"];
            let states = ["/task/status/state", "/statusUpdate/status/state", "/status/state"];
            if states.iter().any(|path| body.pointer(path) == Some(&json!(completed))) {
                break;
            }
        }
    }
    send(&herald, "1.0", "conformance", "tck-input-required", &listener).await;
    loop {
        let line = listener.json().await;
        if let Some(question) = line.get("question") {
            assert!(!question["prompt"].as_str().unwrap().is_empty(), "{line}");
            break;
        }
    }
}

#[tokio::test]
async fn herald_send_registers_a_webhook_with_its_message() {
    let options = Options::agents().environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", "127.0.0.1");
    let herald = Herald::start(options).await;
    let agent = format!("http://{}", herald.address);
    let mut listener = Listener::start(&["--token", TOKEN, "-o", "json"]).await;
    let url = format!("http://{}/", listener.address);
    let webhook = ["--webhook", &url, "--webhook-token", TOKEN];
    cli(["send", &agent, "hello", "--async"].into_iter().chain(webhook)).ok().await;
    let line = listener.json().await;
    assert_eq!((&line["verdict"], &line["verifiedBy"]), (&json!("accepted"), &json!(["token"])));
    assert!(line["body"]["task"]["id"].is_string(), "{line}");
    let alone = cli(["send", &agent, "hello", "--webhook-token", TOKEN]).end().await;
    assert_eq!(alone.status.code(), Some(2), "{}", alone.stderr);
}

#[tokio::test]
async fn verified_webhooks_are_forwarded_and_answered_with_the_status_of_their_receiver() {
    let calls = AtomicUsize::new(0);
    let receiver = Fake::start(move |_, _| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => response(503, "text/plain", "busy"),
        1 => response(204, "text/plain", ""),
        _ => {
            let mut moved = response(302, "text/plain", "");
            moved.headers_mut().insert("location", "/elsewhere".parse().unwrap());
            moved
        }
    })
    .await;
    let (secret, url) = (secret("s"), format!("{}/hook?x=1", receiver.url));
    let mut listener =
        Listener::start(&["--secret", &secret, "--forward", &url, "-o", "json"]).await;
    let signer = Signer::hmac("s");
    let genuine = signer.call("m-1", &update());
    assert_eq!(listener.post(&Signer::hmac("x").call("m-1", &update())).await, 401);
    // A failed webhook is forwarded again when it is sent again; then it is a repeat.
    for (status, verdict) in [(503, "accepted"), (204, "accepted"), (200, "repeated")] {
        assert_eq!(listener.post(&genuine).await, status);
        let mut line = listener.json().await;
        if line["verdict"] == "refused" {
            line = listener.json().await;
        }
        assert_eq!((&line["verdict"], &line["status"]), (&json!(verdict), &json!(status)));
    }
    assert_eq!(listener.post(&signer.call("m-2", &update())).await, 302);
    let forwarded = receiver.calls();
    assert_eq!(forwarded.len(), 3, "{forwarded:?}");
    for call in &forwarded {
        assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/hook?x=1"));
        assert_eq!(call.text, update().to_string());
        assert!(call.header("webhook-signature").unwrap().starts_with("v1,"));
        assert_eq!(call.headers.get_all("content-length").iter().count(), 1);
        assert_eq!(call.headers.get_all("host").iter().count(), 1);
        assert_eq!(format!("http://{}", call.header("host").unwrap()), receiver.url);
    }
}

#[tokio::test]
async fn a_receiver_behind_forward_that_is_absent_is_a_bad_gateway() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", taken.local_addr().unwrap());
    drop(taken);
    let mut listener = Listener::start(&["--forward", &url]).await;
    assert_eq!(listener.post(&Call::post("/", &update())).await, 502);
    let line = listener.line().await;
    assert!(line.contains(" 502 accepted status WORKING of task t-1 not verified: "), "{line}");
    assert!(line.contains("cannot forward the webhook: "), "{line}");
}

#[tokio::test]
async fn a_chosen_status_makes_the_sender_try_again() {
    let secret = secret("s");
    let mut listener =
        Listener::start(&["--secret", &secret, "--status", "503", "--count", "2"]).await;
    let call = Signer::hmac("s").call("m-1", &update());
    for _ in 0..2 {
        assert_eq!(listener.post(&call).await, 503);
        let line = listener.line().await;
        assert!(line.contains(" 503 accepted status WORKING of task t-1 id m-1 "), "{line}");
    }
    assert_eq!(listener.end().await, Some(0));
}

#[tokio::test]
async fn a_question_is_printed_with_the_commands_that_answer_it() {
    let choices = json!([
        { "id": "allow", "label": "Allow it", "grants": true },
        { "id": "deny", "label": "Deny it", "grants": false },
    ]);
    let asking = |parts: Value| {
        json!({ "statusUpdate": { "taskId": "t-1", "contextId": "c-1", "status": {
            "state": "TASK_STATE_INPUT_REQUIRED",
            "message": { "messageId": "q-1", "role": "ROLE_AGENT", "parts": parts } } } })
    };
    let approval = asking(json!([
        { "text": "May I?" },
        { "data": { "approval": { "prompt": "May I run\nls?", "choices": choices } } },
    ]));
    let mut listener = Listener::start(&[]).await;
    assert_eq!(listener.post(&Call::post("/", &approval)).await, 200);
    assert!(listener.line().await.ends_with(" status INPUT_REQUIRED of task t-1 not verified"));
    for expected in [
        "Question: q-1",
        "Prompt:",
        "May I run",
        "ls?",
        "",
        "Choice: allow: Allow it",
        "Choice: deny: Deny it",
        "Answer: herald task answer t-1 --question q-1 CHOICE",
        "Answer: herald send AGENT --task-id t-1 \"TEXT\"",
        "",
    ] {
        assert_eq!(listener.line().await, expected);
    }
    assert_eq!(listener.post(&Call::post("/", &asking(json!([{ "text": "Which?" }])))).await, 200);
    listener.line().await;
    let rest = [
        "Question: q-1",
        "Prompt:",
        "Which?",
        "",
        "Answer: herald send AGENT --task-id t-1 \"TEXT\"",
    ];
    for expected in rest {
        assert_eq!(listener.line().await, expected);
    }

    let mut listener = Listener::start(&["-o", "json", "--count", "1"]).await;
    assert_eq!(listener.post(&Call::post("/", &approval)).await, 200);
    let line = listener.json().await;
    assert_eq!(line["question"]["choices"], choices);
    assert_eq!(line["question"]["prompt"], "May I run\nls?");
    assert_eq!(listener.end().await, Some(0));
}

#[tokio::test]
async fn no_body_controls_the_terminal_or_breaks_a_line() {
    let mut listener = Listener::start(&["-o", "json"]).await;
    let pretty = "{\n  \"task\": {\r\n \"id\": \"t\\u001b[2J\", \"contextId\": \"c\",\n \"status\": {\"state\": \"TASK_STATE_WORKING\"}}}";
    assert_eq!(listener.post(&Call::post_text("/", pretty)).await, 200);
    assert_eq!(listener.json().await["body"]["task"]["id"], "t\u{1b}[2J");
    assert_eq!(listener.post(&Call::post_text("/", "\u{1b}[2J\n\"")).await, 400);
    assert_eq!(listener.json().await["body"], "\u{1b}[2J\n\"");
    let mut listener = Listener::start(&[]).await;
    assert_eq!(listener.post(&Call::post_text("/", pretty)).await, 200);
    assert!(listener.line().await.contains("of task t\\u{1b}[2J"));
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let mut listener = Listener::start(&[]).await;
    let mut client = Client::connect(listener.address).await.unwrap();
    // The receiver may close the connection before the whole body was sent.
    let _ = client.call(&Call::post_text("/", vec![b' '; (16 << 20) + 1])).await;
    let line = listener.line().await;
    assert!(line.ends_with("413 refused: the body is larger than 16 MiB"), "{line}");
}

#[tokio::test]
async fn ctrl_c_ends_listen() {
    let mut endless = Listener::start(&[]).await;
    assert_eq!(endless.post(&Call::post("/", &update())).await, 200);
    endless.line().await;
    endless.interrupt().await;
    assert_eq!(endless.end().await, Some(0));
    let counting = Listener::start(&["--count", "2"]).await;
    counting.interrupt().await;
    assert_eq!(counting.end().await, Some(130));
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_anything_is_received() {
    for arguments in [
        &["--secret", "canary-7c5e"][..],
        &["--secret", "whsec_Y2FuYXJ5LTdjNWU="],
        &["--public-key", "whpk_AAAA"],
        &["--jwks", "http://keys.example.com/jwks.json"],
        &["--jwks", "ftp://127.0.0.1/"],
        &["--forward", "127.0.0.1:3000"],
        &["--status", "99"],
        &["--status", "503", "--forward", "http://127.0.0.1:3000/"],
        &["--count", "0"],
    ] {
        let arguments = ["listen", "--port", "0"].iter().chain(arguments).copied();
        let error = cli(arguments).fails(2, "A2ACLI_ERR_USAGE").await;
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn secrets_come_from_a_variable_and_not_from_a_file_that_was_found() {
    let own = cli(["listen", "--port", "0"]).env("HERALD_WEBHOOK_SECRET", &secret("own"));
    let own = Listener::of(own, 4).await;
    assert_eq!(own.post(&Call::post("/", &update())).await, 401);
    assert_eq!(own.post(&Signer::hmac("own").call("m-1", &update())).await, 200);
    let home = tempfile::tempdir().unwrap();
    let line = format!("A2ACLI_SECRET={}\n", secret("planted"));
    std::fs::write(home.path().join(".env"), line).unwrap();
    let planted = Listener::of(cli(["listen", "--port", "0"]).at(home.path()), 5).await;
    let warning = &planted.introduction[0];
    assert!(warning.starts_with("Warning: A2ACLI_SECRET (file "), "{warning}");
    assert!(warning.ends_with(" is ignored: it can be given as a flag only"), "{warning}");
}
