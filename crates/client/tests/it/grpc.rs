//! gRPC: requests, answers and hostile servers.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use herald_client::{
    AgentCard, Client, Credential, Limits, Request, Retry, StreamEvent, Task, TaskState, Timeouts,
    protocol::{
        ErrorKind, Message, Operation, SendResult, TaskStatus,
        card::AgentInterface,
        error::Error as Refusal,
        grpc::{Service, status::RpcStatus},
        security::{ApiKeyScheme, SecurityScheme},
    },
};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{HeaderMap, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::task::TaskTracker;

use crate::{
    fake::Reaction,
    hub::{all, quick, soon},
};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// HTTP/2 server with scripted answers.
#[derive(Debug, Clone)]
struct Fake {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<(http::request::Parts, Bytes)>>>,
}

impl Fake {
    /// The closure gets the number of requests before this one.
    async fn start<A: Future<Output = Answer> + Send + 'static>(
        answer: impl Fn(usize) -> A + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let (tasks, serving) = (TaskTracker::new(), fake.clone());
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, answer) = (serving.clone(), answer.clone());
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    let (serving, answer) = (serving.clone(), answer.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let before = {
                            let mut seen = serving.seen.lock().unwrap();
                            seen.push((parts, body));
                            seen.len() - 1
                        };
                        Ok::<_, Infallible>(answer(before).await)
                    }
                });
                tasks.spawn(async move {
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    // The client hangs up.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        fake
    }

    /// A card with one gRPC interface of this version, as host and port.
    fn card(&self, version: &str) -> AgentCard {
        let interface = AgentInterface {
            url: self.address.to_string(),
            protocol_binding: "GRPC".into(),
            tenant: Some("acme".into()),
            protocol_version: version.into(),
        };
        let mut card = AgentCard { supported_interfaces: vec![interface], ..AgentCard::default() };
        card.capabilities.streaming = Some(true);
        card
    }

    fn client(&self) -> Client {
        let limits = Limits { card: 1000, response: 1000, event: 1000 };
        quick().limits(limits).card(self.card("1.0")).unwrap()
    }
}

/// Messages with the prefix of five bytes each.
fn framed(messages: &[Vec<u8>]) -> Bytes {
    let mut body = BytesMut::new();
    for message in messages {
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len()).unwrap());
        body.put_slice(message);
    }
    body.freeze()
}

fn trailers(pairs: &[(&'static str, String)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
}

/// A gRPC answer with these trailers, if any.
fn answer(body: Bytes, outcome: Option<HeaderMap>) -> Answer {
    let response = Response::builder().header("content-type", "application/grpc+proto");
    let body = Full::new(body);
    response
        .body(match outcome {
            Some(outcome) => body.with_trailers(async { Some(Ok(outcome)) }).boxed_unsync(),
            None => body.boxed_unsync(),
        })
        .unwrap()
}

fn ok() -> Option<HeaderMap> {
    Some(trailers(&[("grpc-status", "0".into())]))
}

fn done() -> Task {
    let status = TaskStatus { state: TaskState::Completed, ..TaskStatus::default() };
    Task { id: "t".into(), context_id: "c".into(), status, ..Task::default() }
}

fn sent() -> Vec<u8> {
    Service::V1.encode_send_result(SendResult::Task(done()))
}

// proves: GRPC-012, TEN-001, VER-001, VER-006, VER-007, EXT-001
#[tokio::test]
async fn metadata_has_credentials_version_and_deadline() {
    let fake = Fake::start(async |before| match before {
        0 => answer(framed(&[sent()]), ok()),
        _ => {
            let event = Service::V1.encode_event(StreamEvent::Task(done()), true);
            answer(framed(&[event]), ok())
        }
    })
    .await;
    let mut card = fake.card("1.0");
    let key = ApiKeyScheme { location: "query".into(), name: "X-Key".into(), description: None };
    card.security_schemes.insert("key".into(), SecurityScheme::ApiKey(key));
    let client = quick()
        .credential(Credential::api_key("k"))
        .extension("https://one.example")
        .extension("https://two.example")
        .timeouts(Timeouts { send: Duration::from_secs(90), ..Timeouts::default() })
        .card(card)
        .unwrap();
    client.send("hello").await.unwrap();
    all(client.stream("hello").await.unwrap()).await;
    let seen = fake.seen.lock().unwrap();
    for ((parts, body), method) in seen.iter().zip(["SendMessage", "SendStreamingMessage"]) {
        assert_eq!(parts.uri.path(), format!("/lf.a2a.v1.A2AService/{method}"));
        let header = |name: &str| {
            let mut all = parts.headers.get_all(name).iter();
            let value = all.next().map(|value| value.to_str().unwrap());
            assert!(all.next().is_none(), "{name} comes twice");
            value
        };
        assert_eq!(header("content-type"), Some("application/grpc"));
        assert_eq!(header("te"), Some("trailers"));
        assert_eq!(header("a2a-version"), Some("1.0"));
        assert_eq!(header("a2a-extensions"), Some("https://one.example, https://two.example"));
        assert_eq!(header("x-key"), Some("k"));
        let deadline = Some("90000m").filter(|_| method == "SendMessage");
        assert_eq!(header("grpc-timeout"), deadline, "a stream may last");
        let operation = Operation::from_name(method).unwrap();
        let request = Service::V1.decode(operation, &body[5..]).unwrap();
        assert_eq!(request.tenant().unwrap().as_str(), "acme");
        let (Request::SendMessage(send) | Request::SendStreamingMessage(send)) = request else {
            panic!("expected a send");
        };
        assert_eq!(send.message.text(), "hello");
    }
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn an_error_keeps_its_kind_message_and_details() {
    let refusal = Refusal::new(ErrorKind::TaskNotFound, "no task “ä”").with("taskId", "t");
    let status = RpcStatus::from(&refusal);
    let said = trailers(&[
        ("grpc-status", status.code.to_string()),
        ("grpc-message", status.message_header()),
        ("grpc-status-details-bin", status.details_bin()),
    ]);
    for in_the_head in [false, true] {
        let said = said.clone();
        let fake = Fake::start(move |_| {
            let mut answer = answer(Bytes::new(), Some(said.clone()).filter(|_| !in_the_head));
            if in_the_head {
                answer.headers_mut().extend(said.clone());
            }
            async { answer }
        })
        .await;
        let error = fake.client().get("t").await.unwrap_err();
        assert_eq!(error.protocol(), Some(&refusal));
        let error = fake.client().subscribe("t").await;
        let error = match error {
            Ok(mut events) => events.next().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.protocol(), Some(&refusal));
    }
}

#[tokio::test]
async fn an_error_without_details_is_recognised_by_name_or_code() {
    for (code, message, kind) in [
        (12, "TaskNotCancelableError: it is over", ErrorKind::TaskNotCancelable),
        (12, "UnsupportedOperationError: no", ErrorKind::UnsupportedOperation),
        (12, "no such method", ErrorKind::MethodNotFound),
        (5, "", ErrorKind::TaskNotFound),
        (3, "parts: is required", ErrorKind::InvalidParams),
        (16, "who are you?", ErrorKind::Unauthenticated),
        (7, "not you", ErrorKind::Forbidden),
        (99, "whatever", ErrorKind::Internal),
    ] {
        let said =
            trailers(&[("grpc-status", code.to_string()), ("grpc-message", message.to_owned())]);
        let fake = Fake::start(move |_| {
            let said = said.clone();
            async { answer(Bytes::new(), Some(said)) }
        })
        .await;
        let error = fake.client().send("hello").await.unwrap_err();
        assert_eq!(error.kind(), Some(kind), "{code} {message} {error:?}");
    }
}

#[tokio::test]
async fn each_kind_of_invalid_answer_has_its_own_error() {
    type Make = Box<dyn Fn() -> Answer + Send + Sync>;
    type Check = fn(&herald_client::Error) -> bool;
    let compressed = Bytes::from_static(&[1, 0, 0, 0, 1, 0]);
    let huge = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]);
    let half = framed(&[sent()]);
    let half = half.slice(..half.len() - 1);
    let given_up = Some(trailers(&[("grpc-status", "4".into())]));
    let page = || {
        let mut answer = answer(Bytes::from_static(b"<html>"), None);
        answer.headers_mut().insert("content-type", "text/html".parse().unwrap());
        answer
    };
    let with_status = move |status: u16| {
        let mut answer = page();
        *answer.status_mut() = status.try_into().unwrap();
        answer
    };
    let cases: [(&str, Make, Check); 9] = [
        ("compressed", Box::new(move || answer(compressed.clone(), ok())), |e| e.is_invalid()),
        ("huge", Box::new(move || answer(huge.clone(), ok())), |e| e.is_too_large()),
        ("half", Box::new(move || answer(half.clone(), ok())), |e| e.is_invalid()),
        ("empty", Box::new(|| answer(Bytes::new(), ok())), |e| e.is_invalid()),
        ("two", Box::new(|| answer(framed(&[sent(), sent()]), ok())), |e| e.is_invalid()),
        ("no outcome", Box::new(|| answer(framed(&[sent()]), None)), |e| e.is_broken()),
        ("a page", Box::new(page), |e| e.is_invalid()),
        ("a proxy", Box::new(move || with_status(502)), |e| e.status() == Some(502)),
        ("too late", Box::new(move || answer(Bytes::new(), given_up.clone())), |e| e.is_broken()),
    ];
    for (name, make, check) in cases {
        let make: Arc<dyn Fn() -> Answer + Send + Sync> = make.into();
        let fake = Fake::start(move |_| {
            let answer = make();
            async { answer }
        })
        .await;
        let error = soon(fake.client().send("hello")).await.unwrap_err();
        assert!(check(&error), "{name}: {error:?}");
        let stream = soon(fake.client().stream("hello")).await;
        let error = match stream {
            Ok(mut events) => loop {
                match soon(events.next()).await {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            },
            Err(error) => Some(error),
        };
        // A stream without trailers is lost, and polling then finds the end of the task.
        assert!(error.is_some() || ["two", "no outcome"].contains(&name), "{name}");
    }
}

#[tokio::test]
async fn an_error_at_an_http_1_address_hints_at_http_2() {
    let old = crate::fake::Fake::start(|_, before, _| match before {
        0 => Reaction::HangUp,
        _ => Reaction::Hold(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec()),
    })
    .await;
    let fake = Fake { address: old.address, seen: Arc::default() };
    for _ in 0..2 {
        let error = soon(fake.client().send("hello")).await.unwrap_err();
        let said = error.to_string();
        assert!(
            error.is_broken() && said.contains("does this address support HTTP/2?"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_response_head_may_come_with_the_first_event() {
    let gate = Arc::new(Notify::new());
    let opened = Arc::clone(&gate);
    let fake = Fake::start(move |_| {
        let opened = Arc::clone(&opened);
        async move {
            opened.notified().await;
            let event = Service::V1.encode_event(StreamEvent::Task(done()), true);
            answer(framed(&[event]), ok())
        }
    })
    .await;
    let timeouts = Timeouts { connect: Duration::from_millis(500), ..Timeouts::default() };
    let client = quick().timeouts(timeouts).card(fake.card("1.0")).unwrap();
    let events = soon(client.stream(Message::user("m", "hello"))).await.unwrap();
    gate.notify_one();
    assert_eq!(all(events).await, [StreamEvent::Task(done())]);
    assert_eq!(fake.seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_silent_stream_is_resumed() {
    let fake = Fake::start(async |before| match before {
        // The head never arrives.
        0 => std::future::pending().await,
        _ => {
            let event = Service::V1.encode_event(StreamEvent::Task(done()), true);
            answer(framed(&[event]), ok())
        }
    })
    .await;
    let short = Duration::from_millis(200);
    let timeouts = Timeouts { connect: short, idle: short, ..Timeouts::default() };
    let retry = Retry { first: short, repeats: 1000, sends: true, ..Retry::default() };
    let client = quick().timeouts(timeouts).retry(retry).card(fake.card("1.0")).unwrap();
    let events = soon(client.stream("hello")).await.unwrap();
    assert_eq!(all(events).await, [StreamEvent::Task(done())]);
    let seen = fake.seen.lock().unwrap();
    assert_eq!(seen[0].1, seen[1].1, "the same message is sent again");
}

#[tokio::test]
async fn the_0_3_service_has_no_version_and_no_lists() {
    let fake = Fake::start(async |_| {
        let result = Service::V03.encode_send_result(SendResult::Task(done()));
        answer(framed(&[result]), ok())
    })
    .await;
    let client = quick().extension("urn:x").card(fake.card("0.3")).unwrap();
    client.send("hello").await.unwrap();
    {
        let seen = fake.seen.lock().unwrap();
        let (parts, _) = &seen[0];
        assert_eq!(parts.uri.path(), "/a2a.v1.A2AService/SendMessage");
        assert_eq!(parts.headers.get("a2a-version"), None);
        assert_eq!(parts.headers["x-a2a-extensions"], "urn:x");
    }
    let error = client.list(Default::default()).next().await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::UnsupportedOperation));
    assert_eq!(fake.seen.lock().unwrap().len(), 1);
}
