//! Agent Client Protocol, version 1: JSON-RPC lines over stdio, for any agent that implements it and for
//! the presets that do.

#[cfg(test)]
mod tests;
mod wire;

use std::collections::{HashSet, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use self::wire::{
    AcpBlock, AcpContent, AcpError, AcpLine, AcpPermission, AcpReply, AcpRequest, ClientInfo,
    Initialized, NOT_SIGNED_IN, PermissionKind, PermissionOutcome, PromptResult, SessionNotice,
    SessionOpened, ToolCall, UNKNOWN, UNREADABLE, Update,
};
use super::dialect::{
    AgentEvent, Approval, ApprovalChoice, CliDialect, CodingRequest, DialectOutput, Image, plain,
};
use crate::failure::Failure;

/// The version that is spoken here.
const VERSION: u16 = 1;

/// The choice of a no that the agent does not offer.
const NO_OPTION: &str = "none-of-these";

/// Where one agent is not as the protocol has it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quirks {
    /// What makes it speak the protocol.
    pub(super) arguments: &'static [&'static str],
    /// What makes it ask before it does something, in its environment.
    pub(super) asking: &'static [(&'static str, &'static str)],
    /// The mode where the configuration has none.
    pub(super) mode: Option<&'static str>,
    /// How it is signed in to where it wants that before a session.
    pub(super) sign_in: Option<&'static str>,
    /// What stands before the name of a session that is loaded.
    pub(super) prefix: &'static str,
}

/// One prompt to one agent.
#[derive(Debug)]
pub(crate) struct Acp {
    ask: CodingRequest,
    quirks: Quirks,
    /// What is waited for, under the newest number.
    step: AcpStep,
    number: u64,
    /// How it goes on with a session of before.
    way: Option<ReopenMethod>,
    /// True if prompts may have images.
    shows_images: bool,
    /// The ways to sign in, in the agent's words.
    sign_ins: Vec<String>,
    /// The agent's own name for all that it was told and has said.
    session: String,
    model: Option<String>,
    /// What is chosen before the prompt.
    wishes: VecDeque<Wish>,
    /// The tools that were told of.
    tools: HashSet<String>,
    /// What it wants to do and may not yet. The first one is being asked for.
    permissions: VecDeque<Wanted>,
    /// What it said since it last used a tool.
    last_words: String,
    statistics: Map<String, Value>,
}

/// One request follows the answer to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcpStep {
    Initialize,
    SignIn,
    Reopen,
    Open,
    Choose,
    Prompt,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReopenMethod {
    /// It goes on at once.
    Resume,
    /// It tells again what was said so far.
    Load,
}

#[derive(Debug)]
struct Wish {
    what: &'static str,
    value: String,
    by: SessionSetting,
}

/// How something is chosen.
#[derive(Debug)]
enum SessionSetting {
    Mode,
    Model,
    Option(String),
}

#[derive(Debug)]
struct Wanted {
    id: Box<RawValue>,
    tool: ToolCall,
    approval: Approval,
}

impl Acp {
    pub(super) fn new(ask: CodingRequest, quirks: Quirks) -> Self {
        Self {
            ask,
            quirks,
            step: AcpStep::Initialize,
            number: 0,
            way: None,
            shows_images: false,
            sign_ins: Vec::new(),
            session: String::new(),
            model: None,
            wishes: VecDeque::new(),
            tools: HashSet::new(),
            permissions: VecDeque::new(),
            last_words: String::new(),
            statistics: Map::new(),
        }
    }

    /// Asks for the next step.
    fn request(&mut self, step: AcpStep, out: &mut DialectOutput) {
        self.step = step;
        self.number += 1;
        let directory = self.ask.directory.to_string_lossy();
        let (session_id, cwd, mcp_servers) = (self.session.as_str(), directory.as_ref(), []);
        let told = match step {
            AcpStep::Initialize => AcpRequest::Initialize {
                protocol_version: VERSION,
                client_capabilities: Map::new(),
                client_info: ClientInfo {
                    name: "herald",
                    title: "Herald",
                    version: env!("CARGO_PKG_VERSION"),
                },
            },
            AcpStep::SignIn => AcpRequest::Authenticate {
                method_id: self.quirks.sign_in.take().unwrap_or_default(),
            },
            AcpStep::Reopen => match self.way {
                Some(ReopenMethod::Resume) => AcpRequest::Resume { session_id, cwd, mcp_servers },
                Some(ReopenMethod::Load) | None => {
                    AcpRequest::Load { session_id, cwd, mcp_servers }
                }
            },
            AcpStep::Open => AcpRequest::New { cwd, mcp_servers },
            AcpStep::Choose => {
                let wish = self.wishes.front().expect("there is something to choose");
                let value = wish.value.as_str();
                match &wish.by {
                    SessionSetting::Mode => AcpRequest::SetMode { session_id, mode_id: value },
                    SessionSetting::Model => AcpRequest::SetModel { session_id, model_id: value },
                    SessionSetting::Option(config_id) => {
                        AcpRequest::SetOption { session_id, config_id, value }
                    }
                }
            }
            AcpStep::Prompt => {
                let text = plain(&self.ask.text);
                let images = self.ask.images.iter().filter(|_| self.shows_images);
                let images = images.map(|Image { media_type, data, .. }| AcpBlock::Image {
                    mime_type: media_type,
                    data,
                });
                let prompt = [AcpBlock::Text { text }].into_iter().chain(images).collect();
                AcpRequest::Prompt { session_id, prompt }
            }
            AcpStep::Over => return,
        };
        out.line(told.line(Some(self.number)));
    }

    /// Goes on with the session of before, or begins one.
    fn open_session(&mut self, out: &mut DialectOutput) {
        match (self.way, &self.ask.session) {
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

    /// The answer to what was asked for last.
    fn answered(&mut self, result: &RawValue, out: &mut DialectOutput) -> Result<(), Failure> {
        match self.step {
            AcpStep::Initialize => {
                let agent: Initialized = read(result)?;
                if agent.protocol_version != VERSION {
                    let spoken = agent.protocol_version;
                    let kind = format!(
                        "speaks version {spoken} of the Agent Client Protocol, and not {VERSION}"
                    );
                    return Err(Failure::new(kind));
                }
                let can = agent.agent_capabilities;
                self.shows_images = can.prompt_capabilities.image;
                self.way = match (can.session_capabilities.resume, can.load_session) {
                    (Some(_), _) => Some(ReopenMethod::Resume),
                    (None, true) => Some(ReopenMethod::Load),
                    (None, false) => None,
                };
                self.sign_ins = agent.auth_methods.into_iter().map(|way| way.name).collect();
                self.open_session(out);
            }
            AcpStep::SignIn => self.open_session(out),
            AcpStep::Reopen | AcpStep::Open => {
                let opened = read::<Option<SessionOpened>>(result)?.unwrap_or_default();
                if self.step == AcpStep::Open {
                    self.session = opened.session_id.clone().ok_or_else(unread)?;
                }
                self.wish(opened)?;
                self.prepare(out);
            }
            AcpStep::Choose => {
                let chosen = self.wishes.pop_front();
                if let Some(wish) = chosen.filter(|wish| wish.what == "model") {
                    self.model = Some(wish.value);
                }
                self.prepare(out);
            }
            AcpStep::Prompt => self.stopped(read(result)?, out)?,
            AcpStep::Over => {}
        }
        Ok(())
    }

    /// It would not.
    fn refused(&mut self, fault: &AcpError, out: &mut DialectOutput) -> Result<(), Failure> {
        let said = |kind: String| Failure { message: Some(fault.text()), ..Failure::new(kind) };
        if fault.code == NOT_SIGNED_IN {
            let is_opening = matches!(self.step, AcpStep::Reopen | AcpStep::Open);
            if is_opening && self.quirks.sign_in.is_some() {
                self.request(AcpStep::SignIn, out);
                return Ok(());
            }
            let mut kind = "is not signed in to".to_owned();
            if !self.sign_ins.is_empty() {
                kind = format!("{kind}; it knows these ways: {}", self.sign_ins.join(", "));
            }
            return Err(said(kind));
        }
        match (self.step, self.wishes.front()) {
            (AcpStep::Reopen, _) => {
                let why = fault.text();
                let CodingRequest { agent, task, .. } = &self.ask;
                tracing::warn!(%task, %agent, why, "its session cannot be resumed: a new one begins");
                self.ask.session = None;
                self.request(AcpStep::Open, out);
                Ok(())
            }
            (AcpStep::Initialize, _) => {
                Err(said("does not speak the Agent Client Protocol".to_owned()))
            }
            (AcpStep::SignIn, _) => Err(said("cannot be signed in to".to_owned())),
            (AcpStep::Open, _) => Err(said("began no session".to_owned())),
            (AcpStep::Choose, Some(Wish { what, value, .. })) => {
                Err(said(format!("did not take the {what} `{value}`")))
            }
            (AcpStep::Choose, None) | (AcpStep::Prompt, _) => Err(said("failed".to_owned())),
            (AcpStep::Over, _) => Ok(()),
        }
    }

    /// Finds out how that is chosen which was asked for.
    fn wish(&mut self, opened: SessionOpened) -> Result<(), Failure> {
        let options = opened.config_options.unwrap_or_default();
        let option = |what: &str| {
            options.iter().find(|option| option.category.as_deref().unwrap_or(&option.id) == what)
        };
        let current = option("model").and_then(|option| option.current_value.as_str());
        self.model = current.map(str::to_owned);
        let is_listed = opened.models.is_some();
        if let Some(models) = opened.models {
            self.model = self.model.take().or(models.current_model_id);
        }
        let mode = self.ask.profile.clone().or(self.quirks.mode.map(str::to_owned));
        for (what, value) in [("model", self.ask.model.clone()), ("mode", mode)] {
            let Some(value) = value else { continue };
            let by = match (option(what), what) {
                (Some(option), _) => SessionSetting::Option(option.id.clone()),
                (None, "model") if is_listed => SessionSetting::Model,
                (None, "mode") if opened.modes.is_some() => SessionSetting::Mode,
                (None, _) => {
                    return Err(Failure::new(format!("offers no {what} to choose, not `{value}`")));
                }
            };
            self.wishes.push_back(Wish { what, value, by });
        }
        Ok(())
    }

    /// Chooses what is still to be chosen, and then begins the work.
    fn prepare(&mut self, out: &mut DialectOutput) {
        if !self.wishes.is_empty() {
            return self.request(AcpStep::Choose, out);
        }
        let session = self.session.trim().to_owned();
        out.event(AgentEvent::Init { model: self.model.clone(), session: Some(session) });
        self.request(AcpStep::Prompt, out);
    }

    /// The work is over.
    fn stopped(&mut self, end: PromptResult, out: &mut DialectOutput) -> Result<(), Failure> {
        self.step = AcpStep::Over;
        let kind = match end.stop_reason.as_str() {
            "end_turn" => None,
            "max_tokens" => Some("stopped because it may not use more tokens"),
            "max_turn_requests" => Some("stopped because it may not ask its model more often"),
            "refusal" => Some("refused to go on"),
            "cancelled" => Some("stopped because it was cancelled"),
            _ => Some("stopped for a reason of its own"),
        };
        if let Some(kind) = kind {
            return Err(Failure { message: Some(end.stop_reason), ..Failure::new(kind) });
        }
        let counted = end.meta.and_then(|meta| meta.quota).and_then(|quota| quota.token_count);
        if let Some(usage) = end.usage.or(counted) {
            self.statistics.insert("usage".to_owned(), Value::Object(usage));
        }
        let summary = std::mem::take(&mut self.last_words);
        let summary = Some(summary).filter(|summary| !summary.is_empty());
        out.event(AgentEvent::Done { summary, stats: std::mem::take(&mut self.statistics) });
        out.close();
        Ok(())
    }

    /// Something happened. What a session tells again while it is opened is none of this turn's.
    fn told(&mut self, update: Update, out: &mut DialectOutput) {
        if self.step != AcpStep::Prompt {
            return;
        }
        match update {
            Update::AgentMessageChunk { content: AcpContent::Text { text } } => {
                if !text.is_empty() {
                    self.last_words += &text;
                    out.event(AgentEvent::Text(text));
                }
            }
            Update::ToolCall(tool) => {
                self.used(&tool, out);
                if let Some(output) = tool.output() {
                    out.event(AgentEvent::ToolResult { output });
                }
            }
            Update::Usage { cost: Some(cost) } => {
                self.statistics.insert("cost".to_owned(), cost);
            }
            Update::AgentMessageChunk { content: AcpContent::Other }
            | Update::Usage { cost: None }
            | Update::Other => {}
        }
    }

    /// Tells of a tool once.
    fn used(&mut self, tool: &ToolCall, out: &mut DialectOutput) {
        if self.tools.insert(tool.tool_call_id.clone()) {
            self.last_words.clear();
            out.event(AgentEvent::ToolUse { name: tool.name() });
        }
    }

    /// It wants to do something, and may do it if it is forced to nothing else.
    fn wanted(&mut self, id: &RawValue, permission: AcpPermission<'_>, out: &mut DialectOutput) {
        let (Ok(tool), Ok(detail)) = (
            serde_json::from_str::<ToolCall>(permission.tool_call.get()),
            serde_json::from_str(permission.tool_call.get()),
        ) else {
            return refuse(id, UNREADABLE, "the tool call cannot be read", out);
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
            is_question: false,
            choices,
            detail,
        };
        self.permissions.push_back(Wanted { id: id.to_owned(), tool, approval });
        if self.permissions.len() == 1 {
            self.ask_next(out);
        }
    }

    /// Asks for the next permission, or gives it where force is on.
    fn ask_next(&mut self, out: &mut DialectOutput) {
        while let Some(wanted) = self.permissions.front() {
            if !self.ask.force {
                return out.event(AgentEvent::Approval(wanted.approval.clone()));
            }
            let choice = wanted.approval.choices[0].clone();
            self.decide(&choice, out);
        }
    }

    /// Tells the agent what it may.
    fn decide(&mut self, choice: &ApprovalChoice, out: &mut DialectOutput) {
        let Some(wanted) = self.permissions.pop_front() else { return };
        let outcome = match choice.id.as_str() {
            NO_OPTION => PermissionOutcome::Cancelled,
            option_id => PermissionOutcome::Selected { option_id },
        };
        out.line(AcpReply::Result { outcome }.line(&wanted.id));
        if choice.grants {
            self.used(&wanted.tool, out);
        }
    }
}

impl CliDialect for Acp {
    fn arguments(&self) -> Vec<String> {
        self.quirks.arguments.iter().map(ToString::to_string).collect()
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        if self.ask.force { &[] } else { self.quirks.asking }
    }

    fn open(&mut self, out: &mut DialectOutput) {
        self.request(AcpStep::Initialize, out);
    }

    fn hear(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure> {
        // Some agents also log where they should only speak.
        let Ok(line) = serde_json::from_str::<AcpLine<'_>>(line) else { return Ok(()) };
        match (line.method.as_deref(), line.id) {
            (Some("session/request_permission"), Some(id)) => match line.params.map(read) {
                Some(Ok(permission)) => self.wanted(id, permission, out),
                Some(Err(_)) | None => refuse(id, UNREADABLE, "cannot be read", out),
            },
            (Some(_), Some(id)) => refuse(id, UNKNOWN, "is not offered here", out),
            (Some("session/update"), None) => {
                if let Some(Ok(SessionNotice { update })) = line.params.map(read) {
                    self.told(update, out);
                }
            }
            (None, Some(id)) if id.get() == self.number.to_string() => {
                return match (line.error, line.result) {
                    (Some(fault), _) => self.refused(&fault, out),
                    (None, Some(result)) => self.answered(result, out),
                    (None, None) => self.answered(RawValue::NULL, out),
                };
            }
            (Some(_) | None, None) | (None, Some(_)) => {}
        }
        Ok(())
    }

    fn answer(&mut self, _: &Approval, choice: &ApprovalChoice, out: &mut DialectOutput) {
        self.decide(choice, out);
        self.ask_next(out);
    }

    fn cancel(&mut self, out: &mut DialectOutput) {
        for wanted in self.permissions.drain(..) {
            out.line(AcpReply::Result { outcome: PermissionOutcome::Cancelled }.line(&wanted.id));
        }
        if self.step == AcpStep::Prompt {
            out.line(AcpRequest::Cancel { session_id: &self.session }.line(None));
        }
    }
}

fn refuse(id: &RawValue, code: i64, message: &str, out: &mut DialectOutput) {
    out.line(AcpReply::Error { code, message }.line(id));
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Failure> {
    serde_json::from_str(json.get()).map_err(|_| unread())
}

fn unread() -> Failure {
    Failure::new("said something that the Agent Client Protocol does not have")
}
