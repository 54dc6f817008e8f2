//! Issue of API keys, and their last uses, which are stored in batches.

use std::{collections::HashMap, mem, sync::Mutex};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use herald_protocol::{Timestamp, locks::lock};

use crate::store::{ApiKeyId, Store, StoreError};

/// The first characters of every secret, by which scanners of source code find a leaked one.
pub const SECRET_PREFIX: &str = "hrld_";

/// The secret of a new API key: 256 random bits. It is shown once and not stored.
#[derive(Clone)]
pub struct ApiKeySecret(String);

impl ApiKeySecret {
    /// A new secret.
    pub fn generate() -> Self {
        // Each id has 122 random bits of the operating system's generator.
        let mut random = blake3::Hasher::new();
        for _ in 0..4 {
            random.update(uuid::Uuid::new_v4().as_bytes());
        }
        Self(format!("{SECRET_PREFIX}{}", URL_SAFE_NO_PAD.encode(random.finalize().as_bytes())))
    }

    /// The text that the holder of the key sends.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The hash by which the store finds the key.
    pub fn hash(&self) -> [u8; 32] {
        hash_secret(&self.0)
    }
}

/// Hides the secret.
impl std::fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKeySecret(hidden)")
    }
}

/// The hash of a presented secret. A fast hash suffices: 256 random bits cannot be guessed, unlike
/// a password.
pub fn hash_secret(secret: &str) -> [u8; 32] {
    blake3::derive_key("herald 2026-11-17 API key secret", secret.as_bytes())
}

/// A new id for an API key. Ids grow with time.
pub fn new_key_id() -> ApiKeyId {
    uuid::Uuid::now_v7().simple().to_string().into()
}

/// The last uses of API keys since they were last stored.
#[derive(Debug, Default)]
pub(crate) struct KeyUses(Mutex<HashMap<ApiKeyId, Timestamp>>);

impl KeyUses {
    pub(crate) fn add(&self, id: &ApiKeyId, at: Timestamp) {
        let mut uses = lock(&self.0);
        match uses.get_mut(id) {
            Some(last) => *last = at.max(*last),
            None => drop(uses.insert(ApiKeyId::clone(id), at)),
        }
    }

    /// Stores all uses. After an error they are kept for the next attempt.
    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<(), StoreError> {
        let uses = mem::take(&mut *lock(&self.0));
        if uses.is_empty() {
            return Ok(());
        }
        let stored = store.record_key_uses(uses.clone().into_iter().collect()).await;
        if stored.is_err() {
            for (id, at) in uses {
                self.add(&id, at);
            }
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_ids_differ_and_the_secret_is_hidden() {
        let (a, b) = (ApiKeySecret::generate(), ApiKeySecret::generate());
        assert_ne!(a.reveal(), b.reveal());
        assert_ne!(a.hash(), b.hash());
        assert_eq!(a.hash(), hash_secret(a.reveal()));
        assert_eq!(a.reveal().len(), SECRET_PREFIX.len() + 43);
        assert!(!format!("{a:?}").contains(&a.reveal()[5..]));
        let ids = [new_key_id(), new_key_id()];
        assert!(ids[0] < ids[1], "{ids:?}");
    }
}
