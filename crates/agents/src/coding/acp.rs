//! The Agent Client Protocol: JSON-RPC lines over stdio, version 1. Any agent that speaks it, and
//! the presets of those that do.

mod wire;

use std::collections::{HashSet, VecDeque};

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use self::wire::{
    Block, Content, Fault, Initialized, Line, NOT_SIGNED_IN, Notice, OfferKind, Opened, Outcome,
    Permission, Reply, Stopped, Told, ToolCall, UNKNOWN, UNREADABLE, Update, Us,
};
use super::dialect::{Approval, Ask, Choice, Dialect, Event, Talk, plain};
use crate::failure::Failure;

/// The version that is spoken here.
const VERSION: u16 = 1;

/// The choice of a no that the agent does not offer.
const NO_OPTION: &str = "none-of-these";

/// Where one agent is not as the protocol has it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Habits {
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
    ask: Ask,
    habits: Habits,
    /// What is waited for, under the newest number.
    step: Step,
    number: u64,
    /// How it goes on with a session of before.
    way: Option<Way>,
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
enum Step {
    Initialize,
    SignIn,
    Reopen,
    Open,
    Choose,
    Prompt,
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It goes on at once.
    Resume,
    /// It tells again what was said so far.
    Load,
}

#[derive(Debug)]
struct Wish {
    what: &'static str,
    value: String,
    by: Setting,
}

/// How something is chosen.
#[derive(Debug)]
enum Setting {
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
    pub(super) fn new(ask: Ask, habits: Habits) -> Self {
        Self {
            ask,
            habits,
            step: Step::Initialize,
            number: 0,
            way: None,
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
    fn request(&mut self, step: Step, talk: &mut Talk) {
        self.step = step;
        self.number += 1;
        let directory = self.ask.directory.to_string_lossy();
        let (session_id, cwd, mcp_servers) = (self.session.as_str(), directory.as_ref(), []);
        let told = match step {
            Step::Initialize => Told::Initialize {
                protocol_version: VERSION,
                client_capabilities: Map::new(),
                client_info: Us {
                    name: "herald",
                    title: "Herald",
                    version: env!("CARGO_PKG_VERSION"),
                },
            },
            Step::SignIn => {
                Told::Authenticate { method_id: self.habits.sign_in.take().unwrap_or_default() }
            }
            Step::Reopen => match self.way {
                Some(Way::Resume) => Told::Resume { session_id, cwd, mcp_servers },
                Some(Way::Load) | None => Told::Load { session_id, cwd, mcp_servers },
            },
            Step::Open => Told::New { cwd, mcp_servers },
            Step::Choose => {
                let wish = self.wishes.front().expect("there is something to choose");
                let value = wish.value.as_str();
                match &wish.by {
                    Setting::Mode => Told::SetMode { session_id, mode_id: value },
                    Setting::Model => Told::SetModel { session_id, model_id: value },
                    Setting::Option(config_id) => Told::SetOption { session_id, config_id, value },
                }
            }
            Step::Prompt => {
                let text = plain(&self.ask.text);
                Told::Prompt { session_id, prompt: [Block::Text { text }] }
            }
            Step::Over => return,
        };
        talk.line(told.line(Some(self.number)));
    }

    /// Goes on with the session of before, or begins one.
    fn open_session(&mut self, talk: &mut Talk) {
        match (self.way, &self.ask.session) {
            (Some(Way::Resume), Some(session)) => {
                self.session.clone_from(session);
                self.request(Step::Reopen, talk);
            }
            (Some(Way::Load), Some(session)) => {
                self.session = format!("{}{session}", self.habits.prefix);
                self.request(Step::Reopen, talk);
            }
            (None, _) | (_, None) => self.request(Step::Open, talk),
        }
    }

    /// The answer to what was asked for last.
    fn answered(&mut self, result: &RawValue, talk: &mut Talk) -> Result<(), Failure> {
        match self.step {
            Step::Initialize => {
                let agent: Initialized = read(result)?;
                if agent.protocol_version != VERSION {
                    let spoken = agent.protocol_version;
                    let kind = format!(
                        "speaks version {spoken} of the Agent Client Protocol, and not {VERSION}"
                    );
                    return Err(Failure::new(kind));
                }
                let can = agent.agent_capabilities;
                self.way = match (can.session_capabilities.resume, can.load_session) {
                    (Some(_), _) => Some(Way::Resume),
                    (None, true) => Some(Way::Load),
                    (None, false) => None,
                };
                self.sign_ins = agent.auth_methods.into_iter().map(|way| way.name).collect();
                self.open_session(talk);
            }
            Step::SignIn => self.open_session(talk),
            Step::Reopen | Step::Open => {
                let opened = read::<Option<Opened>>(result)?.unwrap_or_default();
                if self.step == Step::Open {
                    self.session = opened.session_id.clone().ok_or_else(unread)?;
                }
                self.wish(opened)?;
                self.prepare(talk);
            }
            Step::Choose => {
                let chosen = self.wishes.pop_front();
                if let Some(wish) = chosen.filter(|wish| wish.what == "model") {
                    self.model = Some(wish.value);
                }
                self.prepare(talk);
            }
            Step::Prompt => self.stopped(read(result)?, talk)?,
            Step::Over => {}
        }
        Ok(())
    }

    /// It would not.
    fn refused(&mut self, fault: &Fault, talk: &mut Talk) -> Result<(), Failure> {
        let said = |kind: String| Failure { message: Some(fault.text()), ..Failure::new(kind) };
        if fault.code == NOT_SIGNED_IN {
            let is_opening = matches!(self.step, Step::Reopen | Step::Open);
            if is_opening && self.habits.sign_in.is_some() {
                self.request(Step::SignIn, talk);
                return Ok(());
            }
            let mut kind = "is not signed in to".to_owned();
            if !self.sign_ins.is_empty() {
                kind = format!("{kind}; it knows these ways: {}", self.sign_ins.join(", "));
            }
            return Err(said(kind));
        }
        match (self.step, self.wishes.front()) {
            (Step::Reopen, _) => {
                let why = fault.text();
                tracing::warn!(why, "a session of before cannot be gone on with, a new one begins");
                self.ask.session = None;
                self.request(Step::Open, talk);
                Ok(())
            }
            (Step::Initialize, _) => {
                Err(said("does not speak the Agent Client Protocol".to_owned()))
            }
            (Step::SignIn, _) => Err(said("cannot be signed in to".to_owned())),
            (Step::Open, _) => Err(said("began no session".to_owned())),
            (Step::Choose, Some(Wish { what, value, .. })) => {
                Err(said(format!("did not take the {what} `{value}`")))
            }
            (Step::Choose, None) | (Step::Prompt, _) => Err(said("failed".to_owned())),
            (Step::Over, _) => Ok(()),
        }
    }

    /// Finds out how that is chosen which was asked for.
    fn wish(&mut self, opened: Opened) -> Result<(), Failure> {
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
        let mode = self.ask.profile.clone().or(self.habits.mode.map(str::to_owned));
        for (what, value) in [("model", self.ask.model.clone()), ("mode", mode)] {
            let Some(value) = value else { continue };
            let by = match (option(what), what) {
                (Some(option), _) => Setting::Option(option.id.clone()),
                (None, "model") if is_listed => Setting::Model,
                (None, "mode") if opened.modes.is_some() => Setting::Mode,
                (None, _) => {
                    return Err(Failure::new(format!("offers no {what} to choose, not `{value}`")));
                }
            };
            self.wishes.push_back(Wish { what, value, by });
        }
        Ok(())
    }

    /// Chooses what is still to be chosen, and then begins the work.
    fn prepare(&mut self, talk: &mut Talk) {
        if !self.wishes.is_empty() {
            return self.request(Step::Choose, talk);
        }
        let session = self.session.trim().to_owned();
        talk.event(Event::Init { model: self.model.clone(), session: Some(session) });
        self.request(Step::Prompt, talk);
    }

    /// The work is over.
    fn stopped(&mut self, end: Stopped, talk: &mut Talk) -> Result<(), Failure> {
        self.step = Step::Over;
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
        talk.event(Event::Done { summary, stats: std::mem::take(&mut self.statistics) });
        talk.close();
        Ok(())
    }

    /// Something happened. What a session tells again while it is opened is none of this turn's.
    fn told(&mut self, update: Update, talk: &mut Talk) {
        if self.step != Step::Prompt {
            return;
        }
        match update {
            Update::AgentMessageChunk { content: Content::Text { text } } => {
                if !text.is_empty() {
                    self.last_words += &text;
                    talk.event(Event::Text(text));
                }
            }
            Update::ToolCall(tool) => {
                self.used(&tool, talk);
                if let Some(output) = tool.output() {
                    talk.event(Event::ToolResult { output });
                }
            }
            Update::Usage { cost: Some(cost) } => {
                self.statistics.insert("cost".to_owned(), cost);
            }
            Update::AgentMessageChunk { content: Content::Other }
            | Update::Usage { cost: None }
            | Update::Other => {}
        }
    }

    /// Tells of a tool once.
    fn used(&mut self, tool: &ToolCall, talk: &mut Talk) {
        if self.tools.insert(tool.tool_call_id.clone()) {
            self.last_words.clear();
            talk.event(Event::ToolUse { name: tool.name() });
        }
    }

    /// It wants to do something, and may do it if it is forced to nothing else.
    fn wanted(&mut self, id: &RawValue, permission: Permission<'_>, talk: &mut Talk) {
        let (Ok(tool), Ok(detail)) = (
            serde_json::from_str::<ToolCall>(permission.tool_call.get()),
            serde_json::from_str(permission.tool_call.get()),
        ) else {
            return refuse(id, UNREADABLE, "the tool call cannot be read", talk);
        };
        let mut offers = permission.options;
        offers.sort_by_key(|offer| offer.kind);
        let choices = offers.into_iter().map(|offer| {
            let grants = matches!(offer.kind, OfferKind::AllowOnce | OfferKind::AllowAlways);
            Choice::new(offer.option_id, offer.name, grants)
        });
        let mut choices: Vec<_> = choices.collect();
        if choices.iter().all(|choice| choice.grants) {
            choices.push(Choice::new(NO_OPTION, "Reject", false));
        }
        let approval =
            Approval { id: id.get().to_owned(), prompt: tool.described(), choices, detail };
        self.permissions.push_back(Wanted { id: id.to_owned(), tool, approval });
        if self.permissions.len() == 1 {
            self.ask_next(talk);
        }
    }

    /// Asks for the next permission, or gives it where force is on.
    fn ask_next(&mut self, talk: &mut Talk) {
        while let Some(wanted) = self.permissions.front() {
            if !self.ask.force {
                return talk.event(Event::Approval(wanted.approval.clone()));
            }
            let choice = wanted.approval.choices[0].clone();
            self.decide(&choice, talk);
        }
    }

    /// Tells the agent what it may.
    fn decide(&mut self, choice: &Choice, talk: &mut Talk) {
        let Some(wanted) = self.permissions.pop_front() else { return };
        let outcome = match choice.id.as_str() {
            NO_OPTION => Outcome::Cancelled,
            option_id => Outcome::Selected { option_id },
        };
        talk.line(Reply::Result { outcome }.line(&wanted.id));
        if choice.grants {
            self.used(&wanted.tool, talk);
        }
    }
}

impl Dialect for Acp {
    fn arguments(&self) -> Vec<String> {
        self.habits.arguments.iter().map(ToString::to_string).collect()
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        if self.ask.force { &[] } else { self.habits.asking }
    }

    fn open(&mut self, talk: &mut Talk) {
        self.request(Step::Initialize, talk);
    }

    fn hear(&mut self, line: &str, talk: &mut Talk) -> Result<(), Failure> {
        // Some agents also log where they should only speak.
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else { return Ok(()) };
        match (line.method.as_deref(), line.id) {
            (Some("session/request_permission"), Some(id)) => match line.params.map(read) {
                Some(Ok(permission)) => self.wanted(id, permission, talk),
                Some(Err(_)) | None => refuse(id, UNREADABLE, "cannot be read", talk),
            },
            (Some(_), Some(id)) => refuse(id, UNKNOWN, "is not offered here", talk),
            (Some("session/update"), None) => {
                if let Some(Ok(Notice { update })) = line.params.map(read) {
                    self.told(update, talk);
                }
            }
            (None, Some(id)) if id.get() == self.number.to_string() => {
                return match (line.error, line.result) {
                    (Some(fault), _) => self.refused(&fault, talk),
                    (None, Some(result)) => self.answered(result, talk),
                    (None, None) => self.answered(RawValue::NULL, talk),
                };
            }
            (Some(_) | None, None) | (None, Some(_)) => {}
        }
        Ok(())
    }

    fn answer(&mut self, _: &Approval, choice: &Choice, talk: &mut Talk) {
        self.decide(choice, talk);
        self.ask_next(talk);
    }

    fn is_served(&self) -> bool {
        true
    }

    fn cancel(&mut self, talk: &mut Talk) {
        for wanted in self.permissions.drain(..) {
            talk.line(Reply::Result { outcome: Outcome::Cancelled }.line(&wanted.id));
        }
        if self.step == Step::Prompt {
            talk.line(Told::Cancel { session_id: &self.session }.line(None));
        }
    }
}

fn refuse(id: &RawValue, code: i64, message: &str, talk: &mut Talk) {
    talk.line(Reply::Error { code, message }.line(id));
}

fn read<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Failure> {
    serde_json::from_str(json.get()).map_err(|_| unread())
}

fn unread() -> Failure {
    Failure::new("said something that the Agent Client Protocol does not have")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::{
        super::{gemini, opencode},
        *,
    };

    /// What Gemini CLI 0.61.0 says of itself, shortened.
    const GEMINI: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"authMethods":[{"id":"oauth-personal","name":"Log in with Google","description":"Log in with your Google account"},{"id":"gemini-api-key","name":"Gemini API key","description":"Use an API key with Gemini Developer API","_meta":{"api-key":{"provider":"google"}}}],"agentInfo":{"name":"gemini-cli","title":"Gemini CLI","version":"0.61.0"},"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},"mcpCapabilities":{"http":true,"sse":true}}}}"#;

    /// Its answer to `session/new`.
    const GEMINI_SESSION: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"7444b436-ae7f","modes":{"availableModes":[{"id":"default","name":"Default","description":"Prompts for approval"},{"id":"yolo","name":"YOLO","description":"Auto-approves all tools"}],"currentModeId":"default"},"models":{"availableModels":[{"modelId":"auto","name":"Auto"},{"modelId":"gemini-2.5-pro","name":"gemini-2.5-pro"}],"currentModelId":"auto"}}}"#;

    /// It wants to run a command.
    const GEMINI_WANTS: &str = r#"{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"7444b436-ae7f","options":[{"optionId":"proceed_always","name":"Allow for this session","kind":"allow_always"},{"optionId":"proceed_once","name":"Allow","kind":"allow_once"},{"optionId":"cancel","name":"Reject","kind":"reject_once"}],"toolCall":{"toolCallId":"run_1","status":"pending","title":"touch made-it && echo out","content":[{"type":"content","content":{"type":"text","text":"[current working directory /w]"}}],"locations":[],"kind":"execute"}}}"#;

    /// What OpenCode 1.18.33 says of itself.
    const OPENCODE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true},"promptCapabilities":{"embeddedContext":true,"image":true},"sessionCapabilities":{"close":{},"fork":{},"list":{},"resume":{}}},"authMethods":[{"description":"Run `opencode auth login` in the terminal","name":"Login with opencode","id":"opencode-login"}],"agentInfo":{"name":"OpenCode","version":"1.18.33"}}}"#;

    /// Its answer to `session/new`, shortened.
    const OPENCODE_SESSION: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"ses_e1d1","configOptions":[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"scripted/m1","options":[{"value":"scripted/m1","name":"Scripted/M1"}]},{"id":"mode","name":"Session Mode","category":"mode","type":"select","currentValue":"build","options":[{"value":"build","name":"build"},{"value":"plan","name":"plan"}]}]}}"#;

    fn ask() -> Ask {
        Ask { text: "hello".to_owned(), directory: PathBuf::from("/w"), ..Ask::default() }
    }

    /// What is told to an agent that says these lines, and to the caller.
    fn hear(acp: &mut Acp, lines: &[&str]) -> (Vec<Value>, Vec<Event>) {
        let mut talk = Talk::default();
        for line in lines {
            acp.hear(line, &mut talk).unwrap();
        }
        heard(talk)
    }

    fn heard(talk: Talk) -> (Vec<Value>, Vec<Event>) {
        let lines = String::from_utf8(talk.lines).unwrap();
        let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, talk.events)
    }

    /// Why the last line is the end.
    fn failure(acp: &mut Acp, lines: &[&str]) -> Failure {
        let (last, before) = lines.split_last().unwrap();
        hear(acp, before);
        acp.hear(last, &mut Talk::default()).unwrap_err()
    }

    fn update(update: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#
        )
    }

    fn answer(acp: &mut Acp, approval: &Approval, choice: usize) -> (Vec<Value>, Vec<Event>) {
        let mut talk = Talk::default();
        acp.answer(approval, &approval.choices[choice], &mut talk);
        heard(talk)
    }

    /// Opens everything up to the prompt, whose number is then 4.
    fn at_work(ask: Ask) -> Acp {
        let mut acp = gemini::dialect(ask);
        acp.open(&mut Talk::default());
        hear(&mut acp, &[GEMINI, GEMINI_SESSION, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
        acp
    }

    #[test]
    fn a_turn_of_gemini_cli_with_an_approval_is_told() {
        let mut acp = gemini::dialect(ask());
        let mut talk = Talk::default();
        acp.open(&mut talk);
        let (told, _) = heard(talk);
        let initialize = &told[0]["params"];
        assert_eq!(told[0]["method"], "initialize");
        assert_eq!(initialize["protocolVersion"], 1);
        assert_eq!(initialize["clientCapabilities"], json!({}), "no files, no terminals");

        let (told, _) = hear(&mut acp, &[GEMINI]);
        let params = json!({ "cwd": "/w", "mcpServers": [] });
        let new = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": params });
        assert_eq!(told, [new]);

        let (told, events) = hear(&mut acp, &[GEMINI_SESSION]);
        assert_eq!(told[0]["method"], "session/set_mode");
        assert_eq!(told[0]["params"], json!({ "sessionId": "7444b436-ae7f", "modeId": "default" }));
        assert_eq!(events, []);

        let commands = update(
            r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"memory","description":"Manage memory."}]}"#,
        );
        let (told, events) =
            hear(&mut acp, &[&commands, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
        assert_eq!(told[0]["method"], "session/prompt");
        assert_eq!(told[0]["params"]["prompt"], json!([{ "type": "text", "text": "hello" }]));
        let (model, session) = (Some("auto".to_owned()), Some("7444b436-ae7f".to_owned()));
        assert_eq!(events, [Event::Init { model, session }]);

        let (told, events) = hear(&mut acp, &[GEMINI_WANTS]);
        assert_eq!(told, [] as [Value; 0], "it waits");
        let [Event::Approval(approval)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(approval.prompt, "execute: touch made-it && echo out");
        let ids: Vec<_> = approval.choices.iter().map(|choice| choice.id.as_str()).collect();
        assert_eq!(ids, ["proceed_once", "proceed_always", "cancel"], "yes means this once");
        let grants: Vec<_> = approval.choices.iter().map(|choice| choice.grants).collect();
        assert_eq!(grants, [true, true, false]);
        assert_eq!(approval.detail["kind"], "execute");

        let (told, events) = answer(&mut acp, approval, 0);
        let outcome = json!({ "outcome": "selected", "optionId": "proceed_once" });
        let result = json!({ "outcome": outcome });
        assert_eq!(told, [json!({ "jsonrpc": "2.0", "id": 0, "result": result })]);
        let name = "touch made-it && echo out".to_owned();
        assert_eq!(events, [Event::ToolUse { name }]);

        let (_, events) = hear(
            &mut acp,
            &[
                &update(
                    r#"{"sessionUpdate":"tool_call_update","toolCallId":"run_1","status":"completed","title":"touch made-it && echo out","content":[],"locations":[],"kind":"execute"}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"All done."}}"#,
                ),
                r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn","_meta":{"quota":{"token_count":{"input_tokens":20,"output_tokens":10},"model_usage":[]}}}}"#,
            ],
        );
        let [used, text, done] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(used, &Event::ToolResult { output: "done".to_owned() });
        assert_eq!(text, &Event::Text("All done.".to_owned()));
        let Event::Done { summary, stats } = done else { panic!("{done:?}") };
        assert_eq!(summary.as_deref(), Some("All done."));
        let usage = json!({ "usage": { "input_tokens": 20, "output_tokens": 10 } });
        assert_eq!(Value::Object(stats.clone()), usage);
    }

    #[test]
    fn a_loaded_session_is_gone_on_with_and_not_told_again() {
        let session = Some("7444b436-ae7f".to_owned());
        let mut acp = gemini::dialect(Ask { session: session.clone(), ..ask() });
        acp.open(&mut Talk::default());
        let (told, _) = hear(&mut acp, &[GEMINI]);
        assert_eq!(told[0]["method"], "session/load");
        // See gemini.rs for the space.
        assert_eq!(told[0]["params"]["sessionId"], " 7444b436-ae7f");

        let refused = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Authentication required"}}"#;
        let (told, _) = hear(&mut acp, &[refused]);
        assert_eq!(told[0]["method"], "authenticate");
        assert_eq!(told[0]["params"], json!({ "methodId": "gemini-api-key" }));
        let (told, _) = hear(&mut acp, &[r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
        assert_eq!(told[0]["method"], "session/load");

        let first = update(
            r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"hello"}}"#,
        );
        let again = update(
            r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"First."}}"#,
        );
        let loaded = r#"{"jsonrpc":"2.0","id":4,"result":{"modes":{"availableModes":[],"currentModeId":"default"},"models":{"availableModels":[],"currentModelId":"auto"}}}"#;
        let chosen = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
        let (told, events) = hear(&mut acp, &[&first, loaded, &again, chosen]);
        assert_eq!(events, [Event::Init { model: Some("auto".to_owned()), session }]);
        assert_eq!(told[1]["params"]["sessionId"], " 7444b436-ae7f");

        let second = again.replace("First", "Second");
        let (_, events) = hear(&mut acp, &[&second]);
        assert_eq!(events, [Event::Text("Second.".to_owned())]);
    }

    #[test]
    fn a_turn_of_opencode_in_the_session_of_before_is_told() {
        let (session, model) = (Some("ses_e1d1".to_owned()), Some("scripted/m1".to_owned()));
        let profile = Some("plan".to_owned());
        let chosen = Ask { session: session.clone(), model: model.clone(), profile, ..ask() };
        let mut acp = opencode::dialect(chosen);
        acp.open(&mut Talk::default());
        let (told, _) = hear(&mut acp, &[OPENCODE]);
        assert_eq!(told[0]["method"], "session/resume", "nothing is told again that way");
        let (told, _) = hear(&mut acp, &[OPENCODE_SESSION]);
        assert_eq!(told[0]["method"], "session/set_config_option");
        let params =
            json!({ "sessionId": "ses_e1d1", "configId": "model", "value": "scripted/m1" });
        assert_eq!(told[0]["params"], params);
        let (told, _) = hear(&mut acp, &[r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
        assert_eq!(told[0]["params"]["value"], "plan");
        let (told, events) = hear(&mut acp, &[r#"{"jsonrpc":"2.0","id":4,"result":{}}"#]);
        assert_eq!(told[0]["method"], "session/prompt");
        assert_eq!(events, [Event::Init { model, session }]);

        let (told, events) = hear(
            &mut acp,
            &[
                &update(
                    r#"{"sessionUpdate":"agent_message_chunk","messageId":"msg_1","content":{"type":"text","text":"I look."}}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"tool_call","toolCallId":"call_1","title":"bash","kind":"execute","status":"pending","locations":[{"path":"/w"}],"rawInput":{"cwd":"/w"}}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"in_progress","kind":"execute","title":"touch made-it && echo out","rawInput":{"command":"touch made-it && echo out"},"content":[{"type":"content","content":{"type":"text","text":"out\n"}}]}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"completed","title":"touch made-it && echo out","content":[{"type":"content","content":{"type":"text","text":"out\n"}}],"rawOutput":{"output":"out\n","metadata":{"output":"out\n","exit":0,"truncated":false}}}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"agent_message_chunk","messageId":"msg_2","content":{"type":"text","text":"All done."}}"#,
                ),
                &update(
                    r#"{"sessionUpdate":"usage_update","used":10,"size":100000,"cost":{"amount":0.00004,"currency":"USD"}}"#,
                ),
                r#"{"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15},"_meta":{}}}"#,
            ],
        );
        assert_eq!(told, [] as [Value; 0]);
        let stats = json!({
            "cost": { "amount": 0.00004, "currency": "USD" },
            "usage": { "inputTokens": 10, "outputTokens": 5, "totalTokens": 15 },
        });
        let Value::Object(stats) = stats else { panic!("it is an object") };
        let expected = [
            Event::Text("I look.".to_owned()),
            Event::ToolUse { name: "bash".to_owned() },
            Event::ToolResult { output: "out\n".to_owned() },
            Event::Text("All done.".to_owned()),
            Event::Done { summary: Some("All done.".to_owned()), stats },
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn a_session_that_is_gone_is_followed_by_a_new_one() {
        let mut acp = opencode::dialect(Ask { session: Some("gone".to_owned()), ..ask() });
        acp.open(&mut Talk::default());
        hear(&mut acp, &[OPENCODE]);
        let refused = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Internal error: OpenCode service failure","data":{"service":"session"}}}"#;
        let (told, _) = hear(&mut acp, &[refused]);
        assert_eq!(told[0]["method"], "session/new");
        let opened = OPENCODE_SESSION.replace(r#""id":2"#, r#""id":3"#);
        let (told, _) = hear(&mut acp, &[&opened]);
        assert_eq!(told[0]["params"]["sessionId"], "ses_e1d1");
    }

    #[test]
    fn what_an_agent_wants_at_once_is_asked_for_one_after_the_other() {
        let mut acp = at_work(ask());
        let second = GEMINI_WANTS.replace(r#""id":0"#, r#""id":"b""#).replace("run_1", "run_2");
        let (_, events) = hear(&mut acp, &[GEMINI_WANTS, &second]);
        let [Event::Approval(first)] = events.as_slice() else { panic!("{events:?}") };
        let (told, events) = answer(&mut acp, first, 2);
        assert_eq!(told[0]["result"]["outcome"]["optionId"], "cancel");
        let [Event::Approval(second)] = events.as_slice() else { panic!("{events:?}") };
        let (told, _) = answer(&mut acp, second, 1);
        assert_eq!(told[0]["id"], "b");
        assert_eq!(told[0]["result"]["outcome"]["optionId"], "proceed_always");
    }

    #[test]
    fn with_force_everything_is_allowed_once_and_nobody_is_asked() {
        let mut acp = at_work(Ask { force: true, ..ask() });
        let (told, events) = hear(&mut acp, &[GEMINI_WANTS]);
        assert_eq!(told[0]["result"]["outcome"]["optionId"], "proceed_once");
        assert_eq!(events, [Event::ToolUse { name: "touch made-it && echo out".to_owned() }]);
        assert!(opencode::dialect(ask()).variables()[0].1.contains("ask"));
        assert_eq!(opencode::dialect(Ask { force: true, ..ask() }).variables(), []);
    }

    #[test]
    fn no_can_be_said_to_an_agent_that_takes_only_yes() {
        let mut acp = at_work(ask());
        let wants = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","options":[{"optionId":"go","name":"Go on","kind":"allow_once"}],"toolCall":{"toolCallId":"x"}}}"#;
        let (_, events) = hear(&mut acp, &[wants]);
        let [Event::Approval(approval)] = events.as_slice() else { panic!("{events:?}") };
        assert!(!approval.choices[1].grants);
        let (told, events) = answer(&mut acp, approval, 1);
        assert_eq!(told[0]["result"], json!({ "outcome": { "outcome": "cancelled" } }));
        assert_eq!(events, []);
    }

    #[test]
    fn a_cancelled_turn_leaves_no_question_open() {
        let mut acp = at_work(ask());
        hear(&mut acp, &[GEMINI_WANTS]);
        let mut talk = Talk::default();
        acp.cancel(&mut talk);
        let (told, _) = heard(talk);
        assert_eq!(told[0]["result"]["outcome"]["outcome"], "cancelled");
        assert_eq!(told[1]["method"], "session/cancel");
        assert!(told[1].get("id").is_none(), "a notification: {told:?}");
    }

    #[test]
    fn what_is_not_offered_is_refused_and_what_is_no_line_is_passed_over() {
        let mut acp = at_work(ask());
        let wants = r#"{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"path":"/etc/passwd"}}"#;
        let odd = r#"{"jsonrpc":"2.0","id":8,"method":"session/request_permission","params":{"options":[]}}"#;
        let (told, events) = hear(
            &mut acp,
            &["Loading…", "", "[]", r#"{"jsonrpc":"2.0","method":"later"}"#, wants, odd],
        );
        let codes: Vec<_> = told.iter().map(|line| &line["error"]["code"]).collect();
        assert_eq!(codes, [UNKNOWN, UNREADABLE]);
        assert_eq!(told[0]["id"], "f");
        assert_eq!(events, []);
    }

    #[test]
    fn an_agent_that_does_not_work_says_why() {
        let open = || {
            let mut acp = gemini::dialect(ask());
            acp.open(&mut Talk::default());
            acp
        };
        let old = failure(&mut open(), &[r#"{"id":1,"result":{"protocolVersion":2}}"#]);
        assert!(old.kind.starts_with("speaks version 2"), "{old:?}");
        let deaf = failure(&mut open(), &[r#"{"id":1,"error":{"code":-32601,"message":"what?"}}"#]);
        assert_eq!(deaf.kind, "does not speak the Agent Client Protocol");
        let unsigned = failure(
            &mut open(),
            &[
                GEMINI,
                r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Gemini API key is missing or not configured."}}"#,
            ],
        );
        assert_eq!(
            unsigned.kind,
            "is not signed in to; it knows these ways: Log in with Google, Gemini API key"
        );
        let message = unsigned.message.as_deref();
        assert_eq!(message, Some("Gemini API key is missing or not configured."));
        let odd = failure(&mut open(), &[GEMINI, r#"{"id":2,"result":{}}"#]);
        assert!(odd.kind.starts_with("said something"), "{odd:?}");
        let mut unknown = gemini::dialect(Ask { profile: Some("nonsense".to_owned()), ..ask() });
        unknown.open(&mut Talk::default());
        let unknown = failure(
            &mut unknown,
            &[
                GEMINI,
                GEMINI_SESSION,
                r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"Internal error","data":{"details":"Invalid or unavailable mode: nonsense"}}}"#,
            ],
        );
        assert_eq!(unknown.kind, "did not take the mode `nonsense`");
        let message = unknown.message.as_deref();
        assert_eq!(message, Some("Internal error: Invalid or unavailable mode: nonsense"));
        let mut plain = opencode::dialect(Ask { model: Some("m".to_owned()), ..ask() });
        plain.open(&mut Talk::default());
        let without = r#"{"id":2,"result":{"sessionId":"s"}}"#;
        let without = failure(&mut plain, &[OPENCODE, without]);
        assert_eq!(without.kind, "offers no model to choose, not `m`");
        for reason in ["max_tokens", "max_turn_requests", "refusal", "cancelled", "new"] {
            let line = format!(r#"{{"id":4,"result":{{"stopReason":"{reason}"}}}}"#);
            let stopped = failure(&mut at_work(ask()), &[&line]);
            assert_eq!(stopped.message.as_deref(), Some(reason));
        }
        let failed = r#"{"id":4,"error":{"code":-32603,"message":"out of quota"}}"#;
        assert_eq!(
            failure(&mut at_work(ask()), &[failed]).message.as_deref(),
            Some("out of quota")
        );
    }
}
