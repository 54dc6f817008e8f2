//! Agent Client Protocol, version 1: JSON-RPC lines over stdio, for any agent that implements it and for
//! the presets that do.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::{HashMap, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use self::wire::{
    AUTH_REQUIRED, AcpBlock, AcpContent, AcpError, AcpLine, AcpPermission, AcpReply, AcpRequest,
    ClientInfo, INVALID_PARAMS, Initialized, METHOD_NOT_FOUND, PermissionKind, PermissionOutcome,
    PlanEntry, PromptResult, SessionNotice, SessionOpened, SessionUpdate, ToolCall,
};
use super::{
    activity::{AgentActivity, PlanStep},
    dialect::{
        AgentEvent, Approval, ApprovalAnswer, ApprovalChoice, CliDialect, CodingRequest,
        CodingResult, DialectOutput, Image, escape_command,
    },
    usage::RunUsage,
};
use crate::failure::Failure;

/// The protocol version.
const VERSION: u16 = 1;

/// Separator between the texts before and after a tool call.
const PARAGRAPH: &str = "\n\n";

/// The denial that is offered if the agent offers none.
const NO_OPTION: &str = "none-of-these";

/// Differences of one agent from the protocol.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quirks {
    /// Arguments that select the protocol.
    pub(super) arguments: &'static [&'static str],
    /// Environment variables that make it ask for permissions.
    pub(super) ask_variables: &'static [(&'static str, &'static str)],
    /// The mode, unless the configuration has one.
    pub(super) mode: Option<&'static str>,
    /// The authentication method, if it requires authentication before a session.
    pub(super) auth_method: Option<&'static str>,
    /// Prefix of the name of a session that is loaded.
    pub(super) prefix: &'static str,
}

/// One prompt to one agent.
#[derive(Debug)]
pub(crate) struct Acp {
    work: CodingRequest,
    quirks: Quirks,
    /// The pending request, and its id.
    step: AcpStep,
    request_id: u64,
    /// The method that reopens an earlier session; `None` if there is none.
    reopen: Option<ReopenMethod>,
    /// True if prompts may contain images.
    accepts_images: bool,
    /// Names of the authentication methods.
    auth_methods: Vec<String>,
    /// Id of the session.
    session: String,
    model: Option<String>,
    /// Settings to make before the prompt.
    settings: VecDeque<PendingSetting>,
    /// The tool calls by id.
    tools: HashMap<String, KnownTool>,
    /// Permission requests without an answer. The caller has been asked about the first.
    permissions: VecDeque<PendingPermission>,
    /// The text since the last tool call.
    last_text: String,
    /// True once a part of the answer has been emitted.
    has_text: bool,
    /// True if the next text begins a paragraph.
    is_gap_due: bool,
    /// Reasoning that was not reported yet.
    thought: String,
    /// The request that the caller denied last.
    denied: Option<String>,
    /// Cost of the session before the prompt, if it is known.
    earlier_cost: Option<f64>,
    /// The agent's own figures.
    figures: Map<String, Value>,
}

/// A tool call, and the part of it that was reported.
#[derive(Debug, Default)]
struct KnownTool {
    call: ToolCall,
    is_started: bool,
    is_ended: bool,
}

/// Requests in their order: each follows the answer to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcpStep {
    Initialize,
    Authenticate,
    Reopen,
    Open,
    Configure,
    Prompt,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReopenMethod {
    /// Continues the session.
    Resume,
    /// Continues the session after a replay of its events.
    Load,
}

#[derive(Debug)]
struct PendingSetting {
    name: &'static str,
    value: String,
    method: SettingMethod,
}

/// The method that makes a setting.
#[derive(Debug)]
enum SettingMethod {
    Mode,
    Model,
    Option(String),
}

#[derive(Debug)]
struct PendingPermission {
    id: Box<RawValue>,
    /// Id of the tool call.
    tool: String,
    approval: Approval,
}

impl Acp {
    pub(super) fn new(work: CodingRequest, quirks: Quirks) -> Self {
        Self {
            work,
            quirks,
            step: AcpStep::Initialize,
            request_id: 0,
            reopen: None,
            accepts_images: false,
            auth_methods: Vec::new(),
            session: String::new(),
            model: None,
            settings: VecDeque::new(),
            tools: HashMap::new(),
            permissions: VecDeque::new(),
            last_text: String::new(),
            has_text: false,
            is_gap_due: false,
            thought: String::new(),
            denied: None,
            earlier_cost: None,
            figures: Map::new(),
        }
    }

    /// Sends the request of a step.
    fn request(&mut self, step: AcpStep, out: &mut DialectOutput) {
        self.step = step;
        self.request_id += 1;
        let directory = self.work.directory.to_string_lossy();
        let (session_id, cwd, mcp_servers) = (self.session.as_str(), directory.as_ref(), []);
        let request = match step {
            AcpStep::Initialize => AcpRequest::Initialize {
                protocol_version: VERSION,
                client_capabilities: Map::new(),
                client_info: ClientInfo {
                    name: "herald",
                    title: "Herald",
                    version: env!("CARGO_PKG_VERSION"),
                },
            },
            AcpStep::Authenticate => AcpRequest::Authenticate {
                method_id: self.quirks.auth_method.take().unwrap_or_default(),
            },
            AcpStep::Reopen => match self.reopen {
                Some(ReopenMethod::Resume) => AcpRequest::Resume { session_id, cwd, mcp_servers },
                Some(ReopenMethod::Load) | None => {
                    AcpRequest::Load { session_id, cwd, mcp_servers }
                }
            },
            AcpStep::Open => AcpRequest::New { cwd, mcp_servers },
            AcpStep::Configure => {
                let setting =
                    self.settings.front().expect("the step is only entered with a setting");
                let value = setting.value.as_str();
                match &setting.method {
                    SettingMethod::Mode => AcpRequest::SetMode { session_id, mode_id: value },
                    SettingMethod::Model => AcpRequest::SetModel { session_id, model_id: value },
                    SettingMethod::Option(config_id) => {
                        AcpRequest::SetOption { session_id, config_id, value }
                    }
                }
            }
            AcpStep::Prompt => {
                let text = escape_command(&self.work.text);
                let images = self.work.images.iter().filter(|_| self.accepts_images);
                let images = images.map(|Image { media_type, data, .. }| AcpBlock::Image {
                    mime_type: media_type,
                    data,
                });
                let prompt = [AcpBlock::Text { text }].into_iter().chain(images).collect();
                AcpRequest::Prompt { session_id, prompt }
            }
            AcpStep::Over => return,
        };
        out.line(request.line(Some(self.request_id)));
    }

    /// Reopens the earlier session, or opens a new one.
    fn open_session(&mut self, out: &mut DialectOutput) {
        match (self.reopen, &self.work.session) {
            (Some(ReopenMethod::Resume), Some(session)) => {
                self.session.clone_from(session);
                self.request(AcpStep::Reopen, out);
            }
            (Some(ReopenMethod::Load), Some(session)) => {
                self.session = format!("{}{session}", self.quirks.prefix);
                self.request(AcpStep::Reopen, out);
            }
            (None, Some(_)) => self.lose_session("the agent cannot reopen sessions", out),
            (_, None) => self.request(AcpStep::Open, out),
        }
    }

    /// Reports that the earlier session cannot be used.
    fn lose_session(&mut self, why: &str, out: &mut DialectOutput) {
        let CodingRequest { agent, task, .. } = &self.work;
        tracing::warn!(%task, %agent, why, "the agent's session cannot be resumed");
        self.step = AcpStep::Over;
        out.event(AgentEvent::SessionLost);
        out.close();
    }

    /// Handles the result of the pending request.
    fn handle_result(&mut self, result: &RawValue, out: &mut DialectOutput) -> Result<(), Failure> {
        match self.step {
            AcpStep::Initialize => {
                let agent: Initialized = read(result)?;
                if agent.protocol_version != VERSION {
                    let theirs = agent.protocol_version;
                    let kind = format!(
                        "has version {theirs} of the Agent Client Protocol, and {VERSION} is needed"
                    );
                    return Err(Failure::new(kind));
                }
                let can = agent.agent_capabilities;
                self.accepts_images = can.prompt_capabilities.image;
                self.reopen = match (can.session_capabilities.resume, can.load_session) {
                    (Some(_), _) => Some(ReopenMethod::Resume),
                    (None, true) => Some(ReopenMethod::Load),
                    (None, false) => None,
                };
                self.auth_methods =
                    agent.auth_methods.into_iter().map(|method| method.name).collect();
                self.open_session(out);
            }
            AcpStep::Authenticate => self.open_session(out),
            AcpStep::Reopen | AcpStep::Open => {
                let opened = read::<Option<SessionOpened>>(result)?.unwrap_or_default();
                if self.step == AcpStep::Open {
                    self.session = opened.session_id.clone().ok_or_else(unreadable)?;
                    self.earlier_cost = Some(0.0);
                }
                self.plan_settings(opened)?;
                self.prepare(out);
            }
            AcpStep::Configure => {
                let made = self.settings.pop_front();
                if let Some(setting) = made.filter(|setting| setting.name == "model") {
                    self.model = Some(setting.value);
                }
                self.prepare(out);
            }
            AcpStep::Prompt => self.finish(read(result)?, out),
            AcpStep::Over => {}
        }
        Ok(())
    }

    /// Handles an error in answer to the pending request.
    fn handle_error(&mut self, fault: &AcpError, out: &mut DialectOutput) -> Result<(), Failure> {
        let failure = |kind: String| Failure { message: Some(fault.text()), ..Failure::new(kind) };
        if fault.code == AUTH_REQUIRED {
            let is_opening = matches!(self.step, AcpStep::Reopen | AcpStep::Open);
            if is_opening && self.quirks.auth_method.is_some() {
                self.request(AcpStep::Authenticate, out);
                return Ok(());
            }
            let mut kind = "needs a login".to_owned();
            if !self.auth_methods.is_empty() {
                kind = format!("{kind}; its methods are: {}", self.auth_methods.join(", "));
            }
            return Err(failure(kind));
        }
        match (self.step, self.settings.front()) {
            (AcpStep::Reopen, _) => {
                self.lose_session(&fault.text(), out);
                Ok(())
            }
            (AcpStep::Initialize, _) => {
                Err(failure("does not support the Agent Client Protocol".to_owned()))
            }
            (AcpStep::Authenticate, _) => Err(failure("refused the login".to_owned())),
            (AcpStep::Open, _) => Err(failure("could not open a session".to_owned())),
            (AcpStep::Configure, Some(PendingSetting { name, value, .. })) => {
                Err(failure(format!("refused the {name} `{value}`")))
            }
            (AcpStep::Configure, None) => Err(failure("failed".to_owned())),
            (AcpStep::Prompt, _) => {
                self.end(|usage| AgentEvent::Error { message: fault.text(), usage }, out);
                Ok(())
            }
            (AcpStep::Over, _) => Ok(()),
        }
    }

    /// Queues the configured model and mode, each with the method that this agent has for it.
    fn plan_settings(&mut self, opened: SessionOpened) -> Result<(), Failure> {
        let options = opened.config_options.unwrap_or_default();
        let option = |name: &str| {
            options.iter().find(|option| option.category.as_deref().unwrap_or(&option.id) == name)
        };
        let current = option("model").and_then(|option| option.current_value.as_str());
        self.model = current.map(str::to_owned);
        let is_listed = opened.models.is_some();
        if let Some(models) = opened.models {
            self.model = self.model.take().or(models.current_model_id);
        }
        let mode = self.work.profile.clone().or(self.quirks.mode.map(str::to_owned));
        for (name, value) in [("model", self.work.model.clone()), ("mode", mode)] {
            let Some(value) = value else { continue };
            let method = match (option(name), name) {
                (Some(option), _) => SettingMethod::Option(option.id.clone()),
                (None, "model") if is_listed => SettingMethod::Model,
                (None, "mode") if opened.modes.is_some() => SettingMethod::Mode,
                (None, _) => {
                    let kind = format!("has no choice of {name}; `{value}` is configured");
                    return Err(Failure::new(kind));
                }
            };
            self.settings.push_back(PendingSetting { name, value, method });
        }
        Ok(())
    }

    /// Makes the next setting, or sends the prompt if none is left.
    fn prepare(&mut self, out: &mut DialectOutput) {
        if !self.settings.is_empty() {
            return self.request(AcpStep::Configure, out);
        }
        let session = self.session.trim().to_owned();
        out.event(AgentEvent::Init { model: self.model.clone(), session: Some(session) });
        self.request(AcpStep::Prompt, out);
    }

    /// Handles the end of the prompt.
    fn finish(&mut self, mut end: PromptResult, out: &mut DialectOutput) {
        if let Some(figures) = end.figures() {
            self.figures.insert("usage".to_owned(), Value::Object(figures));
        }
        let denied = self.denied.take().map(|what| format!("The request was denied: {what}"));
        let why = match end.stop_reason.as_str() {
            "end_turn" => None,
            // Some agents stop when the caller denies a request, which is no failure.
            "cancelled" if denied.is_some() => None,
            "max_tokens" => Some("stopped at its limit of tokens"),
            "max_turn_requests" => Some("stopped at its limit of model requests"),
            "refusal" => Some("refused to continue"),
            "cancelled" => Some("stopped because it was cancelled"),
            _ => Some("stopped for an unknown reason"),
        };
        let text = Some(std::mem::take(&mut self.last_text)).filter(|text| !text.is_empty());
        self.end(
            |usage| match why {
                Some(why) => {
                    let message = format!("the agent {why} ({})", end.stop_reason);
                    AgentEvent::Error { message, usage }
                }
                None => {
                    let summary = text.or(denied);
                    AgentEvent::Done(CodingResult { summary, usage, ..CodingResult::default() })
                }
            },
            out,
        );
    }

    /// Ends the work, with the usage so far.
    fn end(&mut self, event: impl FnOnce(RunUsage) -> AgentEvent, out: &mut DialectOutput) {
        self.step = AcpStep::Over;
        self.report_thought(out);
        let figures = self.figures.get("usage").and_then(Value::as_object);
        let tokens = figures.map(wire::tokens).unwrap_or_default();
        let cost = self.figures.get("cost").and_then(dollars);
        let cost_usd = cost.zip(self.earlier_cost).map(|(now, earlier)| now - earlier);
        let usage = RunUsage { cost_usd, raw: std::mem::take(&mut self.figures), ..tokens };
        out.event(event(usage));
        out.close();
    }

    /// Handles an update of the session. Updates before the prompt are the replay of a loaded session.
    fn handle_update(&mut self, update: SessionUpdate, out: &mut DialectOutput) {
        if self.step != AcpStep::Prompt {
            // The cost is that of the session so far.
            if let SessionUpdate::Usage { cost: Some(cost) } = update {
                self.earlier_cost = dollars(&cost);
            }
            return;
        }
        match update {
            SessionUpdate::AgentMessageChunk { content: AcpContent::Text { text } } => {
                if !text.is_empty() {
                    self.emit_text(&text, out);
                }
            }
            SessionUpdate::AgentThoughtChunk { content: AcpContent::Text { text } } => {
                self.thought += &text;
            }
            SessionUpdate::ToolCall(update) => {
                let id = update.tool_call_id.clone();
                let tool = self.tools.entry(id.clone()).or_default();
                tool.call.merge(*update);
                if tool.call.is_known() {
                    self.report_tool(&id, out);
                }
                self.report_tool_end(&id, out);
            }
            SessionUpdate::Plan { entries } => {
                self.report_thought(out);
                let step =
                    |entry: PlanEntry| PlanStep { text: entry.content, status: entry.status };
                let steps = entries.into_iter().map(step).collect();
                out.event(AgentEvent::Activity(AgentActivity::Plan(steps)));
            }
            SessionUpdate::Usage { cost: Some(cost) } => {
                self.figures.insert("cost".to_owned(), cost);
            }
            SessionUpdate::AgentMessageChunk { content: AcpContent::Other }
            | SessionUpdate::AgentThoughtChunk { content: AcpContent::Other }
            | SessionUpdate::Usage { cost: None }
            | SessionUpdate::Other => {}
        }
    }

    /// Emits text. Text after a tool call begins a paragraph.
    fn emit_text(&mut self, text: &str, out: &mut DialectOutput) {
        self.report_thought(out);
        self.last_text += text;
        let gap = if std::mem::take(&mut self.is_gap_due) { PARAGRAPH } else { "" };
        self.has_text = true;
        out.event(AgentEvent::Text(format!("{gap}{text}")));
    }

    /// Ends the paragraph, because a tool call follows.
    fn end_paragraph(&mut self) {
        self.last_text.clear();
        self.is_gap_due = self.has_text;
    }

    /// Reports the reasoning so far, which comes in small pieces.
    fn report_thought(&mut self, out: &mut DialectOutput) {
        let thought = std::mem::take(&mut self.thought);
        if !thought.trim().is_empty() {
            out.event(AgentEvent::Activity(AgentActivity::Thinking(thought)));
        }
    }

    /// Reports the start of a tool call once.
    fn report_tool(&mut self, id: &str, out: &mut DialectOutput) {
        self.report_thought(out);
        let Some(tool) = self.tools.get_mut(id) else { return };
        if !std::mem::replace(&mut tool.is_started, true) {
            out.event(AgentEvent::Activity(AgentActivity::ToolStarted(tool.call.start())));
            self.end_paragraph();
        }
    }

    /// Reports the end of a tool call once, if it has ended.
    fn report_tool_end(&mut self, id: &str, out: &mut DialectOutput) {
        let Some(tool) = self.tools.get_mut(id) else { return };
        let Some(end) = tool.call.end() else { return };
        if !std::mem::replace(&mut tool.is_ended, true) {
            // Its content is not needed any more, and may be whole files.
            tool.call = ToolCall::default();
            out.event(AgentEvent::Activity(AgentActivity::ToolEnded(end)));
        }
    }

    /// Queues a permission request.
    fn handle_permission(
        &mut self,
        id: &RawValue,
        permission: AcpPermission<'_>,
        out: &mut DialectOutput,
    ) {
        let (Ok(tool), Ok(detail)) = (
            serde_json::from_str::<ToolCall>(permission.tool_call.get()),
            serde_json::from_str(permission.tool_call.get()),
        ) else {
            return refuse(id, INVALID_PARAMS, "the tool call cannot be read", out);
        };
        let mut offers = permission.options;
        offers.sort_by_key(|offer| offer.kind);
        let choices = offers.into_iter().map(|offer| {
            let grants =
                matches!(offer.kind, PermissionKind::AllowOnce | PermissionKind::AllowAlways);
            ApprovalChoice::new(offer.option_id, offer.name, grants)
        });
        let mut choices: Vec<_> = choices.collect();
        if choices.iter().all(|choice| choice.grants) {
            choices.push(ApprovalChoice::new(NO_OPTION, "Reject", false));
        }
        self.report_thought(out);
        let known = self.tools.entry(tool.tool_call_id.clone()).or_default();
        known.call.merge(tool);
        let approval = Approval {
            id: id.get().to_owned(),
            prompt: known.call.described(),
            choices,
            tool: Some(known.call.subject()),
            detail,
            ..Approval::default()
        };
        let tool = known.call.tool_call_id.clone();
        self.permissions.push_back(PendingPermission { id: id.to_owned(), tool, approval });
        if self.permissions.len() == 1 {
            self.ask_next(out);
        }
    }

    /// Asks the caller about the next permission, or grants it with `force`.
    fn ask_next(&mut self, out: &mut DialectOutput) {
        while let Some(pending) = self.permissions.front() {
            if !self.work.force {
                return out.event(AgentEvent::Approval(pending.approval.clone()));
            }
            let choice = pending.approval.choices[0].clone();
            self.decide(&choice, out);
        }
    }

    /// Sends the decision about the first permission request.
    fn decide(&mut self, choice: &ApprovalChoice, out: &mut DialectOutput) {
        let Some(pending) = self.permissions.pop_front() else { return };
        let outcome = match choice.id.as_str() {
            NO_OPTION => PermissionOutcome::Cancelled,
            option_id => PermissionOutcome::Selected { option_id },
        };
        out.line(AcpReply::Result { outcome }.line(&pending.id));
        if choice.grants {
            self.report_tool(&pending.tool, out);
        } else {
            self.denied = Some(pending.approval.prompt);
            self.end_paragraph();
        }
    }
}

impl CliDialect for Acp {
    fn arguments(&self) -> Vec<String> {
        self.quirks.arguments.iter().map(ToString::to_string).collect()
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        if self.work.force { &[] } else { self.quirks.ask_variables }
    }

    fn open(&mut self, out: &mut DialectOutput) {
        self.request(AcpStep::Initialize, out);
    }

    fn handle_line(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        // Some agents write log lines to standard output.
        let Ok(line) = serde_json::from_str::<AcpLine<'_>>(line) else { return Ok(()) };
        match (line.method.as_deref(), line.id) {
            (Some("session/request_permission"), Some(id)) => match line.params.map(read) {
                Some(Ok(permission)) => self.handle_permission(id, permission, out),
                Some(Err(_)) | None => {
                    refuse(id, INVALID_PARAMS, "the parameters cannot be read", out);
                }
            },
            (Some(_), Some(id)) => {
                refuse(id, METHOD_NOT_FOUND, "this method is not supported", out);
            }
            (Some("session/update"), None) => {
                if let Some(Ok(SessionNotice { update })) = line.params.map(read) {
                    self.handle_update(update, out);
                }
            }
            (None, Some(id)) if id.get() == self.request_id.to_string() => {
                return match (line.error, line.result) {
                    (Some(fault), _) => self.handle_error(&fault, out),
                    (None, Some(result)) => self.handle_result(result, out),
                    (None, None) => self.handle_result(RawValue::NULL, out),
                };
            }
            (Some(_) | None, None) | (None, Some(_)) => {}
        }
        Ok(())
    }

    fn answer(&mut self, _: &Approval, decision: &ApprovalAnswer, out: &mut DialectOutput) {
        self.decide(&decision.choice, out);
        self.ask_next(out);
    }

    fn cancel(&mut self, out: &mut DialectOutput) {
        for pending in self.permissions.drain(..) {
            out.line(AcpReply::Result { outcome: PermissionOutcome::Cancelled }.line(&pending.id));
        }
        if self.step == AcpStep::Prompt {
            out.line(AcpRequest::Cancel { session_id: &self.session }.line(None));
        }
    }

    fn has_cancelled(&self) -> bool {
        self.step == AcpStep::Over
    }
}

/// The amount of a cost in dollars.
fn dollars(cost: &Value) -> Option<f64> {
    let is_dollars = cost.get("currency").is_none_or(|currency| currency == "USD");
    cost.get("amount").filter(|_| is_dollars)?.as_f64()
}

fn refuse(id: &RawValue, code: i64, message: &str, out: &mut DialectOutput) {
    out.line(AcpReply::Error { code, message }.line(id));
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Failure> {
    serde_json::from_str(json.get()).map_err(|_| unreadable())
}

fn unreadable() -> Failure {
    Failure::new("wrote a message that violates the Agent Client Protocol")
}
