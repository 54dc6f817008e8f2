//! Coding agents: command-line programs such as Claude Code and Codex, served as A2A agents.
//!
//! Each message goes to the program, its output becomes artifacts and status updates of the task, and its
//! requests for permission become questions to the caller.

mod acp;
mod approval;
mod claude;
mod codex;
mod conversation;
mod cursor;
mod dialect;
mod gemini;
mod opencode;
mod prompt;

use std::{collections::VecDeque, io, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use herald_engine::{Agent, AgentError, Profile, Recovery, Skill, Stop, Turn};
use herald_protocol::{AgentName, Artifact, Content, Message, Part, Task, TaskState};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use self::{
    acp::{Acp, Quirks},
    claude::Claude,
    codex::Codex,
    conversation::CliConversation,
    dialect::{AgentEvent, Approval, ApprovalChoice, CliDialect, CodingRequest, Image},
};
use crate::{
    ErrorDetail, Input,
    artifact_writer::ArtifactWriter,
    ended::Ended,
    exec::input::PreparedInput,
    failure::Failure,
    process::{Processes, Program, STUCK, environment},
    text::{truncate, with_camel_case_names},
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

/// The artifact with the text of the answer.
const ANSWER: &str = "assistant-response";
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
    /// Timeout of its first event; `None` for no limit.
    pub start_timeout: Option<Duration>,
    /// Timeout of an approval, after which it is denied.
    pub approval_timeout: Duration,
    /// Bytes that it may write in one turn.
    pub max_output: u64,
    /// The part of a failure that callers see.
    pub error_detail: ErrorDetail,
    /// The server's processes, which this one joins.
    pub processes: Processes,
}

/// Outcome of one attempt at a message.
enum CodingOutcome {
    /// The agent has done its work.
    Done(Done),
    /// The agent exited in the middle of its work.
    Exited,
    /// The agent's session does not exist any more.
    SessionLost,
    /// The turn ends while its question is open; a later answer starts a new turn.
    Unanswered,
}

/// The result of the work.
struct Done {
    summary: Option<String>,
    stats: Map<String, Value>,
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
            start_timeout: Some(Duration::from_secs(120)),
            approval_timeout: Duration::from_secs(600),
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
    async fn attempt(&self, turn: &Turn, session: Option<String>) -> Result<bool, Ended> {
        let given =
            Input::Text.prepare(turn.message(), &self.processes).await.map_err(unstarted)?;
        let images = images(turn.message(), &given);
        let ask = CodingRequest {
            text: String::from_utf8_lossy(&given.stdin).into_owned(),
            images,
            session,
            model: self.model.clone(),
            profile: self.profile_name.clone(),
            settings: self.settings.clone(),
            force: self.force,
            agent: self.name.clone(),
            task: turn.task_id().clone(),
            directory: self.program.directory().map_err(unstarted)?,
        };
        let dialect = self.preset.dialect(ask);
        let (program, processes) = (&self.program, &self.processes);
        let environment = environment(turn);
        let opened = CliConversation::open(
            dialect,
            program,
            &environment,
            processes,
            given,
            self.max_output,
        );
        let mut conversation = opened.await.map_err(unstarted)?;
        let outcome = tokio::select! {
            outcome = async {
                self.begin(&mut conversation).await?;
                self.relay_events(turn, &mut conversation).await
            } => outcome,
            () = turn.cancelled().cancelled() => Err(Ended::Turn(AgentError::Stopped)),
        };
        match outcome {
            // The caller gets the result before the process has exited; the next turn has to wait.
            Ok(CodingOutcome::Done(done)) => {
                let ended = conversation.finish(self.program.grace);
                tokio::join!(done.complete(turn), ended).0?;
                Ok(true)
            }
            Ok(CodingOutcome::Exited) => {
                Err(Ended::Failed(conversation.exit_failure(self.program.grace).await))
            }
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

    /// Waits for the agent's first event, up to the start timeout: a program with another protocol may
    /// never produce one.
    async fn begin(&self, conversation: &mut CliConversation) -> Result<(), Ended> {
        let Some(limit) = self.start_timeout else { return Ok(()) };
        match timeout(limit, conversation.next()).await {
            Ok(Ok(first)) => conversation.put_back(first.into_iter().collect()),
            Ok(Err(failure)) => return Err(failure.into()),
            Err(_) => {
                let kind = format!("did not begin within {limit:?}");
                return Err(Failure::new(kind).into());
            }
        }
        Ok(())
    }

    /// Writes the agent's events to the task until the attempt ends.
    async fn relay_events(
        &self,
        turn: &Turn,
        conversation: &mut CliConversation,
    ) -> Result<CodingOutcome, Ended> {
        let mut answer = ArtifactWriter::new(turn, ANSWER, ANSWER);
        let mut retried = None;
        loop {
            let Some(next) = answer.next_or_flush(conversation.next()).await? else { continue };
            let event = match next {
                Ok(Some(AgentEvent::Text(text))) => {
                    retried = None;
                    answer.push(&text).await?;
                    continue;
                }
                Ok(event) => event,
                Err(failure) => {
                    answer.flush().await?;
                    return Err(failure.into());
                }
            };
            match event {
                Some(AgentEvent::Done { .. }) => answer.finish(None).await?,
                Some(_) | None => answer.flush().await?,
            }
            let retry = match &event {
                Some(AgentEvent::Retry { attempt, .. }) => Some(*attempt),
                Some(_) | None => None,
            };
            // Several subagents may wait for the model at once and report the same attempt.
            let is_repeated = std::mem::replace(&mut retried, retry) == retry;
            match event {
                Some(AgentEvent::Init { model, session }) => {
                    self.report_start(turn, model, session).await?;
                }
                Some(AgentEvent::SessionLost) => return Ok(CodingOutcome::SessionLost),
                Some(AgentEvent::Text(_)) => {}
                Some(AgentEvent::ToolUse { name }) => {
                    turn.progress(format!("Using tool: {}", truncate(&name, SHOWN))).await?;
                }
                Some(AgentEvent::ToolResult { output }) => {
                    turn.progress(format!("Tool result: {}", truncate(&output, SHOWN))).await?;
                }
                Some(AgentEvent::Retry { .. }) if is_repeated => {}
                Some(AgentEvent::Retry { attempt, most }) => {
                    let most = most.map(|most| format!(" of {most}")).unwrap_or_default();
                    let text = format!("The model does not answer: retry {attempt}{most}");
                    turn.progress(text).await?;
                }
                Some(AgentEvent::Approval(approval)) if approval.is_prompt() && self.force => {
                    if let Some(choice) = approval.choices.iter().find(|choice| choice.grants) {
                        conversation.answer(&approval, choice);
                    }
                }
                Some(AgentEvent::Approval(approval)) => {
                    if !self.resolve_approval(turn, conversation, &approval).await? {
                        return Ok(CodingOutcome::Unanswered);
                    }
                }
                Some(AgentEvent::Background(tasks)) => {
                    let tasks = format!("Background work goes on: {}", tasks.join(", "));
                    turn.progress(truncate(&tasks, SHOWN)).await?;
                }
                Some(AgentEvent::Done { summary, stats }) => {
                    return Ok(CodingOutcome::Done(Done { summary, stats }));
                }
                Some(AgentEvent::Error(text)) => {
                    let failure = Failure { message: Some(text), ..Failure::new("failed") };
                    return Err(failure.into());
                }
                None => return Ok(CodingOutcome::Exited),
            }
        }
    }

    /// Reports that the agent works, with its model and session.
    async fn report_start(
        &self,
        turn: &Turn,
        model: Option<String>,
        session: Option<String>,
    ) -> Result<(), Stop> {
        turn.report(TaskState::Working, Vec::new()).await?;
        // The session id is passed back on a command line, so it is checked here.
        let session = session.filter(|name| {
            name.len() <= SESSION && !name.is_empty() && !name.contains(char::is_control)
        });
        if model.is_none() && session.is_none() {
            return Ok(());
        }
        let mut data = Map::from_iter([("adapter".to_owned(), self.preset.name().into())]);
        data.extend(model.map(|model| ("model".to_owned(), truncate(&model, SHOWN).into())));
        data.extend(session.map(|session| ("sessionId".to_owned(), session.into())));
        turn.artifact(artifact(METADATA, Content::Data(data.into()))).await
    }

    /// Asks the caller for an approval, until it answers or the timeout denies it. Returns `false` if the
    /// turn has to end without an answer.
    async fn resolve_approval(
        &self,
        turn: &Turn,
        conversation: &mut CliConversation,
        approval: &Approval,
    ) -> Result<bool, Ended> {
        let deadline = Instant::now() + self.approval_timeout;
        let mut question = approval.question();
        let mut early = VecDeque::new();
        let choice = loop {
            turn.ask_within_turn(question).await?;
            let answered = tokio::select! {
                answered = turn.answered() => answered,
                failure = buffer_events(conversation, &mut early) => return Err(failure.into()),
                () = tokio::time::sleep_until(deadline) => break self.deny(turn, approval).await?,
            };
            if !answered {
                return Ok(false);
            }
            let answer = turn.take_answer().await?;
            if let Some(choice) = approval.chosen(&answer) {
                break choice.clone();
            }
            question = approval.question_again();
        };
        conversation.put_back(early);
        conversation.answer(approval, &choice);
        Ok(true)
    }

    /// Denies an approval that was not answered in time.
    async fn deny(&self, turn: &Turn, approval: &Approval) -> Result<ApprovalChoice, Ended> {
        turn.progress("Denied: nobody answered in time").await?;
        let denial = approval.denial().cloned();
        denial.ok_or_else(|| Failure::new("asked for an approval that cannot be denied").into())
    }
}

#[async_trait]
impl Agent for Coding {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let session = self.session(turn);
        let has_session = session.is_some();
        let mut done = self.attempt(turn, session).await;
        if has_session && matches!(done, Ok(false)) {
            let (task, agent) = (turn.task_id(), &self.name);
            tracing::info!(%task, %agent, "the agent's session does not exist any more; starting a new one");
            done = self.attempt(turn, None).await;
        }
        let report = |ended: Ended| ended.report(turn, &self.name, self.error_detail);
        match done {
            Ok(true) => Ok(()),
            Ok(false) => Err(report(Failure::new("lost its session").into())),
            Err(ended) => Err(report(ended)),
        }
    }
}

impl Done {
    /// Completes the task.
    async fn complete(self, turn: &Turn) -> Result<(), Stop> {
        let mut data = Map::new();
        data.extend(self.summary.map(|summary| ("summary".to_owned(), summary.into())));
        if !self.stats.is_empty() {
            // Some agents count in names such as `input_tokens`.
            data.insert("stats".to_owned(), with_camel_case_names(self.stats.into()));
        }
        if data.is_empty() {
            return turn.report(TaskState::Completed, Vec::new()).await;
        }
        turn.complete_with(artifact(RESULT, Content::Data(data.into()))).await
    }
}

impl Coding {
    /// The agent's session of this conversation, if an earlier task has one.
    fn session(&self, turn: &Turn) -> Option<String> {
        let of = |task: &Task| {
            let artifacts = task.artifacts.as_deref().unwrap_or_default();
            let found = artifacts.iter().find(|known| known.artifact_id.as_str() == METADATA)?;
            let Content::Data(data) = &found.parts.first()?.content else { return None };
            let is_ours = data.get::<String>("adapter")? == self.preset.name();
            is_ours.then(|| data.get("sessionId")).flatten()
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

/// Buffers events that the agent sends while it waits for an answer, until it exits.
async fn buffer_events(
    conversation: &mut CliConversation,
    early: &mut VecDeque<AgentEvent>,
) -> Failure {
    loop {
        match conversation.next().await {
            Ok(Some(event)) => early.push_back(event),
            Ok(None) => return Failure::new("ended while it waited for an answer"),
            Err(failure) => return failure,
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
