//! Cursor's agent: JSON lines without approvals if everything is allowed, otherwise ACP.
//!
//! It cannot be installed from a package registry and needs an account; its output is known from its
//! documentation and from recordings.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    acp::{Acp, Quirks},
    activity::{AgentActivity, ToolEnd, ToolKind, ToolLocation, ToolStart},
    claude::{ClaudeBlock, ClaudeMessage},
    dialect::{
        AgentEvent, Approval, ApprovalAnswer, CliDialect, CodingRequest, CodingResult,
        DialectOutput, escape_command, parse_json,
    },
    usage::RunUsage,
};
use crate::failure::Failure;

/// The user is signed in beforehand, or by a key in the environment; the agent still requires the call.
const QUIRKS: Quirks = Quirks {
    arguments: &["acp"],
    ask_variables: &[],
    mode: None,
    auth_method: Some("cursor_login"),
    prefix: "",
};

/// Suffix of the names of tool calls.
const CALL_SUFFIX: &str = "ToolCall";

/// The dialect with approvals, unless everything is allowed.
pub(super) fn dialect(request: CodingRequest) -> Box<dyn CliDialect> {
    if request.force {
        Box::new(CursorDialect { request, has_text: false, thought: String::new() })
    } else {
        Box::new(Acp::new(request, QUIRKS))
    }
}

/// Dialect without approvals.
#[derive(Debug)]
struct CursorDialect {
    request: CodingRequest,
    has_text: bool,
    /// Reasoning that was not reported yet. It comes in small pieces.
    thought: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CursorLine {
    System {
        subtype: String,
        model: Option<String>,
        session_id: Option<String>,
    },
    Assistant {
        message: ClaudeMessage,
    },
    ToolCall {
        subtype: String,
        #[serde(default)]
        call_id: String,
        /// The call of the subagent that makes this one.
        parent_tool_call_id: Option<String>,
        /// One member is the call; its key is the kind of call.
        tool_call: Map<String, Value>,
    },
    /// A piece of its reasoning, or the end of it.
    Thinking {
        #[serde(default)]
        text: String,
    },
    Result(CursorResult),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CursorResult {
    #[serde(default)]
    is_error: bool,
    result: Option<String>,
    duration_ms: Option<u64>,
    #[serde(default)]
    usage: Map<String, Value>,
}

impl CliDialect for CursorDialect {
    fn arguments(&self) -> Vec<String> {
        let fixed = "-p --trust --force --output-format=stream-json";
        let fixed = fixed.split_ascii_whitespace().map(str::to_owned);
        let CodingRequest { model, session, .. } = &self.request;
        let chosen = [("model", model), ("resume", session)];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        fixed.chain(chosen.map(|(flag, value)| format!("--{flag}={value}"))).collect()
    }

    fn open(&mut self, out: &mut DialectOutput) {
        out.text(&escape_command(&self.request.text));
        out.close();
    }

    fn handle_line(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        let Some(line) = parse_json(line)? else { return Ok(()) };
        if let CursorLine::Thinking { text } = line {
            self.thought += &text;
            return Ok(());
        }
        let thought = std::mem::take(&mut self.thought);
        if !thought.trim().is_empty() {
            out.event(AgentEvent::Activity(AgentActivity::Thinking(thought)));
        }
        match line {
            CursorLine::System { subtype, model, session_id } => {
                if subtype == "init" {
                    out.event(AgentEvent::Init { model, session: session_id });
                }
            }
            // One whole message between two tool calls.
            CursorLine::Assistant { message } => {
                for block in message.blocks() {
                    if let ClaudeBlock::Text { text } = block {
                        let gap = if self.has_text { "\n\n" } else { "" };
                        out.event(AgentEvent::Text(format!("{gap}{text}")));
                        self.has_text = true;
                    }
                }
            }
            CursorLine::ToolCall {
                subtype,
                call_id: id,
                parent_tool_call_id: parent,
                tool_call,
            } => {
                let call = tool_call.iter().find(|(kind, _)| is_call(kind));
                let Some((kind, call)) = call else { return Ok(()) };
                match subtype.as_str() {
                    "started" => {
                        let start = ToolStart { id, parent, ..start(kind, call) };
                        out.event(AgentEvent::Activity(AgentActivity::ToolStarted(start)));
                    }
                    "completed" => {
                        let end = ToolEnd { id, ..end(&call["result"]) };
                        out.event(AgentEvent::Activity(AgentActivity::ToolEnded(end)));
                    }
                    // Subtypes of later versions.
                    _ => {}
                }
            }
            CursorLine::Result(outcome) => out.event(outcome.into_event()),
            CursorLine::Thinking { .. } | CursorLine::Other => {}
        }
        Ok(())
    }

    /// Does nothing: there are no approvals in this dialect.
    fn answer(&mut self, _: &Approval, _: &ApprovalAnswer, _: &mut DialectOutput) {}
}

impl CursorResult {
    fn into_event(self) -> AgentEvent {
        let usage = RunUsage {
            duration_ms: self.duration_ms,
            input_tokens: self.usage.get("inputTokens").and_then(Value::as_u64),
            output_tokens: self.usage.get("outputTokens").and_then(Value::as_u64),
            cache_read_tokens: self.usage.get("cacheReadTokens").and_then(Value::as_u64),
            cache_write_tokens: self.usage.get("cacheWriteTokens").and_then(Value::as_u64),
            raw: self.usage,
            ..RunUsage::default()
        };
        let (summary, usage) = (self.result, usage.with_total());
        if self.is_error {
            return AgentEvent::Error { message: summary.unwrap_or_default(), usage };
        }
        AgentEvent::Done(CodingResult { summary, usage, ..CodingResult::default() })
    }
}

fn is_call(kind: &str) -> bool {
    kind.ends_with(CALL_SUFFIX) || kind == "function"
}

/// `shell` for a `shellToolCall`; other tools are named in the call.
fn name(kind: &str, call: &Value) -> String {
    let own = call["name"].as_str();
    own.unwrap_or_else(|| kind.strip_suffix(CALL_SUFFIX).unwrap_or(kind)).to_owned()
}

/// The start of a call, without its id.
fn start(kind: &str, call: &Value) -> ToolStart {
    let name = name(kind, call);
    let input = call.get("args").cloned();
    let member = |member: &str| Some(input.as_ref()?.get(member)?.as_str()?.to_owned());
    let path = member("path");
    ToolStart {
        kind: ToolKind::of_name(&name),
        title: member("command").or_else(|| path.clone()),
        locations: path.into_iter().map(|path| ToolLocation { path, line: None }).collect(),
        name,
        input,
        ..ToolStart::default()
    }
}

/// The end of a call, without its id.
fn end(result: &Value) -> ToolEnd {
    let success = result.get("success");
    let code = success.and_then(|success| success.get("exitCode")?.as_i64());
    // Each failure has a name of its own, such as `error`, `rejected` or `fileNotFound`.
    let is_error = success.is_none() || code.is_some_and(|code| code != 0);
    let diff = success.and_then(|success| success.get("diffString")?.as_str());
    let diff = diff.map(str::to_owned);
    ToolEnd { is_error, output: output(result), diff, ..ToolEnd::default() }
}

/// The member that people would read first, or the whole result.
fn output(result: &Value) -> String {
    let (kind, value) = result.as_object().and_then(|result| result.iter().next()).unzip();
    let value = value.unwrap_or(result);
    let text = ["stdout", "output", "content", "error", "errorMessage"]
        .iter()
        .find_map(|member| value[*member].as_str().filter(|text| !text.is_empty()));
    match (text, kind) {
        (Some(text), _) => text.to_owned(),
        (None, Some(kind)) => format!("{kind}: {value}"),
        (None, None) => value.to_string(),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    // From its documentation and public recordings.
    const TOOLS: &str = include_str!("recorded/cursor-tool.jsonl");

    fn forced() -> CodingRequest {
        CodingRequest {
            text: "Count the files".to_owned(),
            force: true,
            ..CodingRequest::default()
        }
    }

    #[test]
    fn lines_become_events_once_each() {
        let (mut cursor, mut out) = (dialect(forced()), DialectOutput::default());
        cursor.open(&mut out);
        assert_eq!(out.lines, b"Count the files");
        assert!(out.is_closed);
        for line in TOOLS.lines() {
            cursor.handle_line(line, &mut out).unwrap();
        }
        let started = |id: &str, name: &str, kind, input: Value| {
            let path = input["path"].as_str().map(str::to_owned);
            let location = |path| ToolLocation { path, line: None };
            AgentEvent::Activity(AgentActivity::ToolStarted(ToolStart {
                id: id.to_owned(),
                name: name.to_owned(),
                kind,
                title: input["command"].as_str().map(str::to_owned).or_else(|| path.clone()),
                locations: path.into_iter().map(location).collect(),
                input: Some(input),
                ..ToolStart::default()
            }))
        };
        let ended = |id: &str, output: &str| {
            let (id, output) = (id.to_owned(), output.to_owned());
            AgentEvent::Activity(AgentActivity::ToolEnded(ToolEnd {
                id,
                output,
                ..ToolEnd::default()
            }))
        };
        let usage = json!({ "inputTokens": 1200, "outputTokens": 40 });
        let expected = [
            AgentEvent::Init {
                model: Some("Claude 4 Sonnet".to_owned()),
                session: Some("c6b62c6f-7ead-4fd6-9922-e952131177ff".to_owned()),
            },
            AgentEvent::Activity(AgentActivity::Thinking("I need".to_owned())),
            AgentEvent::Text("I'll look.".to_owned()),
            started(
                "call_1",
                "shell",
                ToolKind::Execute,
                json!({ "command": "ls | wc -l", "timeout": 30000 }),
            ),
            ended("call_1", "7\n"),
            started("call_2", "read", ToolKind::Read, json!({ "path": "README.md" })),
            ended("call_2", "# Project\n"),
            started(
                "call_3",
                "write",
                ToolKind::Edit,
                json!({ "path": "summary.txt", "fileText": "7 files" }),
            ),
            ended(
                "call_3",
                r#"success: {"fileSize":7,"linesCreated":1,"path":"/repo/summary.txt"}"#,
            ),
            AgentEvent::Text("\n\nThere are 7.".to_owned()),
            AgentEvent::Done(CodingResult {
                summary: Some("I'll look.There are 7.".to_owned()),
                usage: RunUsage {
                    duration_ms: Some(5234),
                    input_tokens: Some(1200),
                    output_tokens: Some(40),
                    total_tokens: Some(1240),
                    raw: usage.as_object().unwrap().clone(),
                    ..RunUsage::default()
                },
                ..CodingResult::default()
            }),
        ];
        assert_eq!(out.events, expected);
    }

    #[test]
    fn a_failed_call_and_a_call_of_a_subagent_show_it() {
        let (mut cursor, mut out) = (dialect(forced()), DialectOutput::default());
        let results = [
            (json!({ "success": { "exitCode": 0, "stdout": "a" } }), false),
            (json!({ "success": { "exitCode": 1, "stdout": "", "stderr": "b" } }), true),
            (json!({ "error": { "errorMessage": "no" } }), true),
            (json!({ "rejected": { "reason": "no" } }), true),
        ];
        for (result, is_error) in results {
            let line = json!({
                "type": "tool_call", "subtype": "completed", "call_id": "c", "tool_call": {
                    "shellToolCall": { "args": {}, "result": result },
                },
            });
            cursor.handle_line(&line.to_string(), &mut out).unwrap();
            let Some(AgentEvent::Activity(AgentActivity::ToolEnded(end))) = out.events.pop() else {
                panic!("{out:?}")
            };
            assert_eq!((end.is_error, end.id.as_str()), (is_error, "c"), "{line}");
        }
        let line = json!({
            "type": "tool_call", "subtype": "started", "call_id": "c", "parent_tool_call_id": "p",
            "tool_call": { "shellToolCall": { "args": {} } },
        });
        cursor.handle_line(&line.to_string(), &mut out).unwrap();
        let Some(AgentEvent::Activity(AgentActivity::ToolStarted(start))) = out.events.pop() else {
            panic!("{out:?}")
        };
        assert_eq!(start.parent.as_deref(), Some("p"));
    }

    #[test]
    fn json_lines_are_used_with_force_and_acp_without() {
        let model = Some("sonnet-4".to_owned());
        let forced = CodingRequest { model, session: Some("c6".to_owned()), ..forced() };
        let arguments = dialect(forced.clone()).arguments().join(" ");
        let expected =
            "-p --trust --force --output-format=stream-json --model=sonnet-4 --resume=c6";
        assert_eq!(arguments, expected);
        let asking = dialect(CodingRequest { force: false, ..forced });
        assert_eq!(asking.arguments(), ["acp"]);
    }
}
