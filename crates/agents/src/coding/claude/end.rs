//! End of a message's work: results, background tasks and state changes of Claude Code.
//!
//! Claude Code writes a `result` at the end of each of its own turns. The turn of a message may leave
//! background tasks (commands, subagents). When one ends, Claude Code begins another turn, which
//! describes its outcome and ends with a `result` whose origin is a task notification.
//! After a restart in the middle of that, such a result comes before the turn of the message.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::coding::{
    activity::AgentActivity,
    dialect::{AgentEvent, CodingResult},
    usage::{RunUsage, sum},
};

/// Origin of the result of a turn after a background task.
const NOTIFICATION: &str = "task-notification";

/// State of the work on one message.
#[derive(Debug, Default)]
pub(super) struct WorkState {
    /// The sum of the results, from that of the message's own turn on.
    outcome: Option<CodingResult>,
    /// Messages of the caller that the model has not got yet.
    waiting: usize,
    /// True if this version reports when the model gets a message.
    has_replays: bool,
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
    /// The answer in the structure that `--json-schema` asks for.
    structured_output: Option<Value>,
    #[serde(default)]
    errors: Vec<String>,
    duration_ms: Option<u64>,
    num_turns: Option<u64>,
    /// The cost of this run or, in newer versions, of the whole session.
    total_cost_usd: Option<f64>,
    #[serde(default)]
    usage: ClaudeUsage,
    /// Usage since the last result, by model; absent in versions whose total is that of the run.
    model_usage_since_last_result: Option<Map<String, Value>>,
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
    /// Notes a message that was written to Claude Code.
    pub(super) fn wrote_message(&mut self) {
        self.waiting += 1;
    }

    /// Handles the report that the model gets a message.
    pub(super) fn replayed(&mut self) {
        self.has_replays = true;
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// True if this version reports when the model gets a message, so that none can be lost at the end.
    pub(super) fn has_replays(&self) -> bool {
        self.has_replays
    }

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
            let earlier = self.outcome.take().unwrap_or_default();
            return Some(outcome.into_error(&earlier.usage));
        }
        self.outcome = Some(outcome.after(self.outcome.take().unwrap_or_default()));
        if !self.running.is_empty() {
            let tasks = self.running.values().cloned().collect();
            return Some(AgentEvent::Activity(AgentActivity::Background(tasks)));
        }
        // A turn for a task that ended meanwhile may be due; the next state shows it.
        if self.has_states { None } else { self.end() }
    }

    /// True if nothing is known to be left to do. Only a turn after the last background task could follow,
    /// and not every task has one.
    pub(super) fn is_idle(&self) -> bool {
        let is_read = self.waiting == 0 || !self.has_replays;
        self.outcome.is_some() && self.running.is_empty() && !self.is_in_turn && is_read
    }

    /// The end, if nothing is left to do.
    pub(super) fn end(&mut self) -> Option<AgentEvent> {
        if !self.is_idle() {
            return None;
        }
        self.result_so_far().map(AgentEvent::Done)
    }

    /// The sum of the results so far.
    pub(super) fn result_so_far(&mut self) -> Option<CodingResult> {
        // The model has not got a message that counts as delivered.
        if self.has_replays && self.waiting > 0 {
            return None;
        }
        let mut result = self.outcome.take()?;
        result.usage = result.usage.with_total();
        Some(result)
    }
}

impl ClaudeResult {
    fn is_notification(&self) -> bool {
        let kind = self.origin.as_ref().and_then(|origin| origin.get("kind"));
        kind.and_then(Value::as_str) == Some(NOTIFICATION)
    }

    /// The result of this turn and the earlier ones of the message.
    fn after(mut self, earlier: CodingResult) -> CodingResult {
        let usage = self.usage(&earlier.usage);
        let summary = self.result.filter(|text| !text.is_empty());
        CodingResult {
            summary: summary.or(earlier.summary),
            output: self.structured_output.or(earlier.output),
            usage,
        }
    }

    /// The failure, with the usage until then.
    fn into_error(mut self, earlier: &RunUsage) -> AgentEvent {
        let usage = self.usage(earlier).with_total();
        let message = self.result.filter(|text| !text.is_empty());
        AgentEvent::Error { message: message.unwrap_or_else(|| self.errors.join("; ")), usage }
    }

    /// The usage of this turn and the earlier ones.
    fn usage(&mut self, earlier: &RunUsage) -> RunUsage {
        let tokens = std::mem::take(&mut self.usage);
        let since = self.model_usage_since_last_result.take();
        let cost = since.as_ref().map(|models| {
            models.values().filter_map(|model| model.get("costUSD")?.as_f64()).sum::<f64>()
        });
        let input = sum(tokens.input_tokens, tokens.cache_read_input_tokens);
        let usage = RunUsage {
            duration_ms: self.duration_ms,
            turns: self.num_turns,
            cost_usd: cost,
            input_tokens: sum(input, tokens.cache_creation_input_tokens),
            output_tokens: tokens.output_tokens,
            cache_read_tokens: tokens.cache_read_input_tokens,
            cache_write_tokens: tokens.cache_creation_input_tokens,
            raw: since.unwrap_or_default(),
            ..RunUsage::default()
        };
        let usage = usage.plus(earlier);
        // Without a cost of the turn, the total is that of the run.
        RunUsage { cost_usd: cost.map_or(self.total_cost_usd, |_| usage.cost_usd), ..usage }
    }
}
