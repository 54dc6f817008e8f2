//! Tests of calls to agents: bindings, versions, tenants, extensions, credentials, catalogs.

use std::fs;

use serde_json::json;
use tempfile::tempdir;

use crate::{
    cli_support::{Fake, agent, answer, card, cli, herald, response, result, steered, task},
    support::{Herald, Options},
};

/// An agent whose card has these interfaces, each at a path of its own.
async fn at_paths(interfaces: &'static [(&'static str, &'static str, &'static str)]) -> Fake {
    Fake::start(move |url, request| {
        if request.is_card() {
            let mut card = card(url);
            let listed = interfaces.iter().map(|(path, binding, version)| {
                json!({ "url": format!("{url}{path}"), "protocolBinding": binding,
                    "protocolVersion": version })
            });
            card["supportedInterfaces"] = listed.collect();
            answer(&card)
        } else if request.path.contains("message:send") {
            answer(&json!({ "task": task("COMPLETED") }))
        } else if request.body["method"] == "message/send" {
            let mut old = json!({ "kind": "task", "id": "t-1", "contextId": "c-1" });
            old["status"] = json!({ "state": "completed" });
            result(request, &old)
        } else if request.body["method"] == "tasks/send" {
            result(request, &json!({ "id": "t-1", "status": { "state": "completed" } }))
        } else {
            result(request, &json!({ "task": task("COMPLETED") }))
        }
    })
    .await
}

#[tokio::test]
async fn the_first_supported_interface_is_called_unless_another_is_preferred() {
    let fake = at_paths(&[
        ("/smoke", "SMOKE", "1.0"),
        ("/rest", "HTTP+JSON", "1.0"),
        ("/rpc", "JSONRPC", "1.0"),
    ])
    .await;
    let send = ["send", "x", "-a", &fake.url];
    for (preferred, path) in [
        (&[][..], "/rest/message:send"),
        (&["--transport", "jsonrpc"], "/rpc"),
        (&["--transport", "grpc", "--transport", "jsonrpc"], "/rpc"),
        (&["--transport", "jsonrpc", "--transport", "http+json"], "/rpc"),
        (&["--transport", "grpc"], "/rest/message:send"),
    ] {
        let sent = cli(send.into_iter().chain(preferred.iter().copied())).ok().await;
        assert_eq!(fake.calls().pop().unwrap().path, path, "{preferred:?}");
        let warned = "Warning: no interface of the card fits --transport grpc; using HTTP+JSON\n";
        assert_eq!(sent.stderr.contains(warned), *preferred == ["--transport", "grpc"], "{sent:?}");
    }
    let from_outside = cli(send).env("A2ACLI_TRANSPORT", "grpc,jsonrpc");
    from_outside.ok().await;
    assert_eq!(fake.calls().pop().unwrap().path, "/rpc");
}

#[tokio::test]
async fn one_message_has_the_same_output_over_every_binding() {
    let server = herald().await;
    let agent = steered(&server);
    let mut seen = Vec::new();
    for transport in ["jsonrpc", "http+json", "grpc", "websocket"] {
        let arguments = ["send", "-a", &agent, "tck-artifact-data", "--transport", transport];
        let sent = cli(arguments).ok().await.stdout;
        let varying = ["Task ID: ", "Context ID: ", "Resume: "];
        let kept = |line: &&str| !varying.iter().any(|label| line.starts_with(label));
        seen.push(sent.lines().filter(kept).collect::<Vec<_>>().join("\n"));
        let stream = ["--stream", "-o", "json"];
        let lines = cli(arguments.into_iter().chain(stream)).ok().await.lines();
        let last = lines.last().unwrap();
        assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{transport}");
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
}

#[tokio::test]
async fn a_send_in_0_3_has_accepted_output_modes_for_servers_of_0_2() {
    let fake = at_paths(&[("/old", "JSONRPC", "0.3"), ("/rest", "HTTP+JSON", "0.3")]).await;
    cli(["send", "x", "-a", &fake.url, "--a2a-version", "0.3"]).ok().await;
    let sent = fake.calls().into_iter().find(|call| call.path == "/old").unwrap();
    assert_eq!(sent.body["params"]["configuration"]["acceptedOutputModes"], json!([]), "{sent:?}");
}

#[tokio::test]
async fn every_request_has_its_version_and_older_ones_need_a_flag() {
    let fake = at_paths(&[("/old", "JSONRPC", "0.3"), ("/new", "JSONRPC", "1.0")]).await;
    cli(["send", "x", "-a", &fake.url]).ok().await;
    let sent = fake.calls().pop().unwrap();
    assert_eq!((sent.path.as_str(), sent.header("a2a-version")), ("/new", Some("1.0")));
    cli(["send", "x", "-a", &fake.url, "--a2a-version", "0.3"]).ok().await;
    let sent = fake.calls().pop().unwrap();
    assert_eq!((sent.path.as_str(), sent.header("a2a-version")), ("/old", Some("0.3")));
    let old = at_paths(&[("/old", "JSONRPC", "0.3")]).await;
    let error = cli(["send", "x", "-a", &old.url]).fails(1, "VersionNotSupportedError").await;
    assert_eq!(error["hint"], "add --a2a-version 0.3");
    assert!(old.calls().is_empty());
    cli(["send", "x", "-a", &old.url, "--a2a-version", "7.0"]).fails(2, "A2ACLI_ERR_USAGE").await;
    for (version, method) in [("0.1", "tasks/send"), ("0.2", "message/send")] {
        let older = match version {
            "0.1" => at_paths(&[("/older", "JSONRPC", "0.1")]).await,
            _ => at_paths(&[("/older", "JSONRPC", "0.2")]).await,
        };
        let error = cli(["send", "x", "-a", &older.url]).fails(1, "VersionNotSupportedError").await;
        assert_eq!(error["hint"], format!("add --a2a-version {version}"));
        let sent = cli(["send", "x", "-a", &older.url, "--a2a-version", version]).ok().await;
        assert_eq!(sent.field("State"), "COMPLETED");
        let call = &older.calls()[0];
        assert_eq!(call.body["method"], method);
        assert_eq!(call.header("a2a-version"), Some(version));
    }
}

#[tokio::test]
async fn the_tenant_of_the_interface_is_sent_and_no_other() {
    let tenant = |tenant: Option<&'static str>| {
        Fake::start(move |url, request| {
            if request.is_card() {
                let mut card = card(url);
                if let Some(tenant) = tenant {
                    card["supportedInterfaces"][0]["tenant"] = tenant.into();
                }
                answer(&card)
            } else if request.body["method"] == "SendMessage" {
                result(request, &json!({ "task": task("COMPLETED") }))
            } else {
                result(request, &task("CANCELED"))
            }
        })
    };
    let with = tenant(Some("acme/eu")).await;
    let without = tenant(None).await;
    for verb in [&["send", "x"][..], &["task", "get", "t-1"], &["task", "cancel", "t-1"]] {
        for (fake, expected) in [(&with, json!("acme/eu")), (&without, json!(null))] {
            cli(verb.iter().copied().chain(["-a", fake.url.as_str()])).ok().await;
            assert_eq!(fake.calls().pop().unwrap().body["params"]["tenant"], expected, "{verb:?}");
        }
    }
}

#[tokio::test]
async fn required_extensions_are_sent_with_every_call() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            let mut card = card(url);
            card["capabilities"]["extensions"] =
                json!([{ "uri": "urn:a", "required": true }, { "uri": "urn:b" }]);
            answer(&card)
        } else {
            result(request, &json!({ "task": task("COMPLETED") }))
        }
    })
    .await;
    cli(["send", "x", "-a", &fake.url]).ok().await;
    assert_eq!(fake.calls()[0].header("a2a-extensions"), Some("urn:a"));
    cli(["send", "x", "-a", &fake.url, "--extension", "urn:b"]).ok().await;
    assert_eq!(fake.calls()[1].header("a2a-extensions"), Some("urn:b, urn:a"));
}

#[tokio::test]
async fn credentials_are_sent_as_the_card_requires_and_never_printed() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            let mut card = card(url);
            card["securitySchemes"] = json!({
                "key": { "apiKeySecurityScheme": { "location": "query", "name": "key" } },
                "token": { "httpAuthSecurityScheme": { "scheme": "Bearer" } },
            });
            answer(&card)
        } else {
            // An agent that repeats its request.
            let said = format!("{request:?}");
            result(
                request,
                &json!({ "message": { "messageId": "m", "role": "ROLE_AGENT",
                "parts": [{ "text": said.len().to_string() }], "metadata": { "said": said } } }),
            )
        }
    })
    .await;
    let arguments = [
        "send",
        "x",
        "-a",
        &fake.url,
        "--api-key",
        "k&=1 ~",
        "--bearer",
        "canary-7c5e-h",
        "--svc-param",
        "x-session: s3ss10n",
        "--metadata",
        r#"{"tenant":"acme"}"#,
        "--debug",
        "--verbose=false",
    ];
    let ended = cli(arguments).ok().await;
    let call = fake.calls().pop().unwrap();
    assert!(call.path.contains("key=k%26%3D1+%7E"), "{}", call.path);
    assert_eq!(call.header("authorization"), Some("Bearer canary-7c5e-h"));
    assert_eq!(call.header("x-session"), Some("s3ss10n"));
    assert_eq!(call.body["params"]["metadata"], json!({ "tenant": "acme" }));
    assert!(ended.stderr.contains("POST"), "{ended:?}");
    for secret in ["canary-7c5e-h", "k&=1", "k%26%3D1", "s3ss10n"] {
        assert!(!ended.stderr.contains(secret), "{secret} in {}", ended.stderr);
    }
    let help = cli(["send", "--help"]).ok().await.stdout;
    assert!(help.contains("A2ACLI_BEARER") && help.contains("process list"), "{help}");
    let about = help.split("--svc-param").nth(1).unwrap().split("--").next().unwrap();
    assert!(!about.contains("credential") && !about.contains("auth"), "{about}");
}

#[tokio::test]
async fn an_extended_card_is_fetched_only_with_a_declared_credential() {
    let made = |schemes: serde_json::Value| {
        Fake::start(move |url, request| {
            if request.is_card() {
                let mut card = card(url);
                card["capabilities"]["extendedAgentCard"] = true.into();
                card["securitySchemes"] = schemes.clone();
                answer(&card)
            } else {
                let mut extended = card(url);
                extended["name"] = "extended".into();
                result(request, &extended)
            }
        })
    };
    let bearer = json!({ "t": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
    let declared = made(bearer).await;
    let undeclared = made(json!({})).await;
    let missing = "A2ACLI_ERR_CREDENTIALS_MISSING";
    for (fake, more) in
        [(&declared, &[][..]), (&declared, &["--api-key", "k"]), (&undeclared, &["--bearer", "t"])]
    {
        let all = ["card", "get", &fake.url, "--extended"].into_iter().chain(more.iter().copied());
        cli(all).fails(4, missing).await;
        assert!(fake.calls().is_empty(), "{more:?}");
    }
    let get = ["card", "get", &declared.url, "--extended", "--bearer", "t"];
    assert_eq!(cli(get).ok().await.field("Name"), "extended");
    assert_eq!(declared.calls()[0].header("authorization"), Some("Bearer t"));
}

#[tokio::test]
async fn herald_accepts_a_token_and_names_a_missing_credential() {
    let config = r#"
        [auth]
        tokens = [
            { token = "canary-7c5e-h", tenant = "acme", principal = "ci" },
            { token = "reader", tenant = "acme", principal = "r", scopes = ["read"] },
        ]
    "#;
    let server = Herald::start(Options::config(config)).await;
    let send = ["send", "Hello", "-a", &server.address.to_string()];
    let error = cli(send).fails(4, "A2ACLI_ERR_CREDENTIALS_MISSING").await;
    let hint = error["hint"].as_str().unwrap();
    assert!(hint.contains("give the token with A2ACLI_BEARER"), "{hint}");
    let reader = cli(send.into_iter().chain(["--bearer", "reader"]));
    let error = reader.fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    assert_eq!(error["hint"], "the credential needs the scope \"send\"");
    cli(send.into_iter().chain(["--bearer", "x"])).fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    let sent = cli(send).env("A2ACLI_BEARER", "canary-7c5e-h").ok().await;
    assert_eq!(sent.field("State"), "COMPLETED");
}

#[tokio::test]
async fn a_missing_credential_is_named_by_the_scheme_of_the_card() {
    for (scheme, hint) in [
        (json!({ "httpAuthSecurityScheme": { "scheme": "bearer" } }), "A2ACLI_BEARER"),
        (
            json!({ "apiKeySecurityScheme": { "location": "header", "name": "x-key" } }),
            "A2ACLI_API_KEY (API key in header x-key)",
        ),
        (json!({ "mtlsSecurityScheme": {} }), "--client-cert"),
        (
            json!({ "openIdConnectSecurityScheme": { "openIdConnectUrl": "http://127.0.0.1:1/" } }),
            "herald auth login -a ",
        ),
    ] {
        let fake = Fake::start(move |url, request| {
            if request.is_card() {
                let mut card = card(url);
                card["securitySchemes"] = json!({ "one": scheme });
                answer(&card)
            } else {
                response(401, "text/plain", "who are you?")
            }
        })
        .await;
        let error =
            cli(["send", "x", "-a", &fake.url]).fails(4, "A2ACLI_ERR_CREDENTIALS_MISSING").await;
        assert!(error["hint"].as_str().unwrap().contains(hint), "{error}");
    }
}

#[tokio::test]
async fn a_task_that_needs_a_login_continues_after_it() {
    let server = herald().await;
    let agent = steered(&server);
    let asked = cli(["send", "-a", &agent, "tck-auth-required"]).ok().await;
    assert_eq!(asked.field("State"), "AUTH_REQUIRED");
    assert!(asked.stdout.contains("Please sign in"), "{asked:?}");
    let streamed = cli(["send", "-a", &agent, "tck-auth-required", "--stream"]).ok().await;
    assert!(streamed.stdout.contains("Please sign in"), "{streamed:?}");
    for asked in [&asked, &streamed] {
        let next = asked.stdout.lines().find_map(|line| line.trim().strip_prefix("Resume: "));
        let next = next.unwrap_or_else(|| panic!("no command in {asked:?}"));
        assert!(next.starts_with("herald send ") && next.contains("--task-id"), "{asked:?}");
        assert!(asked.stderr.contains(&format!("Then run: {next}")), "{asked:?}");
    }
    let id = asked.field("Task ID");
    let resumed = ["send", "-a", &agent, "--task-id", id, "I did", "--bearer", "token"];
    let resumed = cli(resumed).ok().await;
    assert_eq!((resumed.field("Task ID"), resumed.field("State")), (id, "COMPLETED"));
    // The context is the task's own, whether it is named or not, and a wrong one is refused.
    let context = asked.field("Context ID");
    assert_eq!(resumed.field("Context ID"), context);
    let other = cli(["send", "-a", &agent, "tck-input-required"]).ok().await;
    let id = other.field("Task ID");
    let wrong = ["send", "-a", &agent, "x", "--task-id", id, "--context-id", context];
    cli(wrong).fails(1, "InvalidParamsError").await;
    let right =
        ["send", "-a", &agent, "x", "--task-id", id, "--context-id", other.field("Context ID")];
    assert_eq!(cli(right).ok().await.field("Task ID"), id);
}

#[tokio::test]
async fn an_entry_of_a_catalog_is_an_agent() {
    let fake = agent(json!({ "task": task("COMPLETED") })).await;
    let listed = json!({ "agents": [{ "name": "reviewer", "url": fake.url }] });
    let home = tempdir().unwrap();
    fs::write(home.path().join("catalog.json"), listed.to_string()).unwrap();
    let sent = cli(["send", "catalog.json#reviewer", "x"]).at(home.path()).ok().await;
    assert_eq!(sent.field("State"), "COMPLETED");
    let catalog = Fake::start(move |_, request| match request.path.as_str() {
        "/agents.json" => answer(&listed),
        _ => response(404, "text/plain", ""),
    })
    .await;
    let entry = format!("{}/agents.json#reviewer", catalog.url);
    assert_eq!(cli(["card", "get", &entry]).ok().await.field("Name"), "fake");
    let absent = format!("{}/agents.json#reviwer", catalog.url);
    let error = cli(["card", "get", &absent]).fails(3, "A2ACLI_ERR_CARD_NOT_FOUND").await;
    assert_eq!(error["hint"], "did you mean \"reviewer\"? Its entries are: reviewer");
    let other = format!("{}/agents.json#x", catalog.url);
    let error = cli(["card", "get", &other]).fails(3, "A2ACLI_ERR_CARD_NOT_FOUND").await;
    assert_eq!(error["hint"], "its entries are: reviewer");
    // A catalog without the name of an entry is not an agent.
    for whole in ["catalog.json", &format!("{}/agents.json", catalog.url)] {
        let error = cli(["card", "get", whole]).at(home.path());
        let error = error.fails(1, "A2ACLI_ERR_CARD_INVALID").await;
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains(&format!("{whole}#reviewer")), "{error}");
    }
    // It cannot start programs, either.
    for place in ["stdio:touch started", "STDIO:touch started", "file:///etc/card.json"] {
        let listed = json!({ "reviewer": place });
        fs::write(home.path().join("bad.json"), listed.to_string()).unwrap();
        let catalog = Fake::start(move |_, _| answer(&listed)).await;
        let entry = format!("{}/agents.json#reviewer", catalog.url);
        for entry in [entry.as_str(), "bad.json#reviewer"] {
            let ended = cli(["send", entry, "x"]).at(home.path()).end().await;
            assert_eq!(ended.status.code(), Some(3), "{entry} {place} {ended:?}");
            assert!(!home.path().join("started").exists(), "{entry} {place}");
        }
    }
    // A catalog does not choose the receiver of credentials.
    let send = ["send", "x", "-a", &entry, "--bearer", "canary-7c5e-h"];
    cli(send).fails(2, "A2ACLI_ERR_USAGE").await;
    cli(send.into_iter().chain(["--trust-origin", &fake.url])).ok().await;
    assert_eq!(fake.calls().pop().unwrap().header("authorization"), Some("Bearer canary-7c5e-h"));
}
