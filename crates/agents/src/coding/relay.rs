//! Relay of a coding agent's events to its task: the answer, the activity, the questions and the result.

use std::{collections::VecDeque, io, path::PathBuf, sync::Arc, time::Duration};

use herald_engine::{Stop, Turn};
use herald_protocol::{Artifact, ArtifactId, Content, Json, Message, Part, TaskState};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::{
    activity::{AgentActivity, ModelRetry, ToolDetail},
    approval::{self, AnswerReading},
    conversation::CliConversation,
    dialect::{AgentEvent, Approval, ApprovalAnswer, ApprovalKind, CodingResult},
    message::CodingPrompt,
    rules::{PermissionRule, PermissionRules, RuleVerdict},
    usage::RunUsage,
};
use crate::{
    artifact_writer::ArtifactWriter, ended::Ended, failure::Failure, process::Processes,
    text::truncate,
};

/// The member of the metadata artifact with the rules that the caller granted.
pub(super) const GRANTS: &str = "grants";

/// Status of a task that got an answer to a question that had been answered.
pub(super) const LATE_ANSWER: &str = "The question is no longer open; this answer was not used.";

/// The artifact with the text of the answer.
pub(super) const ANSWER: &str = "assistant-response";

/// Longest session id that is kept, in bytes.
const SESSION: usize = 512;

/// Characters that are shown of a model's or a tool's name, and of a tool's output.
const SHOWN: usize = 200;

/// The artifact with the model and the session id.
pub(super) const METADATA: &str = "agent-metadata";
/// The artifact with the summary and the statistics.
const RESULT: &str = "result";

/// Treatment of work that goes on in the background after the agent has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundPolicy {
    /// The turn goes on until the work has ended.
    #[default]
    Wait,
    /// The turn ends with the answer, and the work with it.
    End,
}

/// Settings of the relay.
#[derive(Debug)]
pub(super) struct RelayPolicy<'a> {
    /// The name of the preset, for the metadata artifact.
    pub(super) adapter: &'static str,
    pub(super) rules: &'a PermissionRules,
    pub(super) force: bool,
    pub(super) tool_detail: ToolDetail,
    pub(super) thinking: bool,
    pub(super) background: BackgroundPolicy,
    pub(super) start_timeout: Option<Duration>,
    pub(super) approval_timeout: Duration,
    /// The working directory.
    pub(super) directory: PathBuf,
    /// The processes whose prefix the files of messages have.
    pub(super) processes: &'a Processes,
}

/// Outcome of one attempt at a message.
pub(super) enum CodingOutcome {
    /// The agent has done its work.
    Done(Box<CodingResult>),
    /// The agent exited in the middle of its work.
    Exited,
    /// The agent's session does not exist any more.
    SessionLost,
    /// The turn ends while its question is open; a later answer starts a new turn.
    Unanswered,
}

/// Writer of one turn's events.
pub(super) struct EventRelay<'a> {
    policy: RelayPolicy<'a>,
    turn: &'a Turn,
    answer: ArtifactWriter<'a>,
    /// The retry that was reported last, until the model answers.
    retried: Option<u64>,
    /// Rules that the caller granted in this conversation.
    grants: PermissionRules,
    /// The artifact with the model, the session and the grants.
    metadata: Map<String, Value>,
    /// The last question that was answered.
    settled: Option<Message>,
}

/// The next thing to relay.
enum Next {
    Event(Box<Result<Option<AgentEvent>, Failure>>),
    /// The caller sent a message while the agent works.
    Message,
}

impl<'a> EventRelay<'a> {
    /// A relay to the task of this turn. `granted` are the rules that its caller granted earlier.
    pub(super) fn new(policy: RelayPolicy<'a>, turn: &'a Turn, granted: &[String]) -> Self {
        let answer = ArtifactWriter::new(turn, answer_id(turn), ANSWER);
        let allow = granted.iter().filter_map(|rule| rule.parse().ok()).collect();
        let grants = PermissionRules { allow, ..PermissionRules::default() };
        Self { policy, turn, answer, retried: None, grants, metadata: Map::new(), settled: None }
    }

    /// Waits for the agent's first event, up to the start timeout: a program with another protocol may
    /// never produce one.
    pub(super) async fn begin(&self, conversation: &mut CliConversation) -> Result<(), Ended> {
        let Some(limit) = self.policy.start_timeout else { return Ok(()) };
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
    pub(super) async fn run(
        &mut self,
        conversation: &mut CliConversation,
    ) -> Result<CodingOutcome, Ended> {
        loop {
            let turn = self.turn;
            let next = async {
                tokio::select! {
                    event = conversation.next() => Next::Event(event.into()),
                    () = turn.messaged(), if conversation.can_steer() => Next::Message,
                }
            };
            let Some(next) = self.answer.next_or_flush(next).await? else { continue };
            let event = match next {
                Next::Event(event) => *event,
                Next::Message => {
                    self.answer.flush().await?;
                    self.steer(conversation).await?;
                    continue;
                }
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => {
                    self.answer.flush().await?;
                    // It may have answered before it ended in the middle of background work.
                    let result = conversation.result_so_far();
                    let done = result.map(|result| CodingOutcome::Done(result.into()));
                    return Ok(done.unwrap_or(CodingOutcome::Exited));
                }
                Err(failure) => {
                    self.answer.flush().await?;
                    return Err(failure.into());
                }
            };
            if let Some(outcome) = self.write(event, conversation).await? {
                return Ok(outcome);
            }
        }
    }

    /// Writes one event. Returns the outcome if the attempt has ended.
    async fn write(
        &mut self,
        event: AgentEvent,
        conversation: &mut CliConversation,
    ) -> Result<Option<CodingOutcome>, Ended> {
        if let AgentEvent::Text(text) = &event {
            self.retried = None;
            self.answer.push(text).await?;
            return Ok(None);
        }
        if matches!(event, AgentEvent::Done(_)) {
            self.answer.finish(None).await?;
        } else {
            self.answer.flush().await?;
        }
        match event {
            AgentEvent::Text(_) => {}
            AgentEvent::Init { model, session } => self.report_start(model, session).await?,
            AgentEvent::SessionLost => return Ok(Some(CodingOutcome::SessionLost)),
            AgentEvent::Activity(activity) => self.report_activity(&activity, conversation).await?,
            AgentEvent::Approval(approval) => {
                if let Some(decision) = self.decide(&approval).await? {
                    conversation.answer(&approval, &decision);
                } else if !self.ask(conversation, &approval).await? {
                    return Ok(Some(CodingOutcome::Unanswered));
                }
            }
            AgentEvent::Done(result) => return Ok(Some(CodingOutcome::Done(result.into()))),
            AgentEvent::Error { message, usage } => {
                self.report_usage(&usage).await?;
                let failure = Failure { message: Some(message), ..Failure::new("failed") };
                return Err(failure.into());
            }
        }
        Ok(None)
    }

    async fn report_activity(
        &mut self,
        activity: &AgentActivity,
        conversation: &mut CliConversation,
    ) -> Result<(), Ended> {
        match activity {
            AgentActivity::Thinking(_) if !self.policy.thinking => return Ok(()),
            // Several subagents may wait for the model at once and report the same attempt.
            AgentActivity::Retry(ModelRetry { attempt, .. }) => {
                if self.retried.replace(*attempt) == Some(*attempt) {
                    return Ok(());
                }
            }
            AgentActivity::Background(_) => {
                self.retried = None;
                if self.policy.background == BackgroundPolicy::End {
                    conversation.end_background();
                    return Ok(());
                }
            }
            AgentActivity::ToolStarted(_)
            | AgentActivity::ToolEnded(_)
            | AgentActivity::Plan(_)
            | AgentActivity::Thinking(_)
            | AgentActivity::SessionLost
            | AgentActivity::Steered => self.retried = None,
        }
        self.report(activity).await?;
        match activity {
            // A retry with the same credentials is refused again.
            AgentActivity::Retry(retry) if retry.is_refused() => {
                let cause = retry.error.as_deref().unwrap_or("the credentials were refused");
                let message = Some(cause.replace('_', " "));
                Err(Failure { message, ..Failure::new("could not log in to its model") }.into())
            }
            AgentActivity::Retry(_)
            | AgentActivity::Background(_)
            | AgentActivity::ToolStarted(_)
            | AgentActivity::ToolEnded(_)
            | AgentActivity::Plan(_)
            | AgentActivity::Thinking(_)
            | AgentActivity::SessionLost
            | AgentActivity::Steered => Ok(()),
        }
    }

    /// Reports an activity: its text, and its data under the URI of the extension.
    pub(super) async fn report(&self, activity: &AgentActivity) -> Result<(), Stop> {
        let id = uuid::Uuid::now_v7().to_string();
        let message = activity.message(id, self.policy.tool_detail);
        self.turn.relay(TaskState::Working, Some(Arc::new(message)), None).await
    }

    /// Reports that the agent works, with its model and session.
    async fn report_start(
        &mut self,
        model: Option<String>,
        session: Option<String>,
    ) -> Result<(), Stop> {
        self.turn.report(TaskState::Working, Vec::new()).await?;
        // The session id is passed back on a command line, so it is checked here.
        let session = session.filter(|name| {
            name.len() <= SESSION && !name.is_empty() && !name.contains(char::is_control)
        });
        if model.is_none() && session.is_none() {
            return Ok(());
        }
        let data = &mut self.metadata;
        data.insert("adapter".to_owned(), self.policy.adapter.into());
        data.extend(model.map(|model| ("model".to_owned(), truncate(&model, SHOWN).into())));
        data.extend(session.map(|session| ("sessionId".to_owned(), session.into())));
        self.write_metadata().await
    }

    /// Writes the artifact with the model, the session and the grants.
    async fn write_metadata(&mut self) -> Result<(), Stop> {
        let mut data = self.metadata.clone();
        if !self.grants.allow.is_empty() {
            let rules = self.grants.allow.iter().map(ToString::to_string).collect::<Vec<_>>();
            data.insert(GRANTS.to_owned(), rules.into());
        }
        self.turn.artifact(artifact(METADATA, Content::Data(data.into()))).await
    }

    /// Reports the usage of an attempt that failed.
    async fn report_usage(&self, usage: &RunUsage) -> Result<(), Stop> {
        if usage.is_empty() {
            return Ok(());
        }
        let result = CodingResult { usage: usage.clone(), ..CodingResult::default() };
        self.turn.artifact(artifact(RESULT, result.content())).await
    }

    /// Passes a message of the caller to the agent in the middle of its work, unless it is an answer to a
    /// question that has been answered.
    async fn steer(&mut self, conversation: &mut CliConversation) -> Result<(), Ended> {
        let message = self.turn.take_answer().await?;
        let is_late = |question: &Message| approval::is_answer_to(question, &message);
        if self.settled.as_ref().is_some_and(is_late) {
            self.turn.progress(LATE_ANSWER).await?;
            return Ok(());
        }
        let prompt =
            CodingPrompt::prepare(&message, self.policy.processes).await.map_err(unstarted)?;
        conversation.steer(prompt);
        self.report(&AgentActivity::Steered).await?;
        Ok(())
    }

    /// The decision of the configuration or of an earlier grant; `None` if the caller has to decide.
    async fn decide(&self, approval: &Approval) -> Result<Option<ApprovalAnswer>, Ended> {
        let rules = [self.policy.rules, &self.grants];
        let subject = approval.tool.as_ref();
        let verdict = rules.iter().find_map(|rules| rules.decide(subject?, &self.policy.directory));
        let grant = || approval.choices.iter().find(|choice| choice.grants).cloned();
        Ok(match verdict {
            Some(RuleVerdict::Deny(rule)) => {
                let prompt = approval.prompt_line();
                self.turn.progress(format!("Denied by the rule {rule}: {prompt}")).await?;
                let words = Some("A rule of the server denies this.".to_owned());
                approval.denial().map(|choice| ApprovalAnswer { choice: choice.clone(), words })
            }
            Some(RuleVerdict::Allow) => grant().map(ApprovalAnswer::from),
            Some(RuleVerdict::Ask) => None,
            // A question of the agent has no answer that everybody would give, and a request without a tool may be
            // for one that a rule is about.
            None if self.policy.force
                && approval.kind == ApprovalKind::Permission
                && (subject.is_some()
                    || approval.is_prompt()
                    || !self.policy.rules.restricts()) =>
            {
                grant().map(ApprovalAnswer::from)
            }
            None => None,
        })
    }

    /// Asks the caller for an approval, until it answers or the timeout denies it. Returns `false` if the
    /// turn has to end without an answer.
    async fn ask(
        &mut self,
        conversation: &mut CliConversation,
        approval: &Approval,
    ) -> Result<bool, Ended> {
        let turn = self.turn;
        let deadline = Instant::now() + self.policy.approval_timeout;
        let mut parts = approval.question();
        let mut early = VecDeque::new();
        let decision = loop {
            let id = uuid::Uuid::now_v7().to_string();
            let question = Message { parts, ..Message::agent(id.clone(), "") };
            let asked = Some(Arc::new(question.clone()));
            turn.relay_within_turn(TaskState::InputRequired, asked, None).await?;
            self.settled = Some(question);
            let answered = tokio::select! {
                answered = turn.answered() => answered,
                failure = buffer_events(conversation, &mut early) => return Err(failure.into()),
                () = tokio::time::sleep_until(deadline) => break self.deny(approval).await?,
            };
            if !answered {
                return Ok(false);
            }
            let answer = turn.take_answer().await?;
            parts = match approval.read(&answer, &id) {
                AnswerReading::Decided(decision) => break decision,
                AnswerReading::OtherQuestion => approval.question_changed(),
                AnswerReading::Unclear => approval.question_again(),
            };
        };
        let granted = decision.choice.rules.iter().filter_map(|rule| rule.parse().ok());
        let granted: Vec<PermissionRule> = granted.collect();
        if !granted.is_empty() {
            self.grants.allow.extend(granted);
            self.grants.allow.dedup();
            self.write_metadata().await?;
        }
        conversation.put_back(early);
        conversation.answer(approval, &decision);
        Ok(true)
    }

    /// Denies an approval that was not answered in time.
    async fn deny(&self, approval: &Approval) -> Result<ApprovalAnswer, Ended> {
        self.turn.progress("Denied: nobody answered in time").await?;
        let limit = self.policy.approval_timeout;
        let words = Some(format!("Nobody answered within {limit:?}."));
        let denial =
            approval.denial().map(|choice| ApprovalAnswer { choice: choice.clone(), words });
        denial.ok_or_else(|| Failure::new("asked for an approval that cannot be denied").into())
    }
}

/// The members of the artifact `result`.
#[derive(Serialize)]
struct ResultData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Value>,
    #[serde(skip_serializing_if = "RunUsage::is_empty")]
    stats: &'a RunUsage,
}

impl CodingResult {
    /// Completes the task.
    pub(super) async fn complete(self, turn: &Turn) -> Result<(), Stop> {
        if self == Self::default() {
            return turn.report(TaskState::Completed, Vec::new()).await;
        }
        turn.complete_with(artifact(RESULT, self.content())).await
    }

    /// The content of the artifact `result`.
    fn content(&self) -> Content {
        let Self { summary, output, usage: stats } = self;
        let data = ResultData { summary: summary.as_deref(), output: output.as_ref(), stats };
        Content::Data(Json::new(&data).expect("its members are plain data"))
    }
}

/// Id of the artifact with the answer to this message: one for each message of the task, so that no answer
/// is appended to an earlier one.
fn answer_id(turn: &Turn) -> ArtifactId {
    match turn.earlier_messages() {
        0 => ArtifactId::from(ANSWER),
        more => ArtifactId::from(format!("{ANSWER}-{}", more + 1)),
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

fn artifact(name: &str, content: Content) -> Artifact {
    Artifact {
        artifact_id: name.into(),
        name: Some(name.to_owned()),
        parts: vec![Part::new(content)],
        ..Artifact::default()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes errors by value")]
pub(super) fn unstarted(fault: io::Error) -> Ended {
    Failure::unstarted(&fault).into()
}
