//! What makes two sends the same send.

use herald_protocol::{AgentName, Message, request::SendMessage};

use crate::store::{Dedup, Owner};

/// The longest idempotency key taken, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 255;

/// The key of a send: its `Idempotency-Key`, or its message id if that is a UUID. Any other message
/// id is a label that its sender may use again.
pub(crate) fn of(owner: &Owner, agent: &AgentName, send: &SendMessage) -> Option<Dedup> {
    let uuid;
    let (kind, key) = match &send.idempotency_key {
        Some(key) => ("key", key.as_str()),
        None => {
            uuid = uuid::Uuid::try_parse(send.message.message_id.as_str()).ok()?.to_string();
            ("message", uuid.as_str())
        }
    };
    let mut hasher = blake3::Hasher::new();
    for text in [owner.tenant.as_str(), &owner.principal, agent.as_str(), kind, key] {
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    Some(Dedup { key: *hasher.finalize().as_bytes(), content: content(&send.message) })
}

/// Covers the decoded message, so that the dialect and the binding it came by make no difference.
fn content(message: &Message) -> [u8; 32] {
    let json = serde_json::to_vec(message).expect("a message has string keys only");
    *blake3::hash(&json).as_bytes()
}
