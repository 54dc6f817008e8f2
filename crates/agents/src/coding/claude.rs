//! Claude Code: JSON lines in both directions, permission requests included.

mod end;
mod request;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::failure::Failure;

use self::{
    end::{BackgroundTask, ClaudeResult, SessionState, WorkState},
    request::{ClaudePermission, ControlResult, PermissionRequest},
};
use super::dialect::{
    AgentEvent, Approval, ApprovalChoice, CliDialect, CodingRequest, DialectOutput, Image, json,
    plain,
};

/// One conversation with Claude Code.
#[derive(Debug)]
pub(crate) struct Claude {
    ask: CodingRequest,
    is_begun: bool,
    /// Whether something of the answer has been told.
    has_text: bool,
    /// What has been told of the block of text that is being written.
    block: String,
    /// What it waits for. The caller has been asked the first.
    requests: VecDeque<PermissionRequest>,
    /// How far the work is.
    work: WorkState,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeLine {
    System(System),
    StreamEvent {
        event: ClaudeStreamEvent,
        /// The tool that is an agent of its own, and said this.
        parent_tool_use_id: Option<String>,
    },
    Assistant {
        message: ClaudeMessage,
        parent_tool_use_id: Option<String>,
        /// Its own words for why there are none of the model; the result has them, too.
        error: Option<Value>,
    },
    User {
        message: ClaudeMessage,
    },
    ControlRequest {
        request_id: String,
        request: Control,
    },
    Result(ClaudeResult),
    #[serde(other)]
    Other,
}

/// What it says about itself. Nothing here is worth a turn that fails because it is said in another way
/// one day.
#[derive(Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
enum System {
    Init {
        model: Option<String>,
        session_id: Option<String>,
        /// The agents that it has, one of which works.
        agents: Option<Value>,
    },
    ApiRetry {
        attempt: Option<Value>,
        max_retries: Option<Value>,
    },
    SessionStateChanged {
        state: Option<Value>,
    },
    BackgroundTasksChanged {
        tasks: Option<Value>,
    },
    TaskStarted(Value),
    TaskNotification {
        task_id: Option<Value>,
    },
    #[serde(other)]
    Other,
}

/// A piece of what the model writes.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeStreamEvent {
    ContentBlockStart,
    ContentBlockDelta {
        delta: ClaudeDelta,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeDelta {
    TextDelta {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// What somebody said. Cursor, which speaks a language much like this one, has the same.
#[derive(Deserialize)]
pub(super) struct ClaudeMessage {
    content: ClaudeContent,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ClaudeContent {
    Text(String),
    Blocks(Vec<ClaudeBlock>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ClaudeBlock {
    Text {
        text: String,
    },
    ToolUse {
        name: String,
    },
    ToolResult {
        content: Option<ClaudeContent>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
enum Control {
    CanUseTool(ClaudePermission),
    #[serde(other)]
    Other,
}

/// The messages that it reads.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToClaude<'a> {
    User { message: ClaudePrompt<'a> },
    ControlRequest { request_id: &'a str, request: ControlCommand },
    ControlResponse { response: ControlResult },
}

#[derive(Serialize)]
struct ClaudePrompt<'a> {
    role: &'a str,
    content: Vec<PromptBlock<'a>>,
}

/// A piece of a message to it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PromptBlock<'a> {
    Text { text: &'a str },
    Image { source: ImageSource<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ImageSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
enum ControlCommand {
    Interrupt,
}

impl Claude {
    pub(crate) fn new(ask: CodingRequest) -> Self {
        let (block, requests, work) = (String::new(), VecDeque::new(), WorkState::default());
        Self { ask, is_begun: false, has_text: false, block, requests, work }
    }

    /// Tells more of a block of text. Blocks are paragraphs of the answer.
    fn emit_text(&mut self, text: &str, out: &mut DialectOutput) {
        if text.is_empty() {
            return;
        }
        let gap = if self.has_text && self.block.is_empty() { "\n\n" } else { "" };
        out.event(AgentEvent::Text(format!("{gap}{text}")));
        self.has_text = true;
        self.block.push_str(text);
    }

    /// It begins: with every message and every answer, but in one session.
    fn begin(
        &mut self,
        model: Option<String>,
        session: Option<String>,
        agents: Option<Vec<&str>>,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        // It goes on as another one if it does not have the agent that it should be.
        if let (Some(wanted), Some(agents)) = (&self.ask.profile, agents)
            && !agents.contains(&wanted.as_str())
        {
            let known = format!("it has {}", agents.join(", "));
            return Err(Failure::because(format!("has no agent `{wanted}` of its own"), known));
        }
        out.event(AgentEvent::Init { model, session });
        Ok(())
    }

    /// A block is there as a whole. Usually all of it has been told piece by piece.
    fn close_block(&mut self, text: &str, out: &mut DialectOutput) {
        match after(&self.block, text) {
            Some(rest) => self.emit_text(&rest, out),
            None => {
                // It was begun anew, as happens when the connection to the model breaks.
                self.block.clear();
                self.emit_text(text, out);
            }
        }
        self.block.clear();
    }

    /// Tells what came of the work. After its end there is nothing more to read.
    fn conclude(&mut self, event: Option<AgentEvent>, out: &mut DialectOutput) {
        let Some(event) = event else { return };
        if !matches!(event, AgentEvent::Background(_)) {
            out.close();
        }
        out.event(event);
    }

    fn ask_caller(&self, out: &mut DialectOutput) {
        if let Some(request) = self.requests.front() {
            out.event(AgentEvent::Approval(request.approval()));
        }
    }
}

impl CliDialect for Claude {
    fn arguments(&self) -> Vec<String> {
        // Its own flag for skipping permissions is refused to root. So it always asks, and who may do
        // everything is always told yes.
        let fixed = "-p --verbose --input-format=stream-json --output-format=stream-json \
                     --include-partial-messages --permission-prompt-tool=stdio";
        let fixed = fixed.split_ascii_whitespace().map(str::to_owned);
        let CodingRequest { model, profile, session, .. } = &self.ask;
        let chosen = [("model", model), ("agent", profile), ("resume", session)];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        fixed.chain(chosen.map(|(flag, value)| format!("--{flag}={value}"))).collect()
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        const STATE: (&str, &str) = ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
        // A message that says `@/etc/passwd` would have it read, wherever that is and unasked.
        const UNATTACHED: (&str, &str) = ("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1");
        if self.ask.force { &[STATE] } else { &[STATE, UNATTACHED] }
    }

    fn open(&mut self, out: &mut DialectOutput) {
        let text = plain(&self.ask.text);
        let images = self.ask.images.iter().map(|image| {
            let Image { media_type, data, .. } = image;
            PromptBlock::Image { source: ImageSource::Base64 { media_type, data } }
        });
        let content = [PromptBlock::Text { text: &text }].into_iter().chain(images).collect();
        ToClaude::User { message: ClaudePrompt { role: "user", content } }.send(out);
    }

    fn hear(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        let Some(line) = json(line)? else { return Ok(()) };
        match line {
            ClaudeLine::System(System::Init { model, session_id, agents }) => {
                let agents = agents.as_ref().and_then(Value::as_array);
                let names = agents.and_then(|all| all.iter().map(Value::as_str).collect());
                self.work.begin();
                self.begin(model, session_id, names, out)?;
            }
            ClaudeLine::System(System::SessionStateChanged { state }) => {
                let state = state.and_then(known::<SessionState>);
                let event = state.and_then(|state| self.work.change(state));
                self.conclude(event, out);
            }
            ClaudeLine::System(System::BackgroundTasksChanged { tasks }) => {
                if let Some(tasks) = tasks.and_then(known::<Vec<BackgroundTask>>) {
                    self.work.list(tasks);
                }
            }
            ClaudeLine::System(System::TaskStarted(task)) => {
                if let Some(task) = known::<BackgroundTask>(task) {
                    self.work.start(task);
                }
            }
            ClaudeLine::System(System::TaskNotification { task_id }) => {
                if let Some(task) = task_id.as_ref().and_then(Value::as_str) {
                    self.work.stop(task);
                }
            }
            ClaudeLine::System(System::ApiRetry { attempt, max_retries }) => {
                if let Some(attempt) = attempt.as_ref().and_then(Value::as_u64) {
                    let most = max_retries.as_ref().and_then(Value::as_u64);
                    out.event(AgentEvent::Retry { attempt, most });
                }
            }
            ClaudeLine::StreamEvent { event, parent_tool_use_id: None } => match event {
                ClaudeStreamEvent::ContentBlockStart => self.block.clear(),
                ClaudeStreamEvent::ContentBlockDelta { delta: ClaudeDelta::TextDelta { text } } => {
                    self.emit_text(&text, out);
                }
                ClaudeStreamEvent::ContentBlockDelta { delta: ClaudeDelta::Other }
                | ClaudeStreamEvent::Other => {}
            },
            ClaudeLine::Assistant { message, parent_tool_use_id, error: None } => {
                for block in message.blocks() {
                    match block {
                        // What its agents tell each other is not the answer.
                        ClaudeBlock::Text { text } if parent_tool_use_id.is_none() => {
                            self.close_block(&text, out);
                        }
                        ClaudeBlock::ToolUse { name } => out.event(AgentEvent::ToolUse { name }),
                        ClaudeBlock::Text { .. }
                        | ClaudeBlock::ToolResult { .. }
                        | ClaudeBlock::Other => {}
                    }
                }
            }
            ClaudeLine::User { message } => {
                for block in message.blocks() {
                    if let ClaudeBlock::ToolResult { content } = block {
                        let output = content.map(ClaudeContent::into_text).unwrap_or_default();
                        out.event(AgentEvent::ToolResult { output });
                    }
                }
            }
            ClaudeLine::ControlRequest {
                request_id: id,
                request: Control::CanUseTool(permission),
            } => {
                let request = PermissionRequest::new(id, permission);
                if self.ask.force {
                    ToClaude::ControlResponse { response: request.granted() }.send(out);
                } else {
                    self.requests.push_back(request);
                }
                if self.requests.len() == 1 {
                    self.ask_caller(out);
                }
            }
            ClaudeLine::ControlRequest { request_id, request: Control::Other } => {
                let error = "this is not known here".to_owned();
                ToClaude::ControlResponse { response: ControlResult::Error { request_id, error } }
                    .send(out);
            }
            ClaudeLine::Result(outcome) => {
                // Before it has begun, there is nothing to fail at but its session.
                let is_lost = outcome.is_error && !self.is_begun && self.ask.session.is_some();
                let event =
                    if is_lost { Some(AgentEvent::SessionLost) } else { self.work.result(outcome) };
                self.conclude(event, out);
            }
            ClaudeLine::StreamEvent { parent_tool_use_id: Some(_), .. }
            | ClaudeLine::Assistant { error: Some(_), .. }
            | ClaudeLine::System(System::Other)
            | ClaudeLine::Other => {}
        }
        Ok(())
    }

    fn answer(&mut self, _: &Approval, choice: &ApprovalChoice, out: &mut DialectOutput) {
        let response = self.requests.front_mut().and_then(|request| request.answer(choice));
        if let Some(response) = response {
            ToClaude::ControlResponse { response }.send(out);
            self.requests.pop_front();
        }
        self.ask_caller(out);
    }

    fn is_resting(&self) -> bool {
        self.work.is_resting()
    }

    fn rest(&mut self, out: &mut DialectOutput) {
        let event = self.work.end();
        self.conclude(event, out);
    }

    fn cancel(&mut self, out: &mut DialectOutput) {
        ToClaude::ControlRequest { request_id: "cancel", request: ControlCommand::Interrupt }
            .send(out);
    }
}

/// The agent's own description of the event, if its form is known.
fn known<T: DeserializeOwned>(said: Value) -> Option<T> {
    T::deserialize(said).ok()
}

/// What a text has beyond what was told of it, if that is its beginning. Where a piece ended in the
/// middle of a character a replacement was told, which is as long as the half in UTF-16.
fn after(told: &str, text: &str) -> Option<String> {
    let mut units = text.encode_utf16();
    let is_same = |unit: u16| {
        units.next().is_some_and(|next| next == unit || unit == char::REPLACEMENT_CHARACTER as u16)
    };
    told.encode_utf16().all(is_same).then(|| String::from_utf16_lossy(&units.collect::<Vec<_>>()))
}

impl ToClaude<'_> {
    fn send(&self, out: &mut DialectOutput) {
        out.line(serde_json::to_string(self).expect("its members are plain data"));
    }
}

impl ClaudeMessage {
    pub(super) fn blocks(self) -> Vec<ClaudeBlock> {
        match self.content {
            ClaudeContent::Text(text) => vec![ClaudeBlock::Text { text }],
            ClaudeContent::Blocks(blocks) => blocks,
        }
    }
}

impl ClaudeContent {
    fn into_text(self) -> String {
        let blocks = match self {
            Self::Text(text) => return text,
            Self::Blocks(blocks) => blocks,
        };
        let texts = blocks.into_iter().filter_map(|block| match block {
            ClaudeBlock::Text { text } => Some(text),
            ClaudeBlock::ToolUse { .. } | ClaudeBlock::ToolResult { .. } | ClaudeBlock::Other => {
                None
            }
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    // Recorded from Claude Code 2.1.197, without what nobody reads.
    const TOOL: &str = include_str!("recorded/claude-tool.jsonl");
    const QUESTION: &str = include_str!("recorded/claude-ask.jsonl");
    const REFUSED: &str = include_str!("recorded/claude-error.jsonl");
    const LOST: &str = include_str!("recorded/claude-lost.jsonl");
    const RETRY: &str = include_str!("recorded/claude-retry.jsonl");
    const BACKGROUND: &str = include_str!("recorded/claude-background-2.1.197.jsonl");
    // And from 2.1.325: a command that ends after the turn that started it, one that ends within
    // it, and a message after a process that was killed while such a command ran.
    const LISTED: &str = include_str!("recorded/claude-background.jsonl");
    const ENDED_WITHIN: &str = include_str!("recorded/claude-background-fast.jsonl");
    const STALE: &str = include_str!("recorded/claude-stale.jsonl");

    /// What is told to whom when it says these lines and each question gets the same answer.
    fn played(ask: CodingRequest, lines: &str, choice: usize) -> (Vec<AgentEvent>, Vec<Value>) {
        let (mut claude, mut out) = (Claude::new(ask), DialectOutput::default());
        let mut answered = 0;
        for line in lines.lines() {
            claude.hear(line, &mut out).unwrap();
            while let Some(AgentEvent::Approval(approval)) = out.events.get(answered).cloned() {
                answered += 1;
                claude.answer(&approval, &approval.choices[choice], &mut out);
            }
            answered = out.events.len();
        }
        let said = String::from_utf8(out.lines).unwrap();
        (out.events, said.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn texts(events: &[AgentEvent]) -> String {
        let mut told = String::new();
        for event in events {
            if let AgentEvent::Text(text) = event {
                told.push_str(text);
            }
        }
        told
    }

    /// The question.
    fn asked(events: &[AgentEvent]) -> &Approval {
        let is_question = |event: &&AgentEvent| matches!(event, AgentEvent::Approval(_));
        let Some(AgentEvent::Approval(asked)) = events.iter().find(is_question) else {
            panic!("{events:?}")
        };
        asked
    }

    #[test]
    fn what_it_says_about_itself_in_another_way_fails_nothing() {
        let ask =
            CodingRequest { profile: Some("reviewer".to_owned()), ..CodingRequest::default() };
        let lines = r#"{"type":"system","subtype":"init","session_id":"s","agents":[{"name":"reviewer"}]}
            {"type":"system","subtype":"api_retry","attempt":"first"}
            {"type":"system","subtype":"api_retry"}
            {"type":"system","subtype":"session_state_changed","state":{"is":"idle"}}
            {"type":"system","subtype":"background_tasks_changed","tasks":{"one":"task"}}
            {"type":"system","subtype":"task_started","task_id":7}
            {"type":"system","subtype":"task_notification","task_id":7}"#;
        let begun = AgentEvent::Init { model: None, session: Some("s".to_owned()) };
        assert_eq!(played(ask, lines, 0).0, [begun]);
    }

    #[test]
    fn what_it_says_becomes_events_once_each() {
        let (events, said) =
            played(CodingRequest { force: true, ..CodingRequest::default() }, TOOL, 0);
        assert_eq!(
            events[0],
            AgentEvent::Init {
                model: Some("claude-opus-4-8[1m]".to_owned()),
                session: Some("f31acf28-d77a-4aa3-a063-201f6cb8fe3a".to_owned()),
            }
        );
        assert_eq!(texts(&events), "Let me look.\n\nHello there, you.");
        let tools = events.iter().filter(|event| matches!(event, AgentEvent::ToolUse { .. }));
        assert_eq!(tools.collect::<Vec<_>>(), [&AgentEvent::ToolUse { name: "Bash".to_owned() }]);
        assert!(events.contains(&AgentEvent::ToolResult { output: "done it".to_owned() }));
        let Some(AgentEvent::Done { summary, stats }) = events.last() else { panic!("{events:?}") };
        assert_eq!(summary.as_deref(), Some("Hello there, you."));
        let expected = json!({
            "durationMs": 931, "turns": 2, "costUsd": 0.0011, "inputTokens": 20,
            "outputTokens": 40, "cacheReadTokens": 0, "cacheWriteTokens": 0,
        });
        assert_eq!(Value::from(stats.clone()), expected);
        // Who may do everything asks nobody.
        assert!(!events.iter().any(|event| matches!(event, AgentEvent::Approval(_))));
        assert_eq!(said[0]["response"]["response"]["behavior"], "allow");
    }

    #[test]
    fn without_force_the_caller_decides() {
        let (events, said) = played(CodingRequest::default(), TOOL, 0);
        let asked = asked(&events);
        assert_eq!(asked.prompt, "Bash: touch made.txt && echo done it");
        assert_eq!(asked.detail["input"]["command"], "touch made.txt && echo done it");
        let response = &said[0]["response"];
        assert_eq!(response["request_id"], asked.id.as_str());
        assert_eq!(response["response"]["updatedInput"], asked.detail["input"]);
        assert_eq!(response["response"]["updatedPermissions"], json!([]));

        // Not to be asked again is for this run: neither settings nor modes change.
        let (_, said) = played(CodingRequest::default(), TOOL, 1);
        let rules = said[0]["response"]["response"]["updatedPermissions"].as_array().unwrap();
        assert_eq!(rules.len(), 2);
        assert!(rules.iter().all(|rule| rule["destination"] == "session"));

        let (_, said) = played(CodingRequest::default(), TOOL, 2);
        assert_eq!(said[0]["response"]["response"]["behavior"], "deny");
    }

    #[test]
    fn its_own_questions_are_asked_with_what_it_offers() {
        let (events, said) = played(CodingRequest::default(), QUESTION, 0);
        let labels: Vec<_> = asked(&events).choices.iter().map(|choice| &*choice.label).collect();
        assert_eq!(labels, ["Red", "Blue", "No answer"]);
        let input = &said[0]["response"]["response"]["updatedInput"];
        assert_eq!(input["answers"], json!({ "Which color?": "Red" }));
    }

    #[test]
    fn an_option_may_be_called_as_a_choice_of_ours_is() {
        // Rules come with a question only where somebody wants them to be allowed by its answer.
        let rules = r#""permission_suggestions":[{"type":"addRules"}],"tool_name""#;
        let lines = QUESTION.replace("Red", "always").replace(r#""tool_name""#, rules);
        let (events, said) = played(CodingRequest::default(), &lines, 0);
        assert!(asked(&events).is_question);
        let response = &said[0]["response"]["response"];
        assert_eq!(response["updatedInput"]["answers"], json!({ "Which color?": "always" }));
        assert_eq!(response["updatedPermissions"], json!([]));
    }

    #[test]
    fn the_work_ends_with_the_turn_after_its_last_background_task() {
        for lines in [BACKGROUND, LISTED, ENDED_WITHIN] {
            let (mut claude, mut out) =
                (Claude::new(CodingRequest::default()), DialectOutput::default());
            for line in lines.lines() {
                assert!(!out.is_closed, "before {line}");
                claude.hear(line, &mut out).unwrap();
            }
            let ends = |event: &&AgentEvent| matches!(event, AgentEvent::Done { .. });
            assert_eq!(out.events.iter().filter(ends).count(), 1);
            let Some(AgentEvent::Done { summary, stats }) = out.events.last() else {
                panic!("{:?}", out.events)
            };
            assert_eq!(summary.as_deref(), Some("Notified: all is done."));
            assert_eq!((&stats["turns"], &stats["outputTokens"]), (&json!(3), &json!(60)));
            assert!(out.is_closed);
        }
    }

    #[test]
    fn a_result_about_earlier_work_does_not_answer_the_message() {
        let session = Some("c29277ad-1b20-400a-9e4e-f4343e8782ff".to_owned());
        let (events, _) = played(CodingRequest { session, ..CodingRequest::default() }, STALE, 0);
        let ends = |event: &&AgentEvent| matches!(event, AgentEvent::Done { .. });
        assert_eq!(events.iter().filter(ends).count(), 1);
        let Some(AgentEvent::Done { summary, stats }) = events.last() else { panic!("{events:?}") };
        assert_eq!(summary.as_deref(), Some("Notified: all is done."));
        assert_eq!(stats["turns"], 1);
    }

    #[test]
    fn silence_ends_the_work_where_no_turn_follows_a_background_task() {
        let (mut claude, mut out) =
            (Claude::new(CodingRequest::default()), DialectOutput::default());
        for line in LISTED.lines() {
            if claude.is_resting() {
                break;
            }
            claude.hear(line, &mut out).unwrap();
        }
        assert_eq!(out.events.last(), Some(&AgentEvent::Background(vec!["bg".to_owned()])));
        claude.rest(&mut out);
        let Some(AgentEvent::Done { summary, .. }) = out.events.last() else { panic!() };
        assert_eq!(summary.as_deref(), Some("First result: launched."));
        // The next turn would have begun here, and is not cut off.
        let mut claude = Claude::new(CodingRequest::default());
        for line in LISTED.lines().take_while(|line| !line.contains("Notified")) {
            claude.hear(line, &mut out).unwrap();
        }
        assert!(!claude.is_resting());
    }

    #[test]
    fn a_model_that_does_not_answer_is_told_of_each_time() {
        let (events, _) = played(CodingRequest::default(), RETRY, 0);
        let retry = |attempt| AgentEvent::Retry { attempt, most: Some(10) };
        assert_eq!(events[1..], [retry(1), retry(2)]);
    }

    #[test]
    fn an_agent_that_it_does_not_have_is_no_reason_to_be_another() {
        let hear = |agent: &str| {
            let ask = CodingRequest { profile: Some(agent.to_owned()), ..CodingRequest::default() };
            let mut out = DialectOutput::default();
            Claude::new(ask).hear(RETRY.lines().next().unwrap(), &mut out)
        };
        assert_eq!(hear("Plan"), Ok(()));
        assert_eq!(hear("plain").unwrap_err().kind, "has no agent `plain` of its own");
    }

    #[test]
    fn questions_wait_for_each_other() {
        let (mut claude, mut out) =
            (Claude::new(CodingRequest::default()), DialectOutput::default());
        let asks = TOOL.lines().find(|line| line.contains("can_use_tool")).unwrap();
        claude.hear(asks, &mut out).unwrap();
        claude.hear(&asks.replace("4d5f0c15", "00000000"), &mut out).unwrap();
        let [AgentEvent::Approval(first)] = &out.events[..] else { panic!("{:?}", out.events) };
        let first = first.clone();
        claude.answer(&first, &first.choices[0], &mut out);
        let [_, AgentEvent::Approval(second)] = &out.events[..] else { panic!("{:?}", out.events) };
        assert!(second.id.starts_with("00000000"));
    }

    #[test]
    fn why_it_failed_is_told_in_its_words_and_not_as_an_answer() {
        let (events, _) = played(CodingRequest::default(), REFUSED, 0);
        assert_eq!(texts(&events), "");
        let said = AgentEvent::Error("Invalid API key · Fix external API key".to_owned());
        assert_eq!(events.last(), Some(&said));
    }

    #[test]
    fn a_session_that_is_gone_is_told_apart() {
        let session = Some("186179ba-0511-463d-bf2f-6b7b75e5388f".to_owned());
        let (events, _) = played(CodingRequest { session, ..CodingRequest::default() }, LOST, 0);
        assert_eq!(events, [AgentEvent::SessionLost]);
    }

    #[test]
    fn a_text_that_came_in_pieces_and_was_begun_anew_is_told_whole() {
        let piece = |text: &str| {
            let delta = json!({ "type": "text_delta", "text": text });
            let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
            json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null })
        };
        let whole = |text: &str| {
            let content = json!([{ "type": "text", "text": text }]);
            json!({ "type": "assistant", "message": { "role": "assistant", "content": content } })
        };
        for (lines, expected) in [
            (vec![piece("Hel"), whole("Hello")], "Hello"),
            // Two halves of a character came in two pieces.
            (vec![piece("a\u{fffd}"), piece("\u{fffd}b"), whole("a🦀b.")], "a\u{fffd}\u{fffd}b."),
            (vec![piece("Goo"), whole("Hello")], "Goo\n\nHello"),
            (vec![whole("One"), whole("Two")], "One\n\nTwo"),
        ] {
            let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
            let (events, _) = played(CodingRequest::default(), &lines.join("\n"), 0);
            assert_eq!(texts(&events), expected);
        }
    }

    #[test]
    fn nothing_that_a_caller_said_is_on_its_command_line() {
        let ask = CodingRequest {
            text: "--version".to_owned(),
            session: Some("s".to_owned()),
            model: Some("sonnet".to_owned()),
            ..CodingRequest::default()
        };
        let arguments = Claude::new(ask).arguments();
        assert!(!arguments.contains(&"--version".to_owned()));
        assert!(arguments.ends_with(&["--model=sonnet".to_owned(), "--resume=s".to_owned()]));
    }
}
