//! Limits of callers and tenants: requests per second, streams, refused credentials.

use herald_engine::Scopes;
use herald_protocol::TenantId;
use herald_server::{Config, Limits, TenantLimits, Token, UsageLimits};
use serde_json::{Value, json};

use crate::{
    client::{Answer, Call, message},
    hub::Hub,
};

fn token(tenant: &str, principal: &str) -> Token {
    let (secret, tenant) = (format!("{principal}-secret"), TenantId::from(tenant));
    Token { secret, tenant, principal: principal.into(), scopes: Scopes::ALL, ..Token::default() }
}

/// Two callers of one tenant and two of another.
async fn with(limits: Limits) -> Hub {
    let tokens = [("acme", "ann"), ("acme", "bob"), ("other", "eve"), ("other", "tom")];
    let tokens = tokens.map(|(tenant, principal)| token(tenant, principal)).into();
    Hub::with(Config { tokens, limits, ..Config::default() }).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {who}-secret"))
}

fn get() -> Call {
    Call::rpc("GetTask", &json!({ "id": "x" }))
}

/// One request per second, after so many at once.
fn burst(burst: u32) -> UsageLimits {
    UsageLimits { requests_per_second: Some(1), burst: Some(burst), ..UsageLimits::default() }
}

fn detail<'a>(details: &'a Value, kind: &str) -> &'a Value {
    let kind = format!("type.googleapis.com/google.rpc.{kind}");
    details.as_array().unwrap().iter().find(|one| one["@type"] == kind.as_str()).unwrap()
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap()
}

/// Calls until one is refused, because the rate is one per second and time passes.
async fn refused(hub: &Hub, who: &str, call: &Call) -> Answer {
    loop {
        let answer = hub.call(as_(who, call.clone())).await;
        if answer.status() == 429 {
            return answer;
        }
    }
}

#[tokio::test]
async fn a_caller_beyond_its_rate_is_told_when_to_come_back() {
    let hub = with(Limits { caller: burst(5), ..Limits::default() }).await;
    let answer = refused(&hub, "ann", &get()).await;
    assert_eq!(answer.head.header("retry-after"), Some("1"));
    let error = json(&answer)["error"].clone();
    assert_eq!(error["code"], -31014);
    let text = error["message"].as_str().unwrap();
    assert!(text.contains("at most 1 per second ([limits.caller] requests_per_second"), "{text}");
    let info = &detail(&error["data"], "ErrorInfo");
    assert_eq!(info["metadata"]["limit"], "limits.caller.requests_per_second");
    assert_eq!(info["metadata"]["value"], "1");
    let delay = detail(&error["data"], "RetryInfo")["retryDelay"].as_str().unwrap().to_owned();
    let seconds: f64 = delay.strip_suffix('s').unwrap().parse().unwrap();
    assert!(seconds > 0.0 && seconds <= 1.0, "{delay}");
    // The same over REST, and nobody else is concerned.
    let rest = refused(&hub, "ann", &Call::get("/tasks/x").v1()).await;
    let status = json(&rest)["error"].clone();
    assert_eq!(status["status"], "RESOURCE_EXHAUSTED");
    assert!(detail(&status["details"], "RetryInfo")["retryDelay"].is_string());
    assert_eq!(hub.call(as_("bob", get())).await.status(), 200);
    assert_eq!(hub.call(as_("eve", get())).await.status(), 200);
}

#[tokio::test]
async fn the_body_of_a_request_beyond_the_rate_is_not_read() {
    let hub = with(Limits { caller: burst(1), ..Limits::default() }).await;
    refused(&hub, "ann", &get()).await;
    loop {
        let mut client = hub.client().await;
        client
            .write(
                "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\
                 Authorization: Bearer ann-secret\r\nContent-Type: application/json\r\n\
                 Content-Length: 100\r\n\r\n",
            )
            .await;
        let answered = tokio::time::timeout(std::time::Duration::from_secs(1), client.head()).await;
        // Within the rate the server waits for the body.
        if let Ok(head) = answered {
            assert_eq!(head.status, 429);
            break;
        }
    }
}

#[tokio::test]
async fn a_tenant_has_a_rate_of_all_its_callers_and_can_have_its_own() {
    let tenant = TenantLimits {
        caller: UsageLimits { requests_per_second: Some(0), ..UsageLimits::default() },
        tenant: UsageLimits { requests_per_second: Some(0), ..UsageLimits::default() },
    };
    let limits = Limits {
        tenant: burst(4),
        tenants: [(TenantId::from("other"), tenant)].into(),
        ..Limits::default()
    };
    let hub = with(limits).await;
    refused(&hub, "ann", &get()).await;
    let answer = refused(&hub, "bob", &get()).await;
    let error = json(&answer)["error"].clone();
    let limit = &detail(&error["data"], "ErrorInfo")["metadata"]["limit"];
    assert_eq!(limit, "limits.tenant.requests_per_second");
    for _ in 0..50 {
        assert_eq!(hub.call(as_("eve", get())).await.status(), 200);
    }
}

#[tokio::test]
async fn callers_without_credentials_have_a_rate_by_address() {
    let limits = Limits { caller: burst(3), ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    while hub.call_from(1, get()).await.status() != 429 {}
    assert_eq!(hub.call_from(2, get()).await.status(), 200);
    assert_eq!(hub.call_from(1, Call::get("/healthz")).await.status(), 200);
}

#[tokio::test]
async fn a_tenant_has_a_limit_of_streams() {
    let of_tenant = UsageLimits { streams: Some(2), ..UsageLimits::default() };
    let hub = with(Limits { tenant: of_tenant, ..Limits::default() }).await;
    let stream = || Call::rpc("SendStreamingMessage", &message("wait x"));
    let mut open = Vec::new();
    for who in ["ann", "bob"] {
        let mut stream = hub.client().await.open(as_(who, stream())).await;
        stream.json().await;
        open.push(stream);
    }
    let refused = hub.call(as_("ann", stream())).await;
    assert_eq!(refused.status(), 429);
    let text = json(&refused)["error"]["message"].as_str().unwrap().to_owned();
    assert!(text.contains("[limits] tenant.streams"), "{text}");
    let mut eve = hub.client().await.open(as_("eve", stream())).await;
    eve.json().await;
    hub.release(10);
}

#[tokio::test]
async fn refused_credentials_are_limited_by_address_and_lock_nobody_out() {
    let limits = Limits { refused_logins_per_second: Some(1), ..Limits::default() };
    let hub = with(limits).await;
    let mut seen = Vec::new();
    while seen.last() != Some(&429) {
        seen.push(hub.call_from(1, as_("nobody", get())).await.status());
        assert!(seen.len() < 10_000, "it is never refused");
    }
    assert!(seen[..seen.len() - 1].iter().all(|status| *status == 401), "{seen:?}");
    assert!(seen.len() > 50, "a burst passes: {}", seen.len());
    assert_eq!(hub.call_from(1, as_("ann", get())).await.status(), 200, "good ones pass");
    assert_eq!(hub.call_from(2, as_("nobody", get())).await.status(), 401);
}

#[tokio::test]
async fn stored_tasks_are_limited_by_caller_and_by_tenant() {
    let tenants = [
        ("acme", UsageLimits { active_tasks: Some(2), ..UsageLimits::default() }, "active_tasks"),
        ("other", UsageLimits { stored_bytes: Some(1), ..UsageLimits::default() }, "stored_bytes"),
    ];
    let of = |tenant: UsageLimits| TenantLimits { tenant, ..TenantLimits::default() };
    let own = tenants.iter().map(|(name, usage, _)| (TenantId::from(*name), of(usage.clone())));
    let caller = UsageLimits { active_tasks: Some(1), ..UsageLimits::default() };
    let hub = with(Limits { caller, tenants: own.collect(), ..Limits::default() }).await;
    let send = |text: &str| Call::rpc("SendMessage", &message(text));
    let post = |text: &str| {
        let mut params = message(text);
        params["configuration"] = json!({ "returnImmediately": true });
        Call::rpc("SendMessage", &params)
    };
    let limit = |answer: &Answer| {
        assert_eq!(answer.status(), 429, "{}", String::from_utf8_lossy(&answer.body));
        let error = json(answer)["error"].clone();
        detail(&error["data"], "ErrorInfo")["metadata"]["limit"].as_str().unwrap().to_owned()
    };
    let first = hub.call(as_("ann", post("wait x"))).await.result();
    let refused = hub.call(as_("ann", send("hello"))).await;
    assert_eq!(limit(&refused), "limits.caller.active_tasks");
    // A message to a task creates none.
    let mut more = message("more");
    more["message"]["taskId"] = first["task"]["id"].clone();
    more["configuration"] = json!({ "returnImmediately": true });
    assert_eq!(hub.call(as_("ann", Call::rpc("SendMessage", &more))).await.status(), 200);
    hub.call(as_("bob", post("wait x"))).await.result();
    let refused = hub.call(as_("bob", send("hello"))).await;
    assert_eq!(limit(&refused), "limits.caller.active_tasks");
    hub.call(as_("eve", send("hello"))).await.result();
    let refused = hub.call(as_("tom", send("hello"))).await;
    assert_eq!(limit(&refused), "limits.tenant.stored_bytes");
    hub.release(10);
}

#[tokio::test]
async fn messages_that_arrive_at_once_stay_within_the_limits_of_stored_tasks() {
    const AT_ONCE: usize = 64;
    let most = |tasks| UsageLimits { active_tasks: Some(tasks), ..UsageLimits::default() };
    let of_acme = TenantLimits { tenant: most(8), ..TenantLimits::default() };
    let tenants = [(TenantId::from("acme"), of_acme)].into();
    let hub = with(Limits { caller: most(5), tenants, ..Limits::default() }).await;
    let mut params = message("wait x");
    params["configuration"] = json!({ "returnImmediately": true });
    // Each on a connection of its own: 64 of a caller, and 64 of two callers of a tenant.
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..2 * AT_ONCE {
        let who = ["eve", "ann", "eve", "bob"][number % 4];
        let (mut client, params) = (hub.client().await, params.clone());
        calls.spawn(async move {
            let answer = client.call(as_(who, Call::rpc("SendMessage", &params))).await;
            (who, answer.status())
        });
    }
    let mut stored = std::collections::HashMap::new();
    while let Some(answered) = calls.join_next().await {
        let (who, status) = answered.unwrap();
        assert!([200, 429].contains(&status), "{who}: {status}");
        *stored.entry(who).or_insert(0) += u32::from(status == 200);
    }
    assert_eq!(stored["eve"], 5, "the limit of a caller: {stored:?}");
    assert!(stored["ann"] <= 5 && stored["bob"] <= 5, "{stored:?}");
    assert_eq!(stored["ann"] + stored["bob"], 8, "the limit of their tenant: {stored:?}");
    hub.release(2 * AT_ONCE);
}

#[tokio::test]
async fn registrations_are_limited_by_the_settings_of_the_tenant_and_its_callers() {
    let most = |registrations| UsageLimits {
        registrations: Some(registrations),
        ..UsageLimits::default()
    };
    let acme = TenantLimits { caller: most(2), tenant: most(3) };
    let tenants = [(TenantId::from("acme"), acme)].into();
    let hub = with(Limits { caller: most(1), tenants, ..Limits::default() }).await;
    let register = async |who: &str, id: u32| {
        let body = json!({ "role": "reviewer", "instance_id": format!("{who}:{id}") });
        let answer = hub.call(as_(who, Call::post("/api/agents", &body))).await;
        if answer.status() == 201 {
            return None;
        }
        assert_eq!(answer.status(), 429, "{}", answer.text());
        assert!(answer.header("retry-after").is_some(), "{}", answer.text());
        let details = json(&answer)["error"]["details"].clone();
        let metadata = detail(&details, "ErrorInfo")["metadata"].clone();
        Some((metadata["limit"].as_str().unwrap().to_owned(), metadata["value"].clone()))
    };
    let limit =
        |name: &str, value: &str| Some((format!("limits.{name}.registrations"), value.into()));
    assert_eq!(register("ann", 1).await, None);
    assert_eq!(register("ann", 2).await, None);
    assert_eq!(register("ann", 3).await, limit("caller", "2"));
    assert_eq!(register("ann", 2).await, None, "a new life of a worker");
    assert_eq!(register("bob", 1).await, None);
    assert_eq!(register("bob", 2).await, limit("tenant", "3"));
    assert_eq!(register("eve", 1).await, None);
    assert_eq!(register("eve", 2).await, limit("caller", "1"));
}
