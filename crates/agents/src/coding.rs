//! Coding agents: command-line programs such as Claude Code and Codex, served as A2A agents.
//!
//! Each message goes to the program, its output becomes artifacts and status updates of the task, and its
//! requests for permission become questions to the caller.

mod acp;
mod activity;
mod approval;
mod changes;
mod claude;
mod codex;
mod conversation;
mod cursor;
mod dialect;
mod diff;
mod gemini;
mod history;
mod opencode;
mod prompt;
mod relay;
mod rules;
mod usage;
mod worktree;

use std::{io, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use herald_engine::{Agent, AgentError, Profile, Recovery, Skill, Turn, agent::Extension};
use herald_protocol::{AgentName, Artifact, Content, Message, Part, Task};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::{
    acp::{Acp, Quirks},
    activity::Activity,
    claude::Claude,
    codex::Codex,
    conversation::CliConversation,
    dialect::{CliDialect, CodingRequest, Image},
    relay::{CodingOutcome, GRANTS, LATE_ANSWER, Relay},
};
use crate::{
    ErrorDetail, Input,
    ended::Ended,
    exec::input::PreparedInput,
    failure::Failure,
    git::Worktrees,
    process::{Processes, Program, STUCK, environment},
};

pub use self::{
    activity::{ACTIVITY_EXTENSION, ToolDetail},
    rules::{InvalidRule, PermissionRule, PermissionRules},
};

/// Default limit of a coding agent's output in one turn, in bytes.
const MAX_OUTPUT: u64 = 64 << 20;

/// Longest session id that is kept, in bytes.
const SESSION: usize = 512;

/// Characters that are shown of a model's or a tool's name, and of a tool's output.
const SHOWN: usize = 200;

/// Images that are passed to the model, by type and size: most models accept 5 MB in base64. Other
/// images are passed as files.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGE: usize = 3_750_000;

/// The artifact with the model and the session id.
const METADATA: &str = "agent-metadata";
/// The artifact with the summary and the statistics.
const RESULT: &str = "result";

/// A known coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Preset {
    /// Claude Code.
    ClaudeCode,
    /// Codex, from OpenAI.
    Codex,
    /// Cursor's agent.
    Cursor,
    /// Gemini CLI.
    Gemini,
    /// OpenCode.
    Opencode,
    /// Any agent with the Agent Client Protocol.
    Acp,
}

/// Treatment of work that goes on in the background after the agent has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundPolicy {
    /// The turn goes on until the work has ended.
    #[default]
    Wait,
    /// The turn ends with the answer, and the work with it.
    End,
}

/// Agent that runs a coding CLI for each message.
#[derive(Debug, Clone)]
pub struct Coding {
    /// The agent's name, for messages about its failures.
    pub name: AgentName,
    /// The kind of coding agent, which selects the dialect.
    pub preset: Preset,
    /// The program to run.
    pub program: Program,
    /// The model to use, if not the agent's own choice.
    pub model: Option<String>,
    /// The profile to use, for agents that have such.
    pub profile_name: Option<String>,
    /// Overrides of the agent's own configuration, for agents that accept them.
    pub settings: Map<String, Value>,
    /// True if the agent may do everything without approval.
    pub force: bool,
    /// Tool calls that are allowed, asked about or denied.
    pub rules: PermissionRules,
    /// Timeout of its first event; `None` for no limit.
    pub start_timeout: Option<Duration>,
    /// Timeout of an approval, after which it is denied.
    pub approval_timeout: Duration,
    /// Amount of detail about tool calls that callers see.
    pub tool_detail: ToolDetail,
    /// True if callers see the agent's thoughts.
    pub thinking: bool,
    /// The end of a turn whose background work goes on.
    pub background: BackgroundPolicy,
    /// True if callers get the changes of the work tree.
    pub changes: bool,
    /// The work trees of its conversations; `None` if all turns share the working directory.
    pub worktrees: Option<Worktrees>,
    /// Bytes that it may write in one turn.
    pub max_output: u64,
    /// The part of a failure that callers see.
    pub error_detail: ErrorDetail,
    /// The server's processes, which this one joins.
    pub processes: Processes,
}

/// A message of the caller as the agent gets it.
#[derive(Debug)]
struct Prompt {
    text: String,
    images: Vec<Image>,
    /// The files that the text names. They are removed with this.
    input: PreparedInput,
}

/// The agent's own session of a conversation.
enum SessionState {
    /// There is none yet.
    New,
    /// An earlier message has begun this one.
    Earlier(String),
    /// There was one, and the agent does not have it any more.
    Lost,
}

impl Coding {
    /// A coding agent with the default limits.
    pub fn new(name: &str, preset: Preset, program: Program, processes: Processes) -> Self {
        Self {
            name: AgentName::new(name),
            preset,
            program,
            model: None,
            profile_name: None,
            settings: Map::new(),
            force: false,
            rules: PermissionRules::default(),
            start_timeout: Some(Duration::from_secs(120)),
            approval_timeout: Duration::from_secs(600),
            tool_detail: ToolDetail::default(),
            thinking: false,
            background: BackgroundPolicy::default(),
            changes: true,
            worktrees: None,
            max_output: MAX_OUTPUT,
            error_detail: ErrorDetail::Message,
            processes,
        }
    }

    /// The agent's profile: card fields, limits and recovery.
    pub fn profile(&self) -> Profile {
        let mut profile = Profile::new(self.name.clone(), self.preset.description());
        profile.title = format!("coding-agent-a2a ({})", self.preset.name());
        profile.version = Some("0.1.0".to_owned());
        // The card stays that of coding-agent-a2a, which accepted text only.
        profile.further_input_modes = vec!["*/*".to_owned()];
        profile.output_modes = vec!["text/plain".to_owned(), "application/json".to_owned()];
        profile.skills = vec![Skill {
            id: "code-task".to_owned(),
            name: "Execute coding task".to_owned(),
            description:
                "Runs a coding task (edit, refactor, analyse, explain, test) via a coding \
                          agent CLI."
                    .to_owned(),
            tags: ["coding", "refactor", "edit", "test"].map(str::to_owned).to_vec(),
            examples: [
                "Refactor the auth module to use JWT",
                "Add unit tests for src/utils/date.ts",
                "Explain how the rate limiter works",
            ]
            .map(str::to_owned)
            .to_vec(),
            input_modes: profile.input_modes.clone(),
            output_modes: profile.output_modes.clone(),
            ..Skill::default()
        }];
        profile.extensions = vec![Extension {
            uri: ACTIVITY_EXTENSION.to_owned(),
            description: "Tool calls, plans and retries as data".to_owned(),
            required: false,
        }];
        profile.waits = true;
        // Its changes to files cannot be repeated.
        profile.recovery = Recovery::Fail;
        profile.concurrency = 4;
        // Each holds a process of some hundred megabytes while it waits.
        profile.max_waiting = 8;
        // The session of a conversation is found in its earlier tasks, and only one turn may use it.
        profile.memory = 8;
        profile.serial = true;
        profile.timeout = Some(Duration::from_secs(3600));
        profile.grace = self.program.grace * 2 + STUCK * 2;
        profile
    }

    /// One attempt at a message, with or without the agent's earlier session. Returns `false` if that
    /// session does not exist any more.
    async fn attempt(&self, turn: &Turn, session: SessionState) -> Result<bool, Ended> {
        let mut prompt = self.prompt(turn.message()).await?;
        let is_lost = matches!(session, SessionState::Lost);
        if is_lost {
            prompt.text = history::with_earlier(turn.earlier(), turn.task(), &prompt.text);
        }
        let worktree = Box::pin(self.enter_worktree(turn)).await?;
        let program = match &worktree {
            Some(worktree) => &self.program.at(&worktree.directory).map_err(unstarted)?,
            None => &self.program,
        };
        let directory = program.directory().map_err(unstarted)?;
        let before = Box::pin(self.before(turn, &directory)).await?;
        let ask = CodingRequest {
            text: prompt.text,
            images: prompt.images,
            session: session.id(),
            model: self.model.clone(),
            profile: self.profile_name.clone(),
            settings: self.settings.clone(),
            // With `force` the agent asks for nothing, so that rules could deny nothing.
            force: self.force && self.rules.deny.is_empty() && self.rules.ask.is_empty(),
            agent: self.name.clone(),
            task: turn.task_id().clone(),
            directory,
        };
        let dialect = self.preset.dialect(ask);
        let processes = &self.processes;
        let environment = environment(turn);
        let opened = CliConversation::open(
            dialect,
            program,
            &environment,
            processes,
            prompt.input,
            self.max_output,
        );
        let mut conversation = opened.await.map_err(unstarted)?;
        let mut relay = Relay::new(self, turn);
        let outcome = tokio::select! {
            outcome = async {
                if is_lost {
                    relay.report(&Activity::SessionLost).await?;
                }
                relay.begin(&mut conversation).await?;
                relay.run(&mut conversation).await
            } => outcome,
            () = turn.cancelled().cancelled() => Err(Ended::Turn(AgentError::Stopped)),
        };
        let grace = self.program.grace;
        match outcome {
            // The caller gets the result before the process has exited; the next turn has to wait.
            Ok(CodingOutcome::Done(result)) => {
                let completed = Box::pin(self.complete(turn, before, worktree.as_ref(), result));
                tokio::join!(completed, conversation.finish(grace)).0?;
                Box::pin(self.leave_worktree(turn, worktree)).await;
                Ok(true)
            }
            Ok(CodingOutcome::Exited) => match conversation.result_so_far() {
                Some(result) => {
                    let completed =
                        Box::pin(self.complete(turn, before, worktree.as_ref(), result));
                    tokio::join!(completed, conversation.finish(grace)).0?;
                    Box::pin(self.leave_worktree(turn, worktree)).await;
                    Ok(true)
                }
                None => Err(Ended::Failed(conversation.exit_failure(grace).await)),
            },
            Ok(CodingOutcome::SessionLost) => {
                conversation.end().await;
                Ok(false)
            }
            // The question stays open, and its answer resumes the agent's session.
            Ok(CodingOutcome::Unanswered) => {
                conversation.end().await;
                Ok(true)
            }
            Err(ended) => {
                let error = ended.report(turn, &self.name, self.error_detail);
                turn.fail_while(&error, conversation.end()).await;
                Err(Ended::Turn(error))
            }
        }
    }

    /// A message as the agent gets it.
    async fn prompt(&self, message: &Message) -> Result<Prompt, Ended> {
        let input = Input::Text.prepare(message, &self.processes).await.map_err(unstarted)?;
        let images = images(message, &input);
        Ok(Prompt { text: String::from_utf8_lossy(&input.stdin).into_owned(), images, input })
    }
}

#[async_trait]
impl Agent for Coding {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let history = turn.task().history.as_deref().unwrap_or_default();
        if approval::is_late(history, turn.message()) {
            return Ok(turn.complete(LATE_ANSWER).await?);
        }
        let session = self.session(turn).map_or(SessionState::New, SessionState::Earlier);
        let has_session = matches!(session, SessionState::Earlier(_));
        let mut done = self.attempt(turn, session).await;
        if has_session && matches!(done, Ok(false)) {
            let (task, agent) = (turn.task_id(), &self.name);
            tracing::warn!(%task, %agent, "the agent's session does not exist any more; starting a new one");
            done = self.attempt(turn, SessionState::Lost).await;
        }
        let report = |ended: Ended| ended.report(turn, &self.name, self.error_detail);
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(report(Failure::new("lost its session").into())),
            Err(ended) => Err(report(ended)),
        }
    }
}

impl SessionState {
    /// The id of the session to resume.
    fn id(self) -> Option<String> {
        match self {
            Self::Earlier(id) => Some(id),
            Self::New | Self::Lost => None,
        }
    }
}

impl Coding {
    /// The agent's session of this conversation, if an earlier task has one.
    fn session(&self, turn: &Turn) -> Option<String> {
        self.remembered(turn, "sessionId")
    }

    /// The rules that the caller granted in this conversation.
    fn grants(&self, turn: &Turn) -> Vec<String> {
        self.remembered(turn, GRANTS).unwrap_or_default()
    }

    /// A member of the metadata artifact, of the newest task that has one.
    fn remembered<T: DeserializeOwned>(&self, turn: &Turn, member: &str) -> Option<T> {
        let of = |task: &Task| {
            let artifacts = task.artifacts.as_deref().unwrap_or_default();
            let found = artifacts.iter().find(|known| known.artifact_id.as_str() == METADATA)?;
            let Content::Data(data) = &found.parts.first()?.content else { return None };
            let is_ours = data.get::<String>("adapter")? == self.preset.name();
            is_ours.then(|| data.get(member)).flatten()
        };
        of(turn.task()).or_else(|| turn.earlier().iter().rev().find_map(|task| of(task)))
    }
}

impl Preset {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::ClaudeCode, Self::Codex, Self::Cursor, Self::Gemini, Self::Opencode, Self::Acp];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
            Self::Acp => "acp",
        }
    }

    fn description(self) -> String {
        let name = self.name();
        format!(
            "Delegates coding tasks to the {name} agent and streams results back via the A2A \
             protocol."
        )
    }

    fn dialect(self, ask: CodingRequest) -> Box<dyn CliDialect> {
        match self {
            Self::ClaudeCode => Box::new(Claude::new(ask)),
            Self::Codex => Box::new(Codex::new(ask)),
            Self::Cursor => cursor::dialect(ask),
            Self::Gemini => Box::new(gemini::dialect(ask)),
            Self::Opencode => Box::new(opencode::dialect(ask)),
            Self::Acp => Box::new(Acp::new(ask, Quirks::default())),
        }
    }
}

/// The images of a message that models accept.
fn images(message: &Message, given: &PreparedInput) -> Vec<Image> {
    let parts = message.parts.iter().zip(&given.paths);
    let images = parts.filter_map(|(part, path)| {
        let (Content::Raw(bytes), Some(path)) = (&part.content, path) else { return None };
        let media_type = part.media_type.clone()?;
        let is_shown = IMAGES.contains(&media_type.as_str()) && bytes.len() <= MAX_IMAGE;
        is_shown.then(|| Image { media_type, path: path.clone(), data: BASE64.encode(bytes) })
    });
    images.collect()
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes errors by value")]
fn unstarted(fault: io::Error) -> Ended {
    Failure::unstarted(&fault).into()
}

fn artifact(name: &str, content: Content) -> Artifact {
    Artifact {
        artifact_id: name.into(),
        name: Some(name.to_owned()),
        parts: vec![Part::new(content)],
        ..Artifact::default()
    }
}
