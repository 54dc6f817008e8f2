//! Tests of `herald serve`: help, start message, and refused settings.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rusqlite::Connection;
use tokio::{net::TcpListener, process::Command};

use crate::{
    authority::Authority,
    http::Call,
    support::{AGENTS, CONFORMANCE, Ended, Herald, Options, SOON, ended, herald},
    wire::{self, Draft, Wire, id, state},
};

/// The error is printed on standard error, and the server does not start.
#[track_caller]
fn says(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_eq!(ended.stdout, "");
    let sentence = ended.stderr.lines().find(|line| line.starts_with("herald: "));
    assert!(sentence.is_some(), "no sentence in {:?}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "no {word:?} in {:?}", ended.stderr);
    }
}

async fn refused(config: &str, words: &[&str]) {
    says(&Options::config(config).refused().await, words);
}

#[tokio::test]
async fn help_lists_every_flag_and_no_unsupported_feature() {
    let help = herald(&["--help"]).await;
    assert!(help.status.success());
    assert!(help.stdout.contains("serve"), "{help:?}");
    let help = herald(&["serve", "--help"]).await;
    assert!(help.status.success());
    for flag in [
        "--host",
        "--port",
        "--data",
        "--ephemeral",
        "--config",
        "--exec",
        "--adapter",
        "--model",
        "--force",
        "--workdir",
        "--public-url",
        "--log-level",
        "--log-format",
        "--stdio",
        "--list-handlers",
        "--no-discovery",
        "--handler-package",
        "HERALD_PORT",
        "[default: 8000]",
        "curl ",
    ] {
        assert!(help.stdout.contains(flag), "no {flag} in {}", help.stdout);
    }
    for absent in ["worker", "postgres"] {
        assert!(!help.stdout.contains(absent), "{absent} in {}", help.stdout);
    }
    let bare = herald(&[]).await;
    assert!(!bare.status.success() && bare.stderr.contains("Usage"), "{bare:?}");
    let version = herald(&["--version"]).await;
    assert_eq!(version.stdout, format!("herald {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn an_unknown_flag_is_refused() {
    for arguments in [&["serve", "--prot", "80"][..], &["serv"], &["serve", "--port", "x"]] {
        let refused = herald(arguments).await;
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stderr.contains("error: "), "{refused:?}");
    }
    let both = herald(&["serve", "--ephemeral", "--data", "x"]).await;
    assert!(both.stderr.contains("--ephemeral") && both.stderr.contains("--data"), "{both:?}");
}

#[tokio::test]
async fn an_unknown_key_is_refused_with_its_line() {
    let hint = "did you mean `port`?";
    refused("[server]\nport = 0\nprot = 8000\n", &["herald.toml", "line 3", "prot", hint]).await;
    refused("\n\n[sever]\nport = 0\n", &["line 3", "sever", "did you mean `server`?"]).await;
    let colour = "[[agents]]\nname = \"a\"\nkind = \"echo\"\ncolour = 1\n";
    refused(colour, &["line 4", "colour"]).await;
    let ended = Options::config(colour).refused().await;
    assert!(!ended.stderr.contains("did you mean"), "nothing there is like it: {ended:?}");
    refused("[server]\nport = \"many\"\n", &["line 2", "port"]).await;
    refused("[server]\ndrain = \"soon\"\n", &["line 2", "soon", "30s"]).await;
    refused("[limits]\nbody = \"4 apples\"\n", &["line 2", "4 apples"]).await;
    refused("[server\n", &["line 1"]).await;
    refused("[limits]\n# two\nbody = [ 1,\n 2 ]\n", &["line 3", "4MiB"]).await;
    let missing = Options::default().arguments(["--config", "nowhere.toml"]).refused().await;
    says(&missing, &["nowhere.toml", "cannot read"]);
}

#[tokio::test]
async fn a_mistake_is_reported_with_its_line_and_a_correction() {
    let agent = "[[agents]]\nname = \"a\"\nkind = \"echo\"\n";
    for (config, words) in [
        ("port = 8000\n", &["line 1", "`port` belongs under [server]"][..]),
        ("# mine\ntokens = []\n", &["line 2", "`tokens` belongs under [auth]"]),
        ("[server]\nconcurrency = 2\n", &["line 2", "`concurrency` belongs under [[agents]]"]),
        ("[agents]\nname = \"a\"\nkind = \"echo\"\n", &["line 1", "write [[agents]] above each"]),
        ("[[server]]\nhost = \"::1\"\n", &["line 1", "write [server]"]),
        ("agents = \"echo\"\n", &["line 1", "expected a list"]),
        ("server = 3\n", &["line 1", "expected a table", "write [server] on a line of its own"]),
        ("[dialects]\n0.3 = false\n", &["line 2", "`\"1.0\"`, `\"0.3\"`, `\"0.1\"`"]),
        ("[dialects]\nv03 = false\n", &["line 2", "unknown version `v03`", "`\"0.3\"`"]),
        ("[dialects]\n\"0.3\" = \"off\"\n", &["line 2", "expected a boolean"]),
        ("dialects = 1\n", &["line 1", "\"0.3\" = false"]),
        ("[[agents]]\nname = \"My Agent\"\nkind = \"echo\"\n", &["line 2", "My Agent", "a-z"]),
        ("[[agents]]\nname = \"a\"\nkind = \"eccho\"\n", &["line 3", "unknown kind", "\"echo\""]),
        ("[[agents]]\nkind = \"echo\"\n", &["line 1", "missing key `name`"]),
        (
            "[[agents]]\nname = \"a\"\nkind = \"exec\"\ncommand = [\"no-such-program-7\"]\n",
            &["line 4", "no-such-program-7", "4 | command = "],
        ),
        ("[server]\nhost = \"no such host\"\n", &["line 2", "127.0.0.1"]),
        (
            "[server]\nhost = 127.0.0.1\n",
            &["line 2", "invalid float\n", "write it like host = \"127.0.0.1\""],
        ),
        ("[server]\npublic_url = 10.0.0.1\n", &["line 2", "a text needs quotes"]),
        ("[server]\npublic_url = \"agents.example.com\"\n", &["line 2", "https://"]),
        ("[server]\npublic_url = \"https://a.example/?x=1\"\n", &["line 2", "https://"]),
        ("[server]\nallowed_origins = [\"x\"]\n", &["herald.toml", "\"x\"", "https://"]),
        ("[server]\ntrusted_proxies = [\"x\"]\n", &["herald.toml", "\"x\"", "10.0.0.0/8"]),
        ("[card]\nsigning_keys = [\"x.pem\"]\n", &["line 2", "file:PATH"]),
        ("[card]\nsigning_keys = [\"file:no-such.pem\"]\n", &["line 2", "no-such.pem"]),
        ("[card]\nsigning_keys = [\"file:herald.toml\"]\n", &["line 2", "openssl genpkey"]),
        ("[card]\njku = true\n", &["herald.toml", "public URL"]),
        ("[dialects]\n\"1.0\" = false\n", &["herald.toml", "cannot be switched off"]),
        (
            "[limits]\nmemory = \"64MiB\"\ntask_bytes = \"32MiB\"\n",
            &["herald.toml", "task_bytes must be at most a third of memory"],
        ),
    ] {
        refused(config, words).await;
    }
    let none = format!("{agent}concurrency = 0\n");
    refused(&none, &["line 4", "`0`", "a number from 1 on", "4 | concurrency = 0"]).await;
    refused(&format!("{agent}{agent}"), &["line 5", "\"a\"", "twice"]).await;
    // An error of a flag does not name the file.
    let flag = Options::config(agent).arguments(["--public-url", "x"]).refused().await;
    says(&flag, &["public_url"]);
    assert!(!flag.stderr.contains("herald.toml"), "{flag:?}");
}

#[tokio::test]
async fn an_empty_variable_counts_as_not_set() {
    let mut options = Options::default();
    for name in ["HERALD_PORT", "HERALD_HOST", "HERALD_DATA", "HERALD_CONFIG", "HERALD_LOG_LEVEL"] {
        options = options.environment(name, "");
    }
    for name in ["HERALD_PUBLIC_URL", "HERALD_LOG_FORMAT", "HERALD_EPHEMERAL", "PORT", "A2A_PORT"] {
        options = options.environment(name, "");
    }
    let options = options.environment("OTEL_EXPORTER_OTLP_ENDPOINT", "");
    let herald = Herald::start(options).await;
    assert!(herald.greeting.contains("listen 127.0.0.1:"), "{}", herald.greeting);
}

#[tokio::test]
async fn an_invalid_variable_is_reported_by_its_own_name() {
    let run = async |variables: &[(&str, &str)], flags: &[&str]| {
        let mut options = Options::default().no_port().no_data();
        for (name, value) in variables {
            options = options.environment(name, value);
        }
        options.arguments(flags.iter().copied()).refused().await
    };
    for (name, value) in
        [("HERALD_PORT", "many"), ("HERALD_LOG_LEVEL", "loud"), ("HERALD_LOG_FORMAT", "yaml")]
    {
        let refused = run(&[(name, value)], &[]).await;
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = format!("invalid value '{value}' for '{name}'");
        assert!(refused.stderr.contains(&said), "{refused:?}");
    }
    // The flag is wrong here, and is named.
    let flag = run(&[("HERALD_PORT", "1")], &["--port", "many"]).await;
    assert!(flag.stderr.contains("for '--port <PORT>'"), "{flag:?}");
    let both = run(&[("HERALD_EPHEMERAL", "1"), ("HERALD_DATA", "x")], &[]).await;
    assert!(
        both.stderr.contains("'HERALD_DATA' cannot be used with 'HERALD_EPHEMERAL'"),
        "{both:?}"
    );
    let port = run(&[("PORT", "x")], &[]).await;
    assert!(port.stderr.contains("PORT=\"x\" is not a port"), "{port:?}");
}

#[tokio::test]
async fn a_flag_overrides_a_variable_that_contradicts_it() {
    let kept = async |options: Options| {
        let herald = Herald::start(options.no_data()).await;
        let line = herald.greeting.lines().find(|line| line.trim().starts_with("tasks "));
        line.unwrap().to_owned()
    };
    let ephemeral = |value| Options::default().environment("HERALD_EPHEMERAL", value);
    let data = ["--data", "kept"];
    assert!(kept(ephemeral("1").arguments(data)).await.contains("kept/herald.db"));
    assert!(kept(ephemeral("1").arguments(["--data=kept"])).await.contains("kept/herald.db"));
    let told = Options::default().environment("HERALD_DATA", "kept").arguments(["--ephemeral"]);
    assert!(kept(told).await.contains("in memory only"));
    // A switch that is off counts as absent.
    for no in ["0", "false", "No", "off"] {
        assert!(kept(ephemeral(no)).await.contains("herald-data/herald.db"), "{no}");
    }
    let no = ephemeral("0").environment("HERALD_DATA", "kept");
    assert!(kept(no).await.contains("kept/herald.db"));
    assert!(kept(ephemeral("yes")).await.contains("in memory only"));
}

#[tokio::test]
async fn versions_are_switched_off_by_name() {
    refused("[dialects]\n\"0.9\" = false\n", &["0.9", "`\"1.0\"`, `\"0.3\"`"]).await;
    refused("[dialects]\n\"1.0\" = false\n", &["1.0 cannot be switched off", "0.3"]).await;
    let config = format!("[dialects]\n\"0.3\" = false\n\"1.0\" = true\n{AGENTS}");
    let herald = Herald::start(Options::config(config)).await;
    for prefix in ["", CONFORMANCE] {
        let card = herald.call(&Call::get(format!("{prefix}/.well-known/agent-card.json"))).await;
        assert!(!card.text().contains("0.3"), "{card:?}");
    }
    let draft = Draft::new("m", "hello");
    for wire in Wire::ALL {
        let sent = wire.sent(&herald.call(&wire.send("", &draft, false)).await);
        if matches!(wire, Wire::OldRpc | Wire::OldRest) {
            assert_eq!(sent.unwrap_err().reason, "VERSION_NOT_SUPPORTED");
        } else {
            assert_eq!(state(&sent.unwrap()), "completed");
        }
    }
}

#[tokio::test]
async fn metrics_need_the_token_of_the_file() {
    let both = "[metrics]\ntoken = \"t\"\nopen = true\n";
    refused(both, &["[metrics]", "token", "open = true"]).await;
    let config = format!("[metrics]\ntoken = \"env:SCRAPE\"\n{AGENTS}");
    let herald = Herald::start(Options::config(config).environment("SCRAPE", "canary-7c5e")).await;
    let get = Call::get("/metrics");
    assert_eq!(herald.call(&get).await.status, 401);
    let scrape = get.header("authorization", "Bearer canary-7c5e");
    let answer = herald.call(&scrape).await;
    assert!(answer.text().contains("\nherald_connections_open "), "{answer:?}");
}

#[tokio::test]
async fn a_mistake_in_an_agent_is_shown_at_its_key_with_an_example() {
    let exec = "kind = \"exec\"\ncommand = [\"cat\"]";
    let llm = "kind = \"llm\"\nmodel = \"m\"";
    for (kind, key, words) in [
        (exec, "workdir = \"nowhere\"", &["there is no directory nowhere"][..]),
        (exec, "allowed_roots = [\"nowhere\"]", &["allowed_roots: there is no directory"]),
        (exec, "allowed_roots = \".\"", &["expected a list", "allowed_roots = [\"./repo\"]"]),
        (exec, "timeout = 30", &["a length of time such as \"30s\""]),
        (
            exec,
            "memory = 3",
            &["`memory` belongs to kind = \"a2a\", \"llm\", \"worker\" or that of a coding"],
        ),
        (exec, "url = \"http://a.example\"", &["`url` belongs to kind = \"a2a\" or \"llm\""]),
        (exec, "env = [\"A=b\"]", &["expected a table", "env = { LANG = \"C.UTF-8\" }"]),
        (exec, "extensions = [\"https://a.example\"]", &["expected a table", "uri = "]),
        (exec, "cmd = [\"cat\"]", &["unknown key `cmd`\n", "did you mean `command`?"]),
        (exec, "attempts = \"2\"", &["expected a whole number", "attempts = 3"]),
        (
            "kind = \"exec\"\nstreaming = true",
            "command = \"wc -w\"",
            &["command = [\"wc\", \"-w\"]"],
        ),
        (exec, "workdir = repo", &["write it like workdir = \"in quotes\""]),
        (llm, "url = \"localhost:1\"", &["url: must look like https://"]),
        (llm, "url = 3", &["expected a string", "url = \"in quotes\""]),
        (llm, "temperature = \"0.3\"", &["expected a number", "temperature = 0.5"]),
        (
            "kind = \"a2a\"\nretries = 1",
            "url = \"localhost:1\"",
            &["must begin with http:// or https://"],
        ),
        (
            "kind = \"codex\"\ncommand = [\"cat\"]",
            "profile = \"x y\"",
            &["the name of a Codex profile has letters"],
        ),
    ] {
        let config = format!("[[agents]]\nname = \"a\"\n{kind}\n{key}\n");
        refused(&config, &["herald.toml, line 5: ", &format!("5 | {key}")]).await;
        refused(&config, words).await;
    }
    for (interfaces, words) in [
        ("[]", &["at least one interface"][..]),
        ("[\"jsonrpc\", \"jsonrpc\"]", &["\"jsonrpc\" is listed twice"]),
        ("[\"grcp\"]", &["unknown value `grcp`", "did you mean `grpc`?"]),
        ("\"jsonrpc\"", &["expected a list", "interfaces = [\"jsonrpc\", \"http+json\"]"]),
    ] {
        let config = format!("[card]\ninterfaces = {interfaces}\n");
        refused(&config, &["herald.toml, line 2: "]).await;
        refused(&config, words).await;
    }
    for (kind, meant) in [
        ("claude", "claude-code"),
        ("claude_code", "claude-code"),
        ("shell", "exec"),
        ("openai", "llm"),
        ("eccho", "echo"),
    ] {
        let config = format!("[[agents]]\nname = \"a\"\nkind = \"{kind}\"\nworkdir = \".\"\n");
        let said = format!("unknown kind {kind:?}; did you mean {meant:?}?");
        refused(&config, &["herald.toml, line 3: ", &said]).await;
    }
    let config = "[[agents]]\nname = \"a\"\nkind = \"toaster\"\n";
    refused(config, &["line 3", "use one of \"exec\", \"handler\"", "\"acp\""]).await;
}

// proves: SEC-008
#[tokio::test]
async fn errors_in_the_file_contain_no_secret() {
    for (config, words) in [
        ("tokens = [{ token = \"hush\", tenannt = \"x\", principal = \"p\" }]", &["tenannt"][..]),
        (
            "tokens = [{ token = 'hush', tenant = 'x', principal = 'p', scopes = ['all'] }]",
            &["all"],
        ),
        ("tokens = \"hush\"", &["tokens", "expected a list"]),
        ("tokens = [{ token = \"hush", &["token"]),
        ("secret = \"hush\"", &["secret", "unknown key"]),
        ("authorization = \"hush\"", &["authorization", "unknown key"]),
    ] {
        let refused = Options::config(format!("[auth]\n{config}\n")).refused().await;
        says(&refused, words);
        says(&refused, &["line 2"]);
        assert!(!refused.stderr.contains("hush"), "{}", refused.stderr);
    }
}

#[tokio::test]
async fn an_unknown_kind_is_refused_by_name() {
    let agent = |kind: &str| format!("[[agents]]\nname = \"mine\"\nkind = \"{kind}\"\n");
    refused(&agent("eccho"), &["mine", "unknown kind \"eccho\"", "\"echo\""]).await;
    let twice = format!("{}{}", agent("echo"), agent("echo"));
    refused(&twice, &["\"mine\"", "twice"]).await;
    refused("[[agents]]\nname = \"Mine!\"\nkind = \"echo\"\n", &["Mine!", "a-z"]).await;
    let two = "[[agents]]\nname = \"a\"\nkind = \"echo\"\ndefault = true\n\
               [[agents]]\nname = \"b\"\nkind = \"echo\"\ndefault = true\n";
    refused(two, &["\"a\"", "\"b\"", "default"]).await;
}

#[tokio::test]
async fn an_unsupported_store_is_refused_by_name() {
    for (url, words) in [
        (
            "postgres://localhost/herald",
            &["PostgreSQL is not supported in this version", "sqlite:"][..],
        ),
        ("postgresql://localhost/herald", &["PostgreSQL is not supported in this version"]),
        ("mysql://localhost", &["[store] url", "sqlite:", "memory:"]),
    ] {
        let config = format!("[store]\nurl = \"{url}\"\n");
        says(&Options::config(config).no_data().refused().await, words);
    }
}

#[tokio::test]
async fn off_loopback_it_needs_credentials_or_an_explicit_opt_out() {
    let open = Options::default().arguments(["--host", "0.0.0.0"]).refused().await;
    says(&open, &["0.0.0.0", "no credentials", "required = false", "[auth]", "tokens"]);
    let open = Options::config("[server]\nhost = \"::\"\n").refused().await;
    says(&open, &["no credentials", "required = false"]);
    let both = "[auth]\nrequired = false\n\
                tokens = [{ token = \"t\", tenant = \"a\", principal = \"p\" }]\n";
    refused(both, &["required = false", "tokens"]).await;

    let allowed = Options::config("[auth]\nrequired = false\n").arguments(["--host", "0.0.0.0"]);
    let herald = Herald::start(allowed).await;
    assert!(herald.greeting.contains("listen 0.0.0.0:"), "{}", herald.greeting);
    herald.ready().await;
}

const TOKENS: &str = r#"
[auth]
tokens = [
  { token = "env:ONE_TOKEN", tenant = "one", principal = "a" },
  { token = "env:OTHER_TOKEN", tenant = "other", principal = "a" },
  { token = "env:READ_TOKEN", tenant = "one", principal = "a", scopes = ["read"] },
]
"#;

// proves: ERR-067, ERR-068, ERR-069, ERR-070, SEC-001, SEC-005, LIST-001
#[tokio::test]
async fn a_token_gives_access_to_the_tasks_of_its_tenant_only() {
    let options = Options::config(format!("{TOKENS}{AGENTS}"));
    says(&options.refused().await, &["ONE_TOKEN is not set"]);
    let options = options
        .environment("ONE_TOKEN", "canary-7c5e-one")
        .environment("OTHER_TOKEN", "canary-7c5e-other")
        .environment("READ_TOKEN", "canary-7c5e-read");
    let herald = Herald::start(options).await;
    let with = |call: Call, token: &str| call.header("authorization", format!("Bearer {token}"));
    let ask = async |call: Call, token: &str| herald.call(&with(call, token)).await;
    for wire in Wire::ALL {
        let draft = Draft::new("m", "hello");
        let send = || wire.send("", &draft, false);
        for call in [send(), with(send(), "guess"), with(send(), "one-secre")] {
            let answer = herald.call(&call).await;
            assert_eq!(answer.status, 401);
            let challenge = answer.headers.get("www-authenticate").unwrap();
            assert!(challenge.to_str().unwrap().starts_with("Bearer"));
            assert!(wire.result(&answer).is_err());
        }
        let sent = wire.sent(&ask(send(), "canary-7c5e-one").await).unwrap();
        assert_eq!(state(&sent), "completed");
        let get = || wire.get(id(&sent));
        assert_eq!(wire.result(&ask(get(), "canary-7c5e-one").await).unwrap(), sent);
        assert_eq!(wire.result(&ask(get(), "canary-7c5e-read").await).unwrap(), sent);
        // A foreign task and an unknown one have the same response.
        let foreign = wire.result(&ask(get(), "canary-7c5e-other").await).unwrap_err();
        let never = wire.get(&uuid::Uuid::new_v4().to_string());
        let never = wire.result(&ask(never, "canary-7c5e-other").await).unwrap_err();
        assert_eq!(foreign.reason, "TASK_NOT_FOUND");
        assert_eq!(foreign, never);
        let foreign = ask(wire.cancel(id(&sent)), "canary-7c5e-other").await;
        assert_eq!(wire.result(&foreign).unwrap_err().reason, "TASK_NOT_FOUND");
        let unallowed = ask(send(), "canary-7c5e-read").await;
        assert_eq!(unallowed.status, 403, "{unallowed:?}");
    }
    for (token, count) in [("canary-7c5e-one", 4), ("canary-7c5e-other", 0)] {
        let page = ask(wire::list(None, 10, ""), token).await.json();
        assert_eq!(page["totalSize"], count, "{page}");
    }
    // The card needs no credentials, and no secret is printed.
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await;
    assert_eq!(card.status, 200);
    assert!(card.text().contains("Bearer"), "{card:?}");
}

#[tokio::test]
async fn a_url_or_a_file_in_place_of_the_data_directory_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("f");
    fs::write(&file, b"").unwrap();
    let file = file.to_str().unwrap();
    let is_file = format!("{file} is a file; --data needs a directory");
    for (data, words) in [
        ("sqlite:herald-data/herald.db", &["takes a directory", "write --data herald-data;"][..]),
        ("sqlite:///srv/herald", &["write --data /srv/herald;", "[store] url"]),
        ("sqlite:", &["write --data herald-data;"]),
        ("memory:", &["takes a directory", "write --ephemeral"]),
        ("postgres://localhost/herald", &["PostgreSQL is not supported"]),
        (file, &[&is_file]),
    ] {
        let flag = Options::default().no_data().arguments(["--data", data]).refused().await;
        says(&flag, words);
        assert_eq!(flag.status.code(), Some(1), "{flag:?}");
        says(&Options::default().no_data().environment("HERALD_DATA", data).refused().await, words);
    }
}

#[tokio::test]
async fn a_port_in_use_is_refused_by_number() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let refused = Options::default().no_port().arguments(["--port", &port]).refused().await;
    says(&refused, &[&format!("127.0.0.1:{port}"), "another server", "--port"]);
}

#[tokio::test]
async fn a_second_server_on_the_same_data_is_refused() {
    let first = Herald::start(Options::default()).await;
    let data = first.database();
    let second = Options::default().data(data.parent().unwrap());
    says(&second.refused().await, &["in use by another herald", "--data"]);
    // The first server is not affected.
    let sent = first.call(&Wire::Rpc.send("", &Draft::new("m", "hello"), false)).await;
    assert_eq!(state(&Wire::Rpc.sent(&sent).unwrap()), "completed");
}

/// A database with a task, of a server that has ended.
async fn left_behind() -> (tempfile::TempDir, Options) {
    let data = tempfile::tempdir().unwrap();
    let options = Options::default().data(data.path());
    let mut herald = Herald::start(options.clone()).await;
    for _ in 0..20 {
        herald.call(&Wire::Rpc.send("", &Draft::new("m", "hello"), false)).await;
    }
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    (data, options)
}

#[tokio::test]
async fn a_damaged_database_is_refused_and_not_changed() {
    let (data, options) = left_behind().await;
    let path = data.path().join("herald.db");
    let whole = fs::read(&path).unwrap();
    let half = whole[..whole.len() / 2].to_vec();
    let mut scrambled = whole.clone();
    scrambled[..64].fill(0xa5);
    for damaged in [b"no database at all".to_vec(), vec![7; 100_000], half, scrambled] {
        fs::write(&path, &damaged).unwrap();
        let refused = options.refused().await;
        says(&refused, &["herald.db cannot be read", "backup"]);
        assert!(fs::read(&path).unwrap() == damaged);
    }
    fs::write(&path, &whole).unwrap();
    let herald = Herald::start(options).await;
    assert_eq!(herald.call(&wire::list(None, 1, "")).await.json()["totalSize"], 20);
}

#[tokio::test]
async fn a_damaged_page_is_reported_with_its_file_its_table_and_a_remedy() {
    let (data, options) = left_behind().await;
    let path = data.path().join("herald.db");
    let whole = fs::read(&path).unwrap();
    let conn = Connection::open(&path).unwrap();
    let number = |sql: &str| -> i64 { conn.query_row(sql, [], |row| row.get(0)).unwrap() };
    let page_size = usize::try_from(number("PRAGMA page_size")).unwrap();
    let root = |name: &str| -> usize {
        let root = format!("SELECT rootpage FROM sqlite_schema WHERE name = '{name}'");
        usize::try_from(number(&root)).unwrap()
    };
    let roots = ["tasks_active", "tasks", "meta", "events"].map(|name| (name, root(name)));
    drop(conn);
    for (name, root) in roots {
        let mut damaged = whole.clone();
        damaged[(root - 1) * page_size..][..page_size].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        let refused = options.refused().await;
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let herald_db = path.display().to_string();
        for word in [&*herald_db, name, "damaged", "backup", "herald doctor", ".recover"] {
            assert!(refused.stderr.contains(word), "{name}: no {word:?} in {}", refused.stderr);
        }
        assert!(!refused.stderr.contains("Internal error"), "{name}: {}", refused.stderr);
    }
    fs::write(&path, &whole).unwrap();
    let herald = Herald::start(options).await;
    assert_eq!(herald.call(&wire::list(None, 1, "")).await.json()["totalSize"], 20);
}

#[tokio::test]
async fn a_database_without_a_migration_is_reported() {
    let (data, options) = left_behind().await;
    let conn = Connection::open(data.path().join("herald.db")).unwrap();
    conn.execute("DELETE FROM refinery_schema_history WHERE version = 2", []).unwrap();
    drop(conn);
    let refused = options.refused().await;
    says(&refused, &["herald.db", "lacks the migration V2", "backup"]);
    assert!(!refused.stderr.contains("writable"), "{refused:?}");
}

#[tokio::test]
async fn a_failed_start_leaves_no_data_behind() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let missing = ["--tls-certificate", "/none/cert.pem", "--tls-key", "/none/key.pem"];
    let starts = [
        Options::default().no_port().arguments(["--port", &port]),
        Options::default().arguments(missing),
        Options::config("[server]\ntls = { certificate = \"/none/c\", key = \"/none/k\" }\n"),
        Options::config("[server]\npublic_url = \"not a url\"\n"),
        Options::config("[server]\nallowed_origins = [\"not an origin\"]\n"),
        Options::config("[nothing]\n"),
    ];
    for options in starts {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().join("data");
        let refused = options.clone().data(&data).refused().await;
        assert!(!data.exists(), "{options:?}: {}", refused.stderr);
        // An existing directory is not changed.
        fs::create_dir(&data).unwrap();
        options.clone().data(&data).refused().await;
        assert_eq!(files(&data), [""; 0], "{options:?}");
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_by_number() {
    let (data, options) = left_behind().await;
    let conn = Connection::open(data.path().join("herald.db")).unwrap();
    conn.execute_batch(
        "INSERT INTO refinery_schema_history VALUES (999, 'later', '2030-01-01T00:00:00Z', '1');
         UPDATE meta SET value = '9.8.7' WHERE key = 'version';",
    )
    .unwrap();
    drop(conn);
    let refused = options.refused().await;
    says(&refused, &["version 999 of the database schema", "herald 9.8.7", "too old", "install"]);
    says(&refused, &[env!("CARGO_PKG_VERSION"), "reads versions up to ", "--data"]);
}

#[tokio::test]
async fn an_unwritable_directory_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    let refused = Options::default().data(file.join("data")).refused().await;
    says(&refused, &["file/data"]);

    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not apply to root.
    let binds = fs::write(directory.path().join("probe"), b"").is_err();
    if binds {
        let below = Options::default().data(directory.path().join("data")).refused().await;
        says(&below, &["cannot create the data directory", "parent directory writable", "--data"]);
        let itself = Options::default().data(directory.path()).refused().await;
        says(&itself, &["cannot be written", "--data"]);
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs the line in a shell.
async fn paste(line: &str, token: &str) -> serde_json::Value {
    paste_with(line, &[("HERALD_TOKEN", token)]).await
}

/// Runs the line in a shell with these variables.
async fn paste_with(line: &str, variables: &[(&str, &str)]) -> serde_json::Value {
    let mut command = Command::new("sh");
    command.args(["-c", line]).envs(variables.iter().copied());
    let ended = ended(command).await;
    assert!(ended.status.success(), "{line}: {ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[tokio::test]
async fn the_printed_curl_line_works() {
    let line = |herald: &Herald| {
        let line = herald.greeting.lines().find_map(|line| line.trim().strip_prefix("try "));
        line.unwrap().trim().to_owned()
    };
    let check = |answer: &serde_json::Value| {
        let task = &answer["result"]["task"];
        assert_eq!(state(task), "completed", "{answer}");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Echo: hello");
    };
    let open = Herald::start(Options::default()).await;
    check(&paste(&line(&open), "").await);
    let tokens = "[auth]\ntokens = [{ token = \"tell-me\", tenant = \"a\", principal = \"p\" }]\n";
    let closed = Herald::start(Options::config(tokens)).await;
    assert!(line(&closed).contains("$HERALD_TOKEN") && !closed.greeting.contains("tell-me"));
    check(&paste(&line(&closed), "tell-me").await);
    let refused = paste(&line(&closed), "wrong").await;
    assert!(refused["error"]["code"].is_i64(), "{refused}");

    // With an API key of the store.
    let home = tempfile::tempdir().unwrap();
    let data = home.path().to_str().unwrap();
    let created =
        herald(&["key", "create", "--principal", "ci", "--data", data, "-o", "json"]).await;
    let created: serde_json::Value = serde_json::from_str(&created.stdout).unwrap();
    let keyed = Herald::start(Options::default().data(home.path())).await;
    check(&paste(&line(&keyed), created["key"].as_str().unwrap()).await);

    // With TLS, under each kind of name, and with client certificates.
    let (authority, files) = (Authority::new(), tempfile::tempdir().unwrap());
    let file = |name: &str, text: String| {
        let path = files.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let ca = file("ca.pem", authority.pem());
    let (certificate, key) = authority.vouch("me");
    let (own, own_key) = (file("me.pem", certificate.pem()), file("me.key", key.serialize_pem()));
    let holder = [("HERALD_CLIENT_CERT", own.as_str()), ("HERALD_CLIENT_KEY", own_key.as_str())];
    for (index, name) in
        ["127.0.0.1", "localhost", "agents.example", "*.agents.example"].iter().enumerate()
    {
        let (certificate, key) = authority.vouch(name);
        // A name with a space needs quotes.
        let certificate = file(&format!("the cert {index}.pem"), certificate.pem());
        let key = file(&format!("{index}.key"), key.serialize_pem());
        let tls = format!(
            "[server]\nallowed_hosts = [\"agents.example\", \"agents.agents.example\"]\n[server.tls]\n\
             certificate = {certificate:?}\nkey = {key:?}\n"
        );
        let plain = Herald::start(Options::config(tls.as_str())).await;
        check(&paste(&line(&plain), "").await);
        let mutual = format!(
            "{tls}client_ca = {ca:?}\nclient_auth = \"required\"\n[auth.certificates]\nname = \"dns\"\n\
             tenant = \"acme\"\n"
        );
        let mutual = Herald::start(Options::config(mutual)).await;
        check(&paste_with(&line(&mutual), &holder).await);
    }
}

#[tokio::test]
async fn without_settings_it_echoes_and_stores_tasks_in_its_directory() {
    let mut herald = Herald::start(Options::default().no_data()).await;
    assert!(herald.greeting.contains("serves echo"), "{}", herald.greeting);
    assert!(herald.greeting.contains("herald-data/herald.db"), "{}", herald.greeting);
    let sent = herald.call(&Wire::Rest.send("", &Draft::new("m", "hello"), false)).await;
    let sent = Wire::Rest.sent(&sent).unwrap();
    assert!(herald.home().join("herald-data/herald.db").exists());
    herald.restart_cleanly().await;
    let kept = Wire::Rest.result(&herald.call(&Wire::Rest.get(id(&sent))).await).unwrap();
    assert_eq!(kept, sent);
    // From now on there is a file where it looks for one.
    fs::write(herald.home().join("herald.toml"), AGENTS).unwrap();
    herald.restart_cleanly().await;
    assert!(herald.greeting.contains("serves echo, conformance"), "{}", herald.greeting);
    let card = herald.call(&Call::get(format!("{CONFORMANCE}/.well-known/agent-card.json"))).await;
    assert_eq!(card.status, 200);
}

#[tokio::test]
async fn flags_override_the_environment_which_overrides_the_file() {
    let config = "[store]\nurl = \"sqlite:from-file/herald.db\"\n";
    let where_ = async |options: Options| {
        let herald = Herald::start(options).await;
        let line = herald.greeting.lines().find(|line| line.trim().starts_with("tasks "));
        line.unwrap().to_owned()
    };
    let options = Options::config(config).no_data();
    assert!(where_(options.clone()).await.contains("from-file/herald.db"));
    let options = options.environment("HERALD_DATA", "from-environment");
    assert!(where_(options.clone()).await.contains("from-environment/herald.db"));
    let options = options.arguments(["--data", "from-flag"]);
    assert!(where_(options).await.contains("from-flag/herald.db"));
}

#[tokio::test]
async fn an_ephemeral_server_warns_and_loses_its_tasks() {
    let options = Options::default().no_data().arguments(["--ephemeral"]);
    let mut herald = Herald::start(options).await;
    assert!(herald.greeting.contains("in memory only"), "{}", herald.greeting);
    assert!(herald.greeting.contains("lost when this stops"), "{}", herald.greeting);
    let sent = herald.call(&Wire::Rpc.send("", &Draft::new("m", "hello"), false)).await;
    let sent = Wire::Rpc.sent(&sent).unwrap();
    let found = herald.call(&Wire::Rpc.get(id(&sent))).await;
    assert_eq!(Wire::Rpc.result(&found).unwrap(), sent);
    herald.restart_cleanly().await;
    let gone = herald.call(&Wire::Rpc.get(id(&sent))).await;
    assert_eq!(Wire::Rpc.result(&gone).unwrap_err().reason, "TASK_NOT_FOUND");
    let left: Vec<_> = files(herald.home());
    assert_eq!(left, ["log"]);
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
