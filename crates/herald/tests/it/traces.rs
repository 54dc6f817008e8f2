//! Tests of exported spans, received by a collector of the test.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::{TlsAcceptor, rustls};

use crate::{
    canary,
    http::Call,
    receiver::{Receiver, ReceiverAnswer},
    support::{AGENTS, CONFORMANCE, Herald, Options, SOON, eventually, uuid},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

/// A collector that stores the received spans.
#[derive(Debug)]
struct Collector {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Received {
    spans: Vec<Span>,
    resources: Vec<Resource>,
    headers: Vec<HeaderMap>,
}

impl Collector {
    async fn start() -> Self {
        Self::with(None).await
    }

    /// Speaks TLS with this configuration.
    async fn with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Received::default()));
        let (mut serving, noted) = (JoinSet::new(), Arc::clone(&received));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let noted = Arc::clone(&noted);
                let service = service_fn(move |request| take(Arc::clone(&noted), request));
                let tls = tls.clone();
                connections.spawn(async move {
                    let http = http1::Builder::new();
                    // Some tests kill the exporter during a request.
                    let _ = match tls {
                        None => http.serve_connection(TokioIo::new(stream), service).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            http.serve_connection(TokioIo::new(stream), service).await
                        }
                    };
                });
            }
        });
        Self { address, received, _serving: serving }
    }

    /// The settings of a server that exports to this collector with a short delay.
    fn options(&self, more: &str) -> Options {
        let trace = format!("[trace]\notlp = \"http://{}\"\n{more}\n{AGENTS}", self.address);
        Options::config(trace).environment("OTEL_BSP_SCHEDULE_DELAY", "20")
    }

    fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    /// Waits for the first span that matches.
    async fn span(&self, what: &str, like: impl Fn(&Span) -> bool) -> Span {
        let mut found = None;
        eventually(SOON, what, async || {
            found = self.spans().into_iter().find(|span| like(span));
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let received = self.received.lock().unwrap();
            canary::scan(
                "the exported spans",
                format!("{:?} {:?}", received.spans, received.resources),
            );
        }
    }
}

async fn take(
    received: Arc<Mutex<Received>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(Response::default()) };
    let batch = ExportTraceServiceRequest::decode(body.to_bytes()).unwrap();
    let mut received = received.lock().unwrap();
    received.headers.push(head.headers);
    for spans in batch.resource_spans {
        received.resources.extend(spans.resource);
        received.spans.extend(spans.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    Ok(Response::default())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An attribute as text; empty if there is none.
fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()?.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// A send that does not wait.
fn send(agent: &str, words: &str, metadata: &Value) -> Call {
    let configuration = json!({ "returnImmediately": true });
    configured(agent, words, metadata, &configuration)
}

fn configured(agent: &str, words: &str, metadata: &Value, configuration: &Value) -> Call {
    let params = json!({
        "message": { "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": words }] },
        "metadata": metadata,
        "configuration": configuration,
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    Call::post(format!("{agent}/rpc"), &body).header("a2a-version", "1.0")
}

fn traceparent() -> String {
    format!("00-{TRACE}-{SPAN}-01")
}

#[tokio::test]
async fn a_turn_that_is_recovered_after_a_kill_is_in_the_trace_of_its_caller() {
    let collector = Collector::start().await;
    let mut herald = Herald::start(collector.options("")).await;
    let call = send(CONFORMANCE, "tck-long-running delay_ms=600000", &json!({}));
    let answer = herald.call(&call.header("traceparent", traceparent())).await.json();
    let task = answer["result"]["task"]["id"].as_str().unwrap().to_owned();
    let call = collector.span("the call", |span| span.name == "SendMessage").await;
    assert_eq!(hex(&call.trace_id), TRACE);
    assert_eq!(hex(&call.parent_span_id), SPAN);
    assert_eq!(call.kind, SpanKind::Server as i32);
    herald.kill9().await;
    herald.restart().await;
    // The second attempt ends when it is cancelled, and with it its span.
    let cancel =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": { "id": task } });
    eventually(SOON, "the turn is repeated", async || herald.log().contains("repeats a turn"))
        .await;
    let cancel = Call::post("/rpc", &cancel).header("a2a-version", "1.0");
    assert!(herald.call(&cancel).await.json()["result"].is_object());
    let turn = collector.span("the turn", |span| span.name == "invoke_agent conformance").await;
    assert_eq!(hex(&turn.trace_id), TRACE);
    assert_eq!(turn.parent_span_id, call.span_id);
    assert_eq!(turn.kind, SpanKind::Internal as i32);
    for (key, value) in [
        ("a2a.task.id", task.as_str()),
        ("a2a.attempt", "2"),
        ("a2a.seq", "1"),
        ("a2a.task.state", "TASK_STATE_CANCELED"),
        ("gen_ai.agent.name", "conformance"),
    ] {
        assert_eq!(text(&turn.attributes, key), value, "{key} in {turn:#?}");
    }
    let context = &answer["result"]["task"]["contextId"];
    for span in [&call, &turn] {
        assert_eq!(&json!(text(&span.attributes, "gen_ai.conversation.id")), context);
        assert_eq!(text(&span.attributes, "a2a.task.id"), task);
        assert_eq!(text(&span.attributes, "a2a.seq"), "1");
    }
}

#[tokio::test]
async fn metadata_makes_a_span_a_child_and_without_it_the_span_is_a_root() {
    let collector = Collector::start().await;
    let herald = Herald::start(collector.options("")).await;
    let ids = json!({ "a2a.trace": { "traceId": "1f2e3d", "spanId": "4c5b6a" } });
    herald.call(&send("", "child", &ids)).await;
    let child = |span: &Span| hex(&span.trace_id) == format!("{:0>32}", "1f2e3d");
    let call = collector.span("the call", |span| child(span) && span.name == "SendMessage").await;
    assert_eq!(hex(&call.parent_span_id), format!("{:0>16}", "4c5b6a"));
    let turn =
        collector.span("the turn", |span| child(span) && span.name == "invoke_agent echo").await;
    assert_eq!(turn.parent_span_id, call.span_id);
    herald.call(&send("", "root", &json!({})).header("traceparent", "nonsense")).await;
    let root = |span: &Span| !child(span) && span.name == "SendMessage";
    let call = collector.span("the root", root).await;
    assert!(call.parent_span_id.is_empty(), "{call:#?}");
    let turn = |span: &Span| span.trace_id == call.trace_id && span.name != "SendMessage";
    assert_eq!(collector.span("its turn", turn).await.parent_span_id, call.span_id);
}

#[tokio::test]
async fn the_last_spans_are_sent_with_all_attributes_before_the_end() {
    let collector = Collector::start().await;
    let settings = "service = \"desk\"\nheaders = { authorization = \"env:COLLECTOR_KEY\" }";
    let options = collector.options(settings).environment("COLLECTOR_KEY", "Basic canary-7c5e");
    let options = options.environment("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let options = options.environment("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test");
    let mut herald = Herald::start(options).await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": "none" } });
    let get = Call::post("/rpc", &body).header("a2a-version", "1.0");
    herald.call(&get.header("traceparent", traceparent())).await;
    herald.call(&Call::get("/healthz")).await;
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    let received = collector.received.lock().unwrap();
    assert_eq!(received.spans.len(), 1, "probes have no spans: {:#?}", received.spans);
    let call = &received.spans[0];
    assert_eq!((call.name.as_str(), hex(&call.trace_id).as_str()), ("GetTask", TRACE));
    assert_eq!(text(&call.attributes, "error.type"), "TASK_NOT_FOUND");
    assert_eq!(text(&call.attributes, "http.response.status_code"), "200");
    let status = call.status.clone().unwrap_or_default().code;
    assert_eq!(status, StatusCode::Unset as i32, "the caller's mistake is not ours");
    assert_eq!(received.headers[0]["authorization"], "Basic canary-7c5e");
    let resource = &received.resources[0].attributes;
    assert_eq!(text(resource, "service.name"), "desk");
    assert_eq!(text(resource, "service.version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(text(resource, "deployment.environment"), "test");
    assert!(!herald.log().contains("canary"));
}

#[tokio::test]
async fn attempts_at_deliveries_are_in_the_trace_of_their_message() {
    let collector = Collector::start().await;
    let receiver = Receiver::start(|path| {
        ReceiverAnswer::status(if path == "/fails" { 503 } else { 200 }, "")
    })
    .await;
    let allowed = receiver.address.to_string();
    let options = collector.options("[push]\nretry = [\"1s\"]");
    let options = options.environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", &allowed);
    let herald = Herald::start(options).await;
    // Slow enough for several claims of the webhook.
    for (path, words) in [("/x", "tck-stream-chunked chunks=4 delay_ms=100"), ("/fails", "x")] {
        let webhook = json!({ "url": receiver.url(path), "token": "canary-7c5e-push" });
        let webhook = json!({ "returnImmediately": true, "taskPushNotificationConfig": webhook });
        let call = configured(CONFORMANCE, words, &json!({}), &webhook);
        let answer = herald.call(&call.header("traceparent", traceparent())).await.json();
        assert!(answer["result"]["task"].is_object(), "{answer}");
    }
    let call = collector.span("the call", |span| span.name == "SendMessage").await;
    let delivered = |span: &Span| span.name == "deliver_webhook";
    let last = |span: &Span| delivered(span) && text(&span.attributes, "a2a.seq") == "7";
    collector.span("the last delivery", last).await;
    let again = |span: &Span| delivered(span) && text(&span.attributes, "a2a.attempt") == "2";
    let again = collector.span("the second attempt", again).await;
    assert_eq!(again.status.clone().unwrap_or_default().code, StatusCode::Error as i32);
    assert_eq!(text(&again.attributes, "http.response.status_code"), "503");
    let spans: Vec<_> = collector.spans().into_iter().filter(delivered).collect();
    assert!(spans.len() >= 9, "seven events and two attempts at another: {spans:#?}");
    for span in &spans {
        assert_eq!((hex(&span.trace_id).as_str(), span.kind), (TRACE, SpanKind::Client as i32));
        assert!(!text(&span.attributes, "herald.webhook.id").is_empty());
    }
    assert!(spans.iter().any(|span| span.parent_span_id == call.span_id));
    // The receiver continues the span of its delivery.
    for one in receiver.received() {
        let parent = one.header("traceparent").unwrap().to_owned();
        let own = |span: &Span| parent == format!("00-{TRACE}-{}-01", hex(&span.span_id));
        collector.span("the span of a delivery", own).await;
    }
}

#[tokio::test]
async fn unsampled_traces_are_not_sent() {
    let collector = Collector::start().await;
    let mut herald = Herald::start(collector.options("sample = 0.0")).await;
    herald.call(&send("", "left out", &json!({}))).await;
    let unsampled = traceparent().replace("-01", "-00");
    herald.call(&send("", "not recorded", &json!({})).header("traceparent", unsampled)).await;
    herald.call(&send("", "recorded", &json!({})).header("traceparent", traceparent())).await;
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    let spans = collector.spans();
    let mut names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["SendMessage", "invoke_agent echo"]);
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
}

#[tokio::test]
async fn an_unreachable_collector_is_logged_once_and_delays_no_request() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let options =
        Options::agents().environment("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{gone}"));
    let mut herald = Herald::start(options.environment("OTEL_BSP_SCHEDULE_DELAY", "20")).await;
    for _ in 0..20 {
        assert_eq!(herald.call(&send("", "hello", &json!({}))).await.status, 200);
    }
    eventually(SOON, "it is said", async || herald.log().contains("cannot be reached")).await;
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    assert_eq!(herald.log().matches("cannot be reached").count(), 1);
}

#[tokio::test]
async fn invalid_trace_settings_are_refused() {
    for (config, words) in [
        ("otlp = \"https:///x\"", "not the URL of a collector"),
        ("otlp = \"https://127.0.0.1:1\"\nca = \"/no/such.pem\"", "/no/such.pem"),
        ("otlp = \"collector:4318\"", "http://127.0.0.1:4318"),
        ("otlp = \"http://collector\"\nsample = 2.0", "from 0 to 1"),
        ("olpt = \"http://collector\"", "did you mean `otlp`?"),
    ] {
        let refused = Options::config(format!("[trace]\n{config}\n")).refused().await;
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}

#[tokio::test]
async fn spans_are_sent_over_https_to_a_trusted_collector() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let collector = Collector::with(Some(TlsAcceptor::from(Arc::new(config)))).await;
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    let trace = format!("[trace]\notlp = \"https://{}\"\n", collector.address);
    let options = |more: &str| {
        let options = Options::config(format!("{trace}{more}\n{AGENTS}"));
        options.environment("OTEL_BSP_SCHEDULE_DELAY", "20")
    };
    let ca = ca.to_str().unwrap();
    for options in [
        options(&format!("ca = {ca:?}")),
        options("").environment("OTEL_EXPORTER_OTLP_CERTIFICATE", ca),
    ] {
        collector.received.lock().unwrap().spans.clear();
        let herald = Herald::start(options).await;
        herald.call(&Call::get("/tasks").header("a2a-version", "1.0")).await;
        collector.span("a call over TLS", |span| span.name == "ListTasks").await;
    }
    let before = collector.spans().len();
    let herald = Herald::start(options("")).await;
    herald.call(&Call::get("/tasks").header("a2a-version", "1.0")).await;
    eventually(SOON, "a warning that says why", async || {
        let log = herald.log();
        log.contains("collector of traces cannot be reached") && log.contains("ertificate")
    })
    .await;
    assert_eq!(collector.spans().len(), before);
}
