//! Codex app server: JSON-RPC in both directions, one message per line.
//!
//! `codex exec --json` would be simpler, but it has no approvals and does not stream. One dialect serves
//! agents with and without approvals.

mod form;
mod item;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{HashMap, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use self::{
    form::{Form, FormSchema, FormState, UserInput},
    item::CodexItem,
    wire::{
        ACCEPT, ApprovalDecision, CodexCall, CodexDelta, CodexUsage, CommandApproval, DECLINE,
        Elicitation, ElicitationAction, ErrorNotice, FileApproval, FromCodex, GrantedPermissions,
        ItemNotice, PermissionsApproval, PlanNotice, ThreadParams, ThreadReply, TurnNotice,
        TurnReply, UsageNotice,
    },
};
use super::{
    activity::{AgentActivity, PlanStep, ToolEnd, ToolKind, ToolStart},
    dialect::{
        AgentEvent, Approval, ApprovalAnswer, ApprovalChoice, CliDialect, CodingRequest,
        CodingResult, DialectOutput, Image,
    },
    rules::ToolSubject,
    usage::{RunUsage, sum},
};
use crate::failure::Failure;

/// Separator between two messages of one answer.
const PARAGRAPH: &str = "\n\n";

/// Method of the notification that ends a turn.
const COMPLETED: &str = "turn/completed";

/// Names of choices in the protocols of Codex and MCP.
const ACCEPT_FOR_SESSION: &str = "acceptForSession";

/// The call that starts a subagent.
const SPAWN: &str = "spawnAgent";

/// Turns of a thread, as Codex calls a session: one, and further ones for messages that came too late for it.
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
    /// The tool calls that started subagents, by thread.
    agents: HashMap<String, String>,
    /// The threads of running subagents whose start no tool call reported.
    unnamed_agents: HashMap<String, String>,
    /// Messages for the running turn. Codex has not answered the first yet.
    steers: VecDeque<(String, Vec<Image>)>,
    /// Messages that the turn did not take. The next turn gets them.
    rejected: Vec<(String, Vec<Image>)>,
    is_turn_over: bool,
    /// Id of the message whose text is being emitted.
    current_message: Option<String>,
    /// The last complete message.
    summary: Option<String>,
    usage: CodexUsage,
    duration_ms: Option<u64>,
    /// Retries of the model since its last output.
    retries: u64,
}

/// Format of the answer to a request.
#[derive(Debug)]
enum AnswerFormat {
    /// A decision of Codex, for a command or files.
    Decision,
    /// The permissions that are granted.
    Permissions(Map<String, Value>),
    /// An elicitation result of MCP, for a tool of an MCP server.
    Elicitation,
    /// The answers to several questions.
    Form(Form),
}

impl Codex {
    pub(crate) fn new(request: CodingRequest) -> Self {
        Self {
            request,
            thread: String::new(),
            turn: String::new(),
            changes: HashMap::new(),
            pending: HashMap::new(),
            agents: HashMap::new(),
            unnamed_agents: HashMap::new(),
            steers: VecDeque::new(),
            rejected: Vec::new(),
            is_turn_over: false,
            current_message: None,
            summary: None,
            usage: CodexUsage::default(),
            duration_ms: None,
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
                let CodingRequest { text, images, .. } = &self.request;
                out.line(CodexCall::input(&self.thread, None, text, images));
            }
            CodexCall::Turn => self.turn = wire::read::<TurnReply>(result)?.turn.id,
            CodexCall::Steer => {
                self.steers.pop_front();
                self.steer_next(out);
            }
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
                let ErrorNotice { thread_id, will_retry, error } = wire::read(params)?;
                if thread_id == self.thread && will_retry {
                    self.retries += 1;
                    let retry = error.retry(self.retries);
                    out.event(AgentEvent::Activity(AgentActivity::Retry(retry)));
                }
            }
            "turn/plan/updated" => {
                let PlanNotice { thread_id, plan } = wire::read(params)?;
                if thread_id == self.thread {
                    let step =
                        |step: wire::CodexStep| PlanStep { text: step.step, status: step.status };
                    let steps = plan.into_iter().map(step).collect();
                    out.event(AgentEvent::Activity(AgentActivity::Plan(steps)));
                }
            }
            "item/started" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                self.start_item(&thread_id, item, out);
            }
            "item/completed" => {
                let ItemNotice { thread_id, item } = wire::read(params)?;
                self.complete_item(&thread_id, item, out);
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

    fn start_item(&mut self, thread: &str, item: CodexItem, out: &mut DialectOutput) {
        if thread == self.thread {
            self.retries = 0;
            self.note_agents(&item, out);
        }
        let parent = self.agents.get(thread).cloned();
        if (parent.is_some() || thread == self.thread)
            && let Some(start) = item.start()
        {
            let start = ToolStart { parent, ..start };
            out.event(AgentEvent::Activity(AgentActivity::ToolStarted(start)));
        }
        if let CodexItem::FileChange { id, changes, .. } = item {
            self.changes.insert(id, item::limit_diffs(changes));
        }
    }

    fn complete_item(&mut self, thread: &str, item: CodexItem, out: &mut DialectOutput) {
        if let CodexItem::FileChange { id, .. } = &item {
            self.changes.remove(id);
        }
        let is_ours = thread == self.thread;
        if is_ours {
            self.note_agents(&item, out);
        } else if !self.agents.contains_key(thread) {
            return;
        }
        // Texts and thoughts of subagents are not part of the answer.
        if let CodexItem::AgentMessage { id, text } = item {
            if !is_ours {
                return;
            }
            // A message that came in pieces has been emitted already.
            if self.current_message.as_ref() != Some(&id) && !text.is_empty() {
                self.emit_text(id, text.clone(), out);
            }
            self.summary = Some(text);
        } else if let CodexItem::Reasoning { summary, content } = item {
            let text = if summary.is_empty() { content } else { summary }.join(PARAGRAPH);
            if is_ours && !text.is_empty() {
                out.event(AgentEvent::Activity(AgentActivity::Thinking(text)));
            }
        } else if let Some(end) = item.end() {
            out.event(AgentEvent::Activity(AgentActivity::ToolEnded(end)));
        }
    }

    /// Notes which tool calls started which subagents. Some versions report the subagent and not the call.
    fn note_agents(&mut self, item: &CodexItem, out: &mut DialectOutput) {
        if let CodexItem::CollabAgentToolCall { id, tool, receiver_thread_ids, .. } = item
            && tool == SPAWN
        {
            for thread in receiver_thread_ids {
                self.agents.entry(thread.clone()).or_insert_with(|| id.clone());
            }
        }
        let CodexItem::SubAgentActivity { id, kind, agent_thread_id, agent_path } = item else {
            return;
        };
        match kind.as_str() {
            "started" if !self.agents.contains_key(agent_thread_id) => {
                self.agents.insert(agent_thread_id.clone(), id.clone());
                self.unnamed_agents.insert(agent_thread_id.clone(), id.clone());
                out.event(AgentEvent::Activity(AgentActivity::ToolStarted(ToolStart {
                    id: id.clone(),
                    name: "subagent".to_owned(),
                    kind: ToolKind::Agent,
                    title: Some(agent_path.clone()),
                    ..ToolStart::default()
                })));
            }
            "completed" | "interrupted" => {
                if let Some(id) = self.unnamed_agents.remove(agent_thread_id) {
                    let (is_error, output) = (kind == "interrupted", kind.clone());
                    let end = ToolEnd { id, is_error, output, diff: None };
                    out.event(AgentEvent::Activity(AgentActivity::ToolEnded(end)));
                }
            }
            // A message to it, or a kind of a later version.
            _ => {}
        }
    }

    fn end_turn(&mut self, turn: wire::CodexTurn, out: &mut DialectOutput) {
        self.duration_ms = sum(self.duration_ms, turn.duration_ms);
        if turn.status == "completed" {
            self.is_turn_over = true;
            return self.conclude(out);
        }
        let message = match turn.error {
            Some(error) => error.message,
            None => format!("the turn ended with status {}", turn.status),
        };
        let usage = self.usage.usage(self.duration_ms);
        self.end(AgentEvent::Error { message, usage }, out);
    }

    /// Ends the work after the turn, unless messages of the caller are left: Codex takes none for a turn that
    /// has ended in the meantime, so another turn gets them.
    fn conclude(&mut self, out: &mut DialectOutput) {
        if !self.is_turn_over || !self.steers.is_empty() {
            return;
        }
        if self.rejected.is_empty() {
            let (summary, usage) = (self.summary.take(), self.usage.usage(self.duration_ms));
            let result = CodingResult { summary, usage, ..CodingResult::default() };
            return self.end(AgentEvent::Done(result), out);
        }
        self.is_turn_over = false;
        self.turn.clear();
        let (texts, images): (Vec<_>, Vec<_>) = self.rejected.drain(..).unzip();
        let (text, images) = (texts.join(PARAGRAPH), images.concat());
        out.line(CodexCall::input(&self.thread, None, &text, &images));
    }

    fn end(&mut self, event: AgentEvent, out: &mut DialectOutput) {
        out.event(event);
        self.turn.clear();
        out.close();
    }

    /// Passes the next message to the running turn, once the one before has been answered.
    fn steer_next(&mut self, out: &mut DialectOutput) {
        match self.steers.front() {
            Some((text, images)) => {
                out.line(CodexCall::input(&self.thread, Some(&self.turn), text, images));
            }
            None => self.conclude(out),
        }
    }

    /// Handles a request of Codex.
    fn handle_request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: &RawValue,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        let (format, approval) = match method {
            "item/commandExecution/requestApproval" => {
                let request: CommandApproval = wire::read(params)?;
                let command = request.command.unwrap_or_default();
                let for_session =
                    request.available_decisions.iter().any(|one| one == ACCEPT_FOR_SESSION);
                let approval = Approval {
                    prompt: with_reason(format!("{}: {command}", item::SHELL), request.reason),
                    choices: choices(for_session),
                    tool: Some(ToolSubject {
                        name: item::SHELL.to_owned(),
                        kind: ToolKind::Execute,
                        subject: item::script(&command),
                    }),
                    detail: wire::members(params, &["command", "cwd", "reason"])?.into(),
                    ..Approval::default()
                };
                (AnswerFormat::Decision, approval)
            }
            "item/fileChange/requestApproval" => {
                let FileApproval { item_id, reason } = wire::read(params)?;
                let changes = self.changes.get(&item_id).cloned().unwrap_or_default();
                let paths = item::paths(&changes);
                let approval = Approval {
                    prompt: with_reason(format!("{}: {}", item::PATCH, paths.join(", ")), reason),
                    choices: choices(true),
                    tool: Some(ToolSubject {
                        name: item::PATCH.to_owned(),
                        kind: ToolKind::Edit,
                        subject: paths.join("\n"),
                    }),
                    detail: Map::from_iter([("changes".to_owned(), changes.into())]).into(),
                    ..Approval::default()
                };
                (AnswerFormat::Decision, approval)
            }
            "item/permissions/requestApproval" => {
                let PermissionsApproval { reason, mut permissions } = wire::read(params)?;
                permissions.retain(|_, permission| !permission.is_null());
                let what = Value::from(permissions.clone());
                let approval = Approval {
                    prompt: with_reason(format!("permissions: {what}"), reason),
                    choices: choices(true),
                    detail: wire::members(params, &["permissions", "cwd", "reason"])?.into(),
                    ..Approval::default()
                };
                (AnswerFormat::Permissions(permissions), approval)
            }
            "item/tool/requestUserInput" => {
                let input: UserInput = wire::read(params)?;
                let detail = wire::members(params, &["questions"])?.into();
                let Some(form) = Form::of_questions(input, detail) else {
                    out.line(wire::refuse(id));
                    return Ok(());
                };
                return self.ask_form(id, form, out);
            }
            "mcpServer/elicitation/request" => {
                let request: Elicitation = wire::read(params)?;
                let detail = wire::members(params, &["serverName", "_meta", "url"])?.into();
                if !request.is_yes_or_no() {
                    let schema = FormSchema::deserialize(request.requested_schema);
                    let schema = schema.unwrap_or_default();
                    return match Form::of_schema(&request.message, schema, detail) {
                        Some(form) => self.ask_form(id, form, out),
                        None => {
                            // A form with a field of a later version of MCP.
                            let declined = ElicitationAction { action: DECLINE, content: None };
                            out.line(wire::answer(id, &declined));
                            Ok(())
                        }
                    };
                }
                let what = request.message.trim_end_matches('?').to_owned();
                let approval = Approval {
                    prompt: with_reason(what, request.url),
                    choices: choices(false),
                    detail,
                    ..Approval::default()
                };
                (AnswerFormat::Elicitation, approval)
            }
            _ => {
                out.line(wire::refuse(id));
                return Ok(());
            }
        };
        self.pending.insert(id.get().to_owned(), (format, id.to_owned()));
        out.event(AgentEvent::Approval(Approval { id: id.get().to_owned(), ..approval }));
        Ok(())
    }

    /// Asks the first question of a form.
    fn ask_form(
        &mut self,
        id: &RawValue,
        form: Form,
        out: &mut DialectOutput,
    ) -> Result<(), Failure> {
        out.events.extend(form.approval(id.get()).map(AgentEvent::Approval));
        self.pending.insert(id.get().to_owned(), (AnswerFormat::Form(form), id.to_owned()));
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
            FromCodex::Reply(CodexCall::Steer, Err(why)) => {
                let CodingRequest { agent, task, .. } = &self.request;
                tracing::info!(%task, %agent, why, "the agent's turn did not take a message; another turn gets it");
                self.rejected.extend(self.steers.pop_front());
                self.steer_next(out);
                Ok(())
            }
            FromCodex::Reply(call, Err(why)) => {
                let event = if call == CodexCall::Resume {
                    // Codex has no error code for an unknown thread. Any other cause fails the new
                    // thread as well.
                    let CodingRequest { agent, task, .. } = &self.request;
                    tracing::warn!(%task, %agent, why, "the agent's session cannot be resumed");
                    AgentEvent::SessionLost
                } else {
                    let message = format!("{}: {why}", call.method());
                    AgentEvent::Error { message, usage: RunUsage::default() }
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

    fn answer(&mut self, approval: &Approval, decision: &ApprovalAnswer, out: &mut DialectOutput) {
        let Some((mut format, id)) = self.pending.remove(&approval.id) else { return };
        let choice = decision.choice.id.as_str();
        out.line(match &mut format {
            AnswerFormat::Decision => wire::answer(&id, &ApprovalDecision { decision: choice }),
            AnswerFormat::Permissions(permissions) => {
                if !decision.choice.grants {
                    permissions.clear();
                }
                let scope = if choice == ACCEPT_FOR_SESSION { "session" } else { "turn" };
                wire::answer(&id, &GrantedPermissions { permissions, scope })
            }
            AnswerFormat::Elicitation => {
                wire::answer(&id, &ElicitationAction { action: choice, content: None })
            }
            AnswerFormat::Form(form) => match form.answer(decision) {
                FormState::Over(result) => wire::answer(&id, &result),
                FormState::Asking => {
                    out.events.extend(form.approval(&approval.id).map(AgentEvent::Approval));
                    self.pending.insert(approval.id.clone(), (format, id));
                    return;
                }
            },
        });
    }

    fn can_steer(&self) -> bool {
        !self.turn.is_empty() && !self.is_turn_over
    }

    fn steer(&mut self, text: &str, images: &[Image], out: &mut DialectOutput) {
        self.steers.push_back((text.to_owned(), images.to_vec()));
        if self.steers.len() == 1 {
            self.steer_next(out);
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
