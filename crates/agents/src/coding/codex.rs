//! Codex, through its app server: JSON-RPC both ways, one message to a line.
//!
//! `codex exec --json` would be simpler, but nobody can be asked there and answers come whole. One
//! dialect serves those who want to be asked and those who do not.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;

use serde_json::{Map, Value, value::RawValue};

use self::wire::{
    Action, Call, CommandApproval, Decision, Delta, Elicitation, ErrorNotice, FileApproval, Heard,
    Item, ItemNotice, ThreadParams, ThreadReply, TurnNotice, TurnReply, Usage, UsageNotice,
};
use super::dialect::{Approval, Ask, Choice, Dialect, Event, Talk};
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
    ask: Ask,
    /// Ours. Codex tells of the threads of its helpers too.
    thread: String,
    turn: String,
    /// The files that are to be changed, by item: who asks about them names only that.
    changes: HashMap<String, Vec<Value>>,
    /// What was asked and not yet answered, by the approval's id.
    open: HashMap<String, (Question, Box<RawValue>)>,
    /// The message that is being said.
    saying: Option<String>,
    /// The last one that was said.
    summary: Option<String>,
    usage: Usage,
    /// How often the model was asked again since it last said something.
    retries: u64,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy)]
enum Question {
    /// About a command or files: as a decision.
    Decision,
    /// About a tool of some server: as MCP has it.
    Elicitation,
}

impl Codex {
    pub(crate) fn new(ask: Ask) -> Self {
        Self {
            ask,
            thread: String::new(),
            turn: String::new(),
            changes: HashMap::new(),
            open: HashMap::new(),
            saying: None,
            summary: None,
            usage: Usage::default(),
            retries: 0,
        }
    }

    /// The line that starts the thread, or takes it up where it was left.
    fn thread(&self) -> String {
        let Ask { session, model, settings, force, directory, .. } = &self.ask;
        // Without force nothing is changed before somebody said yes: commands can only read, and
        // have to ask for more. Whoever has a profile may choose another sandbox in it.
        let (approval_policy, sandbox) =
            if *force { ("never", "danger-full-access") } else { ("on-request", "read-only") };
        let call = if session.is_some() { Call::Resume } else { Call::Start };
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
    fn replied(&mut self, call: Call, result: &RawValue, talk: &mut Talk) -> Result<(), Failure> {
        match call {
            Call::Initialize => {
                talk.line(wire::initialized());
                talk.line(self.thread());
            }
            Call::Start | Call::Resume => {
                let ThreadReply { thread, model } = wire::read(result)?;
                self.thread = thread.id;
                let session = Some(self.thread.clone());
                talk.event(Event::Init { model: Some(model), session });
                talk.line(Call::turn(&self.thread, &self.ask.text, &self.ask.images));
            }
            Call::Turn => self.turn = wire::read::<TurnReply>(result)?.turn.id,
            Call::Interrupt => {}
        }
        Ok(())
    }

    /// Something happened.
    fn noticed(&mut self, method: &str, params: &RawValue, talk: &mut Talk) -> Result<(), Failure> {
        match method {
            "item/agentMessage/delta" => {
                let Delta { thread_id, item_id, delta } = wire::read(params)?;
                if thread_id == self.thread {
                    self.say(item_id, delta, talk);
                }
            }
            "error" => {
                let ErrorNotice { thread_id, will_retry } = wire::read(params)?;
                if thread_id == self.thread && will_retry {
                    self.retries += 1;
                    talk.event(Event::Retry { attempt: self.retries, most: None });
                }
            }
            "item/started" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                if thread_id == self.thread {
                    self.retries = 0;
                    if let Some(name) = item.tool() {
                        talk.event(Event::ToolUse { name });
                    }
                }
                if let Item::FileChange { id, changes, .. } = item {
                    self.changes.insert(id, wire::shortened(changes));
                }
            }
            "item/completed" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                if let Item::FileChange { id, .. } = &item {
                    self.changes.remove(id);
                }
                if thread_id == self.thread {
                    self.completed(item, talk);
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
                    self.ended(turn, talk);
                }
            }
            // There are many more, for those who show a window.
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, message: String, text: String, talk: &mut Talk) {
        let is_new = self.saying.as_ref() != Some(&message);
        if is_new && self.saying.replace(message).is_some() {
            talk.event(Event::Text(PARAGRAPH.to_owned()));
        }
        talk.event(Event::Text(text));
    }

    fn completed(&mut self, item: Item, talk: &mut Talk) {
        if let Item::AgentMessage { id, text } = item {
            // Where it came in pieces it has been said.
            if self.saying.as_ref() != Some(&id) && !text.is_empty() {
                self.say(id, text.clone(), talk);
            }
            self.summary = Some(text);
        } else if let Some(output) = item.output() {
            talk.event(Event::ToolResult { output });
        }
    }

    fn ended(&mut self, turn: wire::Turn, talk: &mut Talk) {
        talk.event(match (turn.status.as_str(), turn.error) {
            ("completed", _) => Event::Done {
                summary: self.summary.take(),
                stats: self.usage.stats(turn.duration_ms),
            },
            (_, Some(error)) => Event::Error(error.message),
            (status, None) => Event::Error(format!("the turn was {status}")),
        });
        self.turn.clear();
        talk.close();
    }

    /// It wants something of us.
    fn asked(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
        talk: &mut Talk,
    ) -> Result<(), Failure> {
        let (question, prompt, again, detail) = match method {
            "item/commandExecution/requestApproval" => {
                let asked: CommandApproval = wire::read(params)?;
                let what = format!("shell: {}", asked.command.unwrap_or_default());
                let again = asked.available_decisions.iter().any(|one| one == AGAIN);
                let detail = wire::members(params, &["command", "cwd", "reason"])?;
                (Question::Decision, with_reason(what, asked.reason), again, detail)
            }
            "item/fileChange/requestApproval" => {
                let FileApproval { item_id, reason } = wire::read(params)?;
                let changes = self.changes.get(&item_id).cloned().unwrap_or_default();
                let what = format!("apply_patch: {}", wire::paths(&changes));
                let detail = Map::from_iter([("changes".to_owned(), Value::Array(changes))]);
                (Question::Decision, with_reason(what, reason), true, detail)
            }
            "mcpServer/elicitation/request" => {
                let asked: Elicitation = wire::read(params)?;
                if !asked.is_yes_or_no() {
                    // It wants a form filled in, and a choice is all that can be passed on.
                    talk.line(Question::Elicitation.answer(id, DECLINE));
                    return Ok(());
                }
                let detail = wire::members(params, &["serverName", "_meta"])?;
                let what = asked.message.trim_end_matches('?').to_owned();
                (Question::Elicitation, what, false, detail)
            }
            _ => {
                talk.line(wire::refuse(id));
                return Ok(());
            }
        };
        self.open.insert(id.get().to_owned(), (question, id.to_owned()));
        talk.event(Event::Approval(Approval {
            id: id.get().to_owned(),
            prompt,
            is_question: false,
            choices: choices(again),
            detail: Value::Object(detail),
        }));
        Ok(())
    }
}

impl Dialect for Codex {
    fn arguments(&self) -> Vec<String> {
        vec!["app-server".to_owned()]
    }

    fn open(&mut self, talk: &mut Talk) {
        talk.line(Call::initialize());
    }

    fn hear(&mut self, line: &str, talk: &mut Talk) -> Result<(), Failure> {
        match Heard::read(line) {
            Heard::Reply(call, Ok(result)) => self.replied(call, result, talk),
            Heard::Reply(Call::Interrupt, Err(_)) | Heard::Other => Ok(()),
            Heard::Reply(call, Err(why)) => {
                talk.event(match call {
                    Call::Resume if why.contains(FORGOTTEN) => Event::SessionLost,
                    Call::Initialize
                    | Call::Start
                    | Call::Resume
                    | Call::Turn
                    | Call::Interrupt => Event::Error(format!("{}: {why}", call.method())),
                });
                talk.close();
                Ok(())
            }
            Heard::Request { id, method, params } => {
                if self.asked(id, &method, params, talk).is_err() {
                    talk.line(wire::refuse(id));
                }
                Ok(())
            }
            Heard::Notice { method, params } => match self.noticed(&method, params, talk) {
                // Without its end a turn would be waited for.
                Err(failure) if method == COMPLETED => Err(failure),
                Ok(()) | Err(_) => Ok(()),
            },
        }
    }

    fn answer(&mut self, approval: &Approval, choice: &Choice, talk: &mut Talk) {
        if let Some((question, id)) = self.open.remove(&approval.id) {
            talk.line(question.answer(&id, &choice.id));
        }
    }

    fn cancel(&mut self, talk: &mut Talk) {
        // So that it stands in the thread, should the caller go on with it.
        if !self.turn.is_empty() {
            talk.line(Call::interrupt(&self.thread, &self.turn));
        }
        talk.close();
    }
}

impl Question {
    fn answer(self, id: &RawValue, choice: &str) -> String {
        match self {
            Self::Decision => wire::answer(id, &Decision { decision: choice }),
            Self::Elicitation => wire::answer(id, &Action { action: choice, content: None }),
        }
    }
}

/// What may be answered. To turn something down is not to end the turn: Codex looks for another way.
fn choices(again: bool) -> Vec<Choice> {
    let mut choices = vec![Choice::new(ACCEPT, "Yes", true)];
    if again {
        choices.push(Choice::new(AGAIN, "Yes, and do not ask again in this task", true));
    }
    choices.push(Choice::new(DECLINE, "No", false));
    choices
}

fn with_reason(what: String, reason: Option<String>) -> String {
    match reason {
        Some(reason) => format!("{what} ({reason})"),
        None => what,
    }
}
