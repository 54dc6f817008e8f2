//! Agent Client Protocol, version 1: JSON-RPC lines over stdio, for any agent that implements it and for
//! the presets that do.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::{HashSet, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use self::wire::{
    AUTH_REQUIRED, AcpBlock, AcpContent, AcpError, AcpLine, AcpPermission, AcpReply, AcpRequest,
    ClientInfo, INVALID_PARAMS, Initialized, METHOD_NOT_FOUND, PermissionKind, PermissionOutcome,
    PromptResult, SessionNotice, SessionOpened, SessionUpdate, ToolCall,
};
use super::{
    activity::Activity,
    dialect::{
        AgentEvent, Approval, ApprovalChoice, CliDialect, CodingRequest, CodingResult, Decision,
        DialectOutput, Image, escape_command,
    },
    usage::Usage,
};
use crate::failure::Failure;

/// The protocol version.
const VERSION: u16 = 1;

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
    /// Ids of the tool calls that were reported.
    tools: HashSet<String>,
    /// Permission requests without an answer. The caller has been asked about the first.
    permissions: VecDeque<PendingPermission>,
    /// The text since the last tool call.
    last_text: String,
    statistics: Map<String, Value>,
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
    tool: ToolCall,
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
            tools: HashSet::new(),
            permissions: VecDeque::new(),
            last_text: String::new(),
            statistics: Map::new(),
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
            (None, _) | (_, None) => self.request(AcpStep::Open, out),
        }
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
            AcpStep::Prompt => self.finish(read(result)?, out)?,
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
                let why = fault.text();
                let CodingRequest { agent, task, .. } = &self.work;
                tracing::warn!(%task, %agent, why, "the agent's session cannot be resumed; starting a new one");
                self.work.session = None;
                self.request(AcpStep::Open, out);
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
            (AcpStep::Configure, None) | (AcpStep::Prompt, _) => Err(failure("failed".to_owned())),
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
    fn finish(&mut self, end: PromptResult, out: &mut DialectOutput) -> Result<(), Failure> {
        self.step = AcpStep::Over;
        let kind = match end.stop_reason.as_str() {
            "end_turn" => None,
            "max_tokens" => Some("stopped at its limit of tokens"),
            "max_turn_requests" => Some("stopped at its limit of model requests"),
            "refusal" => Some("refused to continue"),
            "cancelled" => Some("stopped because it was cancelled"),
            _ => Some("stopped for an unknown reason"),
        };
        if let Some(kind) = kind {
            return Err(Failure { message: Some(end.stop_reason), ..Failure::new(kind) });
        }
        let counted = end.meta.and_then(|meta| meta.quota).and_then(|quota| quota.token_count);
        if let Some(usage) = end.usage.or(counted) {
            self.statistics.insert("usage".to_owned(), Value::Object(usage));
        }
        let summary = std::mem::take(&mut self.last_text);
        let summary = Some(summary).filter(|summary| !summary.is_empty());
        let usage = Usage { raw: std::mem::take(&mut self.statistics), ..Usage::default() };
        out.event(AgentEvent::Done(CodingResult { summary, usage, ..CodingResult::default() }));
        out.close();
        Ok(())
    }

    /// Handles an update of the session. Updates before the prompt are the replay of a loaded session.
    fn handle_update(&mut self, update: SessionUpdate, out: &mut DialectOutput) {
        if self.step != AcpStep::Prompt {
            return;
        }
        match update {
            SessionUpdate::AgentMessageChunk { content: AcpContent::Text { text } } => {
                if !text.is_empty() {
                    self.last_text += &text;
                    out.event(AgentEvent::Text(text));
                }
            }
            SessionUpdate::ToolCall(tool) => {
                self.report_tool(&tool, out);
                if let Some(end) = tool.end() {
                    out.event(AgentEvent::Activity(Activity::ToolEnded(end)));
                }
            }
            SessionUpdate::Usage { cost: Some(cost) } => {
                self.statistics.insert("cost".to_owned(), cost);
            }
            SessionUpdate::AgentMessageChunk { content: AcpContent::Other }
            | SessionUpdate::Usage { cost: None }
            | SessionUpdate::Other => {}
        }
    }

    /// Reports a tool call once.
    fn report_tool(&mut self, tool: &ToolCall, out: &mut DialectOutput) {
        if self.tools.insert(tool.tool_call_id.clone()) {
            self.last_text.clear();
            out.event(AgentEvent::Activity(Activity::ToolStarted(tool.start())));
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
        let approval = Approval {
            id: id.get().to_owned(),
            prompt: tool.described(),
            choices,
            detail,
            ..Approval::default()
        };
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

    fn answer(&mut self, _: &Approval, decision: &Decision, out: &mut DialectOutput) {
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

fn refuse(id: &RawValue, code: i64, message: &str, out: &mut DialectOutput) {
    out.line(AcpReply::Error { code, message }.line(id));
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Failure> {
    serde_json::from_str(json.get()).map_err(|_| unreadable())
}

fn unreadable() -> Failure {
    Failure::new("wrote a message that violates the Agent Client Protocol")
}
