//! Messages of the Codex app server: the fields that are used here.
//! `codex app-server generate-ts` prints the complete types.

use std::{borrow::Cow, path::Path};

use herald_protocol::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::item::{CodexError, CodexItem};
use crate::{
    coding::{
        activity::{ModelRetry, StepStatus},
        dialect::Image,
        usage::RunUsage,
    },
    failure::Failure,
};

/// Notifications that are not used here and would be the longest lines.
const UNWANTED: [&str; 4] = [
    "account/rateLimits/updated",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "turn/diff/updated",
];

/// Names of choices in the protocols of Codex and MCP.
pub(super) const ACCEPT: &str = "accept";
pub(super) const DECLINE: &str = "decline";

/// The calls to Codex. At most one of each waits for its answer, so its number is its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodexCall {
    Initialize = 1,
    Start,
    Resume,
    Turn,
    Interrupt,
    Steer,
}

/// A line of Codex.
#[derive(Debug)]
pub(super) enum FromCodex<'a> {
    /// The answer to a call.
    Reply(CodexCall, Result<&'a RawValue, String>),
    /// A call that needs an answer.
    Request { id: &'a RawValue, method: Cow<'a, str>, params: &'a RawValue },
    /// A notification.
    Notice { method: Cow<'a, str>, params: &'a RawValue },
    /// Anything else.
    Other,
}

/// Parameters of the start or resumption of a thread.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThreadParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread_id: Option<&'a str>,
    /// True to leave out earlier turns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) exclude_turns: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<&'a str>,
    pub(super) cwd: &'a Path,
    pub(super) approval_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sandbox: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) config: &'a Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ThreadReply {
    pub(super) thread: ObjectId,
    pub(super) model: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ObjectId {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct TurnReply {
    pub(super) turn: ObjectId,
}

/// A chunk of a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexDelta {
    pub(super) thread_id: String,
    pub(super) item_id: String,
    pub(super) delta: String,
}

/// The start or end of an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemNotice {
    pub(super) thread_id: String,
    pub(super) item: CodexItem,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageNotice {
    pub(super) thread_id: String,
    pub(super) turn_id: String,
    pub(super) token_usage: TokenUsage,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenUsage {
    /// Usage of the last call to the model.
    pub(super) last: CodexUsage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexUsage {
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
    reasoning_output_tokens: u64,
    total_tokens: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnNotice {
    pub(super) thread_id: String,
    pub(super) turn: CodexTurn,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexTurn {
    pub(super) status: String,
    pub(super) error: Option<CodexError>,
    pub(super) duration_ms: Option<u64>,
}

/// An error that Codex may retry.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorNotice {
    pub(super) thread_id: String,
    pub(super) will_retry: bool,
    pub(super) error: TurnError,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnError {
    message: String,
    /// A name, or an object whose only member is named like it and has the details.
    #[serde(default)]
    codex_error_info: Value,
    additional_details: Option<String>,
}

/// The plan of a turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanNotice {
    pub(super) thread_id: String,
    pub(super) plan: Vec<CodexStep>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CodexStep {
    pub(super) step: String,
    pub(super) status: StepStatus,
}

/// Request to run a command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommandApproval {
    pub(super) command: Option<String>,
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) available_decisions: Vec<Value>,
}

/// Request to change files.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileApproval {
    pub(super) item_id: String,
    pub(super) reason: Option<String>,
}

/// Request for more permissions than the sandbox gives.
#[derive(Debug, Deserialize)]
pub(super) struct PermissionsApproval {
    pub(super) reason: Option<String>,
    pub(super) permissions: Map<String, Value>,
}

/// Question of an MCP server, or of Codex on its behalf.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Elicitation {
    pub(super) message: String,
    #[serde(default)]
    pub(super) requested_schema: Value,
    /// The page that the server asks the caller to open.
    pub(super) url: Option<String>,
}

/// The answer to an approval.
#[derive(Debug, Serialize)]
pub(super) struct ApprovalDecision<'a> {
    pub(super) decision: &'a str,
}

/// The answer to an elicitation.
#[derive(Debug, Serialize)]
pub(super) struct ElicitationAction<'a> {
    pub(super) action: &'a str,
    pub(super) content: Option<&'a RawValue>,
}

/// The answer to a request for permissions: those that are granted.
#[derive(Debug, Serialize)]
pub(super) struct GrantedPermissions<'a> {
    pub(super) permissions: &'a Map<String, Value>,
    pub(super) scope: &'static str,
}

impl CodexCall {
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Start => "thread/start",
            Self::Resume => "thread/resume",
            Self::Turn => "turn/start",
            Self::Interrupt => "turn/interrupt",
            Self::Steer => "turn/steer",
        }
    }

    fn numbered(id: &RawValue) -> Option<Self> {
        let calls =
            [Self::Initialize, Self::Start, Self::Resume, Self::Turn, Self::Interrupt, Self::Steer];
        calls.into_iter().find(|call| id.get() == (*call as u8).to_string())
    }

    /// The line of this call.
    pub(super) fn line(self, params: &impl Serialize) -> String {
        #[derive(Serialize)]
        struct CallLine<'a, P> {
            id: u8,
            method: &'a str,
            params: &'a P,
        }
        write(&CallLine { id: self as u8, method: self.method(), params })
    }

    /// The line of the first call, with the client's name and capabilities.
    pub(super) fn initialize() -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeParams {
            client_info: ClientIdentity,
            capabilities: ClientCapabilities,
        }
        #[derive(Serialize)]
        struct ClientIdentity {
            name: &'static str,
            title: &'static str,
            version: &'static str,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ClientCapabilities {
            experimental_api: bool,
            request_attestation: bool,
            opt_out_notification_methods: [&'static str; 4],
        }
        Self::Initialize.line(&InitializeParams {
            client_info: ClientIdentity {
                name: "herald",
                title: "Herald",
                version: env!("CARGO_PKG_VERSION"),
            },
            capabilities: ClientCapabilities {
                experimental_api: false,
                request_attestation: false,
                opt_out_notification_methods: UNWANTED,
            },
        })
    }

    /// The line that starts a turn or, with the id of one, adds to it.
    pub(super) fn input(
        thread_id: &str,
        expected_turn_id: Option<&str>,
        text: &str,
        images: &[Image],
    ) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InputParams<'a> {
            thread_id: &'a str,
            input: Vec<TurnInput<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            expected_turn_id: Option<&'a str>,
        }
        #[derive(Serialize)]
        #[serde(tag = "type", rename_all = "camelCase")]
        enum TurnInput<'a> {
            Text { text: &'a str },
            LocalImage { path: &'a Path },
        }
        let images = images.iter().map(|image| TurnInput::LocalImage { path: &image.path });
        let input = [TurnInput::Text { text }].into_iter().chain(images).collect();
        let call = if expected_turn_id.is_some() { Self::Steer } else { Self::Turn };
        call.line(&InputParams { thread_id, input, expected_turn_id })
    }

    /// The line that interrupts a turn.
    pub(super) fn interrupt(thread_id: &str, turn_id: &str) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InterruptParams<'a> {
            thread_id: &'a str,
            turn_id: &'a str,
        }
        Self::Interrupt.line(&InterruptParams { thread_id, turn_id })
    }
}

impl<'a> FromCodex<'a> {
    /// Parses a line. Plugins of Codex may print between its lines, so anything else is ignored.
    pub(super) fn read(line: &'a str) -> Self {
        #[derive(Deserialize)]
        struct IncomingLine<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow, default = "null")]
            params: &'a RawValue,
            #[serde(borrow, default = "null")]
            result: &'a RawValue,
            error: Option<CodexError>,
        }
        let Ok(IncomingLine { id, method, params, result, error }) = serde_json::from_str(line)
        else {
            return Self::Other;
        };
        match (id, method) {
            (Some(id), Some(method)) => Self::Request { id, method, params },
            (None, Some(method)) => Self::Notice { method, params },
            (Some(id), None) => match (CodexCall::numbered(id), error) {
                (Some(call), None) => Self::Reply(call, Ok(result)),
                (Some(call), Some(error)) => Self::Reply(call, Err(error.message)),
                (None, _) => Self::Other,
            },
            (None, None) => Self::Other,
        }
    }
}

impl Elicitation {
    /// True if yes or no is enough for an answer.
    pub(super) fn is_yes_or_no(&self) -> bool {
        let fields = self.requested_schema.get("properties").and_then(Value::as_object);
        self.url.is_some() || fields.is_none_or(Map::is_empty)
    }
}

impl TurnError {
    /// The retry that the error announces, which is the `attempt`-th as far as is known here.
    pub(super) fn retry(self, attempt: u64) -> ModelRetry {
        // `Reconnecting... 2/5`
        let counted = self.message.rsplit_once(' ').and_then(|(_, last)| last.split_once('/'));
        let counted = counted.and_then(|(now, most)| Some((now.parse().ok()?, most.parse().ok()?)));
        let (attempt, most) = counted.map_or((attempt, None), |(now, most)| (now, Some(most)));
        let info = self.codex_error_info.as_object().and_then(|info| info.values().next());
        let status = info.and_then(|details| details.get("httpStatusCode")?.as_u64());
        ModelRetry {
            attempt,
            most,
            status: status.and_then(|status| u16::try_from(status).ok()),
            error: self.additional_details.or(Some(self.message)),
            delay_ms: None,
        }
    }
}

impl CodexUsage {
    pub(super) fn add(&mut self, more: &Self) {
        self.input_tokens += more.input_tokens;
        self.cached_input_tokens += more.cached_input_tokens;
        self.cache_write_input_tokens += more.cache_write_input_tokens;
        self.output_tokens += more.output_tokens;
        self.reasoning_output_tokens += more.reasoning_output_tokens;
        self.total_tokens += more.total_tokens;
    }

    /// The usage in the common shape.
    pub(super) fn usage(&self, duration_ms: Option<u64>) -> RunUsage {
        if self.total_tokens == 0 && self.input_tokens == 0 {
            return RunUsage { duration_ms, ..RunUsage::default() };
        }
        let usage = RunUsage {
            duration_ms,
            input_tokens: Some(self.input_tokens),
            output_tokens: Some(self.output_tokens),
            cache_read_tokens: Some(self.cached_input_tokens),
            cache_write_tokens: Some(self.cache_write_input_tokens),
            reasoning_tokens: Some(self.reasoning_output_tokens),
            total_tokens: Some(self.total_tokens).filter(|total| *total > 0),
            ..RunUsage::default()
        };
        usage.with_total()
    }
}

/// The line that completes the initialization.
pub(super) fn initialized() -> String {
    #[derive(Serialize)]
    struct NotificationLine {
        method: &'static str,
    }
    write(&NotificationLine { method: "initialized" })
}

/// The line that answers a call.
pub(super) fn answer(id: &RawValue, result: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct ResultLine<'a, R> {
        id: &'a RawValue,
        result: &'a R,
    }
    write(&ResultLine { id, result })
}

/// The line that refuses a call.
pub(super) fn refuse(id: &RawValue) -> String {
    #[derive(Serialize)]
    struct ErrorLine<'a> {
        id: &'a RawValue,
        error: CallError,
    }
    #[derive(Serialize)]
    struct CallError {
        code: i32,
        message: &'static str,
    }
    write(&ErrorLine {
        id,
        error: CallError { code: -32601, message: "this method is not supported" },
    })
}

/// The named members of an object that are not null.
pub(super) fn members(raw: &RawValue, names: &[&str]) -> Result<Map<String, Value>, Failure> {
    let mut all: Map<String, Value> = read(raw)?;
    all.retain(|name, value| names.contains(&name.as_str()) && !value.is_null());
    Ok(all)
}

/// Parses the content of a message.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, Failure> {
    let invalid = |why| Failure::because("wrote a message that cannot be read", json::reason(&why));
    serde_json::from_str(raw.get()).map_err(invalid)
}

fn write(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("plain data can be written")
}

fn null<'a>() -> &'a RawValue {
    RawValue::NULL
}
