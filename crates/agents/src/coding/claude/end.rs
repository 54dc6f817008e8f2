//! End of a message's work: results, background tasks and state changes of Claude Code.
//!
//! Claude Code writes a `result` at the end of each of its own turns. The turn of a message may leave
//! background tasks (commands, subagents). When one ends, Claude Code begins another turn, which
//! describes its outcome and ends with a `result` whose origin is a task notification.
//! After a restart in the middle of that, such a result comes before the turn of the message.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::dialect::AgentEvent;

/// Origin of the result of a turn after a background task.
const NOTIFICATION: &str = "task-notification";

/// State of the work on one message.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    /// The sum of the results, from that of the message's own turn on.
    outcome: Option<ClaudeResult>,
    /// Descriptions of the background tasks that run, by id.
    running: BTreeMap<String, String>,
    /// True if this version lists all running tasks with each change. Starts and ends are then ignored.
    has_task_lists: bool,
    /// True if this version reports the session's state. Otherwise a result is the end of a turn.
    has_states: bool,
    is_in_turn: bool,
}

/// A background task, or a tool that takes long.
#[derive(Deserialize)]
pub(super) struct BackgroundTask {
    task_id: String,
    #[serde(default)]
    description: String,
    /// Absent in older versions, which report the end of every task.
    is_backgrounded: Option<bool>,
    /// True for a watcher that runs as long as the session.
    #[serde(default)]
    ambient: bool,
}

/// A state of the session.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionState {
    Running,
    /// No further turn is due, which a result alone does not show.
    Idle,
    #[serde(other)]
    Other,
}

/// Result of one turn of Claude Code.
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
    /// Handles the start of a turn.
    pub(super) fn begin(&mut self) {
        self.is_in_turn = true;
    }

    /// Handles the start of a task.
    pub(super) fn start(&mut self, task: BackgroundTask) {
        let is_in_background = task.is_backgrounded.unwrap_or(true) && !task.ambient;
        if is_in_background && !self.has_task_lists {
            self.running.insert(task.task_id, task.description);
        }
    }

    /// Handles the end of a task.
    pub(super) fn stop(&mut self, task: &str) {
        if !self.has_task_lists {
            self.running.remove(task);
        }
    }

    /// Handles the list of all running background tasks.
    pub(super) fn list(&mut self, tasks: Vec<BackgroundTask>) {
        self.has_task_lists = true;
        let tasks = tasks.into_iter().filter(|task| !task.ambient);
        self.running = tasks.map(|task| (task.task_id, task.description)).collect();
    }

    /// Handles a change of the session's state.
    pub(super) fn change(&mut self, state: SessionState) -> Option<AgentEvent> {
        self.has_states = true;
        match state {
            SessionState::Running => self.is_in_turn = true,
            SessionState::Idle => self.is_in_turn = false,
            SessionState::Other => {}
        }
        self.end()
    }

    /// Handles the end of a turn.
    pub(super) fn result(&mut self, outcome: ClaudeResult) -> Option<AgentEvent> {
        self.is_in_turn = false;
        // Before the message has its answer, such a turn belongs to an earlier message.
        if self.outcome.is_none() && outcome.is_notification() {
            return None;
        }
        if outcome.is_error {
            return Some(outcome.into_event());
        }
        self.outcome = Some(outcome.plus(self.outcome.take()));
        if !self.running.is_empty() {
            let tasks = self.running.values().cloned().collect();
            return Some(AgentEvent::Background(tasks));
        }
        // A turn for a task that ended meanwhile may be due; the next state shows it.
        if self.has_states { None } else { self.end() }
    }

    /// True if nothing is known to be left to do. Only a turn after the last background task could follow,
    /// and not every task has one.
    pub(super) fn is_idle(&self) -> bool {
        self.outcome.is_some() && self.running.is_empty() && !self.is_in_turn
    }

    /// The end, if nothing is left to do.
    pub(super) fn end(&mut self) -> Option<AgentEvent> {
        if !self.is_idle() {
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

    /// Adds the figures of an earlier turn. The cost already is that of all turns.
    fn plus(self, earlier: Option<Self>) -> Self {
        let Some(earlier) = earlier else { return self };
        let text = self.result.filter(|text| !text.is_empty());
        Self {
            result: text.or(earlier.result),
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
            let message = self.result.filter(|text| !text.is_empty());
            return AgentEvent::Error(message.unwrap_or_else(|| self.errors.join("; ")));
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
