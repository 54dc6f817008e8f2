//! Webhooks: readers of a task's log whose cursor is stored. Each event after the cursor is delivered
//! to the webhook, in order and with retries.

pub(crate) mod deliverer;
mod payload;
mod retry;
pub mod sender;
pub(crate) mod shared;
