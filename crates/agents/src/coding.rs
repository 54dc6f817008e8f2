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
mod message;
mod opencode;
mod prompt;
mod relay;
mod rules;
mod usage;
mod worktree;

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Profile, Recovery, Skill, Turn, agent::Extension};
use herald_protocol::{AgentName, Content, Task};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use self::{
    acp::{Acp, Quirks},
    activity::AgentActivity,
    claude::Claude,
    codex::Codex,
    conversation::CliConversation,
    dialect::{CliDialect, CodingRequest},
    message::CodingPrompt,
    relay::{CodingOutcome, EventRelay, GRANTS, LATE_ANSWER, METADATA, RelayPolicy, unstarted},
};
use crate::{
    ErrorDetail,
    ended::Ended,
    failure::Failure,
    git::Worktrees,
    process::{Processes, Program, STUCK, environment},
};

pub use self::{
    activity::{ACTIVITY_EXTENSION, ToolDetail},
    relay::BackgroundPolicy,
    rules::{InvalidRule, PermissionRule, PermissionRules},
};

/// Default limit of a coding agent's output in one turn, in bytes.
const MAX_OUTPUT: u64 = 64 << 20;

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

/// The agent's own session of a conversation.
enum EarlierSession {
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
    async fn attempt(&self, turn: &Turn, session: EarlierSession) -> Result<bool, Ended> {
        let mut prompt =
            CodingPrompt::prepare(turn.message(), &self.processes).await.map_err(unstarted)?;
        let is_lost = matches!(session, EarlierSession::Lost);
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
            force: self.force && !self.rules.restricts(),
            agent: self.name.clone(),
            task: turn.task_id().clone(),
            directory: directory.clone(),
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
        let mut relay = EventRelay::new(self.relay_policy(directory), turn, &self.grants(turn));
        let outcome = tokio::select! {
            outcome = async {
                if is_lost {
                    relay.report(&AgentActivity::SessionLost).await?;
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
                let completed = Box::pin(self.complete(turn, before, worktree.as_ref(), *result));
                // A program that is still at work would change files while they are compared or merged.
                if self.background == BackgroundPolicy::End || worktree.is_some() {
                    conversation.finish(grace).await;
                    completed.await?;
                } else {
                    tokio::join!(completed, conversation.finish(grace)).0?;
                }
                Box::pin(self.leave_worktree(turn, worktree)).await;
                Ok(true)
            }
            Ok(CodingOutcome::Exited) => Err(Ended::Failed(conversation.exit_failure(grace).await)),
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
}

#[async_trait]
impl Agent for Coding {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let history = turn.task().history.as_deref().unwrap_or_default();
        if approval::is_late(history, turn.message()) {
            return Ok(turn.complete(LATE_ANSWER).await?);
        }
        let session = self.session(turn).map_or(EarlierSession::New, EarlierSession::Earlier);
        let has_session = matches!(session, EarlierSession::Earlier(_));
        let mut done = self.attempt(turn, session).await;
        if has_session && matches!(done, Ok(false)) {
            let (task, agent) = (turn.task_id(), &self.name);
            tracing::warn!(%task, %agent, "the agent's session does not exist any more; starting a new one");
            done = self.attempt(turn, EarlierSession::Lost).await;
        }
        let report = |ended: Ended| ended.report(turn, &self.name, self.error_detail);
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(report(Failure::new("lost its session").into())),
            Err(ended) => Err(report(ended)),
        }
    }
}

impl EarlierSession {
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

    fn relay_policy(&self, directory: PathBuf) -> RelayPolicy<'_> {
        RelayPolicy {
            directory,
            adapter: self.preset.name(),
            rules: &self.rules,
            force: self.force,
            tool_detail: self.tool_detail,
            thinking: self.thinking,
            background: self.background,
            start_timeout: self.start_timeout,
            approval_timeout: self.approval_timeout,
            processes: &self.processes,
        }
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
