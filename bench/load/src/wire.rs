//! Requests as text and answers as types: only what a check needs is read.

use std::sync::LazyLock;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use uuid::Uuid;

pub(crate) const COMPLETED: &str = "TASK_STATE_COMPLETED";

#[derive(Deserialize)]
struct Answer<T> {
    id: u64,
    result: Option<T>,
    error: Option<Error>,
}

#[derive(Deserialize)]
struct Error {
    code: i64,
    message: String,
}

#[derive(Deserialize)]
pub(crate) struct Sent {
    pub(crate) task: Task,
}

#[derive(Deserialize)]
pub(crate) struct Task {
    pub(crate) id: String,
    pub(crate) status: Status,
    #[serde(default)]
    pub(crate) artifacts: Vec<Artifact>,
}

#[derive(Deserialize)]
pub(crate) struct Status {
    pub(crate) state: String,
}

#[derive(Deserialize)]
pub(crate) struct Artifact {
    #[serde(default)]
    pub(crate) parts: Vec<Part>,
}

#[derive(Deserialize)]
pub(crate) struct Part {
    #[serde(default)]
    pub(crate) text: String,
}

#[derive(Deserialize)]
pub(crate) struct Listed {
    pub(crate) tasks: Vec<Task>,
}

/// One frame of a stream. A field for each kind rather than an enum: a server may add fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    #[expect(dead_code, reason = "the decoder checks its presence, and its content is not needed")]
    pub(crate) task: Option<IgnoredAny>,
    pub(crate) status_update: Option<StatusUpdate>,
    pub(crate) artifact_update: Option<IgnoredAny>,
}

#[derive(Deserialize)]
pub(crate) struct StatusUpdate {
    pub(crate) status: Status,
}

/// A message that no server has seen before. `text` must need no escapes; `data` is JSON or empty.
pub(crate) fn message(method: &str, id: u64, text: &str, data: &str) -> Bytes {
    let message_id = Uuid::new_v4();
    let configuration = webhook(id).map_or_else(String::new, |url| {
        format!(r#""configuration":{{"taskPushNotificationConfig":{{"url":"{url}"}}}},"#)
    });
    let data = if data.is_empty() { String::new() } else { format!(r#",{{"data":{data}}}"#) };
    request(
        method,
        id,
        &format!(
            r#"{{{configuration}"message":{{"messageId":"{message_id}","role":"ROLE_USER","parts":[{{"text":"{text}"}}{data}]}}}}"#
        ),
    )
}

/// The webhook of a message: the variable has one URL or several with commas between them, which take turns.
fn webhook(id: u64) -> Option<&'static str> {
    static URLS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let urls = std::env::var("LOAD_WEBHOOK").unwrap_or_default();
        urls.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect()
    });
    let at = usize::try_from(id).ok()?.checked_rem(URLS.len())?;
    URLS.get(at).map(String::as_str)
}

/// About so many bytes of JSON as programs send it to each other: a list of small objects. Empty for 0.
pub(crate) fn data(bytes: usize) -> String {
    let item = |n: usize| {
        format!(
            r#"{{"id":{n},"name":"item {n}","price":{n}.25,"tags":["new","in stock"],"sold":false}}"#
        )
    };
    let count = bytes / item(10).len();
    let items: Vec<_> = (0..count).map(item).collect();
    if items.is_empty() { String::new() } else { format!(r#"{{"items":[{}]}}"#, items.join(",")) }
}

pub(crate) fn request(method: &str, id: u64, params: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#).into()
}

/// The result of a JSON-RPC answer, if it is one and belongs to request `id`.
pub(crate) fn result<'a, T: Deserialize<'a>>(id: u64, answer: &'a [u8]) -> anyhow::Result<T> {
    let answer: Answer<T> = serde_json::from_slice(answer)
        .with_context(|| format!("unexpected answer {}", String::from_utf8_lossy(answer)))?;
    if let Some(Error { code, message }) = answer.error {
        bail!("error {code}: {message}");
    }
    ensure!(answer.id == id, "answer {} to request {id}", answer.id);
    answer.result.context("an answer with neither result nor error")
}

impl Task {
    pub(crate) fn is_completed(&self) -> bool {
        self.status.state == COMPLETED
    }

    /// Whether some artifact contains `text`.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.artifacts
            .iter()
            .flat_map(|artifact| &artifact.parts)
            .any(|part| part.text.contains(text))
    }
}
