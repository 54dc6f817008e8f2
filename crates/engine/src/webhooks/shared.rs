//! State of webhooks that all parts of the engine share.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{metrics::WebhookMetrics, webhooks::sender::WebhookSender};

/// The sender of deliveries, the waker of the deliverer, and the metrics.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    /// `None` if the engine delivers nothing: no agent supports webhooks then.
    pub(crate) sender: Option<Arc<dyn WebhookSender>>,
    /// Wakes the deliverer: a webhook may be ready, or a place is free.
    pub(crate) ready: Notify,
    pub(crate) metrics: WebhookMetrics,
}
