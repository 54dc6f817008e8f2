//! Servers that fall silent, with a clock that the test advances.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use herald_client::{Client, StreamEvent, TaskState};
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::Full;
use serde_json::json;

use crate::fake::{card, task};

/// All events of a stream, without a timeout.
async fn all_events(mut events: herald_client::Events) -> Vec<StreamEvent> {
    let mut seen = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        seen.push(event);
    }
    seen
}

/// A body with one text, after which it ends or stays silent.
struct ScriptedBody {
    bytes: Option<Bytes>,
    ends: bool,
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

fn whole(text: &str) -> Response<ScriptedBody> {
    Response::new(ScriptedBody { bytes: Some(text.to_owned().into()), ends: true })
}

fn silent(text: &str) -> Response<ScriptedBody> {
    let mut response =
        Response::new(ScriptedBody { bytes: Some(text.to_owned().into()), ends: false });
    response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
    response
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_resumed_as_long_as_its_task_works() {
    let streams = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&streams);
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let streams = Arc::clone(&counted);
        async move {
            let now = streams.load(Ordering::Relaxed);
            let task = task("t", if now < 20 { "WORKING" } else { "COMPLETED" });
            Ok::<_, Infallible>(match request.uri().path() {
                "/.well-known/agent-card.json" => {
                    whole(&card(&[("http://localhost", "HTTP+JSON", "1.0")]).to_string())
                }
                "/tasks/t" => whole(&task.to_string()),
                _ => {
                    streams.fetch_add(1, Ordering::Relaxed);
                    silent(&format!("data: {}\n\n", json!({ "task": task })))
                }
            })
        }
    });
    let client = Client::in_process(service).await.unwrap();
    let seen = all_events(client.stream("take your time").await.unwrap()).await;
    let last = seen.last().and_then(StreamEvent::state);
    assert_eq!(last, Some(TaskState::Completed), "{seen:?}");
    assert_eq!(streams.load(Ordering::Relaxed), 20);
    assert_eq!(seen.len(), 3, "the task is returned when it has changed: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn keep_alive_comments_prevent_the_idle_timeout() {
    /// A comment every half minute, and the end of the task after five minutes.
    struct Comments(tokio::time::Interval, usize);

    impl Body for Comments {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.1 == 10 {
                return Poll::Ready(None);
            }
            std::task::ready!(self.0.poll_tick(cx));
            self.1 += 1;
            let text = match self.1 {
                1 => format!("data: {}\n\n", json!({ "task": task("t", "WORKING") })),
                10 => format!("data: {}\n\n", json!({ "task": task("t", "COMPLETED") })),
                _ => ": still here\n\n".to_owned(),
            };
            Poll::Ready(Some(Ok(Frame::data(text.into()))))
        }
    }

    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let service = tower::service_fn(move |_: Request<Full<Bytes>>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let every = tokio::time::interval(std::time::Duration::from_secs(30));
        let mut response = Response::new(Comments(every, 0));
        response.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let card = serde_json::from_value(card(&[("http://localhost", "HTTP+JSON", "1.0")])).unwrap();
    let client = Client::builder().service(service).card(card).unwrap();
    let seen = all_events(client.stream("take your time").await.unwrap()).await;
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 1, "one connection was enough");
}
