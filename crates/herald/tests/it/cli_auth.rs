//! Tests of `herald auth`: logins, renewal and redaction.

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use serde_json::{Value, json};

use crate::cli_support::{Fake, Received, Run, answer, card, cli, response, result, task};

/// An agent and its authorization server. Tokens are `hunterN`, and only the newest one is accepted.
async fn agent(flow: &'static str, expires: u64) -> Fake {
    let given = Arc::new(Mutex::new(0));
    Fake::start(move |url, request| {
        let mut given = given.lock().unwrap();
        match request.path.as_str() {
            _ if request.is_card() => answer(&with_flow(url, flow)),
            "/.well-known/openid-configuration" => answer(&json!({
                "issuer": url, "token_endpoint": format!("{url}/token"),
                "device_authorization_endpoint": format!("{url}/device"),
                "revocation_endpoint": format!("{url}/revoke"),
            })),
            "/revoke" => response(200, "text/plain", ""),
            "/device" => answer(&json!({
                "device_code": "hunter-device", "user_code": "AB-CD", "interval": 1,
                "verification_uri": format!("{url}/go"),
            })),
            "/token" => {
                *given += 1;
                token(request, &format!("hunter{given}"), expires)
            }
            _ => {
                let wanted = format!("Bearer hunter{given}");
                if *given > 0 && request.header("authorization") == Some(&wanted) {
                    result(request, &json!({ "task": task("COMPLETED") }))
                } else {
                    response(401, "text/plain", "no")
                }
            }
        }
    })
    .await
}

fn with_flow(url: &str, flow: &str) -> Value {
    let mut card = card(url);
    let flow = json!({
        flow: { "tokenUrl": format!("{url}/token"),
                "deviceAuthorizationUrl": format!("{url}/device"), "scopes": {} }
    });
    let openid = format!("{url}/.well-known/openid-configuration");
    card["securitySchemes"]["o"] = match flow.get("openid") {
        None => json!({ "oauth2SecurityScheme": { "flows": flow } }),
        Some(_) => json!({ "openIdConnectSecurityScheme": { "openIdConnectUrl": openid } }),
    };
    card["securityRequirements"] = json!([{ "schemes": { "o": { "list": ["use"] } } }]);
    card
}

/// `secret` is in Basic, as RFC 6749 prefers it.
fn token(request: &Received, token: &str, expires: u64) -> Response<Full<Bytes>> {
    let program = request.header("authorization");
    // ci:hunter-secret
    if program.is_some_and(|program| program != "Basic Y2k6aHVudGVyLXNlY3JldA==") {
        return response(401, "application/json", r#"{"error":"invalid_client"}"#);
    }
    let refresh = format!("{token}-refresh");
    answer(&json!({
        "access_token": token, "token_type": "Bearer", "expires_in": expires,
        "refresh_token": refresh,
    }))
}

fn at(home: &Path, arguments: &[&str]) -> Run {
    cli(arguments.iter().copied()).env("HOME", home.to_str().unwrap())
}

#[tokio::test]
async fn a_login_is_stored_used_shown_and_deleted() {
    let fake = agent("deviceCode", 3600).await;
    let home = tempfile::tempdir().unwrap();
    let send = || at(home.path(), &["send", &fake.url, "x", "--debug"]);
    let error = send().fails(4, "A2ACLI_ERR_CREDENTIALS_MISSING").await;
    assert!(error["hint"].as_str().unwrap().contains("herald auth login"), "{error}");
    at(home.path(), &["auth", "login", &fake.url]).fails(2, "A2ACLI_ERR_USAGE").await;

    let login = at(home.path(), &["auth", "login", &fake.url, "--client-id", "me", "--debug"]);
    let login = login.ok().await;
    assert!(login.stderr.contains("AB-CD") && login.stderr.contains("/go"), "{login:?}");
    assert_eq!((login.field("Agent"), login.field("Valid")), (fake.url.as_str(), "yes"));
    assert!(login.stderr.contains("/token"), "debug says where it went: {login:?}");
    let sent = send().ok().await;
    for shown in [&login.stdout, &login.stderr, &sent.stdout, &sent.stderr] {
        assert!(!shown.contains("hunter"), "{shown}");
    }
    let asked: Vec<_> = fake.calls().into_iter().filter(|call| call.path == "/device").collect();
    assert_eq!(asked[0].text, "scope=use&client_id=me");

    let file = home.path().join(".config/a2a-cli/credentials.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let status = at(home.path(), &["auth", "status"]).json().await;
    assert_eq!(status["logins"][0]["agent"], fake.url);
    assert_eq!(status["logins"][0]["valid"], true);
    assert!(!status.to_string().contains("hunter"));
    let shown = at(home.path(), &["config", "show"]).json().await;
    assert_eq!(shown["files"][0], file.to_str().unwrap());

    let gone = at(home.path(), &["auth", "logout", &fake.url]).json().await;
    let login = json!({ "agent": fake.url, "clientId": "me", "revoked": false });
    assert_eq!(
        gone,
        json!({ "forgotten": [login] }),
        "the server does not say how to take it back"
    );
    at(home.path(), &["auth", "logout", &fake.url]).fails(2, "A2ACLI_ERR_USAGE").await;
    let none = at(home.path(), &["auth", "logout", "--all"]).ok().await;
    assert_eq!(none.stdout, "Forgotten: 0\n");
    send().fails(4, "A2ACLI_ERR_CREDENTIALS_MISSING").await;
    assert!(!std::fs::read_to_string(&file).unwrap().contains("hunter"));
}

#[tokio::test]
async fn a_login_is_refused_if_the_card_requires_a_plain_token() {
    let fake = Fake::start(|url, _| {
        let mut card = card(url);
        card["securitySchemes"] =
            json!({ "t": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        answer(&card)
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let login = at(home.path(), &["auth", "login", &fake.url]);
    let error = login.fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["message"].as_str().unwrap().contains("a login is not possible"), "{error}");
    assert_eq!(error["hint"], "give the token with A2ACLI_BEARER");
}

#[tokio::test]
async fn client_credentials_need_no_user() {
    let fake = agent("clientCredentials", 3600).await;
    let home = tempfile::tempdir().unwrap();
    let send = |secret: &str| {
        let send = at(home.path(), &["send", &fake.url, "x", "--debug"]);
        send.env("A2ACLI_CLIENT_ID", "ci").env("A2ACLI_CLIENT_SECRET", secret)
    };
    let error = send("hunter-wrong").fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    assert!(error["message"].as_str().unwrap().contains("invalid_client"), "{error}");
    let login = at(home.path(), &["auth", "login", &fake.url, "--client-id", "ci"]);
    login.env("A2ACLI_CLIENT_SECRET", "hunter-secret").ok().await;
    for _ in 0..2 {
        let sent = send("hunter-secret").ok().await;
        assert!(!sent.stderr.contains("hunter") && !sent.stdout.contains("hunter"), "{sent:?}");
    }
    let asked = fake.calls().into_iter().filter(|call| call.path == "/token").count();
    assert_eq!(asked, 2, "one was refused, and one token served all calls");
}

#[tokio::test]
async fn a_stored_token_is_not_used_with_another_secret_or_other_scopes() {
    let fake = agent("clientCredentials", 3600).await;
    let home = tempfile::tempdir().unwrap();
    let send = |secret: &str, scopes: &[&str]| {
        let send = at(home.path(), &[&["send", &fake.url, "x"], scopes].concat());
        send.env("A2ACLI_CLIENT_ID", "ci").env("A2ACLI_CLIENT_SECRET", secret)
    };
    let asked = || fake.calls().into_iter().filter(|call| call.path == "/token").count();
    send("hunter-secret", &[]).ok().await;
    send("hunter-secret", &[]).ok().await;
    assert_eq!(asked(), 1, "the token is kept");
    let error = send("hunter-changed", &[]).fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    assert!(error["message"].as_str().unwrap().contains("invalid_client"), "{error}");
    assert_eq!(asked(), 2);
    send("hunter-secret", &["--scope", "other"]).ok().await;
    assert_eq!(asked(), 3, "the kept token was for other scopes");
    send("hunter-secret", &["--scope", "other"]).ok().await;
    // Without a secret the stored login is used as it is.
    at(home.path(), &["send", &fake.url, "x"]).ok().await;
    assert_eq!(asked(), 3);
    let file = home.path().join(".config/a2a-cli/credentials.json");
    assert!(!std::fs::read_to_string(file).unwrap().contains("hunter-secret"));
}

#[tokio::test]
async fn a_401_with_a_json_rpc_error_is_reported_as_missing_credentials() {
    for code in [-32000, -32600, -32603, -32001] {
        let fake = Fake::start(move |url, request| {
            if request.is_card() {
                let mut card = card(url);
                card["securitySchemes"] =
                    json!({ "t": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
                return answer(&card);
            }
            let error = json!({ "code": code, "message": "a token is needed here" });
            let body = json!({ "jsonrpc": "2.0", "id": null, "error": error });
            response(401, "application/json", body.to_string())
        })
        .await;
        let error = cli(["send", &fake.url, "x"]).fails(4, "A2ACLI_ERR_CREDENTIALS_MISSING").await;
        assert_eq!(error["message"], "a token is needed here");
        assert_eq!(error["hint"], "give the token with A2ACLI_BEARER");
        let wrong = cli(["send", &fake.url, "x"]).env("A2ACLI_BEARER", "canary-7c5e-h");
        let error = wrong.fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
        assert!(error["hint"].as_str().unwrap().contains("refused the credential"), "{error}");
    }
}

#[tokio::test]
async fn a_user_logs_in_by_openid_connect() {
    let fake = agent("openid", 3600).await;
    let home = tempfile::tempdir().unwrap();
    let login = at(home.path(), &["auth", "login", &fake.url, "--client-id", "me"]).ok().await;
    assert!(login.stderr.contains("AB-CD"), "{login:?}");
    let asked: Vec<_> = fake.calls().into_iter().filter(|call| call.path == "/device").collect();
    assert_eq!(asked[0].text, "scope=openid%20use&client_id=me");
    at(home.path(), &["send", &fake.url, "x"]).ok().await;
    let gone = at(home.path(), &["auth", "logout", "--all", "--debug"]).ok().await;
    assert_eq!(gone.field("Revoked by the server"), "yes");
    assert!(!gone.stdout.contains("hunter") && !gone.stderr.contains("hunter"), "{gone:?}");
    let revoked: Vec<_> = fake.calls().into_iter().filter(|call| call.path == "/revoke").collect();
    let refresh = "token=hunter1-refresh&token_type_hint=refresh_token&client_id=me";
    assert_eq!(revoked[0].text, refresh);
    assert_eq!(revoked.len(), 2);
}

#[tokio::test]
async fn a_login_is_deleted_even_if_the_server_cannot_be_reached() {
    let fake = agent("openid", 3600).await;
    let home = tempfile::tempdir().unwrap();
    at(home.path(), &["auth", "login", &fake.url, "--client-id", "me"]).ok().await;
    let url = fake.url.clone();
    drop(fake);
    let gone = at(home.path(), &["auth", "logout", &url]).ok().await;
    assert!(gone.stderr.contains("was not revoked"), "{gone:?}");
    assert_eq!(gone.field("Revoked by the server"), "no");
    let left = at(home.path(), &["auth", "status"]).json().await;
    assert_eq!(left["logins"], json!([]));
}

#[tokio::test]
async fn an_expired_token_is_renewed_and_the_new_one_stored() {
    let fake = agent("deviceCode", 1).await;
    let home = tempfile::tempdir().unwrap();
    at(home.path(), &["auth", "login", &fake.url, "--client-id", "me"]).ok().await;
    for _ in 0..2 {
        at(home.path(), &["send", &fake.url, "x"]).ok().await;
    }
    let forms: Vec<_> = fake.calls().into_iter().filter(|call| call.path == "/token").collect();
    let renewed =
        |form: &str, token: &str| form.contains(&format!("refresh_token={token}-refresh"));
    assert!(renewed(&forms[1].text, "hunter1") && renewed(&forms[2].text, "hunter2"), "{forms:?}");
}

#[tokio::test]
async fn a_card_cannot_choose_an_untrusted_authorization_server() {
    let trap = agent("clientCredentials", 3600).await;
    let target = trap.url.clone();
    let fake = Fake::start(move |url, _| {
        let mut card = with_flow(&target, "clientCredentials");
        card["supportedInterfaces"][0]["url"] = json!(url);
        answer(&card)
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let send = at(home.path(), &["send", &fake.url, "x", "--client-id", "ci"]);
    let error =
        send.env("A2ACLI_CLIENT_SECRET", "hunter-secret").fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["hint"].as_str().unwrap().contains("--trust-origin"), "{error}");
    assert!(trap.calls().is_empty());
}
