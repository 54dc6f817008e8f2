//! The types of A2A 1.0 that an echo agent needs, borrowed wherever possible.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A JSON-RPC request. Parameters stay unread until the method says what they are.
#[derive(Deserialize)]
pub(crate) struct Call<'a> {
    #[serde(borrow)]
    pub(crate) id: &'a RawValue,
    #[serde(borrow)]
    pub(crate) method: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) params: &'a RawValue,
}

#[derive(Deserialize)]
pub(crate) struct SendParams<'a> {
    #[serde(borrow)]
    pub(crate) message: Incoming<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Incoming<'a> {
    #[serde(borrow)]
    pub(crate) message_id: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) context_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) parts: Vec<IncomingPart<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct IncomingPart<'a> {
    #[serde(borrow)]
    pub(crate) text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
pub(crate) struct GetParams {
    pub(crate) id: uuid::Uuid,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) enum State {
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
}

#[derive(Serialize)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) timestamp: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Task<'a> {
    pub(crate) id: uuid::Uuid,
    pub(crate) context_id: &'a str,
    pub(crate) status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) artifacts: Option<[Artifact<'a>; 1]>,
    pub(crate) history: [Message<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Message<'a> {
    pub(crate) message_id: &'a str,
    pub(crate) task_id: uuid::Uuid,
    pub(crate) context_id: &'a str,
    pub(crate) role: &'static str,
    pub(crate) parts: [Part<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Artifact<'a> {
    pub(crate) artifact_id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) parts: Vec<Part<'a>>,
}

#[derive(Clone, Copy, Serialize)]
pub(crate) struct Part<'a> {
    pub(crate) text: &'a str,
}

/// One event as it is logged and as it is sent: encoded once, used twice.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Event<'a> {
    Task(Task<'a>),
    StatusUpdate(StatusUpdate<'a>),
    ArtifactUpdate(ArtifactUpdate<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusUpdate<'a> {
    pub(crate) task_id: uuid::Uuid,
    pub(crate) context_id: &'a str,
    pub(crate) status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ArtifactUpdate<'a> {
    pub(crate) task_id: uuid::Uuid,
    pub(crate) context_id: &'a str,
    pub(crate) artifact: Artifact<'a>,
    pub(crate) append: bool,
    pub(crate) last_chunk: bool,
}

impl Status {
    pub(crate) fn now(state: State) -> Self {
        Self { state, timestamp: format!("{:.3}", jiff::Timestamp::now()) }
    }
}

/// `Bytes`, because what is encoded here goes both into a row and onto the wire.
pub(crate) fn encode(document: &impl Serialize) -> Bytes {
    serde_json::to_vec(document).expect("plain data encodes").into()
}
