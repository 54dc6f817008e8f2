//! OAuth tokens: an authorization server that records its requests, and an agent that requires tokens.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use herald_client::{Client, ClientBuilder, Credential, Error, OAuth, Prompt, Secret, Token};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Reaction, Received, answer, card, response, result, task},
    hub::{quick, soon},
};

type Form = BTreeMap<String, String>;

/// A recorded request: path, form and `Authorization`.
type Asked = (String, Form, Option<String>);

/// An authorization server and an agent at one address.
#[derive(Clone, Default)]
struct World {
    /// The scheme of the card.
    scheme: Value,
    /// The next answers to forms, in order; after them tokens are issued.
    next: Arc<Mutex<Vec<(u16, Value)>>>,
    /// Further members of token responses.
    extra: Value,
    /// Every request to the authorization server.
    seen: Arc<Mutex<Vec<Asked>>>,
    /// The tokens that the agent accepts; without any, the newest one.
    taken: Arc<Mutex<Option<String>>>,
}

impl World {
    fn new(flow: &Value) -> Self {
        let scheme = json!({ "oauth2SecurityScheme": { "flows": flow } });
        Self { scheme, extra: json!({}), ..Self::default() }
    }

    fn client_credentials() -> Self {
        Self::new(&json!({ "clientCredentials": { "tokenUrl": "{}/token", "scopes": {} } }))
    }

    async fn start(&self) -> Fake {
        let world = self.clone();
        Fake::start(move |url, _, request| world.answer(url, request)).await
    }

    fn forms(&self) -> Vec<Form> {
        self.seen.lock().unwrap().iter().map(|(_, form, _)| form.clone()).collect()
    }

    fn answer(&self, url: &str, request: &Received) -> Reaction {
        let path = request.path.split('?').next().unwrap();
        match path {
            _ if request.is_card() => answer(200, &self.card(url)),
            "/.well-known/openid-configuration" => answer(200, &description(url)),
            "/.well-known/oauth-authorization-server" if self.extra.get("described").is_some() => {
                answer(200, &description(url))
            }
            "/token" | "/device" | "/refresh" | "/revoke" => {
                let form = form(&String::from_utf8(request.body.clone()).unwrap());
                let proof = request.header("authorization").map(str::to_owned);
                let (status, body) = self.give(path, form, proof);
                answer(status, &body)
            }
            _ => {
                let taken = self.taken.lock().unwrap().clone();
                let taken = taken.unwrap_or_else(|| format!("t{}", self.count()));
                if request.header("authorization") == Some(&format!("Bearer {taken}")) {
                    result(request, &json!({ "task": task("t", "COMPLETED") }))
                } else {
                    response(401, &[("WWW-Authenticate", "Bearer")], "")
                }
            }
        }
    }

    fn card(&self, url: &str) -> Value {
        let mut card = card(&[(url, "JSONRPC", "1.0")]);
        let scheme = self.scheme.to_string().replace("{}/", &format!("{url}/"));
        card["securitySchemes"] = json!({ "o": serde_json::from_str::<Value>(&scheme).unwrap() });
        card["securityRequirements"] = json!([{ "schemes": { "o": { "list": ["a", "b c"] } } }]);
        card
    }

    /// The number of issued tokens.
    fn count(&self) -> usize {
        self.seen.lock().unwrap().iter().filter(|(path, ..)| path != "/device").count()
    }

    fn give(&self, path: &str, form: Form, proof: Option<String>) -> (u16, Value) {
        self.seen.lock().unwrap().push((path.to_owned(), form, proof));
        let mut next = self.next.lock().unwrap();
        if !next.is_empty() {
            return next.remove(0);
        }
        let mut body = self.extra.clone();
        body["access_token"] = json!(format!("t{}", self.count()));
        body["token_type"] = json!("Bearer");
        (200, body)
    }

    fn then(&self, status: u16, body: Value) {
        self.next.lock().unwrap().push((status, body));
    }
}

fn description(url: &str) -> Value {
    json!({
        "issuer": url, "token_endpoint": format!("{url}/token"),
        "device_authorization_endpoint": format!("{url}/device"),
        "revocation_endpoint": format!("{url}/revoke"),
        "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
    })
}

fn form(body: &str) -> Form {
    let url = reqwest::Url::parse(&format!("http://x/?{body}")).unwrap();
    url.query_pairs().into_owned().collect()
}

fn program() -> OAuth {
    OAuth::client("me:1").secret("hunter 2")
}

fn with(oauth: OAuth) -> ClientBuilder {
    quick().credential(Credential::oauth(oauth))
}

async fn connect(oauth: OAuth, fake: &Fake) -> Client {
    soon(with(oauth).connect(&fake.url())).await.unwrap()
}

async fn refused(oauth: OAuth, fake: &Fake) -> Error {
    let client = soon(with(oauth).connect(&fake.url())).await.unwrap();
    let error = soon(client.send("x")).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
    error
}

fn kept(fake: &Fake, expires: Option<u64>) -> Token {
    Token {
        access: Secret::new("old"),
        refresh: Some(Secret::new("hunter3")),
        expires,
        from: format!("{}/token", fake.url()),
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_for_many_calls_with_what_the_card_requires() {
    let world = World::client_credentials();
    let fake = world.start().await;
    let client = connect(program().parameter("audience", "agent"), &fake).await;
    assert!(world.forms().is_empty(), "nothing is fetched before it is needed");
    let calls = (0..8).map(|_| {
        let client = client.clone();
        async move { client.get("t").await.map(drop) }
    });
    let mut calls: tokio::task::JoinSet<_> = calls.collect();
    while let Some(done) = soon(calls.join_next()).await {
        // The fake answers every call alike, which is enough to see that the token was accepted.
        assert!(!done.unwrap().is_err_and(|error| error.is_unauthenticated()));
    }
    soon(client.send("x")).await.unwrap();
    let seen = world.seen.lock().unwrap().clone();
    let [(path, form, proof)] = &*seen else { panic!("{seen:?}") };
    assert_eq!(path, "/token");
    let expected =
        [("audience", "agent"), ("grant_type", "client_credentials"), ("scope", "a b c")];
    assert_eq!(*form, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    let pair = STANDARD.encode("me%3A1:hunter%202");
    assert_eq!(proof.as_deref(), Some(&*format!("Basic {pair}")));
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_concurrent_calls() {
    let world = World::client_credentials();
    let fake = world.start().await;
    let client = connect(program().scope("own"), &fake).await;
    soon(client.send("x")).await.unwrap();
    assert_eq!(world.forms()[0]["scope"], "own");
    *world.taken.lock().unwrap() = Some("t2".into());
    let sends = (0..8).map(|_| {
        let client = client.clone();
        async move { client.send("x").await.map(drop) }
    });
    let mut sends: tokio::task::JoinSet<_> = sends.collect();
    while let Some(done) = soon(sends.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!(world.count(), 2, "one token for all of them");
    *world.taken.lock().unwrap() = Some("never".into());
    assert!(soon(client.send("x")).await.unwrap_err().is_unauthenticated());
    assert_eq!(world.count(), 3, "and not another one, and another");
}

#[tokio::test]
async fn a_token_is_renewed_with_its_refresh_token_before_it_expires() {
    let mut world = World::client_credentials();
    world.extra = json!({ "expires_in": 5, "refresh_token": "hunter3" });
    let fake = world.start().await;
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let keep = move |token: &Token| seen.lock().unwrap().push(token.access.expose().to_owned());
    let client = connect(program().on_token(keep), &fake).await;
    for _ in 0..3 {
        soon(client.send("x")).await.unwrap();
    }
    let grants: Vec<_> = world.forms().iter().map(|form| form["grant_type"].clone()).collect();
    assert_eq!(grants, ["client_credentials", "refresh_token", "refresh_token"]);
    assert_eq!(world.forms()[2]["refresh_token"], "hunter3");
    assert_eq!(*tokens.lock().unwrap(), ["t1", "t2", "t3"]);
    // A refused refresh token leads to a new grant.
    world.then(400, json!({ "error": "invalid_grant" }));
    soon(client.send("x")).await.unwrap();
    assert_eq!(world.forms()[4]["grant_type"], "client_credentials");
}

#[tokio::test]
async fn a_stored_token_is_renewed_only_at_its_issuer() {
    let flow = json!({ "deviceCode": {
        "tokenUrl": "{}/token", "refreshUrl": "{}/refresh", "deviceAuthorizationUrl": "{}/device",
        "scopes": {}
    } });
    let world = World::new(&flow);
    let fake = world.start().await;
    *world.taken.lock().unwrap() = Some("old".into());
    let client = connect(OAuth::client("me").token(kept(&fake, None)), &fake).await;
    soon(client.send("x")).await.unwrap();
    assert!(world.forms().is_empty());
    *world.taken.lock().unwrap() = None;
    soon(client.send("x")).await.unwrap();
    let seen = world.seen.lock().unwrap().clone();
    assert_eq!((seen.len(), seen[0].0.as_str()), (1, "/refresh"));
    assert_eq!(seen[0].1["client_id"], "me");

    let mut stranger = kept(&fake, Some(1));
    stranger.from = "https://other.example/token".into();
    let error = refused(OAuth::client("me").token(stranger), &fake).await;
    assert!(error.is_login() && error.to_string().contains("a login is needed"), "{error}");
    world.then(400, json!({ "error": "invalid_grant", "error_description": "gone" }));
    let error = refused(OAuth::client("me").token(kept(&fake, Some(1))), &fake).await;
    assert!(
        error.to_string().contains("a login is needed") && error.to_string().contains("gone"),
        "{error}"
    );
    assert_eq!(world.count(), 2);
    let error = refused(OAuth::client("me"), &fake).await;
    assert!(error.to_string().contains("a login is needed"), "{error}");
}

#[tokio::test]
async fn token_endpoints_come_from_openid_connect_and_server_metadata() {
    let openid = json!({ "openIdConnectSecurityScheme": {
        "openIdConnectUrl": "{}/.well-known/openid-configuration"
    } });
    let oauth = json!({ "oauth2SecurityScheme": {
        "flows": { "implicit": {} }, "oauth2MetadataUrl": "{}/.well-known/openid-configuration"
    } });
    for scheme in [openid, oauth] {
        let world = World { scheme, extra: json!({}), ..World::default() };
        let fake = world.start().await;
        soon(connect(program(), &fake).await.send("x")).await.unwrap();
        let seen = world.seen.lock().unwrap().clone();
        let (_, form, proof) = &seen[0];
        assert_eq!(proof, &None, "this server wants the secret in the form");
        assert_eq!((&*form["client_id"], &*form["client_secret"]), ("me:1", "hunter 2"));
        assert_eq!((&*form["scope"], &*form["grant_type"]), ("a b c", "client_credentials"));
    }
}

#[tokio::test]
async fn a_card_cannot_direct_secrets_to_an_untrusted_server() {
    let theirs = World::client_credentials();
    let trap = theirs.start().await;
    let flow = |url: &str| json!({ "clientCredentials": { "tokenUrl": url, "scopes": {} } });
    let world = World::new(&flow(&format!("{}/token", trap.url())));
    let fake = world.start().await;
    let error = refused(program(), &fake).await;
    assert!(error.is_setup(), "{error}");
    assert_eq!(error.untrusted_origin(), Some(trap.url().as_str()), "{error}");
    assert!(theirs.forms().is_empty());
    *world.taken.lock().unwrap() = Some("t1".into());
    let builder = with(program()).trust_origin(&trap.url());
    let client = soon(builder.connect(&fake.url())).await.unwrap();
    soon(client.send("x")).await.unwrap();
    assert_eq!(theirs.forms().len(), 1);

    let world = World::new(&flow("http://id.example/token"));
    let fake = world.start().await;
    let builder = with(program()).trust_origin("http://id.example");
    let error = soon(builder.connect(&fake.url())).await.unwrap().send("x").await.unwrap_err();
    assert!(error.is_setup() && error.to_string().contains("https"), "{error}");

    let scheme = json!({ "openIdConnectSecurityScheme": { "openIdConnectUrl": "{}/odd" } });
    let world = World { scheme, ..World::default() };
    let fake = Fake::start(move |url, _, request| match request.path.as_str() {
        "/odd" => answer(
            200,
            &json!({ "issuer": "https://id.example", "token_endpoint": "https://id.example/t" }),
        ),
        _ => world.answer(url, request),
    })
    .await;
    assert!(refused(program(), &fake).await.is_invalid());
}

/// A world whose server metadata is changed by `change`.
async fn described(world: &World, change: impl Fn(&mut Value) + Send + Sync + 'static) -> Fake {
    let world = world.clone();
    Fake::start(move |url, _, request| match request.path.as_str() {
        "/.well-known/openid-configuration" => {
            let mut said = description(url);
            change(&mut said);
            answer(200, &said)
        }
        _ => world.answer(url, request),
    })
    .await
}

fn openid() -> World {
    let url = "{}/.well-known/openid-configuration";
    let scheme = json!({ "openIdConnectSecurityScheme": { "openIdConnectUrl": url } });
    World { scheme, extra: json!({}), ..World::default() }
}

#[tokio::test]
async fn server_metadata_cannot_direct_secrets_to_an_untrusted_server() {
    let theirs = World::client_credentials();
    let trap = theirs.start().await;
    for endpoint in ["token_endpoint", "device_authorization_endpoint", "authorization_endpoint"] {
        let elsewhere = format!("{}/token", trap.url());
        let world = openid();
        let fake = described(&world, move |said| said[endpoint] = json!(elsewhere.clone())).await;
        let error = refused(program(), &fake).await;
        assert!(error.is_setup(), "{error}");
        assert_eq!(error.untrusted_origin(), Some(trap.url().as_str()), "{error}");
        assert!(theirs.forms().is_empty() && world.forms().is_empty(), "{endpoint}");
        if endpoint == "token_endpoint" {
            *world.taken.lock().unwrap() = Some("t1".into());
            let builder = with(program()).trust_origin(&trap.url());
            let client = soon(builder.connect(&fake.url())).await.unwrap();
            soon(client.send("x")).await.unwrap();
            assert_eq!(theirs.seen.lock().unwrap().drain(..).len(), 1);
        }
    }
    let fake = described(&openid(), |said| {
        said["issuer"] = json!(format!("{}/tenant", said["issuer"].as_str().unwrap()));
    })
    .await;
    assert!(refused(program(), &fake).await.is_invalid(), "it speaks for another issuer");
}

#[tokio::test]
async fn a_code_of_another_issuer_is_refused() {
    let login = async |supported: bool, issuer: &str| {
        let world = openid();
        let fake = described(&world, move |said| {
            let url = said["issuer"].as_str().unwrap().to_owned();
            said["authorization_endpoint"] = json!(format!("{url}/authorize"));
            said["authorization_response_iss_parameter_supported"] = json!(supported);
            said.as_object_mut().unwrap().remove("device_authorization_endpoint");
        })
        .await;
        let issuer = issuer.replace("{}", &fake.url());
        let client = connect(OAuth::client("me"), &fake).await;
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let login = client.log_in(move |prompt| tell.try_send(prompt).unwrap());
        let browser = async {
            let Some(Prompt::Browser { url }) = told.recv().await else { panic!() };
            let asked = form_of(&url);
            let (to, state) = (&asked["redirect_uri"], &asked["state"]);
            let back = format!("{to}?state={state}&code=hunter5{issuer}");
            visit(&reqwest::Url::parse(&back).unwrap()).await;
        };
        let (token, ()) = soon(async { tokio::join!(login, browser) }).await;
        assert_eq!(token.is_ok(), world.count() == 1, "a code that is refused goes nowhere");
        token.is_ok()
    };
    assert!(login(true, "&iss={}").await);
    assert!(login(false, "&iss={}").await);
    assert!(login(false, "").await);
    assert!(!login(true, "").await);
    assert!(!login(false, "&iss=https://other.example").await);
}

#[tokio::test]
async fn the_lifetime_of_a_token_is_bounded() {
    let mut world = World::client_credentials();
    world.extra = json!({ "expires_in": u64::MAX });
    let fake = world.start().await;
    let token = soon(connect(program(), &fake).await.log_in(|_| {})).await.unwrap();
    assert!(token.is_fresh() && token.expires.unwrap() < 253_402_300_799, "{token:?}");
}

#[tokio::test]
async fn answers_of_an_authorization_server_are_bounded_and_explained() {
    let world = World::client_credentials();
    let fake = world.start().await;
    for (status, body, expected) in [
        (401, json!({ "error": "invalid_client", "error_description": "no: hunter 2" }), "secret"),
        (400, json!({ "error": "invalid_scope" }), "check the scopes"),
        (400, json!({ "error": "x\u{7}", "error_description": "y".repeat(5000) }), "x (yyy"),
        (500, json!("oops"), "500"),
        (200, json!({ "access_token": "hunter2", "token_type": "mac" }), "mac"),
        (200, json!({ "access_token": "a\nb", "token_type": "bearer" }), "a header cannot have"),
        (200, json!({ "token": "hunter2" }), "cannot be read"),
        (200, json!({ "access_token": "x".repeat(1 << 20), "token_type": "bearer" }), "larger"),
    ] {
        world.then(status, body);
        let error = refused(program(), &fake).await;
        let text = error.to_string();
        assert!(text.contains(expected) && text.len() < 500, "{text}");
    }
    let trap = Fake::start(|_, _, _| answer(200, &json!({}))).await;
    let (world, target) = (World::client_credentials(), trap.url());
    let fake = Fake::start(move |url, _, request| match request.path.as_str() {
        "/token" => response(307, &[("Location", &target)], ""),
        _ => world.answer(url, request),
    })
    .await;
    assert!(refused(program(), &fake).await.is_redirect());
    assert!(trap.calls().is_empty());

    let fake = World::new(&json!({ "password": { "tokenUrl": "{}/token" } })).start().await;
    assert!(refused(program(), &fake).await.to_string().contains("obsolete OAuth flows"));
    let fake = World::client_credentials().start().await;
    assert!(refused(OAuth::client("me"), &fake).await.to_string().contains("secret"));
    let agent = Fake::start(|url, _, _| answer(200, &card(&[(url, "JSONRPC", "1.0")]))).await;
    let error = with(program()).connect(&agent.url()).await.unwrap_err();
    assert!(error.is_setup() && error.to_string().contains("scheme for OAuth"), "{error}");
    let shown = format!("{:?}", with(program().token(kept(&agent, None))));
    assert!(shown.contains("me:1") && !shown.contains("hunter"), "{shown}");
}

/// The same world without a socket, so that the test can advance the clock.
fn in_process(world: &World) -> ClientBuilder {
    let world = world.clone();
    let service = tower::service_fn(move |request: http::Request<Full<Bytes>>| {
        let world = world.clone();
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await?.to_bytes();
            let (status, body) = if path.ends_with(".json") {
                (200, world.card("http://localhost"))
            } else {
                world.give(&path, form(std::str::from_utf8(&body).unwrap()), None)
            };
            let response = http::Response::builder().status(status);
            Ok::<_, std::convert::Infallible>(
                response.body(Full::new(Bytes::from(body.to_string()))).unwrap(),
            )
        }
    });
    Client::builder().service(service)
}

fn device() -> (World, Value) {
    let world = World::new(&json!({ "deviceCode": {
        "tokenUrl": "{}/token", "deviceAuthorizationUrl": "{}/device", "scopes": {}
    } }));
    let code = json!({
        "device_code": "hunter4", "user_code": "AB-CD", "interval": 2, "expires_in": 600,
        "verification_uri": "https://id.example/go",
    });
    (world, code)
}

#[tokio::test(start_paused = true)]
async fn a_device_login_polls_at_the_interval_of_the_server() {
    let (world, code) = device();
    world.then(200, code);
    for error in ["authorization_pending", "slow_down", "authorization_pending"] {
        world.then(400, json!({ "error": error }));
    }
    let builder = in_process(&world).credential(Credential::oauth(OAuth::client("me")));
    let client = builder.connect("http://localhost").await.unwrap();
    let asked = Mutex::new(Vec::new());
    let begun = tokio::time::Instant::now();
    let token = client.log_in(|prompt| asked.lock().unwrap().push(prompt)).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 2 + 2 + 7 + 7, "slower after it was told so");
    let expected = Prompt::Device {
        url: "https://id.example/go".into(),
        code: "AB-CD".into(),
        complete: None,
    };
    assert_eq!(asked.into_inner().unwrap(), [expected]);
    assert_eq!(token.from, "http://localhost/token");
    let forms = world.forms();
    assert_eq!((&*forms[0]["client_id"], &*forms[0]["scope"]), ("me", "a b c"));
    assert_eq!(forms[1]["grant_type"], "urn:ietf:params:oauth:grant-type:device_code");
    assert_eq!((&*forms[1]["device_code"], &*forms[1]["client_id"]), ("hunter4", "me"));
}

#[tokio::test(start_paused = true)]
async fn a_declined_or_expired_login_ends() {
    let login = async |answers: &[(u16, Value)], change: fn(&mut Value)| {
        let (world, mut code) = device();
        change(&mut code);
        world.then(200, code);
        for (status, body) in answers {
            world.then(*status, body.clone());
        }
        let builder = in_process(&world).credential(Credential::oauth(OAuth::client("me")));
        let client = builder.connect("http://localhost").await.unwrap();
        let error = client.log_in(|_| {}).await.unwrap_err();
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
        error
    };
    let error = login(&[(400, json!({ "error": "access_denied" }))], |_| {}).await;
    assert!(error.to_string().contains("declined"), "{error}");
    let error = login(&[(400, json!({ "error": "expired_token" }))], |_| {}).await;
    assert!(error.to_string().contains("log in again"), "{error}");
    let pending = vec![(400, json!({ "error": "authorization_pending" })); 20];
    let error = login(&pending, |code| code["expires_in"] = json!(30)).await;
    assert!(error.is_timeout(), "{error}");
    let error = login(&[], |code| code["verification_uri"] = json!("http://id.example/go")).await;
    assert!(error.is_setup(), "a person is not sent there: {error}");
}

/// Requests a URL as a browser does, and returns the answer.
async fn visit(url: &reqwest::Url) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!("GET {}?{} HTTP/1.1\r\n\r\n", url.path(), url.query().unwrap_or_default());
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_browser_login_accepts_only_the_redirect_with_its_state() {
    let world = World::new(&json!({ "authorizationCode": {
        "authorizationUrl": "{}/authorize?prompt=login", "tokenUrl": "{}/token", "scopes": {}
    } }));
    let fake = world.start().await;
    let client = connect(OAuth::client("me"), &fake).await;
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let login = client.log_in(move |prompt| tell.try_send(prompt).unwrap());
    let browser = async {
        let Some(Prompt::Browser { url }) = told.recv().await else { panic!() };
        let asked = form_of(&url);
        assert_eq!((&*asked["response_type"], &*asked["code_challenge_method"]), ("code", "S256"));
        assert_eq!((&*asked["prompt"], &*asked["scope"]), ("login", "a b c"));
        let back = |state: &str, more: &str| {
            let url = format!("{}?state={state}&{more}", asked["redirect_uri"]);
            reqwest::Url::parse(&url).unwrap()
        };
        // A spare connection without a request, and a request with a guessed state.
        let port = back("", "").port().unwrap();
        let _silent = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        assert!(visit(&back("guessed", "code=evil")).await.starts_with("HTTP/1.1 404"));
        let answer = visit(&back(&asked["state"], "code=hunter5")).await;
        assert!(answer.starts_with("HTTP/1.1 200") && !answer.contains("hunter"), "{answer}");
        asked
    };
    let (token, asked) = soon(async { tokio::join!(login, browser) }).await;
    token.unwrap();
    let form = &world.forms()[0];
    assert_eq!((&*form["grant_type"], &*form["code"]), ("authorization_code", "hunter5"));
    assert_eq!(form["redirect_uri"], asked["redirect_uri"]);
    let hash =
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, form["code_verifier"].as_bytes());
    assert_eq!(URL_SAFE_NO_PAD.encode(hash), asked["code_challenge"]);
    soon(client.send("x")).await.unwrap();

    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let login = client.log_in(move |prompt| tell.try_send(prompt).unwrap());
    let browser = async {
        let Some(Prompt::Browser { url }) = told.recv().await else { panic!() };
        let asked = form_of(&url);
        let url = format!("{}?state={}&error=access_denied", asked["redirect_uri"], asked["state"]);
        visit(&reqwest::Url::parse(&url).unwrap()).await;
    };
    let (token, ()) = soon(async { tokio::join!(login, browser) }).await;
    assert!(token.unwrap_err().to_string().contains("access_denied"));
    soon(client.send("x")).await.unwrap();
}

fn form_of(url: &str) -> Form {
    form(reqwest::Url::parse(url).unwrap().query().unwrap())
}

/// The tokens that the server was asked to revoke.
fn revoked(world: &World) -> Vec<(String, String)> {
    let seen = world.seen.lock().unwrap();
    let asked = seen.iter().filter(|(path, ..)| path == "/revoke");
    asked.map(|(_, form, _)| (form["token_type_hint"].clone(), form["token"].clone())).collect()
}

#[tokio::test]
async fn a_token_is_revoked_only_at_its_issuer() {
    let both = [("refresh_token", "hunter3"), ("access_token", "old")]
        .map(|(hint, token)| (hint.to_owned(), token.to_owned()));
    let openid = json!({ "openIdConnectSecurityScheme": {
        "openIdConnectUrl": "{}/.well-known/openid-configuration" } });
    // With metadata at the URL of the card, and at the well-known path.
    let mut usual = World::client_credentials();
    usual.extra = json!({ "described": true });
    for world in [World { scheme: openid, extra: json!({}), ..World::default() }, usual] {
        let fake = world.start().await;
        let client = connect(OAuth::client("me").token(kept(&fake, None)), &fake).await;
        assert!(soon(client.log_out()).await.unwrap());
        assert_eq!(revoked(&world), both);
        assert!(world.forms()[0].get("client_id").is_some_and(|id| id == "me"));
        assert!(!soon(client.log_out()).await.unwrap(), "there is none any more");
        // A type of token that cannot be revoked is not a failure.
        world.then(200, json!({}));
        world.then(400, json!({ "error": "unsupported_token_type" }));
        let client = connect(OAuth::client("me").token(kept(&fake, None)), &fake).await;
        assert!(soon(client.log_out()).await.unwrap());
        world.then(400, json!({ "error": "invalid_client" }));
        let client = connect(OAuth::client("me").token(kept(&fake, None)), &fake).await;
        assert!(soon(client.log_out()).await.unwrap_err().is_login());
        let asked = revoked(&world).len();
        let foreign = Token { from: "https://other.example/token".into(), ..kept(&fake, None) };
        let client = connect(OAuth::client("me").token(foreign), &fake).await;
        assert!(soon(client.log_out()).await.unwrap_err().is_login());
        assert_eq!(revoked(&world).len(), asked, "another server's token was shown");
    }
    let silent = World::client_credentials();
    let fake = silent.start().await;
    let client = connect(OAuth::client("me").token(kept(&fake, None)), &fake).await;
    assert!(!soon(client.log_out()).await.unwrap(), "it has no place for that");
}
