//! JSON-RPC at `/`: three methods, answered by pasting encoded results into an envelope.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::State as Shared,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures::{Stream, stream};
use serde::Deserialize;

use crate::{
    echo::{Run, Step},
    store::Store,
    wire::{Call, GetParams, SendParams},
};

pub(crate) struct App {
    pub(crate) store: Store,
    pub(crate) card: String,
}

/// A JSON-RPC error: code and sentence.
struct Refusal(i32, String);

/// What a stream remembers between two frames.
struct Frames {
    app: Arc<App>,
    run: Run,
    id: String,
    next: Option<Step>,
}

pub(crate) async fn call(Shared(app): Shared<Arc<App>>, body: Bytes) -> Response {
    let call: Call<'_> = match serde_json::from_slice(&body) {
        Ok(call) => call,
        Err(error) => return Refusal(-32700, error.to_string()).answer("null"),
    };
    let id = call.id.get();
    let answer = match &*call.method {
        "SendMessage" => send(&app, &call).await,
        "SendStreamingMessage" => stream(app, &call),
        "GetTask" => get(&app, &call),
        other => Err(Refusal(-32601, format!("unknown method {other}"))),
    };
    answer.unwrap_or_else(|refusal| refusal.answer(id))
}

pub(crate) async fn card(Shared(app): Shared<Arc<App>>) -> Response {
    ([(CONTENT_TYPE, "application/json")], app.card.clone()).into_response()
}

pub(crate) fn card_for(port: u16) -> String {
    serde_json::json!({
        "name": "floor", "description": "Echoes durably, with no engine", "version": "1.0.0",
        "capabilities": { "streaming": true },
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [{ "id": "echo", "name": "Echo", "description": "Says it again", "tags": ["echo"] }],
        "supportedInterfaces": [{ "url": format!("http://127.0.0.1:{port}/"),
            "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    })
    .to_string()
}

/// Two commits, as any server needs that must neither lose a task it has accepted nor show a result
/// that a power cut could take back.
async fn send(app: &App, call: &Call<'_>) -> Result<Response, Refusal> {
    let run = Run::new(params::<SendParams<'_>>(call)?.message);
    app.store.commit(run.accept()).await.map_err(internal)?;
    let (batch, snapshot) = run.finish();
    app.store.commit(batch).await.map_err(internal)?;
    let result = [br#"{"task":"#, &snapshot[..], b"}"].concat();
    Ok(json(envelope(call.id.get(), &result)))
}

fn get(app: &App, call: &Call<'_>) -> Result<Response, Refusal> {
    let GetParams { id } = params(call)?;
    let snapshot = app.store.task(id).map_err(|error| internal(error.to_string()))?;
    let snapshot = snapshot.ok_or_else(|| Refusal(-32001, "task not found".to_owned()))?;
    Ok(json(envelope(call.id.get(), &snapshot)))
}

fn stream(app: Arc<App>, call: &Call<'_>) -> Result<Response, Refusal> {
    let run = Run::new(params::<SendParams<'_>>(call)?.message);
    let id = call.id.get().to_owned();
    let frames = Frames { app, run, id, next: Some(Step::Submitted) }.into_stream();
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    Ok((headers, Body::from_stream(frames)).into_response())
}

impl Frames {
    /// Each frame is made only after the last one was taken, and given only after its row is on disk.
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, async |mut frames| {
            let step = frames.next.take()?;
            if step == Step::Held {
                std::future::pending::<()>().await;
            }
            let frame = frames.frame(step).await;
            Some((Ok(frame), frames))
        })
    }

    async fn frame(&mut self, step: Step) -> Bytes {
        let (batch, event) = self.run.step(step);
        let body = match self.app.store.commit(batch).await {
            Ok(()) => {
                self.next = self.run.after(step);
                envelope(&self.id, &event)
            }
            Err(reason) => internal(reason).body(&self.id),
        };
        [b"data: ", &body[..], b"\n\n"].concat().into()
    }
}

impl Refusal {
    fn answer(&self, id: &str) -> Response {
        json(self.body(id))
    }

    fn body(&self, id: &str) -> Vec<u8> {
        let Self(code, message) = self;
        let message = serde_json::Value::from(message.as_str());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
            .into_bytes()
    }
}

fn params<'a, T: Deserialize<'a>>(call: &Call<'a>) -> Result<T, Refusal> {
    serde_json::from_str(call.params.get()).map_err(|error| Refusal(-32602, error.to_string()))
}

fn internal(reason: String) -> Refusal {
    Refusal(-32603, reason)
}

fn envelope(id: &str, result: &[u8]) -> Vec<u8> {
    [br#"{"jsonrpc":"2.0","id":"#, id.as_bytes(), br#","result":"#, result, b"}"].concat()
}

fn json(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
