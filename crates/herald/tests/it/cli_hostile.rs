//! Tests of hostile agents, catalogs and suites.

use std::fs;

use serde_json::json;
use tempfile::tempdir;

use crate::cli_support::{Fake, agent, answer, card, cli, response, result, task};

/// A fake whose card names an interface at another origin.
async fn leading_to(elsewhere: &str) -> Fake {
    let elsewhere = elsewhere.to_owned();
    Fake::start(move |_, request| {
        if request.is_card() { answer(&card(&elsewhere)) } else { response(404, "text/plain", "") }
    })
    .await
}

#[tokio::test]
async fn a_service_parameter_is_sent_to_the_named_origin_only() {
    let other = agent(json!({ "task": task("COMPLETED") })).await;
    let fake = leading_to(&other.url).await;
    let send = ["send", "x", "-a", &fake.url, "--svc-param", "x-key: canary-7c5e-h"];
    let error = cli(send).fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["hint"].as_str().unwrap().contains("--trust-origin"), "{error}");
    assert!(other.calls().is_empty());
    cli(send.into_iter().chain(["--trust-origin", &other.url])).ok().await;
    assert_eq!(other.calls()[0].header("x-key"), Some("canary-7c5e-h"));
    // A catalog cannot change that.
    let listed = json!({ "x": other.url });
    let catalog = Fake::start(move |_, _| answer(&listed)).await;
    let entry = format!("{}/agents.json#x", catalog.url);
    let send = ["send", "x", "-a", &entry, "--svc-param", "x-key: canary-7c5e-h"];
    cli(send).fails(2, "A2ACLI_ERR_USAGE").await;
    assert_eq!(other.calls().len(), 1);
}

#[tokio::test]
async fn a_catalog_from_the_network_cannot_start_a_program() {
    let home = tempdir().unwrap();
    for place in ["stdio:touch started http://x", "stdio:touch started ;:http://x", "stdio://touch"]
    {
        let listed = json!({ "agents": [{ "name": "x", "url": place }] });
        let catalog = Fake::start(move |_, _| answer(&listed)).await;
        let entry = format!("{}/agents.json#x", catalog.url);
        let ended = cli(["send", &entry, "x"]).at(home.path()).end().await;
        assert_eq!(ended.status.code(), Some(3), "{place} {ended:?}");
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_login_with_an_absurd_expiry_is_shown_and_deleted() {
    let home = tempdir().unwrap();
    let directory = home.path().join(".config/a2a-cli");
    fs::create_dir_all(&directory).unwrap();
    let login = |expires: u64| {
        json!({ "client_id": "me", "access_token": "canary-7c5e-h", "expires": expires,
            "token_url": "http://127.0.0.1:1/token" })
    };
    let kept = json!({ "agents": { "http://127.0.0.1:1": login(300_000_000_000),
        "http://127.0.0.1:2": login(u64::MAX) } });
    fs::write(directory.join("credentials.json"), kept.to_string()).unwrap();
    let at_home = |arguments: &[&str]| {
        cli(arguments.iter().copied()).env("HOME", home.path().to_str().unwrap())
    };
    let status = at_home(&["auth", "status"]).ok().await;
    assert_eq!(status.field("Logins"), "2");
    assert_eq!(status.field("Expires"), "9999-12-31T23:59:59Z");
    at_home(&["auth", "logout", "--all"]).ok().await;
    assert_eq!(at_home(&["auth", "status"]).ok().await.field("Logins"), "0");
}

#[tokio::test]
async fn credentials_that_an_agent_repeats_are_redacted() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            answer(&card(url))
        } else {
            let said = format!("you sent {}", request.header("authorization").unwrap_or("nothing"));
            answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"],
                "error": { "code": -32603, "message": said } }))
        }
    })
    .await;
    let send = ["send", "x", "-a", &fake.url];
    let ended = cli(send).env("A2ACLI_BEARER", "canary-7c5e-h").end().await;
    assert!(ended.stderr.contains("you sent Bearer …"), "{ended:?}");
    assert!(!ended.stderr.contains("canary-7c5e-h"), "{ended:?}");
    let error = cli(send).env("A2ACLI_BEARER", "canary-7c5e-h").fails(1, "InternalError").await;
    assert!(!error.to_string().contains("canary-7c5e-h"), "{error}");
}

#[tokio::test]
async fn a_token_that_was_just_obtained_is_redacted_too() {
    let fake = Fake::start(|url, request| match request.path.as_str() {
        _ if request.is_card() => {
            let mut card = card(url);
            let flow = json!({ "clientCredentials":
                { "tokenUrl": format!("{url}/token"), "scopes": {} } });
            card["securitySchemes"]["o"] = json!({ "oauth2SecurityScheme": { "flows": flow } });
            answer(&card)
        }
        "/token" => {
            answer(&json!({ "access_token": "canary-7c5e-h-access", "token_type": "Bearer" }))
        }
        _ => {
            let said = request.header("authorization").unwrap_or_default().to_owned();
            answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"],
                "error": { "code": -32603, "message": said, "data": { "said": said } } }))
        }
    })
    .await;
    let send = ["send", "x", "-a", &fake.url, "--client-id", "ci", "--debug"];
    let ended = cli(send).env("A2ACLI_CLIENT_SECRET", "canary-7c5e-h-secret").end().await;
    assert!(ended.stderr.contains("Bearer …"), "{ended:?}");
    assert!(!ended.stderr.contains("canary-7c5e-h"), "{ended:?}");
}

#[tokio::test]
async fn a_cyclic_list_ends_with_an_error() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            answer(&card(url))
        } else {
            let token = if request.body["params"]["pageToken"] == "1" { "2" } else { "1" };
            let page = json!({ "tasks": [task("COMPLETED")], "nextPageToken": token,
                "pageSize": 1, "totalSize": 1 });
            result(request, &page)
        }
    })
    .await;
    let list = ["task", "list", "-a", &fake.url, "--all"];
    let error = cli(list).fails(1, "InvalidAgentResponseError").await;
    assert!(error["message"].as_str().unwrap().contains("repeats its pages"), "{error}");
}

#[tokio::test]
async fn many_files_of_one_name_are_saved_up_to_the_limit() {
    let with = |count: usize| {
        Fake::start(move |url, request| {
            if request.is_card() {
                answer(&card(url))
            } else {
                let mut done = task("COMPLETED");
                let parts = vec![json!({ "text": "x", "filename": "a" }); count];
                done["artifacts"] = json!([{ "artifactId": "a", "parts": parts }]);
                result(request, &done)
            }
        })
    };
    let home = tempdir().unwrap();
    let (some, many) = (with(2000).await, with(10_001).await);
    let download = ["task", "download", "-a", &some.url, "t-1", "--dir", "out"];
    cli(download).at(home.path()).ok().await;
    assert_eq!(fs::read_dir(home.path().join("out")).unwrap().count(), 2000);
    let download = ["task", "download", "-a", &many.url, "t-1", "--dir", "more"];
    cli(download).at(home.path()).fails(1, "A2ACLI_ERR_INTERNAL").await;
    assert!(!home.path().join("more").exists());
}

#[tokio::test]
async fn a_message_that_could_not_be_streamed_is_sent_again_with_the_same_id() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            let mut card = card(url);
            card["capabilities"]["streaming"] = true.into();
            answer(&card)
        } else if request.body["method"] == "SendStreamingMessage" {
            let refused = json!({ "jsonrpc": "2.0", "id": request.body["id"],
                "error": { "code": -32004, "message": "no streams" } });
            response(200, "text/event-stream", format!("data: {refused}\n\n"))
        } else {
            result(request, &json!({ "task": task("COMPLETED") }))
        }
    })
    .await;
    cli(["send", "x", "-a", &fake.url]).ok().await;
    let sent = fake.calls();
    let names: Vec<_> =
        sent.iter().map(|one| &one.body["params"]["message"]["messageId"]).collect();
    assert_eq!(names.len(), 2, "{sent:?}");
    assert!(names[0].is_string() && names[0] == names[1], "{names:?}");
}

#[tokio::test]
async fn a_directory_with_a_hostile_name_does_not_reach_the_terminal() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempdir().unwrap();
    let hostile = home.path().join("a\u{1b}[31m\u{202e}");
    fs::create_dir(&hostile).unwrap();
    fs::write(hostile.join(".env"), "A2ACLI_BEARER=canary-7c5e-h\n").unwrap();
    fs::set_permissions(hostile.join(".env"), fs::Permissions::from_mode(0o644)).unwrap();
    let ended = cli(["send", "x", "-a", "127.0.0.1:1"]).at(&hostile).end().await;
    assert!(ended.stderr.contains("chmod 600"), "{ended:?}");
    assert!(!ended.stderr.contains(['\u{1b}', '\u{202e}']), "{ended:?}");
}

#[tokio::test]
async fn a_conformance_report_has_no_control_characters_and_no_token() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            let mut card = card(url);
            card["name"] = "\u{202e}evil\u{2066}".into();
            card["version"] = request.header("authorization").unwrap_or_default().into();
            card["capabilities"]["\u{200f}x"] = "\u{9b}31m".into();
            answer(&card)
        } else {
            response(404, "text/plain", "")
        }
    })
    .await;
    for format in ["text", "json"] {
        let check = ["conformance", &fake.url, "--only", "CARD", "-o", format];
        let ended = cli(check).env("A2ACLI_BEARER", "canary-7c5e-h").end().await;
        assert!(ended.stdout.contains("evil"), "{ended:?}");
        let active = ['\u{202e}', '\u{2066}', '\u{200f}', '\u{9b}'];
        assert!(!ended.stdout.contains(active), "{ended:?}");
        assert!(!ended.stdout.contains("canary-7c5e-h"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_token_of_conformance_is_sent_to_the_named_origin_only() {
    let other = agent(json!({ "task": task("COMPLETED") })).await;
    let fake = leading_to(&other.url).await;
    let check = ["conformance", &fake.url, "--only", "SEND", "--timeout", "5s"];
    cli(check).env("A2ACLI_BEARER", "canary-7c5e-h").end().await;
    let calls = other.calls();
    assert!(!calls.is_empty(), "another port of the same host");
    assert!(calls.iter().all(|call| call.header("authorization").is_none()), "{calls:?}");
}
