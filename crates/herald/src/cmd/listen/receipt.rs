//! Receipt of one webhook, as text and as JSON.

use std::{collections::BTreeMap, sync::Mutex, time::SystemTime};

use herald_api::tasks::OpenQuestion;
use herald_client::{VerifiedWebhook, WebhookProof};
use herald_protocol::{Dialect, StreamEvent, TaskStatus, Timestamp, Version, locks};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use crate::{
    args::Format,
    client::error::CliError,
    output::{self, DetailLevel, Output, Show, TextPage, inline, quoted, short, show_question},
};

/// Headers whose values are secrets.
const HIDDEN: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::PROXY_AUTHORIZATION,
    header::COOKIE,
    HeaderName::from_static("x-a2a-notification-token"),
    HeaderName::from_static("a2a-notification-token"),
    HeaderName::from_static("x-api-key"),
];

/// Prints receipts, each before its webhook is answered, up to a number of verified ones.
#[derive(Debug)]
pub(super) struct Printer {
    out: Output,
    progress: Mutex<Progress>,
    finished: CancellationToken,
}

#[derive(Debug)]
struct Progress {
    /// The number of verified webhooks that are still wanted.
    left: u64,
    result: Result<(), CliError>,
}

/// One received webhook and the answer to it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Receipt {
    received: Timestamp,
    pub(super) verdict: ReceiptVerdict,
    /// The status of the answer.
    #[serde(serialize_with = "number")]
    pub(super) status: StatusCode,
    /// The reason of a refusal, or of a failure to forward.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The `webhook-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The names of the proofs of the sender.
    verified_by: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<OpenQuestion>,
    headers: BTreeMap<String, String>,
    body: ReceivedBody,
    #[serde(skip)]
    event: Option<StreamEvent>,
}

/// The result of the verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReceiptVerdict {
    Accepted,
    Repeated,
    Refused,
}

/// A body: JSON as it was received, or any other text.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ReceivedBody {
    Json(Box<RawValue>),
    Text(String),
}

impl Printer {
    pub(super) fn new(out: Output, count: Option<u64>) -> Self {
        let progress = Progress { left: count.unwrap_or(u64::MAX), result: Ok(()) };
        Self { out, progress: Mutex::new(progress), finished: CancellationToken::new() }
    }

    /// Prints a receipt. Returns false if no more are printed.
    pub(super) fn print(&self, receipt: &Receipt) -> bool {
        let mut progress = locks::lock(&self.progress);
        if progress.left == 0 {
            return false;
        }
        if let Err(fault) = output::print(&receipt.text(self.out)) {
            *progress = Progress { left: 0, result: Err(fault) };
        } else if receipt.verdict != ReceiptVerdict::Refused {
            progress.left -= 1;
        }
        if progress.left == 0 {
            self.finished.cancel();
        }
        progress.result.is_ok()
    }

    /// Waits until no more receipts are printed.
    pub(super) async fn finished(&self) {
        self.finished.cancelled().await;
    }

    /// The failure to print, if there was one.
    pub(super) fn result(&self) -> Result<(), CliError> {
        std::mem::replace(&mut locks::lock(&self.progress).result, Ok(()))
    }
}

impl Receipt {
    /// The receipt of a webhook that passed verification.
    pub(super) fn verified(
        verdict: ReceiptVerdict,
        webhook: VerifiedWebhook,
        status: StatusCode,
        headers: &HeaderMap,
        time: SystemTime,
    ) -> Self {
        let question = open_question(&webhook.event);
        let version = match webhook.dialect {
            Dialect::V1 => Version::V1_0,
            Dialect::V03 | Dialect::V03Rest | Dialect::V01 => Version::V0_3,
        };
        Self {
            received: timestamp(time),
            verdict,
            status,
            reason: None,
            id: webhook.id,
            verified_by: webhook.proofs.iter().map(WebhookProof::to_string).collect(),
            protocol_version: Some(version.to_string()),
            question,
            headers: shown(headers),
            body: ReceivedBody::Text(String::new()),
            event: Some(webhook.event),
        }
    }

    /// The receipt of a request that is not a genuine webhook.
    pub(super) fn refused(
        status: StatusCode,
        reason: String,
        headers: &HeaderMap,
        time: SystemTime,
    ) -> Self {
        let id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
        Self {
            received: timestamp(time),
            verdict: ReceiptVerdict::Refused,
            status,
            reason: Some(reason),
            id: id.map(str::to_owned),
            verified_by: Vec::new(),
            protocol_version: None,
            question: None,
            headers: shown(headers),
            body: ReceivedBody::Text(String::new()),
            event: None,
        }
    }

    /// The same with the body.
    pub(super) fn with_body(mut self, body: &[u8]) -> Self {
        self.body = ReceivedBody::of(body);
        self
    }

    /// One line of JSON, or one line of text with the question of the agent below it.
    fn text(&self, out: Output) -> String {
        match out.format {
            Format::Json => output::line(self),
            Format::Text => {
                let mut page = TextPage::new(out.detail);
                if let (DetailLevel::Full, Some(event)) = (out.detail, &self.event) {
                    event.show(&mut page);
                }
                self.show_question(&mut page);
                format!("{}\n{}", inline(&self.line()), page.finish())
            }
        }
    }

    /// Time, status, verdict, event, task, state, id and proof, in one line.
    fn line(&self) -> String {
        let verdict = match self.verdict {
            ReceiptVerdict::Accepted => "accepted",
            ReceiptVerdict::Repeated => "repeated",
            ReceiptVerdict::Refused => "refused",
        };
        let mut words = vec![format!("{} {} {verdict}", self.received, self.status.as_u16())];
        if let Some(event) = &self.event {
            let kind = match event {
                StreamEvent::Task(_) => "task",
                StreamEvent::Message(_) => "message",
                StreamEvent::StatusUpdate(_) => "status",
                StreamEvent::ArtifactUpdate(_) => "artifact",
            };
            words.push(kind.to_owned());
            words.extend(event.state().map(|state| short(state).to_owned()));
            words.extend(event.task_id().map(|task| format!("of task {task}")));
        }
        words.extend(self.id.as_ref().map(|id| format!("id {id}")));
        if !self.verified_by.is_empty() {
            words.push(format!("verified by {}", self.verified_by.join(", ")));
        } else if self.verdict != ReceiptVerdict::Refused {
            words.push("not verified".to_owned());
        }
        let reason = self.reason.as_ref().map(|reason| format!(": {reason}"));
        words.join(" ") + &reason.unwrap_or_default()
    }

    /// Shows the question of the agent, and the commands that answer it.
    fn show_question(&self, page: &mut TextPage) {
        let Some(question) = &self.question else { return };
        let Some(task) = self.event.as_ref().and_then(StreamEvent::task_id) else { return };
        show_question(page, question);
        let task = quoted(task.as_str());
        if !question.choices.is_empty() {
            let question = quoted(&question.question);
            let command = format!("herald task answer {task} --question {question} CHOICE");
            page.field("Answer", command);
        }
        page.field("Answer", format!("herald send AGENT --task-id {task} \"TEXT\""));
        page.gap();
    }
}

/// The question of a task that waits for an answer.
fn open_question(event: &StreamEvent) -> Option<OpenQuestion> {
    let status: &TaskStatus = match event {
        StreamEvent::Task(task) => &task.status,
        StreamEvent::StatusUpdate(update) => &update.status,
        StreamEvent::Message(_) | StreamEvent::ArtifactUpdate(_) => return None,
    };
    let message = status.message.as_ref().filter(|_| status.state.is_interrupted())?;
    Some(OpenQuestion::of(message, status.timestamp))
}

/// The headers, without secrets. The scheme of an `Authorization` is none.
fn shown(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let value = if !HIDDEN.contains(name) {
            value.into_owned()
        } else if let (&header::AUTHORIZATION, Some((scheme, _))) = (name, value.split_once(' ')) {
            format!("{scheme} …")
        } else {
            "…".to_owned()
        };
        let values = shown.entry(name.to_string()).or_default();
        if !values.is_empty() {
            values.push_str(", ");
        }
        values.push_str(&value);
    }
    shown
}

fn number<S: Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl ReceivedBody {
    fn of(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        // Line ends in JSON are white space between its tokens, and a receipt is one line.
        let line = text.replace(['\n', '\r'], " ");
        match RawValue::from_string(line) {
            Ok(json) => Self::Json(json),
            Err(_) => Self::Text(text.into_owned()),
        }
    }
}

/// A time as the protocol writes it.
fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
