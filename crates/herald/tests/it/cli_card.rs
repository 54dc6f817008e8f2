//! Tests of `herald card get`: discovery, output and validation.

use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::net::TcpListener;

use crate::cli_support::{Fake, agent, answer, card, cli, herald, response, result, steered, task};

#[tokio::test]
async fn a_card_is_found_at_a_host_at_a_url_and_in_a_file() {
    let server = herald().await;
    let host = server.address.to_string();
    let origin = format!("http://{host}");
    let own = format!("{origin}/.well-known/agent-card.json");
    let document = cli(["card", "get", "-a", &host]).json().await;
    assert_eq!(document["name"], "Echo");
    let home = tempdir().unwrap();
    std::fs::write(home.path().join("card.json"), document.to_string()).unwrap();
    let file = format!("file://{}/card.json", home.path().display());
    for reference in [origin.as_str(), &own, &file, "card.json", "./card.json"] {
        let shown = cli(["card", "get", reference]).at(home.path()).ok().await;
        assert_eq!(shown.field("Name"), "Echo", "{reference}");
        assert!(shown.field("Selected Interface").starts_with("JSONRPC 1.0 "), "{shown:?}");
    }
    let shown = cli(["card", "get", &steered(&server)]).ok().await;
    assert_eq!(shown.field("Name"), "Conformance");
    // A card from a file works like one from the agent.
    let sent = cli(["send", "-a", "card.json", "Hello"]).at(home.path()).ok().await;
    assert_eq!(sent.field("State"), "COMPLETED");
}

#[tokio::test]
async fn a_card_is_read_from_any_url() {
    let fake = Fake::start(|url, request| match request.path.as_str() {
        "/cards/mine" => answer(&card(url)),
        _ => response(404, "text/plain", "no"),
    })
    .await;
    let shown = cli(["card", "get", &format!("{}/cards/mine", fake.url)]).ok().await;
    assert_eq!(shown.field("Name"), "fake");
    let calls = fake.calls();
    assert_eq!((calls[0].method.as_str(), calls.len()), ("GET", 1), "{calls:?}");
}

#[tokio::test]
async fn every_failure_to_find_a_card_has_its_code_and_a_hint() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let empty = Fake::start(|_, _| response(404, "text/plain", "")).await;
    let page = Fake::start(|_, _| response(200, "text/html", "<html>hello</html>")).await;
    let down = Fake::start(|_, _| response(500, "text/plain", "down")).await;
    let strange = Fake::start(|_, _| answer(&json!({}))).await;
    let guarded = Fake::start(|_, _| response(401, "text/plain", "")).await;
    let moved = Fake::start(|_, _| response(302, "text/plain", "")).await;
    for (reference, status, code) in [
        (gone.as_str(), 3, "A2ACLI_ERR_UNREACHABLE"),
        ("https://nobody.invalid", 3, "A2ACLI_ERR_UNREACHABLE"),
        (&empty.url, 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (&moved.url, 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("missing.json", 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        ("ftp://example.com", 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (&down.url, 3, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (&page.url, 1, "A2ACLI_ERR_CARD_INVALID"),
        (&strange.url, 1, "A2ACLI_ERR_CARD_INVALID"),
        (&guarded.url, 4, "A2ACLI_ERR_CREDENTIALS_MISSING"),
    ] {
        let error = cli(["card", "get", reference]).fails(status, code).await;
        assert!(error["hint"].is_string(), "{error}");
        let text = cli(["card", "get", reference]).end().await;
        assert_eq!((text.status.code(), text.stdout.as_str()), (Some(status), ""), "{text:?}");
        assert!(text.stderr.starts_with("Error: ") && text.stderr.contains("\nHint: "), "{text:?}");
    }
    cli(["card", "get"]).fails(2, "A2ACLI_ERR_USAGE").await;
    let missing = cli(["card", "get", "./card.json"]).fails(3, "A2ACLI_ERR_CARD_NOT_FOUND").await;
    assert_eq!(missing["hint"], "check the path");
    let program = cli(["card", "get", "stdio:cat x"]).fails(3, "A2ACLI_ERR_CARD_NOT_FOUND").await;
    assert!(program["message"].as_str().unwrap().contains("a program has no card"), "{program}");
    let send = "send it a message with: herald send -a 'stdio:cat x' \"Hello\"";
    assert_eq!(program["hint"], send);
    // The error names the URL.
    let said = async |reference: &str| cli(["card", "get", reference]).end().await.stderr;
    let own = |fake: &Fake| format!("{}/.well-known/agent-card.json", fake.url);
    assert!(said(&gone).await.contains(&format!("no connection to {gone}: ")));
    assert!(said("nobody.invalid").await.contains("no connection to nobody.invalid: "));
    let html = said(&page.url).await;
    assert!(
        html.contains(&format!("{} is not an agent card: it is a web page", own(&page))),
        "{html}"
    );
    let status = said(&down.url).await;
    let expected = format!("{} answers with HTTP status 500 instead of a card", own(&down));
    assert!(status.contains(&expected) && status.contains("try again"), "{status}");
    let none = said(&strange.url).await;
    assert!(
        none.contains("is not an agent card: it has neither a name nor an interface"),
        "{none}"
    );
}

#[tokio::test]
async fn a_card_is_checked_member_by_member() {
    let server = herald().await;
    let host = server.address.to_string();
    let valid = cli(["card", "get", &host, "--validate"]).ok().await;
    assert_eq!(valid.field("Valid"), "yes");
    for (pointer, broken, named) in [
        ("/name", Value::Null, "name is required"),
        ("/capabilities", Value::Null, "capabilities is required"),
        ("/supportedInterfaces", json!([]), "supportedInterfaces must not be empty"),
        (
            "/supportedInterfaces/0/protocolVersion",
            json!(1),
            "supportedInterfaces[0].protocolVersion",
        ),
        ("/skills/0/tags", json!("x"), "skills[0].tags"),
        ("/securitySchemes", json!({ "a": {} }), "securitySchemes.a"),
    ] {
        let mut document = card(&format!("http://{host}"));
        document["securitySchemes"] = json!({});
        *document.pointer_mut(pointer).unwrap() = broken;
        let home = tempdir().unwrap();
        std::fs::write(home.path().join("card.json"), document.to_string()).unwrap();
        let checked = cli(["card", "get", "card.json", "--validate"]).at(home.path());
        let error = checked.fails(1, "A2ACLI_ERR_CARD_INVALID").await;
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
}

#[tokio::test]
async fn no_credential_is_sent_with_the_request_for_the_card() {
    let fake = Fake::start(|url, request| if request.is_card() {             let mut card = card(url);
            card["securitySchemes"] =
                json!({ "key": { "apiKeySecurityScheme": { "location": "header", "name": "x-key" } } });
            answer(&card)
         } else { result(request, &json!({ "task": task("COMPLETED") })) })
    .await;
    let arguments =
        ["send", "-a", &fake.url, "x", "--svc-param", "x-trace:abc", "--api-key", "canary-7c5e-s"];
    cli(arguments).env("A2ACLI_BEARER", "canary-7c5e-h").ok().await;
    assert_eq!(fake.calls()[0].header("x-key"), Some("canary-7c5e-s"));
    assert_eq!(fake.calls()[0].header("x-trace"), Some("abc"));
    let fetched = &fake.cards()[0];
    let shown = format!("{fetched:?}");
    assert!(!shown.contains("canary-7c5e-s") && !shown.contains("canary-7c5e-h"), "{shown}");
    assert_eq!(fetched.header("a2a-version"), Some("1.0"));
}

#[tokio::test]
async fn ctrl_c_prints_how_to_continue() {
    let working = agent(json!({ "task": task("WORKING") })).await;
    let child = cli(["send", "-a", &working.url, "x", "--poll-interval", "100ms"]).spawn();
    crate::support::eventually(crate::support::SOON, "it polls", async || {
        working.calls().len() > 2
    })
    .await;
    let id = child.id().unwrap().to_string();
    let sent = tokio::process::Command::new("kill").args(["-s", "INT", &id]).status().await;
    assert!(sent.unwrap().success());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("herald task get -a ") && said.contains("t-1 --wait"), "{said}");
}
