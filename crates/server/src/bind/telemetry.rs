//! Telemetry of a call: its span, its metrics and its log line.

use herald_engine::{Caller, trace::record_ids};
use herald_protocol::{ContextId, Dialect, Error, Operation, Request, TaskId, TraceContext};
use http::header;
use tracing::Span;

use crate::{bind::Exchange, metrics::AnsweredCall, trace};

impl Exchange<'_> {
    /// Makes the request part of its caller's trace or, without one, the root of its own.
    pub(crate) fn join_trace(&mut self, parent: Option<&TraceContext>) {
        self.span = self.shared.engine.span_below(parent);
        record_ids(parent, self.span.as_ref());
        self.has_parent = parent.is_some();
    }

    /// The span of the request, once its parameters are known: without a trace header, they may contain
    /// the caller's span.
    pub(super) fn request_span(&self, request: &Request) -> Option<TraceContext> {
        let named = if self.has_parent { None } else { trace::in_metadata(request) };
        let Some(parent) = named else { return self.span.clone() };
        let span = self.shared.engine.span_below(Some(&parent));
        record_ids(Some(&parent), span.as_ref());
        span
    }

    /// Records the ids and names of a request in its span.
    pub(super) fn record_request(&self, dialect: Dialect, caller: &Caller, request: &Request) {
        if !self.shared.engine.has_spans() {
            return;
        }
        let span = Span::current();
        let (task, context) = names(request);
        span.record("operation", request.operation().name());
        span.record("version", tracing::field::display(dialect.version()));
        span.record("binding", self.binding.name());
        span.record("tenant", caller.owner().tenant.as_str());
        if let Some(profile) = &self.profile {
            span.record("agent", profile.name.as_str());
        }
        if let Some(task) = task {
            span.record("task", task.as_str());
        }
        if let Some(context) = context {
            span.record("context", context.as_str());
        }
    }

    /// Counts a call. The first call of each day in an old version is logged, per agent.
    pub(crate) fn count(&self, dialect: Dialect, operation: Operation, error: Option<&Error>) {
        let Some(profile) = &self.profile else { return };
        let (agent, version, binding) = (&profile.name, dialect.version(), self.binding);
        let took = self.started.elapsed();
        let call = AnsweredCall { agent, operation, version, binding, took };
        let first = self.shared.metrics.called(&call, error);
        if first && !self.shared.config.expects_old_clients {
            let client = self.parts.headers.get(header::USER_AGENT);
            let client = client.and_then(|client| client.to_str().ok()).unwrap_or("unknown");
            let (client, binding) = (client.get(..80).unwrap_or(client), binding.name());
            tracing::info!(%agent, binding, client, "a client still uses A2A {version}");
        }
    }
}

/// The ids of the task and the context in a request.
fn names(request: &Request) -> (Option<&TaskId>, Option<&ContextId>) {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            (send.message.task_id.as_ref(), send.message.context_id.as_ref())
        }
        Request::GetTask(get) => (Some(&get.id), None),
        Request::ListTasks(list) => (None, list.context_id.as_ref()),
        Request::CancelTask(cancel) => (Some(&cancel.id), None),
        Request::SubscribeToTask(subscribe) => (Some(&subscribe.id), None),
        Request::CreateTaskPushNotificationConfig(config) => (config.task_id.as_ref(), None),
        Request::GetTaskPushNotificationConfig(config)
        | Request::DeleteTaskPushNotificationConfig(config) => (Some(&config.task_id), None),
        Request::ListTaskPushNotificationConfigs(list) => (Some(&list.task_id), None),
        Request::GetExtendedAgentCard(_) => (None, None),
    }
}
