//! Codex app server: JSON-RPC in both directions, one message per line.
//!
//! `codex exec --json` would be simpler, but it has no approvals and does not stream. One dialect serves
//! agents with and without approvals.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;

use serde_json::{Map, Value, value::RawValue};

use self::wire::{
    ApprovalDecision, CodexCall, CodexDelta, CodexItem, CodexUsage, CommandApproval, Elicitation,
    ElicitationAction, ErrorNotice, FileApproval, FromCodex, ItemNotice, ThreadParams, ThreadReply,
    TurnNotice, TurnReply, UsageNotice,
};
use super::{
    activity::{Activity, ModelRetry},
    dialect::{
        AgentEvent, Approval, ApprovalChoice, CliDialect, CodingRequest, CodingResult, Decision,
        DialectOutput,
    },
    usage::Usage,
};
use crate::failure::Failure;

/// Separator between two messages of one answer.
const PARAGRAPH: &str = "\n\n";

/// Method of the notification that ends a turn.
const COMPLETED: &str = "turn/completed";

/// Names of choices in the protocols of Codex and MCP.
const ACCEPT: &str = "accept";
const ACCEPT_FOR_SESSION: &str = "acceptForSession";
const DECLINE: &str = "decline";

/// One turn of a thread, as Codex calls a session.
#[derive(Debug)]
pub(crate) struct Codex {
    request: CodingRequest,
    /// Id of the thread. Events of other threads are those of subagents.
    thread: String,
    turn: String,
    /// The proposed changes of files by item id. An approval request has only the id.
    changes: HashMap<String, Vec<Value>>,
    /// Requests without an answer, by the approval's id.
    pending: HashMap<String, (AnswerFormat, Box<RawValue>)>,
    /// Id of the message whose text is being emitted.
    current_message: Option<String>,
    /// The last complete message.
    summary: Option<String>,
    usage: CodexUsage,
    /// Retries of the model since its last output.
    retries: u64,
}

/// Format of the answer to a request.
#[derive(Debug, Clone, Copy)]
enum AnswerFormat {
    /// A decision of Codex, for a command or files.
    Decision,
    /// An elicitation result of MCP, for a tool of an MCP server.
    Elicitation,
}

impl Codex {
    pub(crate) fn new(request: CodingRequest) -> Self {
        Self {
            request,
            thread: String::new(),
            turn: String::new(),
            changes: HashMap::new(),
            pending: HashMap::new(),
            current_message: None,
            summary: None,
            usage: CodexUsage::default(),
            retries: 0,
        }
    }

    /// The line that starts or resumes the thread.
    fn open_thread(&self) -> String {
        let CodingRequest { session, model, settings, force, directory, .. } = &self.request;
        // Without force nothing is changed before an approval: commands can only read and have to ask
        // for more. The configuration may choose another sandbox.
        let (approval_policy, sandbox) =
            if *force { ("never", "danger-full-access") } else { ("on-request", "read-only") };
        let call = if session.is_some() { CodexCall::Resume } else { CodexCall::Start };
        call.line(&ThreadParams {
            thread_id: session.as_deref(),
            exclude_turns: session.is_some(),
            model: model.as_deref(),
            cwd: directory,
            approval_policy,
            sandbox: Some(sandbox).filter(|_| !settings.contains_key("sandbox_mode")),
            config: settings,
        })
    }

    /// Handles the result of a call.
    fn handle_result(
        &mut self,
        call: CodexCall,
        result: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        match call {
            CodexCall::Initialize => {
                out.line(wire::initialized());
                out.line(self.open_thread());
            }
            CodexCall::Start | CodexCall::Resume => {
                let ThreadReply { thread, model } = wire::read(result)?;
                self.thread = thread.id;
                let session = Some(self.thread.clone());
                out.event(AgentEvent::Init { model: Some(model), session });
                out.line(CodexCall::turn(&self.thread, &self.request.text, &self.request.images));
            }
            CodexCall::Turn => self.turn = wire::read::<TurnReply>(result)?.turn.id,
            CodexCall::Interrupt => {}
        }
        Ok(())
    }

    /// Handles a notification.
    fn handle_notification(
        &mut self,
        method: &str,
        params: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        match method {
            "item/agentMessage/delta" => {
                let CodexDelta { thread_id, item_id, delta } = wire::read(params)?;
                if thread_id == self.thread {
                    self.emit_text(item_id, delta, out);
                }
            }
            "error" => {
                let ErrorNotice { thread_id, will_retry } = wire::read(params)?;
                if thread_id == self.thread && will_retry {
                    self.retries += 1;
                    let retry = ModelRetry { attempt: self.retries, ..ModelRetry::default() };
                    out.event(AgentEvent::Activity(Activity::Retry(retry)));
                }
            }
            "item/started" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                if thread_id == self.thread {
                    self.retries = 0;
                    if let Some(start) = item.start() {
                        out.event(AgentEvent::Activity(Activity::ToolStarted(start)));
                    }
                }
                if let CodexItem::FileChange { id, changes, .. } = item {
                    self.changes.insert(id, wire::limit_diffs(changes));
                }
            }
            "item/completed" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                if let CodexItem::FileChange { id, .. } = &item {
                    self.changes.remove(id);
                }
                if thread_id == self.thread {
                    self.complete_item(item, out);
                }
            }
            "thread/tokenUsage/updated" => {
                let UsageNotice { thread_id, turn_id, token_usage } = wire::read(params)?;
                // A resumed thread first reports the usage of its earlier turns.
                if thread_id == self.thread && turn_id == self.turn {
                    self.usage.add(&token_usage.last);
                }
            }
            COMPLETED => {
                let TurnNotice { thread_id, turn } = wire::read(params)?;
                if thread_id == self.thread {
                    self.end_turn(turn, out);
                }
            }
            // The others are for clients with a user interface.
            _ => {}
        }
        Ok(())
    }

    fn emit_text(&mut self, message: String, text: String, out: &mut DialectOutput) {
        let is_new = self.current_message.as_ref() != Some(&message);
        if is_new && self.current_message.replace(message).is_some() {
            out.event(AgentEvent::Text(PARAGRAPH.to_owned()));
        }
        out.event(AgentEvent::Text(text));
    }

    fn complete_item(&mut self, item: CodexItem, out: &mut DialectOutput) {
        if let CodexItem::AgentMessage { id, text } = item {
            // A message that came in pieces has been emitted already.
            if self.current_message.as_ref() != Some(&id) && !text.is_empty() {
                self.emit_text(id, text.clone(), out);
            }
            self.summary = Some(text);
        } else if let Some(end) = item.end() {
            out.event(AgentEvent::Activity(Activity::ToolEnded(end)));
        }
    }

    fn end_turn(&mut self, turn: wire::CodexTurn, out: &mut DialectOutput) {
        let usage = self.usage.usage(turn.duration_ms);
        out.event(match (turn.status.as_str(), turn.error) {
            ("completed", _) => {
                let summary = self.summary.take();
                AgentEvent::Done(CodingResult { summary, usage, ..CodingResult::default() })
            }
            (_, Some(error)) => AgentEvent::Error { message: error.message, usage },
            (status, None) => {
                let message = format!("the turn ended with status {status}");
                AgentEvent::Error { message, usage }
            }
        });
        self.turn.clear();
        out.close();
    }

    /// Handles a request of Codex.
    fn handle_request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        let (format, prompt, for_session, detail) = match method {
            "item/commandExecution/requestApproval" => {
                let request: CommandApproval = wire::read(params)?;
                let what = format!("shell: {}", request.command.unwrap_or_default());
                let for_session =
                    request.available_decisions.iter().any(|one| one == ACCEPT_FOR_SESSION);
                let detail = wire::members(params, &["command", "cwd", "reason"])?;
                (AnswerFormat::Decision, with_reason(what, request.reason), for_session, detail)
            }
            "item/fileChange/requestApproval" => {
                let FileApproval { item_id, reason } = wire::read(params)?;
                let changes = self.changes.get(&item_id).cloned().unwrap_or_default();
                let what = format!("apply_patch: {}", wire::paths(&changes));
                let detail = Map::from_iter([("changes".to_owned(), Value::Array(changes))]);
                (AnswerFormat::Decision, with_reason(what, reason), true, detail)
            }
            "mcpServer/elicitation/request" => {
                let request: Elicitation = wire::read(params)?;
                if !request.is_yes_or_no() {
                    // It asks for a form, and only choices can be passed to callers.
                    out.line(AnswerFormat::Elicitation.answer(id, DECLINE));
                    return Ok(());
                }
                let detail = wire::members(params, &["serverName", "_meta"])?;
                let what = request.message.trim_end_matches('?').to_owned();
                (AnswerFormat::Elicitation, what, false, detail)
            }
            _ => {
                out.line(wire::refuse(id));
                return Ok(());
            }
        };
        self.pending.insert(id.get().to_owned(), (format, id.to_owned()));
        out.event(AgentEvent::Approval(Approval {
            id: id.get().to_owned(),
            prompt,
            choices: choices(for_session),
            detail: Value::Object(detail),
            ..Approval::default()
        }));
        Ok(())
    }
}

impl CliDialect for Codex {
    fn arguments(&self) -> Vec<String> {
        vec!["app-server".to_owned()]
    }

    fn open(&mut self, out: &mut DialectOutput) {
        out.line(CodexCall::initialize());
    }

    fn handle_line(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        match FromCodex::read(line) {
            FromCodex::Reply(call, Ok(result)) => self.handle_result(call, result, out),
            FromCodex::Reply(CodexCall::Interrupt, Err(_)) | FromCodex::Other => Ok(()),
            FromCodex::Reply(call, Err(why)) => {
                let event = if call == CodexCall::Resume {
                    // Codex has no error code for an unknown thread. Any other cause fails the new
                    // thread as well.
                    let CodingRequest { agent, task, .. } = &self.request;
                    tracing::warn!(%task, %agent, why, "the agent's session cannot be resumed");
                    AgentEvent::SessionLost
                } else {
                    let message = format!("{}: {why}", call.method());
                    AgentEvent::Error { message, usage: Usage::default() }
                };
                out.event(event);
                out.close();
                Ok(())
            }
            FromCodex::Request { id, method, params } => {
                if self.handle_request(id, &method, params, out).is_err() {
                    out.line(wire::refuse(id));
                }
                Ok(())
            }
            FromCodex::Notice { method, params } => {
                match self.handle_notification(&method, params, out) {
                    // An unreadable end would leave the turn waiting.
                    Err(failure) if method == COMPLETED => Err(failure),
                    Ok(()) | Err(_) => Ok(()),
                }
            }
        }
    }

    fn answer(&mut self, approval: &Approval, decision: &Decision, out: &mut DialectOutput) {
        if let Some((format, id)) = self.pending.remove(&approval.id) {
            out.line(format.answer(&id, &decision.choice.id));
        }
    }

    fn cancel(&mut self, out: &mut DialectOutput) {
        // The thread then records the interruption for later turns.
        if !self.turn.is_empty() {
            out.line(CodexCall::interrupt(&self.thread, &self.turn));
        }
        out.close();
    }

    fn has_cancelled(&self) -> bool {
        self.turn.is_empty()
    }
}

impl AnswerFormat {
    fn answer(self, id: &RawValue, choice: &str) -> String {
        match self {
            Self::Decision => wire::answer(id, &ApprovalDecision { decision: choice }),
            Self::Elicitation => {
                wire::answer(id, &ElicitationAction { action: choice, content: None })
            }
        }
    }
}

/// The choices of an approval. A denial does not end the turn: Codex tries another way.
fn choices(for_session: bool) -> Vec<ApprovalChoice> {
    let mut choices = vec![ApprovalChoice::new(ACCEPT, "Yes", true)];
    if for_session {
        choices.push(ApprovalChoice::new(
            ACCEPT_FOR_SESSION,
            "Yes, and do not ask again in this task",
            true,
        ));
    }
    choices.push(ApprovalChoice::new(DECLINE, "No", false));
    choices
}

fn with_reason(what: String, reason: Option<String>) -> String {
    match reason {
        Some(reason) => format!("{what} ({reason})"),
        None => what,
    }
}
