//! Tests of credentials of a running server: reload, operator file, mistakes in `[auth]`.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::{
    http::Call,
    support::{Herald, Options, SOON, eventually},
};

fn send(token: &str) -> Call {
    let params = json!({ "message": { "parts": [{ "type": "text", "text": "hello" }] } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params });
    let call = Call::post("/a2a", &call);
    if token.is_empty() { call } else { call.header("authorization", format!("Bearer {token}")) }
}

async fn status(herald: &Herald, token: &str) -> u16 {
    herald.call(&send(token)).await.status
}

fn tokens(secrets: &[&str]) -> String {
    let one = |secret: &&str| {
        format!("{{ token = \"{secret}\", tenant = \"acme\", principal = \"ci\" }}")
    };
    let all: Vec<_> = secrets.iter().map(one).collect();
    format!("[auth]\ntokens = [{}]\n", all.join(", "))
}

#[tokio::test]
async fn tokens_are_reloaded_on_sighup_and_a_mistake_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (file, secret) = (home.path().join("herald.toml"), home.path().join("secret"));
    let from_file = format!("file:{}", secret.display());
    fs::write(&secret, "of-a-file").unwrap();
    fs::write(&file, tokens(&["first", &from_file])).unwrap();
    let options = Options::default().arguments(["--config", file.to_str().unwrap()]);
    let herald = Herald::start(options).await;
    assert_eq!((status(&herald, "first").await, status(&herald, "second").await), (200, 401));
    assert_eq!(status(&herald, "of-a-file").await, 200);
    let logged = async |words: &str| {
        eventually(SOON, words, async || herald.log().contains(words)).await;
    };

    fs::write(&secret, "of-the-new-file").unwrap();
    fs::write(&file, tokens(&["second", &from_file]) + "[limits]\nbody = \"1MiB\"\n").unwrap();
    herald.signal("HUP").await;
    logged("reloaded the tokens of [auth]").await;
    logged("need a restart of the server: [limits]").await;
    assert_eq!((status(&herald, "first").await, status(&herald, "second").await), (401, 200));
    assert_eq!(status(&herald, "of-a-file").await, 401);
    assert_eq!(status(&herald, "of-the-new-file").await, 200);

    fs::write(&file, tokens(&["third"]).replace("principal", "princpal")).unwrap();
    herald.signal("HUP").await;
    logged("cannot reload the configuration; the tokens and settings in use stay").await;
    let log = herald.log();
    assert!(log.contains("line 2") && log.contains("princpal"), "{log}");
    assert!(log.contains("\n2 | tokens = ["), "the excerpt has lines: {log}");
    assert_eq!((status(&herald, "second").await, status(&herald, "third").await), (200, 401));
}

#[tokio::test]
async fn the_operator_file_lets_its_owner_in_and_is_removed_at_the_end() {
    let mut herald = Herald::start(Options::config(tokens(&["first"]))).await;
    herald.ready().await;
    let file = herald.database().with_file_name("operator.json");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let operator: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(operator["url"], format!("http://{}", herald.address));
    let token = operator["token"].as_str().unwrap().to_owned();
    assert_eq!(status(&herald, &token).await, 200);
    assert!(!herald.log().contains(&token));
    herald.restart_cleanly().await;
    assert_eq!(status(&herald, &token).await, 401, "each start has its own");
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    assert!(!file.exists());
}

#[tokio::test]
async fn a_loopback_server_can_require_credentials_before_there_are_any() {
    let herald = Herald::start(Options::config("[auth]\nrequired = true\n")).await;
    assert_eq!(status(&herald, "").await, 401);
    assert_eq!(status(&herald, "x").await, 401);
}

#[tokio::test]
async fn a_server_that_nobody_could_call_is_refused() {
    let required = "[auth]\nrequired = true\n";
    let refused = Options::config(required).no_data().arguments(["--ephemeral"]).refused().await;
    for word in ["line 2", "nobody could call", "--ephemeral", "[auth]", "herald key create"] {
        assert!(refused.stderr.contains(word), "no {word}: {}", refused.stderr);
    }
    let with_token = format!("{required}{}", tokens(&["first"]).replace("[auth]\n", ""));
    let herald =
        Herald::start(Options::config(with_token).no_data().arguments(["--ephemeral"])).await;
    assert_eq!((status(&herald, "first").await, status(&herald, "").await), (200, 401));
}

#[tokio::test]
async fn a_token_may_name_every_agent_and_skill_of_the_server() {
    let config = "[[agents]]\nname = \"words\"\nkind = \"exec\"\ncommand = [\"wc\"]\n\
                  skills = [{ id = \"count\", description = \"Counts\" }]\n\
                  extended_card = { skills = [{ id = \"audit\", description = \"Audits\" }] }\n\
                  [[auth.tokens]]\ntoken = \"x\"\ntenant = \"t\"\nprincipal = \"p\"\n\
                  agents = [\"words\"]\nskills = [\"count\", \"audit\"]\n";
    Herald::start(Options::config(config)).await;
    // Another server has skills that are not known here.
    let upstream = "[[agents]]\nname = \"far\"\nkind = \"a2a\"\nurl = \"http://127.0.0.1:1\"\n\
                    [[auth.tokens]]\ntoken = \"x\"\ntenant = \"t\"\nprincipal = \"p\"\n\
                    skills = [\"anything\"]\n";
    Herald::start(Options::config(upstream)).await;
}

#[tokio::test]
async fn mistakes_in_auth_are_refused_with_their_line() {
    let issuer = |more: &str| {
        format!(
            "[auth]\njwt = {{ issuer = \"https://127.0.0.1:1\", audience = \"herald\", {more} }}\n"
        )
    };
    let limited = |limit: &str| {
        format!("[[auth.tokens]]\ntoken = \"x\"\ntenant = \"t\"\nprincipal = \"p\"\n{limit}\n")
    };
    let listed = "[auth]\njwt = [\n  { issuer = \"https://127.0.0.1:1\", audience = \"a\", tenant = \"t\" },\n  \
                  { issuer = \"http://id.example.com\", audience = \"a\", tenant = \"t\" },\n]\n";
    for (config, words) in [
        (issuer("tenant = \"t\", algorithms = [\"HS256\"]"), &["line 2", "HS256", "RS256"][..]),
        (issuer("tenant = \"t\", clock_skew = \"5m\""), &["line 2", "60s"]),
        (issuer("tenant = \"t\", ca = \"/none\""), &["line 2", "/none"]),
        (issuer("tenant = \"t\", jwks_url = \"http://id.example.com\""), &["line 2", "https"]),
        (issuer("tenant = \"t\", colour = \"red\""), &["line 2", "colour"]),
        (issuer("algorithms = [\"RS256\"]"), &["line 2", "tenant_claim"]),
        (listed.to_owned(), &["line 4", "http://id.example.com", "https"]),
        ("[auth.certificates]\ntenant = \"t\"\n".to_owned(), &["line 1", "client_ca"]),
        (limited("agents = [\"echo\", \"ecoh\"]"), &["line 5", "no agent \"ecoh\"", "\"echo\"?"]),
        (limited("agents = [\"mail\"]"), &["line 5", "no agent \"mail\"", "known are echo"]),
        (limited("agents = [\"echo\"]\nskills = [\"ecco\"]"), &["line 6", "no skill \"ecco\""]),
        (
            "[server.tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_ca = \"ca\"\n".to_owned(),
            &["line 4", "[auth.certificates]", "tenant"],
        ),
    ] {
        let refused = Options::config(config.clone()).refused().await;
        for word in words {
            assert!(refused.stderr.contains(word), "no {word} for {config}: {}", refused.stderr);
        }
    }
}
