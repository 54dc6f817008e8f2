//! End of a message's work: results, background tasks and state changes of Claude Code.
//!
//! Claude Code writes a `result` at the end of each of its own turns. The turn of a message may leave
//! background tasks (commands, subagents); when one ends, Claude Code begins another turn, which
//! says what came of it and ends with a `result` of its own, whose origin is a task notification.
//! After a restart in the middle of that, such a result comes before the turn of the message.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::dialect::AgentEvent;

/// How a result names the turn after a background task.
const NOTIFICATION: &str = "task-notification";

/// State of the work on one message.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    /// The results from the one of the message on, added up.
    outcome: Option<ClaudeResult>,
    /// Descriptions of the background tasks that run, by id.
    running: BTreeMap<String, String>,
    /// True if all that run are listed with each change. Starts and ends then add nothing.
    lists: bool,
    /// True if the state is reported. Without it a result is the last sign of a turn.
    reports: bool,
    is_in_turn: bool,
}

/// A background task, or a tool that takes long.
#[derive(Deserialize)]
pub(super) struct BackgroundTask {
    task_id: String,
    #[serde(default)]
    description: String,
    /// Versions that do not say this also report the end of every task.
    is_backgrounded: Option<bool>,
    /// Something that watches for as long as the session lasts.
    #[serde(default)]
    ambient: bool,
}

/// A state of the session.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionState {
    Running,
    /// All turns that were due are over, which a result alone does not say.
    Idle,
    #[serde(other)]
    Other,
}

/// How a turn ended.
#[derive(Debug, Deserialize)]
pub(super) struct ClaudeResult {
    #[serde(default)]
    pub(super) is_error: bool,
    result: Option<String>,
    #[serde(default)]
    errors: Vec<String>,
    duration_ms: Option<u64>,
    num_turns: Option<u64>,
    total_cost_usd: Option<f64>,
    #[serde(default)]
    usage: ClaudeUsage,
    origin: Option<Value>,
}

#[derive(Debug, Deserialize, Default)]
struct ClaudeUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl WorkState {
    /// A turn begins.
    pub(super) fn begin(&mut self) {
        self.is_in_turn = true;
    }

    /// A task begins.
    pub(super) fn start(&mut self, task: BackgroundTask) {
        let is_in_background = task.is_backgrounded.unwrap_or(true) && !task.ambient;
        if is_in_background && !self.lists {
            self.running.insert(task.task_id, task.description);
        }
    }

    /// A task has ended.
    pub(super) fn stop(&mut self, task: &str) {
        if !self.lists {
            self.running.remove(task);
        }
    }

    /// These background tasks run, and no others.
    pub(super) fn list(&mut self, tasks: Vec<BackgroundTask>) {
        self.lists = true;
        let tasks = tasks.into_iter().filter(|task| !task.ambient);
        self.running = tasks.map(|task| (task.task_id, task.description)).collect();
    }

    /// The session has another state.
    pub(super) fn change(&mut self, state: SessionState) -> Option<AgentEvent> {
        self.reports = true;
        match state {
            SessionState::Running => self.is_in_turn = true,
            SessionState::Idle => self.is_in_turn = false,
            SessionState::Other => {}
        }
        self.end()
    }

    /// A turn has ended.
    pub(super) fn result(&mut self, outcome: ClaudeResult) -> Option<AgentEvent> {
        self.is_in_turn = false;
        // Before the message has its answer, such a turn is about the work of an earlier one.
        if self.outcome.is_none() && outcome.is_notification() {
            return None;
        }
        if outcome.is_error {
            return Some(outcome.into_event());
        }
        self.outcome = Some(outcome.after(self.outcome.take()));
        if !self.running.is_empty() {
            let tasks = self.running.values().cloned().collect();
            return Some(AgentEvent::Background(tasks));
        }
        // The turn after a task that ended meanwhile may be due: the state tells.
        if self.reports { None } else { self.end() }
    }

    /// True if nothing is left to do as far as can be told. Only a turn after the last background
    /// task could follow, and there is none after every task.
    pub(super) fn is_resting(&self) -> bool {
        self.outcome.is_some() && self.running.is_empty() && !self.is_in_turn
    }

    /// The end, if nothing is left to do.
    pub(super) fn end(&mut self) -> Option<AgentEvent> {
        if !self.is_resting() {
            return None;
        }
        self.outcome.take().map(ClaudeResult::into_event)
    }
}

impl ClaudeResult {
    fn is_notification(&self) -> bool {
        let kind = self.origin.as_ref().and_then(|origin| origin.get("kind"));
        kind.and_then(Value::as_str) == Some(NOTIFICATION)
    }

    /// The same with what an earlier turn took added. The cost is of all turns already.
    fn after(self, earlier: Option<Self>) -> Self {
        let Some(earlier) = earlier else { return self };
        let said = self.result.filter(|said| !said.is_empty());
        Self {
            result: said.or(earlier.result),
            duration_ms: sum(self.duration_ms, earlier.duration_ms),
            num_turns: sum(self.num_turns, earlier.num_turns),
            usage: ClaudeUsage {
                input_tokens: sum(self.usage.input_tokens, earlier.usage.input_tokens),
                output_tokens: sum(self.usage.output_tokens, earlier.usage.output_tokens),
                cache_read_input_tokens: sum(
                    self.usage.cache_read_input_tokens,
                    earlier.usage.cache_read_input_tokens,
                ),
                cache_creation_input_tokens: sum(
                    self.usage.cache_creation_input_tokens,
                    earlier.usage.cache_creation_input_tokens,
                ),
            },
            ..self
        }
    }

    pub(super) fn into_event(self) -> AgentEvent {
        if self.is_error {
            let said = self.result.filter(|said| !said.is_empty());
            let said = said.unwrap_or_else(|| self.errors.join("; "));
            return AgentEvent::Error(said);
        }
        let figures = [
            ("durationMs", self.duration_ms.map(Value::from)),
            ("turns", self.num_turns.map(Value::from)),
            ("costUsd", self.total_cost_usd.map(Value::from)),
            ("inputTokens", self.usage.input_tokens.map(Value::from)),
            ("outputTokens", self.usage.output_tokens.map(Value::from)),
            ("cacheReadTokens", self.usage.cache_read_input_tokens.map(Value::from)),
            ("cacheWriteTokens", self.usage.cache_creation_input_tokens.map(Value::from)),
        ];
        let figures = figures.into_iter();
        let stats = figures.filter_map(|(name, figure)| Some((name.to_owned(), figure?)));
        AgentEvent::Done { summary: self.result, stats: stats.collect() }
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}
