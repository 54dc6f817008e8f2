//! Items of Codex: messages, thoughts and tool calls, and their form as activities.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::coding::{
    activity::{ToolEnd, ToolKind, ToolLocation, ToolStart},
    diff::unified,
};

/// Names of tools that Codex does not name itself.
pub(super) const SHELL: &str = "shell";
pub(super) const PATCH: &str = "apply_patch";

/// Bytes of diffs that an approval shows.
const MAX_DIFFS: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum CodexItem {
    AgentMessage {
        id: String,
        text: String,
    },
    CommandExecution {
        id: String,
        #[serde(default)]
        command: String,
        status: String,
        aggregated_output: Option<String>,
        exit_code: Option<i64>,
    },
    FileChange {
        id: String,
        status: String,
        changes: Vec<Value>,
    },
    McpToolCall {
        id: String,
        server: String,
        tool: String,
        status: String,
        result: Option<McpResult>,
        #[serde(default)]
        arguments: Value,
        error: Option<CodexError>,
    },
    DynamicToolCall {
        id: String,
        tool: String,
        #[serde(default)]
        arguments: Value,
        status: String,
        content_items: Option<Vec<McpContent>>,
    },
    WebSearch {
        id: String,
        #[serde(default)]
        query: String,
    },
    /// Reasoning of the model, in summaries or in full.
    Reasoning {
        #[serde(default)]
        summary: Vec<String>,
        #[serde(default)]
        content: Vec<String>,
    },
    /// A call that starts a subagent or talks to some.
    CollabAgentToolCall {
        id: String,
        tool: String,
        status: String,
        #[serde(default)]
        receiver_thread_ids: Vec<String>,
        prompt: Option<String>,
        #[serde(default)]
        agents_states: HashMap<String, AgentState>,
    },
    /// The start or the end of a subagent, in versions that do not report the call.
    SubAgentActivity {
        id: String,
        kind: String,
        agent_thread_id: String,
        #[serde(default)]
        agent_path: String,
    },
    ImageView {
        id: String,
        path: String,
    },
    ImageGeneration {
        id: String,
        status: String,
        revised_prompt: Option<String>,
        saved_path: Option<String>,
        failure: Option<Value>,
    },
    #[serde(other)]
    Other,
}

/// State of a subagent.
#[derive(Debug, Deserialize)]
pub(super) struct AgentState {
    status: String,
    message: Option<String>,
}

/// A change of a file.
#[derive(Debug, Deserialize)]
struct FileUpdate {
    path: String,
    kind: FileUpdateKind,
    /// A unified diff without its first two lines, or the whole file if it is new or deleted.
    diff: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum FileUpdateKind {
    Add,
    Delete,
    Update { move_path: Option<String> },
}

#[derive(Debug, Deserialize)]
pub(super) struct McpResult {
    #[serde(default)]
    content: Vec<McpContent>,
}

#[derive(Debug, Deserialize)]
pub(super) struct McpContent {
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct CodexError {
    pub(super) message: String,
}

impl CodexItem {
    /// The start of the tool call, if the item is one.
    pub(super) fn start(&self) -> Option<ToolStart> {
        let input = |name: &str, text: &str| {
            Some(Value::from(Map::from_iter([(name.to_owned(), Value::from(text))])))
        };
        let location = |path: &str| ToolLocation { path: path.to_owned(), line: None };
        let start = match self {
            Self::AgentMessage { .. }
            | Self::Reasoning { .. }
            | Self::SubAgentActivity { .. }
            | Self::Other => return None,
            Self::CommandExecution { id, command, .. } => ToolStart {
                id: id.clone(),
                name: SHELL.to_owned(),
                kind: ToolKind::Execute,
                title: Some(command.clone()),
                input: input("command", command),
                ..ToolStart::default()
            },
            Self::FileChange { id, changes, .. } => ToolStart {
                id: id.clone(),
                name: PATCH.to_owned(),
                kind: ToolKind::Edit,
                title: Some(paths(changes).join(", ")),
                locations: paths(changes).into_iter().map(location).collect(),
                ..ToolStart::default()
            },
            Self::McpToolCall { id, server, tool, arguments, .. } => ToolStart {
                id: id.clone(),
                name: format!("{server}.{tool}"),
                input: Some(arguments.clone()),
                ..ToolStart::default()
            },
            Self::DynamicToolCall { id, tool, arguments, .. } => ToolStart {
                id: id.clone(),
                name: tool.clone(),
                input: Some(arguments.clone()),
                ..ToolStart::default()
            },
            Self::WebSearch { id, query } => ToolStart {
                id: id.clone(),
                name: "web_search".to_owned(),
                kind: ToolKind::Fetch,
                title: Some(query.clone()),
                input: input("query", query),
                ..ToolStart::default()
            },
            Self::CollabAgentToolCall { id, tool, prompt, .. } => ToolStart {
                id: id.clone(),
                name: tool.clone(),
                kind: ToolKind::Agent,
                title: prompt.clone(),
                input: prompt.as_deref().and_then(|prompt| input("prompt", prompt)),
                ..ToolStart::default()
            },
            Self::ImageView { id, path } => ToolStart {
                id: id.clone(),
                name: "view_image".to_owned(),
                kind: ToolKind::Read,
                title: Some(path.clone()),
                locations: vec![location(path)],
                ..ToolStart::default()
            },
            Self::ImageGeneration { id, revised_prompt, .. } => ToolStart {
                id: id.clone(),
                name: "image_generation".to_owned(),
                title: revised_prompt.clone(),
                ..ToolStart::default()
            },
        };
        Some(start)
    }

    /// The end of the tool call.
    pub(super) fn end(self) -> Option<ToolEnd> {
        let has_failed = |status: &str| matches!(status, "failed" | "declined");
        let end = match self {
            Self::AgentMessage { .. }
            | Self::Reasoning { .. }
            | Self::SubAgentActivity { .. }
            | Self::Other => return None,
            Self::CommandExecution { id, status, aggregated_output, exit_code, .. } => {
                let is_error = has_failed(&status) || exit_code.is_some_and(|code| code != 0);
                let printed = aggregated_output.filter(|output| !output.trim().is_empty());
                let code = exit_code.map(|code| format!("exit code {code}"));
                let output = printed.or(code).unwrap_or(status);
                ToolEnd { id, is_error, output, diff: None }
            }
            Self::FileChange { id, status, changes } => {
                let diffs = changes
                    .iter()
                    .filter_map(|change| Some(FileUpdate::deserialize(change).ok()?.unified()));
                let diff = Some(diffs.collect::<String>()).filter(|diff| !diff.is_empty());
                let output = format!("{status}: {}", paths(&changes).join(", "));
                ToolEnd { id, is_error: has_failed(&status), output, diff }
            }
            Self::McpToolCall { id, status, result, error, .. } => {
                let is_error = has_failed(&status) || error.is_some();
                let error = error.map(|error| error.message);
                let text = error.or_else(|| texts(result?.content));
                ToolEnd { id, is_error, output: text.unwrap_or(status), diff: None }
            }
            Self::DynamicToolCall { id, status, content_items, .. } => ToolEnd {
                id,
                is_error: has_failed(&status),
                output: content_items.and_then(texts).unwrap_or(status),
                diff: None,
            },
            Self::WebSearch { id, query } => {
                ToolEnd { id, is_error: false, output: query, diff: None }
            }
            Self::CollabAgentToolCall { id, status, agents_states, .. } => {
                let messages = agents_states.into_values().map(|state| match state.message {
                    Some(message) => format!("{}: {message}", state.status),
                    None => state.status,
                });
                let output = Some(messages.collect::<Vec<_>>().join("\n"));
                let output = output.filter(|output| !output.is_empty());
                let is_error = has_failed(&status);
                ToolEnd { id, is_error, output: output.unwrap_or(status), diff: None }
            }
            Self::ImageView { id, path } => {
                ToolEnd { id, is_error: false, output: path, diff: None }
            }
            Self::ImageGeneration { id, status, saved_path, failure, .. } => {
                let is_error = has_failed(&status) || failure.is_some();
                let failure = failure.map(|failure| failure.to_string());
                let saved = saved_path.map(|path| format!("saved as {path}"));
                let output = failure.or(saved).unwrap_or(status);
                ToolEnd { id, is_error, output, diff: None }
            }
        };
        Some(end)
    }
}

/// The texts of a tool's result.
fn texts(content: Vec<McpContent>) -> Option<String> {
    let texts = content.into_iter().map(|content| content.text);
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    Some(text).filter(|text| !text.is_empty())
}

impl FileUpdate {
    /// The whole unified diff.
    fn unified(&self) -> String {
        let Self { path, kind, diff } = self;
        match kind {
            FileUpdateKind::Add => unified(path, None, Some(diff)),
            FileUpdateKind::Delete => unified(path, Some(diff), None),
            FileUpdateKind::Update { move_path } => {
                let new = move_path.as_ref().unwrap_or(path);
                let note = format!("\n\nMoved to: {new}");
                let hunks = diff.strip_suffix(&note).unwrap_or(diff).trim_end_matches('\n');
                format!("--- {path}\n+++ {new}\n{hunks}\n")
            }
        }
    }
}

/// The paths of changed files. A file that is moved has two.
pub(super) fn paths(changes: &[Value]) -> Vec<&str> {
    let both = changes.iter().flat_map(|change| [&change["path"], &change["kind"]["move_path"]]);
    both.filter_map(Value::as_str).collect()
}

/// The command that a shell runs: `touch a` for `/bin/bash -lc 'touch a'`. Other commands stay as they are.
pub(super) fn script(command: &str) -> String {
    let words = shell_words(command);
    // A program of the agent may have the name of a shell.
    let is_shell = |program: &str| {
        let (directory, name) = program.rsplit_once('/').unwrap_or(("/bin", program));
        matches!(directory, "/bin" | "/usr/bin" | "/usr/local/bin")
            && matches!(name, "bash" | "sh" | "zsh")
    };
    match words.as_slice() {
        [program, flag, script] if is_shell(program) && matches!(&**flag, "-lc" | "-c") => {
            script.clone()
        }
        _ => command.to_owned(),
    }
}

/// The words of a command line, without their quotes.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match (quote, char) {
            (None, ' ') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (Some(open), close) if open == close => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (_, char) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
}

/// Removes diffs beyond [`MAX_DIFFS`].
pub(super) fn limit_diffs(mut changes: Vec<Value>) -> Vec<Value> {
    let mut free = MAX_DIFFS;
    for change in changes.iter_mut().filter_map(Value::as_object_mut) {
        let length = change.get("diff").and_then(Value::as_str).map_or(0, str::len);
        match free.checked_sub(length) {
            Some(left) => free = left,
            None => drop(change.remove("diff")),
        }
    }
    changes
}
