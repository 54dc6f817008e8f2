//! Activity extension: tool calls, plans, thoughts and retries of a coding agent as data, in one shape for
//! every program.
//!
//! The status texts stay those of coding-agent-a2a. The data is in the metadata of the same status message,
//! under the URI of the extension, so that a client that does not know it loses nothing.

use std::fmt;

use herald_protocol::{Json, Message, Metadata};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::text::truncate;

/// URI of the extension, and its key in metadata. docs/activity.md describes it.
pub const ACTIVITY_EXTENSION: &str =
    "https://github.com/herald-a2a/herald/blob/main/docs/activity.md#v1";

/// Characters that the status texts show of a name or an output.
const SHOWN: usize = 200;

/// Locations and steps that one event may list.
const MAX_ENTRIES: usize = 100;

/// Amount of detail about tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolDetail {
    /// Names, kinds and outcomes only.
    Name,
    /// The beginning of inputs, outputs and diffs.
    #[default]
    Short,
    /// Larger parts of them.
    Full,
}

/// Something that a coding agent does, beside its answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentActivity {
    /// It uses a tool.
    ToolStarted(ToolStart),
    /// A tool has ended.
    ToolEnded(ToolEnd),
    /// It has a plan, or has changed it.
    Plan(Vec<PlanStep>),
    /// A piece of its reasoning.
    Thinking(String),
    /// Its model does not answer, and it retries.
    Retry(ModelRetry),
    /// It has answered, and tasks of these names still run in the background.
    Background(Vec<String>),
    /// Its earlier session does not exist any more, and it has begun a new one.
    SessionLost,
    /// A message of the caller reached it in the middle of its work.
    Steered,
}

/// The start of a tool call.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ToolStart {
    /// Its id in the dialect, which its end repeats.
    pub(crate) id: String,
    /// The tool call of the subagent that makes this one.
    pub(crate) parent: Option<String>,
    /// The tool's name.
    pub(crate) name: String,
    pub(crate) kind: ToolKind,
    /// A line for people, such as the command.
    pub(crate) title: Option<String>,
    pub(crate) input: Option<Value>,
    /// The files that it reads or changes.
    pub(crate) locations: Vec<ToolLocation>,
}

/// The end of a tool call.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ToolEnd {
    pub(crate) id: String,
    pub(crate) is_error: bool,
    pub(crate) output: String,
    /// The change of files that it made, as a unified diff.
    pub(crate) diff: Option<String>,
}

/// Kinds of tools: those of the Agent Client Protocol, and subagents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    Agent,
    #[default]
    #[serde(other)]
    Other,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolLocation {
    pub(crate) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
}

/// A step of a plan or an entry of a to-do list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanStep {
    pub(crate) text: String,
    pub(crate) status: StepStatus,
}

/// State of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepStatus {
    #[serde(alias = "inProgress")]
    InProgress,
    Completed,
    #[serde(other)]
    Pending,
}

/// A retry of a call to the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ModelRetry {
    pub(crate) attempt: u64,
    /// The last attempt, if it is known.
    pub(crate) most: Option<u64>,
    /// The HTTP status of the last attempt.
    pub(crate) status: Option<u16>,
    /// The program's own name or text of the fault.
    pub(crate) error: Option<String>,
    /// The pause before the attempt, in milliseconds.
    pub(crate) delay_ms: Option<u64>,
}

/// Limits of one level of detail, in bytes.
struct DetailLimits {
    input: usize,
    output: usize,
    diff: usize,
}

impl ToolDetail {
    fn limits(self) -> DetailLimits {
        match self {
            Self::Name => DetailLimits { input: 0, output: 0, diff: 0 },
            Self::Short => DetailLimits { input: 2 << 10, output: SHOWN, diff: 16 << 10 },
            Self::Full => DetailLimits { input: 8 << 10, output: 8 << 10, diff: 64 << 10 },
        }
    }
}

impl AgentActivity {
    /// The status message: the text for people, and the data for programs.
    pub(crate) fn message(&self, id: String, detail: ToolDetail) -> Message {
        let data = Json::new(&self.data(detail)).expect("its members are plain data");
        let mut metadata = Metadata::new();
        metadata.insert(ACTIVITY_EXTENSION, data);
        Message {
            metadata: Some(metadata),
            extensions: vec![ACTIVITY_EXTENSION.to_owned()],
            ..Message::agent(id, self.to_string())
        }
    }

    /// The data, as one member whose name is the kind of activity.
    fn data(&self, detail: ToolDetail) -> ActivityData<'_> {
        let limits = detail.limits();
        match self {
            Self::ToolStarted(start) => {
                let (input, cut) = start.input.as_ref().map_or((None, false), |input| {
                    let mut left = limits.input;
                    (Some(cut_value(input, &mut left)), left == 0)
                });
                let has_detail = detail != ToolDetail::Name;
                ActivityData::Tool(ToolData {
                    id: &start.id,
                    phase: "started",
                    parent: start.parent.as_deref(),
                    name: Some(cut_text(&start.name, SHOWN)),
                    kind: Some(start.kind),
                    title: start
                        .title
                        .as_deref()
                        .filter(|_| has_detail)
                        .map(|title| cut_text(title, SHOWN)),
                    input: input.filter(|_| has_detail),
                    locations: start
                        .locations
                        .iter()
                        .filter(|_| has_detail)
                        .take(MAX_ENTRIES)
                        .collect(),
                    is_cut: cut,
                    ..ToolData::default()
                })
            }
            Self::ToolEnded(end) => {
                let output = cut_text(&end.output, limits.output);
                let diff = end.diff.as_deref().filter(|_| limits.diff > 0);
                let diff = diff.map(|diff| cut_text(diff, limits.diff));
                let is_diff_cut = diff
                    .as_ref()
                    .zip(end.diff.as_ref())
                    .is_some_and(|(cut, whole)| cut.len() < whole.len());
                ActivityData::Tool(ToolData {
                    id: &end.id,
                    phase: if end.is_error { "failed" } else { "completed" },
                    is_error: Some(end.is_error),
                    is_cut: output.len() < end.output.len() || is_diff_cut,
                    bytes: Some(end.output.len()),
                    output: Some(output).filter(|_| limits.output > 0),
                    diff,
                    ..ToolData::default()
                })
            }
            Self::Plan(steps) => ActivityData::Plan {
                done: steps.iter().filter(|step| step.status == StepStatus::Completed).count(),
                total: steps.len(),
                steps: steps.iter().take(MAX_ENTRIES).map(StepData::new).collect(),
            },
            Self::Thinking(text) => ActivityData::Thinking { text: cut_text(text, 8 << 10) },
            Self::Retry(retry) => ActivityData::Retry {
                attempt: retry.attempt,
                of: retry.most,
                status: retry.status,
                error: retry.error.as_deref().map(|error| cut_text(error, SHOWN)),
                delay_ms: retry.delay_ms,
            },
            Self::Background(tasks) => ActivityData::Background {
                tasks: tasks.iter().take(MAX_ENTRIES).map(|task| cut_text(task, SHOWN)).collect(),
            },
            Self::SessionLost => ActivityData::Session { event: "lost" },
            Self::Steered => ActivityData::Session { event: "steered" },
        }
    }
}

/// The text for people. That of tools is fixed by coding-agent-a2a.
impl fmt::Display for AgentActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToolStarted(start) => write!(f, "Using tool: {}", truncate(&start.name, SHOWN)),
            Self::ToolEnded(end) => write!(f, "Tool result: {}", truncate(&end.output, SHOWN)),
            Self::Plan(steps) => {
                let done = steps.iter().filter(|step| step.status == StepStatus::Completed).count();
                write!(f, "Plan: {done} of {} steps done", steps.len())?;
                let current = steps.iter().find(|step| step.status == StepStatus::InProgress);
                match current {
                    Some(step) => write!(f, ", now: {}", truncate(&step.text, SHOWN)),
                    None => Ok(()),
                }
            }
            Self::Thinking(text) => write!(f, "Thinking: {}", truncate(text, SHOWN)),
            Self::Retry(retry) => retry.fmt(f),
            Self::Background(tasks) => {
                let tasks = tasks.join(", ");
                write!(f, "Background work goes on: {}", truncate(&tasks, SHOWN))
            }
            Self::SessionLost => f.write_str(
                "The agent's earlier session does not exist any more. A new session got the earlier messages as text.",
            ),
            Self::Steered => f.write_str("The agent got the message while it works."),
        }
    }
}

impl ModelRetry {
    /// True if the model refused the credentials, which no retry changes.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.status, Some(401 | 403))
    }
}

impl fmt::Display for ModelRetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status @ (401 | 403)) => {
                write!(f, "The model refused the credentials (HTTP {status})")?;
            }
            Some(429) => f.write_str("The model limits the rate of requests (HTTP 429)")?,
            Some(529) => f.write_str("The model is overloaded (HTTP 529)")?,
            Some(status) => write!(f, "The model does not answer (HTTP {status})")?,
            None => f.write_str("The model does not answer")?,
        }
        write!(f, ": retry {}", self.attempt)?;
        if let Some(most) = self.most {
            write!(f, " of {most}")?;
        }
        match self.delay_ms {
            Some(delay) if delay >= 1000 => write!(f, " in {} s", delay / 1000),
            Some(_) | None => Ok(()),
        }
    }
}

impl ToolKind {
    /// The kind of a tool of this name, for programs that do not report kinds.
    pub(crate) fn of_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "read" | "notebookread" | "read_file" | "ls" | "list" => Self::Read,
            "edit" | "write" | "multiedit" | "notebookedit" | "apply_patch" | "write_file" => {
                Self::Edit
            }
            "bash" | "shell" | "bashoutput" | "killshell" | "run_shell_command" => Self::Execute,
            "grep" | "glob" | "search" | "codebase_search" => Self::Search,
            "webfetch" | "websearch" | "web_search" | "fetch" => Self::Fetch,
            "task" | "agent" => Self::Agent,
            "think" | "todowrite" | "exitplanmode" => Self::Think,
            "delete" => Self::Delete,
            _ => Self::Other,
        }
    }
}

/// Form of the data on the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum ActivityData<'a> {
    Tool(ToolData<'a>),
    Plan {
        done: usize,
        total: usize,
        steps: Vec<StepData<'a>>,
    },
    Thinking {
        text: &'a str,
    },
    Retry {
        attempt: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        of: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
    },
    Background {
        tasks: Vec<&'a str>,
    },
    Session {
        event: &'static str,
    },
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct ToolData<'a> {
    id: &'a str,
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ToolKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locations: Vec<&'a ToolLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
    /// Length of the whole output.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<&'a str>,
    /// True if a part of the input, the output or the diff is missing.
    #[serde(rename = "cut", skip_serializing_if = "std::ops::Not::not")]
    is_cut: bool,
}

#[derive(Serialize)]
struct StepData<'a> {
    text: &'a str,
    status: StepStatus,
}

impl<'a> StepData<'a> {
    fn new(step: &'a PlanStep) -> Self {
        Self { text: cut_text(&step.text, SHOWN), status: step.status }
    }
}

/// At most this many bytes of the text, whole characters only.
fn cut_text(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most.min(text.len()))]
}

/// A copy of the value with at most `left` bytes of texts and numbers. `left` is 0 afterwards if a part is
/// missing.
fn cut_value(value: &Value, left: &mut usize) -> Value {
    match value {
        Value::String(text) => {
            let cut = cut_text(text, *left);
            *left = if cut.len() < text.len() { 0 } else { *left - cut.len() };
            Value::String(cut.to_owned())
        }
        Value::Array(items) => {
            let mut copy = Vec::new();
            for item in items {
                if *left == 0 {
                    break;
                }
                copy.push(cut_value(item, left));
            }
            Value::Array(copy)
        }
        Value::Object(members) => {
            let mut copy = Map::new();
            for (name, member) in members {
                if *left <= name.len() {
                    *left = 0;
                    break;
                }
                *left -= name.len();
                copy.insert(name.clone(), cut_value(member, left));
            }
            Value::Object(copy)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            *left = left.saturating_sub(8);
            value.clone()
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    fn data(activity: &AgentActivity, detail: ToolDetail) -> Value {
        let message = activity.message("m".to_owned(), detail);
        assert_eq!(message.extensions, [ACTIVITY_EXTENSION]);
        message.metadata.unwrap().get(ACTIVITY_EXTENSION).unwrap()
    }

    fn start() -> AgentActivity {
        AgentActivity::ToolStarted(ToolStart {
            id: "t1".to_owned(),
            parent: Some("t0".to_owned()),
            name: "Bash".to_owned(),
            kind: ToolKind::Execute,
            title: Some("make test".to_owned()),
            input: Some(json!({"command": "make test", "timeout": 9})),
            locations: vec![ToolLocation { path: "a.rs".to_owned(), line: Some(3) }],
        })
    }

    #[test]
    fn a_tool_call_has_its_text_and_its_data() {
        assert_eq!(start().to_string(), "Using tool: Bash");
        let expected = json!({"tool": {
            "id": "t1", "phase": "started", "parent": "t0", "name": "Bash", "kind": "execute",
            "title": "make test", "input": {"command": "make test", "timeout": 9},
            "locations": [{"path": "a.rs", "line": 3}],
        }});
        assert_eq!(data(&start(), ToolDetail::Short), expected);
        let expected = json!({"tool": {
            "id": "t1", "phase": "started", "parent": "t0", "name": "Bash", "kind": "execute",
            "cut": true,
        }});
        assert_eq!(data(&start(), ToolDetail::Name), expected);
    }

    #[test]
    fn a_result_is_cut_by_the_level_of_detail() {
        let output = "ä".repeat(6000);
        let diff = Some("+x\n".repeat(10_000));
        let end = ToolEnd { id: "t1".to_owned(), is_error: true, output, diff };
        let end = AgentActivity::ToolEnded(end);
        let name = data(&end, ToolDetail::Name);
        let expected = json!({"tool": {
            "id": "t1", "phase": "failed", "isError": true, "bytes": 12000, "cut": true,
        }});
        assert_eq!(name, expected);
        for (detail, output, diff) in
            [(ToolDetail::Short, 200, 16 << 10), (ToolDetail::Full, 8 << 10, 30_000)]
        {
            let shown = data(&end, detail);
            assert_eq!(shown["tool"]["output"].as_str().unwrap().len(), output);
            assert_eq!(shown["tool"]["diff"].as_str().unwrap().len(), diff);
            assert_eq!(shown["tool"]["cut"], true);
        }
    }

    #[test]
    fn an_input_beyond_the_limit_is_cut_within_its_texts() {
        let input = json!({"content": "x".repeat(5000), "file_path": "a"});
        let start = ToolStart { input: Some(input), ..ToolStart::default() };
        let shown = data(&AgentActivity::ToolStarted(start), ToolDetail::Short);
        let content = shown["tool"]["input"]["content"].as_str().unwrap();
        assert_eq!(content.len(), (2 << 10) - "content".len());
        assert_eq!(shown["tool"]["cut"], true);
    }

    #[test]
    fn a_plan_has_its_progress() {
        let step = |text: &str, status| PlanStep { text: text.to_owned(), status };
        let plan = AgentActivity::Plan(vec![
            step("read", StepStatus::Completed),
            step("write", StepStatus::InProgress),
            step("test", StepStatus::Pending),
        ]);
        assert_eq!(plan.to_string(), "Plan: 1 of 3 steps done, now: write");
        let expected = json!({"plan": {"done": 1, "total": 3, "steps": [
            {"text": "read", "status": "completed"},
            {"text": "write", "status": "in_progress"},
            {"text": "test", "status": "pending"},
        ]}});
        assert_eq!(data(&plan, ToolDetail::Name), expected);
    }

    #[test]
    fn a_retry_names_its_cause() {
        let retry = |status, delay_ms| ModelRetry {
            attempt: 2,
            most: Some(10),
            status,
            delay_ms,
            ..ModelRetry::default()
        };
        for (retry, text) in [
            (retry(None, None), "The model does not answer: retry 2 of 10"),
            (
                retry(Some(401), Some(500)),
                "The model refused the credentials (HTTP 401): retry 2 of 10",
            ),
            (
                retry(Some(529), Some(4000)),
                "The model is overloaded (HTTP 529): retry 2 of 10 in 4 s",
            ),
        ] {
            assert_eq!(retry.to_string(), text);
        }
    }
}
