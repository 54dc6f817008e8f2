//! Tests of each kind of credential for an upstream agent: sent as its card requires, without the caller's, and redacted.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    STEERED, draft, passing,
    raw::{Raw, Reaction, Received, result, stream, whole},
    told,
};
use crate::{
    authority::Authority,
    http::Call,
    support::{Herald, Options, uuid},
    tasks::failure,
    wire::state,
};

/// The caller's credentials, in every header.
const CALLER: &str = "canary-7c5e-caller";

/// Credentials that the upstream must not receive.
const WRONG: &str = "canary-7c5e/wrong";

/// Refuses a call with a message that repeats it.
fn refusal(call: &Received) -> Reaction {
    let said = format!("who are you? {} {:?}", call.path, call.headers);
    let head = "HTTP/1.1 401 Who\r\nConnection: close\r\nContent-Type: text/plain";
    Reaction::Close(format!("{head}\r\nContent-Length: {}\r\n\r\n{said}", said.len()).into_bytes())
}

/// Accepts the calls with the right credential.
fn taken(call: &Received, is_right: bool) -> Reaction {
    if is_right { Reaction::Close(stream(call, &[whole("COMPLETED")])) } else { refusal(call) }
}

/// A server with two agents in front of `raw`: one with the right credential, one with a wrong one.
async fn before(raw: &Raw, right: &str, wrong: &str) -> Herald {
    let settings = |auth: &str| format!("retries = 0\nerror_detail = \"full\"\nauth = {auth}");
    let agents = [("right", right), ("wrong", wrong)]
        .map(|(name, auth)| passing(name, &raw.url(), &settings(auth)));
    let token = format!("{{ token = \"{CALLER}\", tenant = \"t\", principal = \"p\" }}");
    let config = format!("{}[auth]\ntokens = [{token}]\n", agents.concat());
    let options = Options::config(config).environment("BEHIND", "canary-7c5e/behind");
    Herald::start(options.arguments(["--log-level", "trace"])).await
}

/// A task of the agent, for a caller with credentials in every header.
async fn asked(herald: &Herald, agent: &str) -> Value {
    let message = json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": "x" }] });
    let call = Call::post(format!("/agents/{agent}/message:send"), &json!({ "message": message }))
        .header("a2a-version", "1.0")
        .header("authorization", format!("Bearer {CALLER}"))
        .header("cookie", format!("x-behind={CALLER}"))
        .header("x-behind", CALLER);
    herald.call(&call).await.json()["task"].take()
}

/// The right credential is accepted, the wrong one is refused, and neither is in output or log.
async fn is_shown(raw: &Raw, right: &str, wrong: &str) {
    let herald = before(raw, right, wrong).await;
    let done = asked(&herald, "right").await;
    assert_eq!(state(&done), "completed", "{done}\n{}", herald.log());
    let failed = asked(&herald, "wrong").await;
    let (text, reason) = failure(&failed);
    assert!(text.contains("does not accept our credentials (HTTP status 401): "), "{text}");
    assert!(text.contains("who are you?"), "what it said is told: {text}");
    assert_eq!(reason, "AGENT_FAILED");
    let shown = format!("{done}{failed}{}", herald.log());
    let pair = STANDARD.encode(format!("me:{WRONG}"));
    for secret in
        ["canary-7c5e/behind", "canary-7c5e%2Fbehind", WRONG, "canary-7c5e%2Fwrong", &pair, "given"]
    {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    for call in raw.all() {
        assert!(!format!("{call:?}").contains(CALLER), "{call:?}");
    }
}

/// A card with one required security scheme.
fn scheme(scheme: &Value) -> Value {
    json!({
        "securitySchemes": { "only": scheme },
        "securityRequirements": [{ "schemes": { "only": { "list": ["read"] } } }],
    })
}

#[tokio::test]
async fn an_api_key_is_sent_as_the_card_requires() {
    for place in ["header", "query", "cookie"] {
        let key = json!({ "apiKeySecurityScheme": { "location": place, "name": "x-behind" } });
        let raw = Raw::guarded(&scheme(&key), move |call| {
            let value = |name: &str| call.headers.get(name).map(String::as_str);
            let is_right = match place {
                "header" => value("x-behind") == Some("canary-7c5e/behind"),
                "cookie" => value("cookie") == Some("x-behind=canary-7c5e/behind"),
                _ => call.path.ends_with("?x-behind=canary-7c5e%2Fbehind"),
            };
            assert_eq!(value("authorization"), None);
            taken(call, is_right)
        })
        .await;
        let wrong = format!("{{ api_key = \"{WRONG}\" }}");
        is_shown(&raw, "{ api_key = \"env:BEHIND\" }", &wrong).await;
    }
}

#[tokio::test]
async fn basic_credentials_are_sent_as_the_card_requires() {
    let basic = json!({ "httpAuthSecurityScheme": { "scheme": "basic" } });
    let raw = Raw::guarded(&scheme(&basic), |call| {
        let expected = format!("Basic {}", STANDARD.encode("me:canary-7c5e/behind"));
        taken(call, call.headers.get("authorization") == Some(&expected))
    })
    .await;
    let auth = |secret: &str| format!("{{ basic = {{ name = \"me\", password = \"{secret}\" }} }}");
    is_shown(&raw, &auth("env:BEHIND"), &auth(WRONG)).await;
}

#[tokio::test]
async fn a_token_is_fetched_from_the_cards_authorization_server() {
    let flows = json!({ "clientCredentials": { "tokenUrl": "{}/token", "scopes": {} } });
    let oauth = json!({ "oauth2SecurityScheme": { "flows": flows } });
    let raw = Raw::guarded(&scheme(&oauth), |call| {
        let shown = call.headers.get("authorization").map(String::as_str);
        if call.path != "/token" {
            return taken(call, shown == Some("Bearer canary-7c5e-given"));
        }
        assert!(call.text.contains("grant_type=client_credentials"), "{call:?}");
        assert!(call.text.contains("scope=read"), "{call:?}");
        let pair = STANDARD.encode("us:canary-7c5e%2Fbehind");
        let token =
            if shown == Some(&format!("Basic {pair}")) { "canary-7c5e-given" } else { WRONG };
        let token = json!({ "access_token": token, "token_type": "Bearer" });
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json";
        Reaction::Close(format!("{head}\r\n\r\n{token}").into_bytes())
    })
    .await;
    let auth = |secret: &str| {
        format!("{{ oauth = {{ client_id = \"us\", client_secret = \"{secret}\" }} }}")
    };
    is_shown(&raw, &auth("env:BEHIND"), &auth("another-canary")).await;
}

#[tokio::test]
async fn credentials_that_the_upstream_repeats_are_redacted() {
    let raw = Raw::start(|call| {
        let mut item = whole("FAILED");
        let text = format!("wrong: {}", call.headers["authorization"]);
        let told = json!({ &text: [{ "said": &text }] });
        item["task"]["metadata"] = told.clone();
        item["task"]["status"]["message"] = json!({
            "messageId": "m", "role": "ROLE_AGENT", "metadata": &told, "parts": [
                { "text": &text, "filename": &text, "metadata": &told },
                { "url": &text },
                { "data": &told },
            ],
        });
        Reaction::Close(stream(call, &[item]))
    })
    .await;
    let config = passing("up", &raw.url(), "auth = { token = \"canary-7c5e-behind\" }");
    let herald = Herald::start(Options::config(config)).await;
    let failed = told(&herald, "", &draft("x")).await;
    assert_eq!(failure(&failed).0, "wrong: Bearer …");
    let hidden = failed.to_string();
    assert_eq!(hidden.matches("wrong: Bearer …").count(), 11, "{hidden}");
    assert!(!hidden.contains("canary-7c5e-behind"), "{hidden}");
}

#[tokio::test]
async fn credentials_are_sent_to_another_origin_only_if_it_is_trusted() {
    let elsewhere = Raw::start(|call| result(call, &whole("COMPLETED"))).await;
    let interface =
        json!({ "url": elsewhere.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    let card = json!({
        "capabilities": { "streaming": false }, "supportedInterfaces": [interface],
    });
    let raw = Raw::guarded(&card, |call| result(call, &whole("COMPLETED"))).await;
    let auth = "auth = { token = \"canary-7c5e-behind\" }\nretries = 0";
    let trusting = format!("{auth}\ntrusted_origins = [\"{}\"]", elsewhere.url());
    let config = [passing("wary", &raw.url(), auth), passing("trusting", &raw.url(), &trusting)];
    let herald = Herald::start(Options::config(config.concat())).await;
    let failed = told(&herald, "/agents/wary", &draft("x")).await;
    let expected = "agent wary cannot be called as it is configured";
    assert_eq!(failure(&failed), (expected, "AGENT_FAILED"));
    assert!(elsewhere.all().is_empty(), "{:?}", elsewhere.all());
    assert_eq!(state(&told(&herald, "/agents/trusting", &draft("x")).await), "completed");
    assert_eq!(elsewhere.all()[0].headers["authorization"], "Bearer canary-7c5e-behind");
}

/// A certificate for `name` and its key as files, with the authority's own certificate.
fn vouch_in(home: &Path, authority: &Authority, name: &str) {
    let (certificate, key) = authority.vouch(name);
    fs::write(home.join("ca.pem"), authority.pem()).unwrap();
    fs::write(home.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(home.join("key.pem"), key.serialize_pem()).unwrap();
}

/// A file of a home, as a setting.
fn quoted(home: &Path, name: &str) -> String {
    format!("{:?}", home.join(name).to_str().unwrap())
}

#[tokio::test]
async fn a_configured_authority_is_trusted_over_every_binding_and_version() {
    let home = tempfile::tempdir().unwrap();
    vouch_in(home.path(), &Authority::new(), "127.0.0.1");
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let flags = ["--tls-certificate", &path("cert.pem"), "--tls-key", &path("key.pem")];
    let behind = Herald::start(Options::config(STEERED).arguments(flags)).await;
    let url = format!("https://{}", behind.address);
    let tls = format!("tls = {{ ca = {} }}", quoted(home.path(), "ca.pem"));
    let agent = |(at, (binding, version, _)): (usize, &(&str, &str, &str))| {
        let settings = format!("binding = \"{binding}\"\na2a_version = \"{version}\"\n{tls}");
        passing(&format!("way-{at}"), &url, &settings)
    };
    let agents: String = super::WAYS.iter().enumerate().map(agent).collect();
    let without = passing("without", &url, "retries = 0");
    let before = Herald::start(Options::config(format!("{agents}{without}"))).await;
    for (at, way) in super::WAYS.iter().enumerate() {
        let done = told(&before, &format!("/agents/way-{at}"), &draft("tck-complete-task")).await;
        assert_eq!(state(&done), "completed", "{way:?}: {done}\n{}", before.log());
    }
    let failed = told(&before, "/agents/without", &draft("x")).await;
    assert_eq!(failure(&failed).0, "agent without cannot be reached");
}

#[tokio::test]
async fn a_client_certificate_is_sent_to_an_upstream_that_requires_one() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let home = tempfile::tempdir().unwrap();
    vouch_in(home.path(), &clients, "herald");
    fs::write(home.path().join("ca.pem"), servers.pem()).unwrap();
    let mutual = scheme(&json!({ "mtlsSecurityScheme": {} }));
    let raw =
        Raw::secure(servers.acceptor(Some(&clients)), &mutual, |call| taken(call, true)).await;
    let file = |name: &str| quoted(home.path(), name);
    let ca = file("ca.pem");
    let shown = format!(
        "tls = {{ ca = {ca}, certificate = {}, key = {} }}",
        file("cert.pem"),
        file("key.pem")
    );
    let hidden = format!("retries = 0\ntls = {{ ca = {ca} }}");
    let config = [passing("shown", &raw.url(), &shown), passing("hidden", &raw.url(), &hidden)];
    let herald = Herald::start(Options::config(config.concat())).await;
    let done = told(&herald, "/agents/shown", &draft("x")).await;
    assert_eq!(state(&done), "completed", "{done}\n{}", herald.log());
    let calls = raw.all().len();
    let failed = told(&herald, "/agents/hidden", &draft("x")).await;
    assert_eq!(failure(&failed).1, "AGENT_UNAVAILABLE", "{failed}");
    assert_eq!(raw.all().len(), calls, "nothing was said to it");
}
