//! Cursor's agent, unasked: it prints JSON lines and asks nothing. Asked, it speaks ACP.
//!
//! It cannot be installed from a package registry and wants an account; what it prints is known
//! from its documentation and from recordings.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::Failure;

use super::{
    acp::{Acp, Habits},
    claude::{Block, Message},
    dialect::{Approval, Ask, Choice, Dialect, Event, Talk, json, plain},
};

/// Signed in to it is beforehand, or by a key in its environment; it wants to hear of it.
const HABITS: Habits = Habits {
    arguments: &["acp"],
    asking: &[],
    mode: None,
    sign_in: Some("cursor_login"),
    prefix: "",
};

/// What ends the name of every kind of call.
const CALL: &str = "ToolCall";

/// The way to speak with it that lets it ask, where it has to.
pub(super) fn dialect(ask: Ask) -> Box<dyn Dialect> {
    if ask.force {
        Box::new(Cursor { ask, has_told: false })
    } else {
        Box::new(Acp::new(ask, HABITS))
    }
}

/// A conversation in which it asks nothing.
#[derive(Debug)]
struct Cursor {
    ask: Ask,
    has_told: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    System {
        subtype: String,
        model: Option<String>,
        session_id: Option<String>,
    },
    Assistant {
        message: Message,
    },
    ToolCall {
        subtype: String,
        /// One member is the call, under the name of its kind.
        tool_call: Map<String, Value>,
    },
    Result(Outcome),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    is_error: bool,
    result: Option<String>,
    duration_ms: Option<u64>,
    #[serde(default)]
    usage: Map<String, Value>,
}

impl Dialect for Cursor {
    fn arguments(&self) -> Vec<String> {
        let fixed = "-p --trust --force --output-format=stream-json";
        let fixed = fixed.split_ascii_whitespace().map(str::to_owned);
        let Ask { model, session, .. } = &self.ask;
        let chosen = [("model", model), ("resume", session)];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        fixed.chain(chosen.map(|(flag, value)| format!("--{flag}={value}"))).collect()
    }

    fn open(&mut self, talk: &mut Talk) {
        talk.text(&plain(&self.ask.text));
        talk.close();
    }

    fn hear(&mut self, line: &str, talk: &mut Talk) -> Result<(), Failure> {
        let Some(line) = json(line)? else { return Ok(()) };
        match line {
            Line::System { subtype, model, session_id } => {
                if subtype == "init" {
                    talk.event(Event::Init { model, session: session_id });
                }
            }
            // One whole message between two tool calls.
            Line::Assistant { message } => {
                for block in message.blocks() {
                    if let Block::Text { text } = block {
                        let gap = if self.has_told { "\n\n" } else { "" };
                        talk.event(Event::Text(format!("{gap}{text}")));
                        self.has_told = true;
                    }
                }
            }
            Line::ToolCall { subtype, tool_call } => {
                let call = tool_call.iter().find(|(kind, _)| is_call(kind));
                let Some((kind, call)) = call else { return Ok(()) };
                match subtype.as_str() {
                    "started" => talk.event(Event::ToolUse { name: name(kind, call) }),
                    "completed" => {
                        talk.event(Event::ToolResult { output: output(&call["result"]) });
                    }
                    // Kinds that came later than this.
                    _ => {}
                }
            }
            Line::Result(outcome) => talk.event(outcome.into_event()),
            Line::Other => {}
        }
        Ok(())
    }

    /// It never asks.
    fn answer(&mut self, _: &Approval, _: &Choice, _: &mut Talk) {}
}

impl Outcome {
    fn into_event(self) -> Event {
        if self.is_error {
            return Event::Error(self.result.unwrap_or_default());
        }
        let mut stats = self.usage;
        stats.extend(self.duration_ms.map(|length| ("durationMs".to_owned(), length.into())));
        Event::Done { summary: self.result, stats }
    }
}

fn is_call(kind: &str) -> bool {
    kind.ends_with(CALL) || kind == "function"
}

/// `shell` for a `shellToolCall`; other tools are named in the call.
fn name(kind: &str, call: &Value) -> String {
    let own = call["name"].as_str();
    own.unwrap_or_else(|| kind.strip_suffix(CALL).unwrap_or(kind)).to_owned()
}

/// What people would look at first, or else all of it.
fn output(result: &Value) -> String {
    let (kind, told) = result.as_object().and_then(|result| result.iter().next()).unzip();
    let told = told.unwrap_or(result);
    let text = ["stdout", "output", "content", "error", "errorMessage"]
        .iter()
        .find_map(|member| told[*member].as_str().filter(|text| !text.is_empty()));
    match (text, kind) {
        (Some(text), _) => text.to_owned(),
        (None, Some(kind)) => format!("{kind}: {told}"),
        (None, None) => told.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // As its documentation and those who recorded it show it.
    const TOOLS: &str = include_str!("recorded/cursor-tool.jsonl");

    fn forced() -> Ask {
        Ask { text: "Count the files".to_owned(), force: true, ..Ask::default() }
    }

    #[test]
    fn what_it_says_becomes_events_once_each() {
        let (mut cursor, mut talk) = (dialect(forced()), Talk::default());
        cursor.open(&mut talk);
        assert_eq!(talk.lines, b"Count the files");
        assert!(talk.is_closed);
        for line in TOOLS.lines() {
            cursor.hear(line, &mut talk).unwrap();
        }
        let used = |name: &str| Event::ToolUse { name: name.to_owned() };
        let said = |output: &str| Event::ToolResult { output: output.to_owned() };
        let stats = [("inputTokens", 1200), ("outputTokens", 40), ("durationMs", 5234)];
        let expected = [
            Event::Init {
                model: Some("Claude 4 Sonnet".to_owned()),
                session: Some("c6b62c6f-7ead-4fd6-9922-e952131177ff".to_owned()),
            },
            Event::Text("I'll look.".to_owned()),
            used("shell"),
            said("7\n"),
            used("read"),
            said("# Project\n"),
            used("write"),
            said(r#"success: {"fileSize":7,"linesCreated":1,"path":"/repo/summary.txt"}"#),
            Event::Text("\n\nThere are 7.".to_owned()),
            Event::Done {
                summary: Some("I'll look.There are 7.".to_owned()),
                stats: stats
                    .map(|(name, figure)| (name.to_owned(), figure.into()))
                    .into_iter()
                    .collect(),
            },
        ];
        assert_eq!(talk.events, expected);
    }

    #[test]
    fn it_prints_where_it_may_do_everything_and_speaks_acp_where_it_has_to_ask() {
        let model = Some("sonnet-4".to_owned());
        let forced = Ask { model, session: Some("c6".to_owned()), ..forced() };
        let arguments = dialect(forced.clone()).arguments().join(" ");
        let expected =
            "-p --trust --force --output-format=stream-json --model=sonnet-4 --resume=c6";
        assert_eq!(arguments, expected);
        let asking = dialect(Ask { force: false, ..forced });
        assert_eq!(asking.arguments(), ["acp"]);
    }
}
