//! Webhooks: readers of a task's log whose cursor is stored. Each event after the cursor is delivered
//! to the webhook, in order and with retries.

pub mod sender;
