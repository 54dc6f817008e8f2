//! State of webhooks that all parts of the engine share.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use crate::{metrics::WebhookMetrics, webhooks::sender::WebhookSender};

/// Events that operators and callers deliver again at once. These deliveries do not wait for a place, so that a
/// caller could otherwise flood a receiver.
const REPLAYS: usize = 16;

/// The sender of deliveries, the waker of the deliverer, and the metrics.
#[derive(Debug)]
pub(crate) struct Webhooks {
    /// `None` if the engine delivers nothing: no agent supports webhooks then.
    pub(crate) sender: Option<Arc<dyn WebhookSender>>,
    /// Wakes the deliverer: a webhook may be ready.
    pub(crate) ready: Notify,
    /// Permits to deliver one event again.
    pub(crate) replays: Semaphore,
    pub(crate) metrics: WebhookMetrics,
}

impl Webhooks {
    pub(crate) fn new(sender: Option<Arc<dyn WebhookSender>>) -> Self {
        let (ready, replays) = (Notify::new(), Semaphore::new(REPLAYS));
        Self { sender, ready, replays, metrics: WebhookMetrics::default() }
    }
}
