//! Tests of all built-in checks: Herald behind a proxy with one fault at a time, on which the right checks must fail.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::{STEERED, report};
use crate::support::{Herald, Options};

/// A request on its way to Herald.
struct Asked {
    method: String,
    path: String,
    version: Option<String>,
    body: String,
    /// True if it came with a token.
    trusted: bool,
    /// The number of requests before it.
    before: usize,
}

/// A response on its way back. A stream is changed chunk by chunk.
struct Told {
    status: u16,
    content: String,
    cached: bool,
    body: String,
}

/// A fault, and the checks that must fail.
struct Broken {
    what: &'static str,
    asked: fn(&mut Asked),
    told: fn(&Asked, &mut Told),
    caught: &'static [&'static str],
}

impl Asked {
    /// True if it calls this operation, by its method or its path.
    fn calls(&self, method: &str, path: &str) -> bool {
        self.body.contains(&format!("\"method\":\"{method}\""))
            || self.path.split('?').next().is_some_and(|asked| asked.ends_with(path))
    }

    fn is_card(&self) -> bool {
        self.path.contains(".well-known")
    }

    fn is_rpc(&self) -> bool {
        self.path.ends_with("/jsonrpc")
    }

    /// Renames members of the body and the query, so that they are ignored.
    fn hide(&mut self, name: &str) {
        self.body = self.body.replace(&format!("\"{name}\":"), &format!("\"x{name}\":"));
        self.path = self.path.replace(&format!("{name}="), &format!("x{name}="));
    }
}

impl Told {
    fn replace(&mut self, from: &str, to: &str) {
        self.body = self.body.replace(from, to);
    }

    fn is_stream(&self) -> bool {
        self.content.starts_with("text/event-stream")
    }

    fn is_error(&self) -> bool {
        self.body.contains("\"error\":{")
    }
}

const fn told(
    what: &'static str,
    told: fn(&Asked, &mut Told),
    caught: &'static [&'static str],
) -> Broken {
    Broken { what, asked: |_| {}, told, caught }
}

const fn asked(
    what: &'static str,
    asked: fn(&mut Asked),
    caught: &'static [&'static str],
) -> Broken {
    Broken { what, asked, told: |_, _| {}, caught }
}

const BROKEN: &[Broken] = &[
    told(
        "errors are successes",
        |_, told| {
            if told.is_error() {
                told.status = 200;
                told.body = r#"{"jsonrpc":"2.0","id":0,"result":{}}"#.to_owned();
            }
        },
        &[
            "SEND-003",
            "SEND-004",
            "SEND-005",
            "SEND-007",
            "SEND-017",
            "FMT-007",
            "FMT-012-ROLE",
            "FMT-012-PARTS",
            "FMT-012-ID",
            "FMT-012-BODY",
            "FMT-013",
            "GET-002",
            "GET-008",
            "CAN-002",
            "CAN-003",
            "IMM-001",
            "LIST-013",
            "ERR-060",
            "ERR-061",
            "ERR-063",
            "ERR-065",
            "ERR-074",
            "XC-002",
            "STR-016",
            "STR-017",
            "PUSH-001",
            "VER-003",
            "VER-003-MINOR",
            "VER-004",
            "VER-005",
            "VER-008",
            "RPC-001",
            "RPC-002",
            "RPC-005",
            "RPC-006",
            "RPC-007",
            "RPC-008",
            "REST-011",
            "REST-012-POST",
            "REST-012-GET",
        ],
    ),
    told(
        "everything is refused",
        |asked, told| {
            if !asked.is_card() {
                told.content = "application/json".to_owned();
                told.status = if asked.is_rpc() { 200 } else { 500 };
                let code = if asked.is_rpc() { -32603 } else { 500 };
                let error = format!(r#""error":{{"code":{code},"message":""}}"#);
                told.body = format!(r#"{{"jsonrpc":"2.0","id":1,{error}}}"#);
            }
        },
        &[
            "SEND-001", "SEND-013", "FMT-010", "FMT-011", "LIST-004", "ERR-065", "STR-001",
            "STR-008", "STR-009", "STR-013", "REST-003", "REST-004", "REST-009", "REST-016",
            "REST-017", "REST-018", "RPC-015", "RPC-002",
        ],
    ),
    told(
        "answers hold a task and a message",
        |_, told| told.replace(r#"{"task":"#, r#"{"message":{},"task":"#),
        &["SEND-001"],
    ),
    told(
        "all tasks have one id",
        |asked, told| {
            if asked.calls("SendMessage", "message:send") {
                told.replace(r#""task":{"id":""#, r#""task":{"id":"same","xid":""#);
            }
        },
        &["SEND-002"],
    ),
    told(
        "a task loses its context",
        |asked, told| {
            if asked.body.contains("tck-complete-task done") {
                told.replace(r#""contextId":""#, r#""contextId":"x"#);
            }
        },
        &["SEND-006"],
    ),
    told(
        "tasks never end",
        |_, told| told.replace("TASK_STATE_COMPLETED", "TASK_STATE_WORKING"),
        &["SEND-011"],
    ),
    asked("nobody has to wait", |asked| asked.hide("returnImmediately"), &["SEND-013"]),
    told(
        "another task is fetched",
        |asked, told| {
            let fetches = asked.method == "GET" && asked.path.contains("/tasks/");
            if fetches || asked.calls("GetTask", "-") || asked.calls("tasks/get", "-") {
                told.replace(r#""id":""#, r#""id":"x"#);
            }
        },
        &["GET-001"],
    ),
    asked(
        "the length of the history is not looked at",
        |asked| asked.hide("historyLength"),
        &["GET-003", "GET-004", "GET-010", "LIST-015"],
    ),
    told(
        "canceled tasks work on",
        |_, told| told.replace("TASK_STATE_CANCELED", "TASK_STATE_WORKING"),
        &["CAN-001"],
    ),
    asked(
        "lists are never narrowed",
        |asked| {
            if asked.calls("ListTasks", "/tasks") {
                for name in ["contextId", "status", "pageSize", "pageToken"] {
                    asked.hide(name);
                }
            }
        },
        &["LIST-002", "LIST-008", "LIST-009", "LIST-010"],
    ),
    asked(
        "lists hold artifacts that nobody asked for",
        |asked| {
            // The agent makes an artifact for this one.
            asked.body = asked.body.replace("Hello, this", "tck-artifact-text Hello, this");
            if asked.calls("ListTasks", "/tasks") {
                let (plain, more) = (r#""params":{"#, r#""params":{"includeArtifacts":true,"#);
                asked.body = asked.body.replace(plain, more);
                asked.path = asked.path.replace("/tasks?", "/tasks?includeArtifacts=true&");
            }
        },
        &["LIST-006"],
    ),
    told(
        "members are in snake case",
        |_, told| {
            told.replace(r#""contextId""#, r#""context_id""#);
            told.replace(r#""messageId""#, r#""message_id""#);
        },
        &["FMT-001", "FMT-011"],
    ),
    told("states are short", |_, told| told.replace("TASK_STATE_", ""), &["FMT-002"]),
    told("roles are short", |_, told| told.replace("\"ROLE_", "\""), &["FMT-003"]),
    told("times have an offset", |_, told| told.replace("Z\"", "+00:00\""), &["FMT-004"]),
    told(
        "objects of 1.0 say their kind",
        |_, told| told.replace(r#""task":{"#, r#""task":{"kind":"task","#),
        &["FMT-006"],
    ),
    told(
        "objects of 0.3 do not say their kind",
        |_, told| told.replace(r#""kind":"#, r#""type":"#),
        &["RPC-015", "STR-011"],
    ),
    told(
        "parts and messages of 0.3 do not say their kind",
        |_, told| {
            told.replace(r#""kind":"text""#, r#""type":"text""#);
            told.replace(r#""kind":"message""#, r#""type":"message""#);
        },
        &["FMT-016"],
    ),
    told(
        "states of 0.3 are loud",
        |_, told| told.replace("\"completed\"", "\"DONE\""),
        &["FMT-017"],
    ),
    told(
        "details have no type",
        |_, told| told.replace("\"@type\"", "\"type\""),
        &["ERR-060", "ERR-061", "ERR-062", "ERR-063"],
    ),
    told("no id is an id", |_, told| told.replace(r#""id":null"#, r#""id":1"#), &["RPC-003"]),
    told(
        "errors are errors of HTTP too",
        |_, told| {
            if told.is_error() {
                told.status = 400;
            }
        },
        &["RPC-021"],
    ),
    told(
        "bodies are text",
        |asked, told| {
            if !asked.is_card() {
                told.content = "text/plain".to_owned();
            }
        },
        &["RPC-010", "REST-003", "REST-017", "REST-018", "STR-008"],
    ),
    asked(
        "the version is not looked at",
        |asked| asked.version = Some("1.0".to_owned()),
        &["VER-003", "VER-003-MINOR", "VER-004"],
    ),
    Broken {
        what: "messages come twice",
        asked: |asked| {
            asked.body = asked.body.replace("Hello, this", "tck-message-response Hello, this");
        },
        told: |_, told| {
            if told.is_stream() {
                told.body = told.body.repeat(2);
            }
        },
        caught: &["STR-002"],
    },
    told(
        "streams do not show the end",
        |_, told| {
            if told.is_stream() {
                told.replace("TASK_STATE_COMPLETED", "TASK_STATE_WORKING");
            }
        },
        &["STR-003"],
    ),
    told(
        "streams are open although the card says otherwise",
        |asked, told| {
            if asked.is_card() {
                told.replace(r#""streaming":true"#, r#""streaming":false"#);
            }
        },
        &["STR-007"],
    ),
    told(
        "events hold two things",
        |_, told| told.replace(r#"{"statusUpdate":"#, r#"{"message":{},"statusUpdate":"#),
        &["STR-010"],
    ),
    told(
        "streams do not begin with the task",
        |_, told| {
            if told.is_stream() {
                told.replace(r#"{"task":"#, r#"{"begin":"#);
            }
        },
        &["STR-001", "STR-010", "STR-015"],
    ),
    told(
        "updates do not name their task",
        |_, told| {
            if told.is_stream() {
                told.replace(r#""taskId":"#, r#""xTaskId":"#);
            }
        },
        &["STR-028"],
    ),
    told(
        "nothing is final",
        |_, told| told.replace(r#""final":true"#, r#""final":false"#),
        &["STR-012"],
    ),
    told(
        "webhooks are declared, and forgotten",
        |asked, told| {
            if asked.is_card() {
                told.replace(r#""pushNotifications":false"#, r#""pushNotifications":true"#);
            }
            let config = r#"{"id":"c","url":"https://elsewhere.example"}"#;
            let rest = asked.method == "POST" && asked.path.ends_with("/pushNotificationConfigs");
            if rest && !asked.path.contains("00000000") {
                (told.status, told.body) = (200, config.to_owned());
            }
            let set = "tasks/pushNotificationConfig/set";
            if (asked.calls("CreateTaskPushNotificationConfig", "-") || asked.calls(set, "-"))
                && !asked.body.contains("00000000")
            {
                told.body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{config}}}"#);
            }
        },
        &["PUSH-002", "PUSH-003", "PUSH-006", "PUSH-026"],
    ),
    told(
        "an extension is required, and nobody needs it",
        |asked, told| {
            if asked.is_card() {
                let required = r#""capabilities":{"extensions":[{"uri":"urn:x","required":true}],"#;
                told.replace(r#""capabilities":{"#, required);
            }
        },
        &["EXT-005"],
    ),
    told(
        "credentials are asked for, and nobody looks at them",
        |asked, told| {
            if asked.is_card() {
                let wanted = r#"{"securityRequirements":[{"schemes":{"bearer":{}}}],"#;
                told.body = told.body.replacen('{', wanted, 1);
            }
        },
        &["ERR-068-REST", "ERR-068-RPC"],
    ),
    told(
        "nobody is told which credentials are wanted",
        |asked, told| {
            if asked.is_card() {
                let wanted = r#"{"securityRequirements":[{"schemes":{"bearer":{}}}],"#;
                told.body = told.body.replacen('{', wanted, 1);
            } else if !asked.trusted {
                told.status = 401;
            }
        },
        &["ERR-069"],
    ),
    told(
        "the card comes once",
        |asked, told| {
            if asked.is_card() && asked.before > 0 {
                told.status = 503;
            }
        },
        &["CARD-001"],
    ),
    told(
        "the card has no name, and is of no version",
        |asked, told| {
            if asked.is_card() {
                told.replace(r#""name":"#, r#""xname":"#);
                told.replace(r#""protocolVersion":"1.0""#, r#""xVersion":"1.0""#);
            }
        },
        &["CARD-004", "CARD-005", "CARD-015"],
    ),
    told(
        "the card has patch numbers",
        |asked, told| {
            if asked.is_card() {
                told.replace(r#""protocolVersion":"1.0""#, r#""protocolVersion":"1.0.0""#);
            }
        },
        &["VER-006"],
    ),
    told("the card is not for keeping", |_, told| told.cached = false, &["CARD-011", "CARD-012"]),
];

/// A proxy before a server.
struct Proxy {
    upstream: SocketAddr,
    own: SocketAddr,
    client: reqwest::Client,
    broken: Option<&'static Broken>,
    seen: AtomicUsize,
    /// The number of calls with credentials, apart from the card.
    trusted: AtomicUsize,
}

impl Proxy {
    async fn start(upstream: SocketAddr, broken: Option<&'static Broken>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (seen, trusted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let proxy = Arc::new(Self { upstream, own, client, broken, seen, trusted });
        let started = Arc::clone(&proxy);
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let proxy = Arc::clone(&proxy);
                let service = service_fn(move |request| {
                    let proxy = Arc::clone(&proxy);
                    async move { Ok::<_, Infallible>(proxy.pass(request).await) }
                });
                tasks.spawn(async move {
                    // A client that disconnects needs no more.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        started
    }

    fn url(&self) -> String {
        format!("http://{}", self.own)
    }

    async fn pass(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Response<UnsyncBoxBody<Bytes, reqwest::Error>> {
        let (parts, body) = request.into_parts();
        let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap());
        let bytes = body.collect().await.unwrap().to_bytes();
        let mut asked = Asked {
            method: parts.method.to_string(),
            path: parts.uri.to_string(),
            version: header("a2a-version").map(str::to_owned),
            body: String::from_utf8(bytes.to_vec()).unwrap(),
            trusted: header("authorization").is_some(),
            before: self.seen.fetch_add(1, Ordering::Relaxed),
        };
        if asked.trusted && !asked.is_card() {
            self.trusted.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(broken) = self.broken {
            (broken.asked)(&mut asked);
        }
        let url = format!("http://{}{}", self.upstream, asked.path);
        let mut call = self.client.request(parts.method.clone(), url).body(asked.body.clone());
        for name in ["content-type", "accept"] {
            call = header(name).into_iter().fold(call, |call, value| call.header(name, value));
        }
        call = asked.version.iter().fold(call, |call, version| call.header("a2a-version", version));
        let response: Response<reqwest::Body> = call.send().await.unwrap().into();
        let (mut parts, body) = response.into_parts();
        let content = parts.headers["content-type"].to_str().unwrap().to_owned();
        let told =
            Told { status: parts.status.as_u16(), content, cached: true, body: String::new() };
        parts.headers.remove("content-length");
        parts.headers.remove("transfer-encoding");
        let (told, body) = if told.is_stream() {
            let mut head = Told { body: String::new(), ..told };
            self.spoil(&asked, &mut head);
            let content = "text/event-stream".to_owned();
            let body = body.map_frame(move |frame| {
                frame.map_data(|data| {
                    let body = String::from_utf8(data.to_vec()).unwrap();
                    let content = content.clone();
                    let mut piece = Told { status: 200, content, cached: true, body };
                    self.spoil(&asked, &mut piece);
                    Bytes::from(piece.body)
                })
            });
            (head, body.boxed_unsync())
        } else {
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = String::from_utf8(bytes.to_vec()).unwrap();
            let mut told = Told { body, ..told };
            self.spoil(&asked, &mut told);
            let body = http_body_util::Full::new(Bytes::from(std::mem::take(&mut told.body)));
            (told, body.map_err(|never| match never {}).boxed_unsync())
        };
        parts.status = StatusCode::from_u16(told.status).unwrap();
        parts.headers.insert("content-type", HeaderValue::try_from(told.content).unwrap());
        if !told.cached {
            parts.headers.remove("cache-control");
            parts.headers.remove("etag");
        }
        Response::from_parts(parts, body)
    }

    fn spoil(&self, asked: &Asked, told: &mut Told) {
        if asked.is_card() {
            // The proxy has no gRPC.
            told.replace(&self.upstream.to_string(), &self.own.to_string());
            told.replace("\"GRPC\"", "\"urn:none\"");
        }
        if let Some(broken) = self.broken {
            (broken.told)(asked, told);
        }
    }
}

#[tokio::test]
async fn every_built_in_check_can_fail() {
    // Checks of servers without webhooks must be able to fail too.
    let herald = Herald::start(Options::config(format!("{STEERED}push = false\n"))).await;
    let whole = Proxy::start(herald.address, None).await.url();
    let (_, rows) = report(&[&whole, "--sut", "tck"]).await;
    let wrong: Vec<_> = rows.iter().filter(|row| row.result == "fail").collect();
    assert!(wrong.is_empty(), "the proxy itself breaks something: {wrong:#?}");
    let all: BTreeSet<_> = rows.iter().map(|row| row.test.as_str()).collect();
    let (mut caught, mut missed) = (BTreeSet::new(), Vec::new());
    for broken in BROKEN {
        let url = Proxy::start(herald.address, Some(broken)).await.url();
        let mut arguments = vec![url.as_str(), "--sut", "tck", "--bearer", "anything"];
        for test in broken.caught {
            arguments.extend(["--only", test]);
        }
        let (_, rows) = report(&arguments).await;
        for test in broken.caught {
            let rows: Vec<_> = rows.iter().filter(|row| row.test == *test).collect();
            if rows.iter().any(|row| row.result == "fail") {
                _ = caught.insert(*test);
            } else {
                missed.push((broken.what, *test, rows.first().map(|row| &row.said).cloned()));
            }
        }
    }
    assert!(missed.is_empty(), "these were not noticed: {missed:#?}");
    let blind: Vec<_> = all.difference(&caught).collect();
    assert!(blind.is_empty(), "these checks were never seen to fail: {blind:?}");
}

#[tokio::test]
async fn a_token_is_sent_to_the_named_origin_only() {
    static ELSEWHERE: Broken = told(
        "the card names another host",
        |asked, told| {
            if asked.is_card() {
                told.replace("127.0.0.1", "localhost");
            }
        },
        &[],
    );
    let herald = Herald::start(Options::config(STEERED)).await;
    // One check over two bindings, and the probe of the token before.
    for (broken, trusted) in [(None, 3), (Some(&ELSEWHERE), 0)] {
        let proxy = Proxy::start(herald.address, broken).await;
        let run =
            [&proxy.url(), "--bearer", "s3cret", "--only", "SEND-001", "--a2a-version", "1.0"];
        let (report, rows) = report(&run).await;
        assert_eq!(rows.len(), 2, "{rows:#?}");
        assert_eq!(proxy.trusted.load(Ordering::Relaxed), trusted);
        assert!(!report.to_string().contains("s3cret"));
    }
}
