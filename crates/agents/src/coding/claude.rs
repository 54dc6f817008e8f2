//! Claude Code: JSON lines in both directions, permission requests included.

mod end;
mod request;
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests;
mod tools;
mod wire;

use std::collections::VecDeque;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::{
    end::{BackgroundTask, SessionState, WorkState},
    request::{ControlResult, PermissionRequest},
    wire::{
        ClaudeContent, ClaudeDelta, ClaudeLine, ClaudePrompt, ClaudeStreamEvent, ControlCommand,
        ControlRequest, ImageSource, PromptBlock, SystemEvent, ToClaude,
    },
};
use super::{
    activity::{AgentActivity, ModelRetry, ToolEnd},
    dialect::{
        AgentEvent, Approval, ApprovalAnswer, CliDialect, CodingRequest, CodingResult,
        DialectOutput, Image, escape_command, parse_json,
    },
};
use crate::failure::Failure;

pub(super) use self::wire::{ClaudeBlock, ClaudeMessage};

/// Id of the request that cancels.
const CANCEL: &str = "cancel";

/// One conversation with Claude Code.
#[derive(Debug)]
pub(crate) struct Claude {
    request: CodingRequest,
    is_begun: bool,
    /// True once a part of the answer has been emitted.
    has_text: bool,
    /// The emitted part of the current block of text.
    block: String,
    /// Permission requests without an answer. The caller has been asked about the first.
    requests: VecDeque<PermissionRequest>,
    work: WorkState,
    /// True once Claude Code has answered the cancel.
    has_cancelled: bool,
}

impl Claude {
    pub(crate) fn new(request: CodingRequest) -> Self {
        let (block, requests, work) = (String::new(), VecDeque::new(), WorkState::default());
        let (is_begun, has_text, has_cancelled) = (false, false, false);
        Self { request, is_begun, has_text, block, requests, work, has_cancelled }
    }

    /// Emits more text of the current block. Blocks are paragraphs of the answer.
    fn emit_text(&mut self, text: &str, out: &mut DialectOutput) {
        if text.is_empty() {
            return;
        }
        let gap = if self.has_text && self.block.is_empty() { "\n\n" } else { "" };
        out.event(AgentEvent::Text(format!("{gap}{text}")));
        self.has_text = true;
        self.block.push_str(text);
    }

    /// Handles an `init`. Claude Code writes one for every message and every answer; only the first begins
    /// the session.
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
        // Claude Code would silently use its default agent instead of one that it does not have.
        if let (Some(wanted), Some(agents)) = (&self.request.profile, agents)
            && !agents.contains(&wanted.as_str())
        {
            let known = format!("its agents are {}", agents.join(", "));
            return Err(Failure::because(format!("has no agent `{wanted}`"), known));
        }
        out.event(AgentEvent::Init { model, session });
        Ok(())
    }

    /// Handles a complete block. Usually all of it has been emitted in pieces.
    fn close_block(&mut self, text: &str, out: &mut DialectOutput) {
        match after(&self.block, text) {
            Some(rest) => self.emit_text(&rest, out),
            None => {
                // The model started over, which happens after a lost connection.
                self.block.clear();
                self.emit_text(text, out);
            }
        }
        self.block.clear();
    }

    /// Emits the end of the work and closes the input, or emits that background tasks continue.
    fn conclude(&mut self, event: Option<AgentEvent>, out: &mut DialectOutput) {
        let Some(event) = event else { return };
        if !matches!(event, AgentEvent::Activity(_)) {
            out.close();
        }
        out.event(event);
    }

    /// Writes a message of the caller.
    fn write_message(&mut self, text: &str, images: &[Image], out: &mut DialectOutput) {
        let text = escape_command(text);
        let images = images.iter().map(|Image { media_type, data, .. }| PromptBlock::Image {
            source: ImageSource::Base64 { media_type, data },
        });
        let content = [PromptBlock::Text { text: &text }].into_iter().chain(images).collect();
        ToClaude::User { message: ClaudePrompt { role: "user", content } }.send(out);
        self.work.wrote_message();
    }

    fn ask_next(&self, out: &mut DialectOutput) {
        if let Some(request) = self.requests.front() {
            out.event(AgentEvent::Approval(request.approval()));
        }
    }
}

impl CliDialect for Claude {
    fn arguments(&self) -> Vec<String> {
        // Claude Code refuses its flag for skipping permissions to root. Therefore it always asks, and
        // with `force` the answer is always yes.
        let fixed = "-p --verbose --input-format=stream-json --output-format=stream-json \
                     --include-partial-messages --replay-user-messages \
                     --permission-prompt-tool=stdio";
        let fixed = fixed.split_ascii_whitespace().map(str::to_owned);
        let CodingRequest { model, profile, session, .. } = &self.request;
        let chosen = [("model", model), ("agent", profile), ("resume", session)];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        fixed.chain(chosen.map(|(flag, value)| format!("--{flag}={value}"))).collect()
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        const STATE: (&str, &str) = ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
        // Otherwise `@/etc/passwd` in a message would attach that file without a permission request.
        const NO_ATTACHMENTS: (&str, &str) = ("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1");
        if self.request.force { &[STATE] } else { &[STATE, NO_ATTACHMENTS] }
    }

    fn open(&mut self, out: &mut DialectOutput) {
        let request = std::mem::take(&mut self.request);
        self.write_message(&request.text, &request.images, out);
        self.request = request;
    }

    fn can_steer(&self) -> bool {
        self.work.has_replays()
    }

    fn steer(&mut self, text: &str, images: &[Image], out: &mut DialectOutput) {
        self.write_message(text, images, out);
    }

    fn handle_line(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        let Some(line) = parse_json(line)? else { return Ok(()) };
        match line {
            ClaudeLine::System(SystemEvent::Init { model, session_id, agents }) => {
                let agents = agents.as_ref().and_then(Value::as_array);
                let names = agents.and_then(|all| all.iter().map(Value::as_str).collect());
                self.work.begin();
                self.begin(model, session_id, names, out)?;
            }
            ClaudeLine::System(SystemEvent::SessionStateChanged { state }) => {
                let state = state.and_then(known::<SessionState>);
                let event = state.and_then(|state| self.work.change(state));
                self.conclude(event, out);
            }
            ClaudeLine::System(SystemEvent::BackgroundTasksChanged { tasks }) => {
                if let Some(tasks) = tasks.and_then(known::<Vec<BackgroundTask>>) {
                    self.work.list(tasks);
                }
            }
            ClaudeLine::System(SystemEvent::TaskStarted(task)) => {
                if let Some(task) = known::<BackgroundTask>(task) {
                    self.work.start(task);
                }
            }
            ClaudeLine::System(SystemEvent::TaskNotification { task_id }) => {
                if let Some(task) = task_id.as_ref().and_then(Value::as_str) {
                    self.work.stop(task);
                }
            }
            ClaudeLine::System(SystemEvent::ApiRetry {
                attempt,
                max_retries,
                retry_delay_ms,
                error_status,
                error,
            }) => {
                // Delays may be fractions.
                let number = |value: Option<Value>| value.and_then(known::<f64>).map(|n| n as u64);
                if let Some(attempt) = number(attempt) {
                    out.event(AgentEvent::Activity(AgentActivity::Retry(ModelRetry {
                        attempt,
                        most: number(max_retries),
                        status: number(error_status).and_then(|status| u16::try_from(status).ok()),
                        error: error.and_then(known),
                        delay_ms: number(retry_delay_ms),
                    })));
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
                        // Text of subagents is not part of the answer.
                        ClaudeBlock::Text { text } if parent_tool_use_id.is_none() => {
                            self.close_block(&text, out);
                        }
                        // Nor are their thoughts.
                        ClaudeBlock::Thinking { thinking } if parent_tool_use_id.is_none() => {
                            out.event(AgentEvent::Activity(AgentActivity::Thinking(thinking)));
                        }
                        ClaudeBlock::ToolUse { id, name, input } => {
                            tools::start(id, parent_tool_use_id.clone(), name, input, out);
                        }
                        ClaudeBlock::Text { .. }
                        | ClaudeBlock::Thinking { .. }
                        | ClaudeBlock::ToolResult { .. }
                        | ClaudeBlock::Other => {}
                    }
                }
            }
            ClaudeLine::User { is_replay: true, .. } => self.work.replayed(),
            ClaudeLine::User { message, tool_use_result, is_replay: false } => {
                for block in message.blocks() {
                    if let ClaudeBlock::ToolResult { tool_use_id, content, is_error } = block {
                        out.event(AgentEvent::Activity(AgentActivity::ToolEnded(ToolEnd {
                            id: tool_use_id,
                            is_error: is_error.unwrap_or(false),
                            output: content.map(ClaudeContent::into_text).unwrap_or_default(),
                            diff: tool_use_result.as_ref().and_then(tools::diff),
                        })));
                    }
                }
            }
            ClaudeLine::ControlRequest {
                request_id: id,
                request: ControlRequest::CanUseTool(permission),
            } => {
                let request = PermissionRequest::new(id, permission, &self.request.directory);
                if self.request.force {
                    ToClaude::ControlResponse { response: request.granted() }.send(out);
                } else {
                    self.requests.push_back(request);
                }
                if self.requests.len() == 1 {
                    self.ask_next(out);
                }
            }
            ClaudeLine::ControlRequest { request_id, request: ControlRequest::Other } => {
                let error = "this control request is not supported".to_owned();
                ToClaude::ControlResponse { response: ControlResult::Error { request_id, error } }
                    .send(out);
            }
            ClaudeLine::ControlResponse { response } => {
                let id = response.as_ref().and_then(|response| response.get("request_id"));
                self.has_cancelled |= id.and_then(Value::as_str) == Some(CANCEL);
            }
            ClaudeLine::Result(outcome) => {
                // An error before the `init` can only be about the session.
                let is_lost = outcome.is_error && !self.is_begun && self.request.session.is_some();
                let event =
                    if is_lost { Some(AgentEvent::SessionLost) } else { self.work.result(outcome) };
                self.conclude(event, out);
            }
            ClaudeLine::StreamEvent { parent_tool_use_id: Some(_), .. }
            | ClaudeLine::Assistant { error: Some(_), .. }
            | ClaudeLine::System(SystemEvent::Other)
            | ClaudeLine::Other => {}
        }
        Ok(())
    }

    fn answer(&mut self, _: &Approval, decision: &ApprovalAnswer, out: &mut DialectOutput) {
        let response = self.requests.front_mut().and_then(|request| request.answer(decision));
        if let Some(response) = response {
            ToClaude::ControlResponse { response }.send(out);
            self.requests.pop_front();
        }
        self.ask_next(out);
    }

    fn end_background(&mut self, out: &mut DialectOutput) {
        let event = self.work.result_so_far().map(AgentEvent::Done);
        self.conclude(event, out);
    }

    fn result_so_far(&mut self) -> Option<CodingResult> {
        self.work.result_so_far()
    }

    fn is_idle(&self) -> bool {
        self.work.is_idle()
    }

    fn finish_idle(&mut self, out: &mut DialectOutput) {
        let event = self.work.end();
        self.conclude(event, out);
    }

    fn cancel(&mut self, out: &mut DialectOutput) {
        ToClaude::ControlRequest { request_id: CANCEL, request: ControlCommand::Interrupt }
            .send(out);
    }

    fn has_cancelled(&self) -> bool {
        self.has_cancelled
    }
}

/// The rest of `text` after `emitted`; `None` if it does not begin with that. A piece that ended in the middle
/// of a character was emitted with U+FFFD, which is as long in UTF-16 as half of that character.
fn after(emitted: &str, text: &str) -> Option<String> {
    let mut units = text.encode_utf16();
    let is_same = |unit: u16| {
        units.next().is_some_and(|next| next == unit || unit == char::REPLACEMENT_CHARACTER as u16)
    };
    emitted
        .encode_utf16()
        .all(is_same)
        .then(|| String::from_utf16_lossy(&units.collect::<Vec<_>>()))
}

/// The value as this type, or `None` if a later version has changed its form.
fn known<T: DeserializeOwned>(value: Value) -> Option<T> {
    T::deserialize(value).ok()
}
