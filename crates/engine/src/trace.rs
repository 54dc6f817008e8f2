//! Trace spans of calls, turns and deliveries to webhooks.
//!
//! The trace context of a message is stored with the message, so that it survives queues and
//! restarts. The `tracing` spans have two fields for exporters: `trace` (the
//! span itself, as a `traceparent`) and `parent` (its parent span).

use std::num::{NonZeroU64, NonZeroU128};

use herald_protocol::{Seq, Task, TraceContext};
use tracing::{Level, Span, field::Empty};
use uuid::Uuid;

use crate::{
    core::Core,
    rules::Record,
    store::{Key, Webhook},
};

impl Core {
    /// The context of a new span below `parent`. If tracing is off, there is no new span, and the
    /// caller's context is returned unchanged.
    pub(crate) fn span_below(&self, parent: Option<&TraceContext>) -> Option<TraceContext> {
        let Some(ratio) = self.settings.trace else { return parent.cloned() };
        let random = Uuid::new_v4().as_u64_pair();
        // Some bits of a UUID are constant. They differ between the two halves, so the XOR of both
        // has none.
        let span = NonZeroU64::new(random.1 ^ random.0.rotate_left(32)).unwrap_or(NonZeroU64::MIN);
        Some(match parent {
            Some(parent) => parent.child(span),
            None => {
                let trace = NonZeroU128::new(Uuid::new_v4().as_u128()).unwrap_or(NonZeroU128::MIN);
                TraceContext { trace, span, sampled: is_sampled(trace, ratio), state: None }
            }
        })
    }

    /// True if spans are exported or logged. Otherwise they are not created, because that would
    /// cost more than the work they describe.
    pub(crate) fn has_spans(&self) -> bool {
        self.settings.trace.is_some() || tracing::enabled!(Level::DEBUG)
    }

    /// The span of a turn.
    pub(crate) fn turn_span(
        &self,
        key: &Key,
        record: &Record,
        parent: Option<&TraceContext>,
        own: Option<&TraceContext>,
    ) -> Span {
        if !self.has_spans() {
            return Span::none();
        }
        let span = tracing::error_span!(
            "turn",
            task = key.task.as_str(),
            context = record.task.context_id.as_str(),
            tenant = key.owner.tenant.as_str(),
            agent = record.agent.as_str(),
            seq = record.run.turn,
            attempt = record.run.attempt,
            state = Empty,
            trace = Empty,
            parent = Empty,
        );
        record_ids_in(&span, parent, own);
        span
    }

    /// The span of an attempt at a delivery. The URL is left out: its path or query may contain a secret.
    pub(crate) fn delivery_span(
        &self,
        webhook: &Webhook,
        seq: Seq,
        attempt: u32,
        parent: Option<&TraceContext>,
        own: Option<&TraceContext>,
    ) -> Span {
        if !self.has_spans() {
            return Span::none();
        }
        let span = tracing::error_span!(
            "delivery",
            webhook = %webhook.id,
            task = webhook.key.task.as_str(),
            tenant = webhook.key.owner.tenant.as_str(),
            seq,
            attempt,
            method = "POST",
            status = Empty,
            error = Empty,
            failed = Empty,
            trace = Empty,
            parent = Empty,
        );
        record_ids_in(&span, parent, own);
        span
    }
}

/// Records the trace context of the current span in its fields.
pub fn record_ids(parent: Option<&TraceContext>, own: Option<&TraceContext>) {
    // Finding the current span has a cost, and most requests have nothing to record.
    if parent.is_some() || own.is_some() {
        record_ids_in(&Span::current(), parent, own);
    }
}

fn record_ids_in(span: &Span, parent: Option<&TraceContext>, own: Option<&TraceContext>) {
    if let Some(own) = own {
        span.record("trace", tracing::field::display(own));
    }
    if let Some(parent) = parent {
        span.record("parent", format_args!("{:016x}", parent.span));
    }
}

/// Records in the span of a call which task its message went to, unless the call named the task
/// itself.
pub(crate) fn record_task(task: &Task, seq: Seq, fresh: bool) {
    let span = Span::current();
    span.record("seq", seq);
    if fresh {
        span.record("task", task.id.as_str());
        span.record("context", task.context_id.as_str());
    }
}

/// True if a new trace is sampled. The decision depends on the trace id alone, so that every
/// service makes the same one.
fn is_sampled(trace: NonZeroU128, ratio: f64) -> bool {
    // An `f64` represents integers of up to 53 bits exactly, and the low bits of the id are random.
    let low = trace.get() & ((1 << 53) - 1);
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let point = low as f64 / (1_u64 << 53) as f64;
    point < ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_sampled_traces_follows_the_ratio() {
        let traces: Vec<_> =
            (0..2000).filter_map(|_| NonZeroU128::new(Uuid::new_v4().as_u128())).collect();
        let chosen = |ratio| traces.iter().filter(|trace| is_sampled(**trace, ratio)).count();
        assert_eq!((chosen(0.0), chosen(1.0)), (0, traces.len()));
        assert!((100..500).contains(&chosen(0.15)), "{}", chosen(0.15));
    }
}
