//! Codex app server: JSON-RPC in both directions, one message per line.
//!
//! `codex exec --json` would be simpler, but nobody can be asked there and answers come whole. One
//! dialect serves those who want to be asked and those who do not.

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
use super::dialect::{
    AgentEvent, Approval, ApprovalChoice, CliDialect, CodingRequest, DialectOutput,
};
use crate::failure::Failure;

/// Between two messages of one answer.
const PARAGRAPH: &str = "\n\n";

/// How it says that a turn is over.
const COMPLETED: &str = "turn/completed";

/// What Codex says of a thread that it does not know, or no longer.
const FORGOTTEN: &str = "no rollout found";

/// The choices by the names that Codex and MCP have for them.
const ACCEPT: &str = "accept";
const AGAIN: &str = "acceptForSession";
const DECLINE: &str = "decline";

/// One turn of a thread, which is Codex's word for a session.
#[derive(Debug)]
pub(crate) struct Codex {
    ask: CodingRequest,
    /// Ours. Codex tells of the threads of its helpers too.
    thread: String,
    turn: String,
    /// The files that are to be changed, by item: who asks about them names only that.
    changes: HashMap<String, Vec<Value>>,
    /// What was asked and not yet answered, by the approval's id.
    open: HashMap<String, (CodexQuestion, Box<RawValue>)>,
    /// The message that is being said.
    saying: Option<String>,
    /// The last one that was said.
    summary: Option<String>,
    usage: CodexUsage,
    /// How often the model was asked again since it last said something.
    retries: u64,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy)]
enum CodexQuestion {
    /// About a command or files: as a decision.
    Decision,
    /// About a tool of some server: as MCP has it.
    Elicitation,
}

impl Codex {
    pub(crate) fn new(ask: CodingRequest) -> Self {
        Self {
            ask,
            thread: String::new(),
            turn: String::new(),
            changes: HashMap::new(),
            open: HashMap::new(),
            saying: None,
            summary: None,
            usage: CodexUsage::default(),
            retries: 0,
        }
    }

    /// The line that starts the thread, or takes it up where it was left.
    fn thread(&self) -> String {
        let CodingRequest { session, model, settings, force, directory, .. } = &self.ask;
        // Without force nothing is changed before somebody said yes: commands can only read, and
        // have to ask for more. Whoever has a profile may choose another sandbox in it.
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

    /// It answered a call of ours.
    fn replied(
        &mut self,
        call: CodexCall,
        result: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        match call {
            CodexCall::Initialize => {
                out.line(wire::initialized());
                out.line(self.thread());
            }
            CodexCall::Start | CodexCall::Resume => {
                let ThreadReply { thread, model } = wire::read(result)?;
                self.thread = thread.id;
                let session = Some(self.thread.clone());
                out.event(AgentEvent::Init { model: Some(model), session });
                out.line(CodexCall::turn(&self.thread, &self.ask.text, &self.ask.images));
            }
            CodexCall::Turn => self.turn = wire::read::<TurnReply>(result)?.turn.id,
            CodexCall::Interrupt => {}
        }
        Ok(())
    }

    /// Something happened.
    fn noticed(
        &mut self,
        method: &str,
        params: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        match method {
            "item/agentMessage/delta" => {
                let CodexDelta { thread_id, item_id, delta } = wire::read(params)?;
                if thread_id == self.thread {
                    self.say(item_id, delta, out);
                }
            }
            "error" => {
                let ErrorNotice { thread_id, will_retry } = wire::read(params)?;
                if thread_id == self.thread && will_retry {
                    self.retries += 1;
                    out.event(AgentEvent::Retry { attempt: self.retries, most: None });
                }
            }
            "item/started" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                if thread_id == self.thread {
                    self.retries = 0;
                    if let Some(name) = item.tool() {
                        out.event(AgentEvent::ToolUse { name });
                    }
                }
                if let CodexItem::FileChange { id, changes, .. } = item {
                    self.changes.insert(id, wire::shortened(changes));
                }
            }
            "item/completed" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                if let CodexItem::FileChange { id, .. } = &item {
                    self.changes.remove(id);
                }
                if thread_id == self.thread {
                    self.completed(item, out);
                }
            }
            "thread/tokenUsage/updated" => {
                let UsageNotice { thread_id, turn_id, token_usage } = wire::read(params)?;
                // A thread that is taken up first tells what its earlier turns have cost.
                if thread_id == self.thread && turn_id == self.turn {
                    self.usage.add(&token_usage.last);
                }
            }
            COMPLETED => {
                let TurnNotice { thread_id, turn } = wire::read(params)?;
                if thread_id == self.thread {
                    self.ended(turn, out);
                }
            }
            // There are many more, for those who show a window.
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, message: String, text: String, out: &mut DialectOutput) {
        let is_new = self.saying.as_ref() != Some(&message);
        if is_new && self.saying.replace(message).is_some() {
            out.event(AgentEvent::Text(PARAGRAPH.to_owned()));
        }
        out.event(AgentEvent::Text(text));
    }

    fn completed(&mut self, item: CodexItem, out: &mut DialectOutput) {
        if let CodexItem::AgentMessage { id, text } = item {
            // Where it came in pieces it has been said.
            if self.saying.as_ref() != Some(&id) && !text.is_empty() {
                self.say(id, text.clone(), out);
            }
            self.summary = Some(text);
        } else if let Some(output) = item.output() {
            out.event(AgentEvent::ToolResult { output });
        }
    }

    fn ended(&mut self, turn: wire::CodexTurn, out: &mut DialectOutput) {
        out.event(match (turn.status.as_str(), turn.error) {
            ("completed", _) => AgentEvent::Done {
                summary: self.summary.take(),
                stats: self.usage.stats(turn.duration_ms),
            },
            (_, Some(error)) => AgentEvent::Error(error.message),
            (status, None) => AgentEvent::Error(format!("the turn was {status}")),
        });
        self.turn.clear();
        out.close();
    }

    /// It wants something of us.
    fn asked(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        let (question, prompt, again, detail) = match method {
            "item/commandExecution/requestApproval" => {
                let asked: CommandApproval = wire::read(params)?;
                let what = format!("shell: {}", asked.command.unwrap_or_default());
                let again = asked.available_decisions.iter().any(|one| one == AGAIN);
                let detail = wire::members(params, &["command", "cwd", "reason"])?;
                (CodexQuestion::Decision, with_reason(what, asked.reason), again, detail)
            }
            "item/fileChange/requestApproval" => {
                let FileApproval { item_id, reason } = wire::read(params)?;
                let changes = self.changes.get(&item_id).cloned().unwrap_or_default();
                let what = format!("apply_patch: {}", wire::paths(&changes));
                let detail = Map::from_iter([("changes".to_owned(), Value::Array(changes))]);
                (CodexQuestion::Decision, with_reason(what, reason), true, detail)
            }
            "mcpServer/elicitation/request" => {
                let asked: Elicitation = wire::read(params)?;
                if !asked.is_yes_or_no() {
                    // It wants a form filled in, and a choice is all that can be passed on.
                    out.line(CodexQuestion::Elicitation.answer(id, DECLINE));
                    return Ok(());
                }
                let detail = wire::members(params, &["serverName", "_meta"])?;
                let what = asked.message.trim_end_matches('?').to_owned();
                (CodexQuestion::Elicitation, what, false, detail)
            }
            _ => {
                out.line(wire::refuse(id));
                return Ok(());
            }
        };
        self.open.insert(id.get().to_owned(), (question, id.to_owned()));
        out.event(AgentEvent::Approval(Approval {
            id: id.get().to_owned(),
            prompt,
            is_question: false,
            choices: choices(again),
            detail: Value::Object(detail),
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

    fn hear(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        match FromCodex::read(line) {
            FromCodex::Reply(call, Ok(result)) => self.replied(call, result, out),
            FromCodex::Reply(CodexCall::Interrupt, Err(_)) | FromCodex::Other => Ok(()),
            FromCodex::Reply(call, Err(why)) => {
                out.event(match call {
                    CodexCall::Resume if why.contains(FORGOTTEN) => AgentEvent::SessionLost,
                    CodexCall::Initialize
                    | CodexCall::Start
                    | CodexCall::Resume
                    | CodexCall::Turn
                    | CodexCall::Interrupt => {
                        AgentEvent::Error(format!("{}: {why}", call.method()))
                    }
                });
                out.close();
                Ok(())
            }
            FromCodex::Request { id, method, params } => {
                if self.asked(id, &method, params, out).is_err() {
                    out.line(wire::refuse(id));
                }
                Ok(())
            }
            FromCodex::Notice { method, params } => match self.noticed(&method, params, out) {
                // Without its end a turn would be waited for.
                Err(failure) if method == COMPLETED => Err(failure),
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }

    fn answer(&mut self, approval: &Approval, choice: &ApprovalChoice, out: &mut DialectOutput) {
        if let Some((question, id)) = self.open.remove(&approval.id) {
            out.line(question.answer(&id, &choice.id));
        }
    }

    fn cancel(&mut self, out: &mut DialectOutput) {
        // So that it stands in the thread, should the caller go on with it.
        if !self.turn.is_empty() {
            out.line(CodexCall::interrupt(&self.thread, &self.turn));
        }
        out.close();
    }
}

impl CodexQuestion {
    fn answer(self, id: &RawValue, choice: &str) -> String {
        match self {
            Self::Decision => wire::answer(id, &ApprovalDecision { decision: choice }),
            Self::Elicitation => {
                wire::answer(id, &ElicitationAction { action: choice, content: None })
            }
        }
    }
}

/// What may be answered. To turn something down is not to end the turn: Codex looks for another way.
fn choices(again: bool) -> Vec<ApprovalChoice> {
    let mut choices = vec![ApprovalChoice::new(ACCEPT, "Yes", true)];
    if again {
        choices.push(ApprovalChoice::new(AGAIN, "Yes, and do not ask again in this task", true));
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
