//! Metrics of the engine and its store, and the spans of calls.

use herald_protocol::{TaskState, TraceContext};

use crate::{
    agents::runtime::AgentRuntime,
    engine::Engine,
    metrics::{Label, Text},
    store::DueQuery,
};

/// The highest number of waiting tasks that is counted per agent.
const WAITING: usize = 1000;

/// The highest number of webhooks that is counted per state.
const COUNTED_WEBHOOKS: usize = 10_000;

impl Engine {
    /// The context of a new span below `parent`. Without tracing there are no spans of our own, and the
    /// caller's context is passed on unchanged.
    pub fn span_below(&self, parent: Option<&TraceContext>) -> Option<TraceContext> {
        self.core.span_below(parent)
    }

    /// True if spans are exported or logged.
    pub fn has_spans(&self) -> bool {
        self.core.has_spans()
    }

    /// Writes the metrics of the engine and its store.
    pub async fn write_metrics(&self, text: &mut Text) {
        let core = &self.core;
        let agents = core.registry.snapshot();
        let agents = agents.sorted();
        let name = "herald_task_states_total";
        text.metric(name, "counter", "Changes of tasks into a state.");
        for runtime in &agents {
            for state in TaskState::ALL {
                let entered = runtime.metrics.entered[usize::from(state.number())].get();
                if entered > 0 {
                    let labels = [agent(runtime), ("state", state.kebab_name())];
                    text.value(name, &labels, entered);
                }
            }
        }
        let name = "herald_turns_running";
        text.metric(name, "gauge", "Turns under way.");
        for runtime in &agents {
            text.value(name, &[agent(runtime)], runtime.turns());
        }
        let name = "herald_tasks_waiting";
        text.metric(name, "gauge", "Tasks that wait for a free permit of their agent, up to 1000.");
        // All nodes see the same waiting tasks, so only the leader reports them.
        let counted = if core.membership.is_leader() { &agents[..] } else { &[] };
        for runtime in counted {
            let due = core.store.due(DueQuery::new(&runtime.profile.name, WAITING));
            // A store that fails has its own metrics for that.
            if let Ok(due) = due.await {
                text.value(name, &[agent(runtime)], due.len());
            }
        }
        let name = "herald_turn_seconds";
        text.metric(name, "histogram", "How long turns took.");
        for runtime in agents.iter().filter(|runtime| !runtime.metrics.turns.is_empty()) {
            text.histogram(name, &[agent(runtime)], &runtime.metrics.turns);
        }
        self.write_webhook_metrics(text).await;
        self.write_directory_metrics(text);
        if let Some(store) = core.store.metrics() {
            let name = "herald_store_commit_seconds";
            text.metric(name, "histogram", "How long transactions of the store took.");
            text.histogram(name, &[], &store.commits);
            let name = "herald_store_commit_writes";
            text.metric(name, "histogram", "How many writes shared a transaction.");
            text.histogram(name, &[], &store.batches);
            let help = "Transactions of the store that failed.";
            text.single("herald_store_errors_total", "counter", help, store.errors.get());
        }
    }
}

impl Engine {
    async fn write_webhook_metrics(&self, text: &mut Text) {
        let core = &self.core;
        if core.webhooks.sender.is_none() {
            return;
        }
        let metrics = &core.webhooks.metrics;
        let name = "herald_webhook_attempts_total";
        text.metric(name, "counter", "Attempts to deliver an event to a webhook.");
        text.value(name, &[("outcome", "delivered")], metrics.delivered.get());
        text.value(name, &[("outcome", "failed")], metrics.failed.get());
        let name = "herald_webhooks_stopped_total";
        text.metric(name, "counter", "Webhooks to which nothing is delivered any more.");
        text.value(name, &[("state", "parked")], metrics.parked.get());
        text.value(name, &[("state", "disabled")], metrics.disabled.get());
        let name = "herald_webhook_lag_seconds";
        text.metric(name, "histogram", "How long an event waited for its delivery.");
        text.histogram(name, &[], &metrics.lag);
        let name = "herald_webhooks";
        text.metric(name, "gauge", "Webhooks with undelivered events, by state, up to 10000.");
        // All nodes see the same webhooks, so only the leader reports them.
        if core.membership.is_leader()
            && let Ok(counts) = core.store.count_webhooks(COUNTED_WEBHOOKS).await
        {
            for (state, count) in counts {
                text.value(name, &[("state", state.name())], count);
            }
        }
    }
}

impl Engine {
    fn write_directory_metrics(&self, text: &mut Text) {
        let core = &self.core;
        let all = core.directory.all(core.alive_since());
        let (remotes, workers): (Vec<_>, Vec<_>) =
            all.iter().partition(|one| one.registration.card.is_some());
        let name = "herald_registrations";
        text.metric(name, "gauge", "Registered workers that are alive, and remote agents.");
        text.value(name, &[("kind", "worker")], workers.len());
        text.value(name, &[("kind", "remote")], remotes.len());
        let is_changed = |one: &&&crate::directory::Listed| {
            one.registration.card.as_ref().is_some_and(|card| card.changed_to.is_some())
        };
        let changed = remotes.iter().filter(is_changed).count();
        let help = "Remote agents whose card is not the registered one any more.";
        text.single("herald_remote_cards_changed", "gauge", help, changed);
        let help = "Cards of remote agents that were found changed.";
        let name = "herald_remote_cards_changed_total";
        text.single(name, "counter", help, core.directory.changed_cards.get());
    }
}

fn agent(runtime: &AgentRuntime) -> Label<'_> {
    ("agent", runtime.profile.name.as_str())
}
