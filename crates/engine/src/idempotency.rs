//! Idempotency keys of sends, and the stable ids of turns.

use std::{fmt, io};

use herald_protocol::{AgentName, ContextId, Message, Seq, request::SendMessage};
use serde::{Deserialize, Serialize};

use crate::store::{Dedup, Key, Owner};

/// The maximum length of an idempotency key, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 255;

/// The idempotency key of a send: its `Idempotency-Key`, or its message id if that is a UUID. Other
/// message ids are labels that a sender may use again.
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

/// The id of the turn that answers one message. It includes the owner and the secret of the store,
/// because callers may choose the ids of their tasks, and two owners may choose the same one. It is
/// computed on first use, because few agents need it.
#[derive(Clone, PartialEq, Eq)]
pub struct TurnId(TurnIdSource);

#[derive(Clone, PartialEq, Eq)]
enum TurnIdSource {
    /// The values from which the id is computed.
    Turn { secret: [u8; 32], key: Key, seq: Seq },
    /// The id, as received from another process.
    Text(String),
}

impl TurnId {
    pub(crate) fn new(secret: [u8; 32], key: Key, seq: Seq) -> Self {
        Self(TurnIdSource::Turn { secret, key, seq })
    }
}

impl fmt::Display for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secret, key, seq) = match &self.0 {
            TurnIdSource::Turn { secret, key, seq } => (secret, key, seq),
            TurnIdSource::Text(text) => return f.write_str(text),
        };
        let mut hasher = blake3::Hasher::new_keyed(secret);
        let Key { owner, task } = key;
        for text in ["turn", owner.tenant.as_str(), &owner.principal, task.as_str()] {
            hasher.update(&(text.len() as u64).to_be_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.update(&seq.to_be_bytes());
        let mut bytes = [0; 16];
        hasher.finalize_xof().fill(&mut bytes);
        uuid::Builder::from_custom_bytes(bytes).into_uuid().fmt(f)
    }
}

/// The id of the conversation of one owner.
pub(crate) fn conversation_id(secret: &[u8; 32], owner: &Owner, context: &ContextId) -> String {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    for text in ["conversation", owner.tenant.as_str(), &owner.principal, context.as_str()] {
        hasher.update(&(text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Shows the id, and never the secret.
impl fmt::Debug for TurnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TurnId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TurnId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(TurnIdSource::Text(text)))
    }
}

/// The hash of the decoded message, so that the same message has the same hash in every dialect and
/// binding.
fn content(message: &Message) -> [u8; 32] {
    let mut json = HashedJson { hasher: None, buffer: Vec::with_capacity(512) };
    serde_json::to_writer(&mut json, message).expect("a message has string keys only");
    match json.hasher {
        None => *blake3::hash(&json.buffer).as_bytes(),
        Some(mut hasher) => *hasher.update(&json.buffer).finalize().as_bytes(),
    }
}

/// Writer that hashes in blocks, so that a large message is not copied as a whole.
struct HashedJson {
    /// `None` while the buffer contains everything.
    hasher: Option<Box<blake3::Hasher>>,
    buffer: Vec<u8>,
}

/// The number of bytes that are hashed at once.
const BLOCK: usize = 16 << 10;

impl io::Write for HashedJson {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BLOCK {
            let hasher = self.hasher.get_or_insert_with(Box::default);
            hasher.update(&self.buffer);
            self.buffer.clear();
            if bytes.len() > BLOCK {
                hasher.update(bytes);
                return Ok(());
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_with_the_same_context_id_have_different_conversations() {
        let id = |tenant: &str, principal: &str, context: &str| {
            let owner = Owner { tenant: tenant.into(), principal: principal.into() };
            conversation_id(&[7; 32], &owner, &ContextId::from(context))
        };
        let ids = [id("t", "p", "c"), id("t", "pc", ""), id("u", "p", "c"), id("t", "q", "c")];
        assert_eq!(ids[0], id("t", "p", "c"));
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert!(ids.iter().all(|id| id.len() == 32));
    }

    #[test]
    fn the_hash_of_a_message_is_that_of_its_json() {
        for size in [0, 100, BLOCK - 60, BLOCK, BLOCK + 1, 5 * BLOCK] {
            let mut message = Message::user("m", "x".repeat(size));
            message.parts.extend(vec![herald_protocol::Part::text("\n\"y\""); size]);
            let json = serde_json::to_vec(&message).unwrap();
            assert_eq!(content(&message), *blake3::hash(&json).as_bytes(), "{size}");
        }
    }
}
