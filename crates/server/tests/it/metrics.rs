//! Metrics: their values, their format and the access to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use herald_engine::{Engine, Profile, QueuedTasks, Scopes, store::sqlite::Sqlite};
use herald_server::{Config, MetricsAccess, Token};
use serde_json::json;

use crate::{
    agents::Script,
    client::{Answer, Call, message, old_message},
    hub::{Hub, SOON},
};

/// Every sample by its name and labels, as they are written.
type Samples = BTreeMap<String, f64>;

/// Reads the text as strictly as the format allows: each metric is declared once and has only
/// samples that belong to it, names and labels are well formed, no sample comes twice, and
/// histograms grow to their count.
fn parse(text: &str) -> Samples {
    let mut samples = Samples::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut current = "";
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            current = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current, "the type follows the help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name, kind).is_none(), "{name} is declared twice");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let suffix = name.strip_prefix(current).unwrap_or_else(|| panic!("{line}"));
            match kinds[current] {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                "counter" => assert!(suffix.is_empty() && name.ends_with("_total"), "{line}"),
                _ => assert!(suffix.is_empty(), "{line}"),
            }
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            let labels = labels.strip_suffix('}').unwrap();
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                let (key, value) = label.split_once('=').unwrap();
                assert!(key.bytes().all(|byte| byte.is_ascii_lowercase()), "{line}");
                let value = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
                assert!(!value.is_empty() && !value.contains(['"', '\\', '\n']), "{line}");
            }
            let value: f64 = value.parse().unwrap();
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
        }
    }
    check_histograms(&kinds, &samples);
    samples
}

fn check_histograms(kinds: &BTreeMap<&str, &str>, samples: &Samples) {
    for name in kinds.iter().filter(|(_, kind)| **kind == "histogram").map(|(name, _)| name) {
        for (series, count) in
            samples.iter().filter(|(one, _)| one.starts_with(&format!("{name}_count")))
        {
            let labels = series.strip_prefix(&format!("{name}_count")).unwrap();
            let before =
                labels.strip_suffix('}').map_or("{".to_owned(), |labels| format!("{labels},"));
            let last = samples[&format!("{name}_bucket{before}le=\"+Inf\"}}")];
            assert_eq!(last, *count, "{series}");
            assert!(samples.contains_key(&format!("{name}_sum{labels}")), "{series}");
            let prefix = format!("{name}_bucket{before}le=");
            let buckets = samples.iter().filter(|(one, _)| one.starts_with(&prefix));
            assert!(buckets.clone().count() > 2 && buckets.clone().all(|(_, one)| one <= count));
        }
    }
}

async fn scrape(hub: &Hub) -> Samples {
    let answer = hub.call(Call::get("/metrics")).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    parse(answer.text())
}

/// Scrapes until it is so: some numbers follow a moment after the answer that they are about.
async fn until(hub: &Hub, series: &str, value: f64) {
    let begun = tokio::time::Instant::now();
    loop {
        let samples = scrape(hub).await;
        if samples.get(series) == Some(&value) {
            return;
        }
        assert!(begun.elapsed() < SOON, "{series} is not {value} in {samples:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn calls_are_counted_by_agent_operation_version_binding_and_outcome() {
    let hub = Hub::start().await;
    hub.call(Call::rpc("SendMessage", &message("hello"))).await.result();
    hub.call(Call::rpc("SendMessage", &message("hello"))).await.result();
    hub.call(Call::old_rpc("message/send", &old_message("hello"))).await.result();
    hub.call(Call::post("/agents/files/message:send", &message("hello")).v1()).await;
    hub.call(Call::rpc("GetTask", &json!({ "id": "nope" }))).await.error();
    hub.call(Call::rpc("GetTask", &json!({}))).await.error();
    let samples = scrape(&hub).await;
    for (labels, count) in [
        (
            r#"agent="script",operation="SendMessage",version="1.0",binding="jsonrpc",outcome="ok""#,
            2.0,
        ),
        (
            r#"agent="script",operation="SendMessage",version="0.3",binding="jsonrpc",outcome="ok""#,
            1.0,
        ),
        (r#"agent="files",operation="SendMessage",version="1.0",binding="rest",outcome="ok""#, 1.0),
        (
            r#"agent="script",operation="GetTask",version="1.0",binding="jsonrpc",outcome="refused""#,
            2.0,
        ),
    ] {
        assert_eq!(
            samples.get(&format!("herald_calls_total{{{labels}}}")),
            Some(&count),
            "{samples:#?}"
        );
    }
    assert_eq!(samples[r#"herald_call_seconds_count{operation="SendMessage"}"#], 4.0);
    assert_eq!(samples[r#"herald_task_states_total{agent="script",state="completed"}"#], 3.0);
    assert_eq!(samples[r#"herald_task_states_total{agent="script",state="submitted"}"#], 3.0);
    assert!(samples[r#"herald_http_responses_total{status="2xx"}"#] >= 4.0);
    assert!(samples["herald_store_commit_seconds_count"] >= 4.0);
    assert!(samples["herald_store_commit_writes_sum"] >= 8.0);
    assert_eq!(samples["herald_store_errors_total"], 0.0);
    assert!(samples["process_resident_memory_bytes"] > 1e6);
    assert!(samples["process_start_time_seconds"] > 1.7e9);
    until(&hub, r#"herald_turn_seconds_count{agent="files"}"#, 1.0).await;
}

#[tokio::test]
async fn what_is_open_and_what_waits_shows() {
    let mut profile = Profile::new("narrow", "Does one thing at a time");
    profile.concurrency = 1;
    let script = Script::new();
    let engine = Engine::builder(Arc::new(Sqlite::memory().unwrap()));
    let engine = engine.agent(profile, script.clone()).build().unwrap();
    let hub = Hub::over(engine, script, |builder| builder).await;
    let call = Call::rpc("SendStreamingMessage", &message("wait"));
    let mut stream = hub.client().await.open(call.clone()).await;
    stream.json().await;
    let mut other = hub.client().await.open(call).await;
    other.json().await;
    let samples = scrape(&hub).await;
    assert_eq!(samples["herald_streams_open"], 2.0);
    assert_eq!(samples["herald_connections_open"], 3.0);
    assert_eq!(samples[r#"herald_turns_running{agent="narrow"}"#], 1.0);
    assert_eq!(samples[r#"herald_tasks_waiting{agent="narrow"}"#], 1.0);
    hub.release(2);
    stream.rest().await;
    other.rest().await;
    until(&hub, "herald_streams_open", 0.0).await;
    until(&hub, r#"herald_turns_running{agent="narrow"}"#, 0.0).await;
    until(&hub, r#"herald_tasks_waiting{agent="narrow"}"#, 0.0).await;
}

#[tokio::test]
async fn nothing_that_callers_make_up_becomes_a_label() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    let series = async |client: &mut crate::client::Client| -> BTreeSet<String> {
        parse(client.call(Call::get("/metrics")).await.text()).into_keys().collect()
    };
    let made_up = async |client: &mut crate::client::Client, round: usize| {
        let name = format!("made-up-{round}");
        let mut params = message("hello");
        params["tenant"] = json!(name);
        params["message"]["contextId"] = json!(name);
        for call in [
            Call::rpc("SendMessage", &params).header("User-Agent", &name),
            Call::rpc("GetTask", &json!({ "id": name, "tenant": name })),
            Call::rpc(&name, &json!({})),
            Call::get(format!("/{name}/tasks/{name}")).v1(),
            Call::get(format!("/agents/{name}/tasks")).header("A2A-Version", &format!("{round}.0")),
        ] {
            let _: Answer = client.call(call).await;
        }
    };
    made_up(&mut client, 0).await;
    let before = series(&mut client).await;
    // Five calls each, so 10,000 ids that nobody has seen before.
    for round in 1..2000 {
        made_up(&mut client, round).await;
    }
    let after = series(&mut client).await;
    assert_eq!(before, after);
    assert!(!after.iter().any(|series| series.contains("made")), "{after:?}");
}

#[tokio::test]
async fn metrics_are_for_operators_where_callers_need_credentials() {
    let token = Token {
        secret: "canary-7c5e-caller".into(),
        tenant: "acme".into(),
        principal: "ci".into(),
        scopes: Scopes::ALL,
        ..Token::default()
    };
    let tokens = vec![token];
    let get = || Call::get("/metrics");
    let bearer = |token: &str| get().header("Authorization", &format!("Bearer {token}"));
    let closed = Hub::with(Config { tokens: tokens.clone(), ..Config::default() }).await;
    for call in [get(), bearer("canary-7c5e-caller")] {
        let answer = closed.call(call).await;
        assert_eq!(answer.status(), 403, "{}", answer.text());
        assert!(answer.text().contains("[metrics]"));
    }
    let metrics = MetricsAccess::Token("canary-7c5e-scraper".into());
    assert!(!format!("{metrics:?}").contains("canary-7c5e-scraper"));
    let guarded = Hub::with(Config { tokens: tokens.clone(), metrics, ..Config::default() }).await;
    for call in [get(), bearer("canary-7c5e-caller"), bearer("scr4p"), bearer("")] {
        let answer = guarded.call(call).await;
        assert_eq!(answer.status(), 401);
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
    }
    assert_eq!(guarded.call(bearer("canary-7c5e-scraper")).await.status(), 200);
    let call = Call::rpc("GetTask", &json!({ "id": "x" }));
    let call = call.header("Authorization", "Bearer canary-7c5e-scraper");
    assert_eq!(guarded.call(call).await.status(), 401, "it opens nothing else");
    let metrics = MetricsAccess::Everybody;
    let open = Hub::with(Config { tokens, metrics, ..Config::default() }).await;
    assert_eq!(open.call(get()).await.status(), 200);
    assert_eq!(open.call(Call::new("POST", "/metrics")).await.status(), 405);
    let rebound = get().header("Host", "evil.example");
    assert_eq!(open.call(rebound).await.status(), 421, "a web page cannot read them");
}

#[tokio::test]
async fn a_store_in_trouble_shows() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let script = Script::new();
    let profile = Profile::new("script", "Does what it is told");
    let engine = Engine::builder(store.clone());
    let engine = engine.agent(profile, script.clone()).build().unwrap();
    let hub = Hub::over(engine, script, |builder| builder).await;
    store.limit_pages(1);
    let big = "x".repeat(1 << 20);
    hub.call(Call::rpc("SendMessage", &message(&big))).await.error();
    let samples = scrape(&hub).await;
    assert!(samples["herald_store_errors_total"] >= 1.0, "{samples:#?}");
    let failed = r#"herald_calls_total{agent="script",operation="SendMessage",version="1.0",binding="jsonrpc",outcome="failed"}"#;
    assert_eq!(samples[failed], 1.0);
}

#[tokio::test]
async fn an_agent_registered_at_run_time_has_a_card_routes_and_metrics_until_it_is_removed() {
    let hub = Hub::start().await;
    let card = || hub.call(Call::get("/agents/late/.well-known/agent-card.json"));
    assert_eq!(card().await.status(), 404);
    let profile = Profile::new("late", "Comes and goes");
    hub.engine.register(profile, Arc::new(hub.script.clone())).unwrap();
    assert_eq!(card().await.json()["description"], "Comes and goes");
    assert!(hub.call(Call::get("/")).await.text().contains("/agents/late/"));
    let send = || Call::post("/agents/late/message:send", &message("hello")).v1();
    assert_eq!(hub.call(send()).await.status(), 200);
    let samples = scrape(&hub).await;
    let call = r#"agent="late",operation="SendMessage",version="1.0",binding="rest",outcome="ok""#;
    assert_eq!(samples[&format!("herald_calls_total{{{call}}}")], 1.0);
    assert_eq!(samples[r#"herald_task_states_total{agent="late",state="completed"}"#], 1.0);
    hub.engine.remove(&"late".into(), QueuedTasks::Wait).await.unwrap();
    assert_eq!(card().await.status(), 404);
    assert_eq!(hub.call(send()).await.status(), 404);
}
