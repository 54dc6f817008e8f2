//! Authentication by API keys of the store, and by the operator token of this process.
//!
//! A known key costs one hash and one lookup in memory. An unknown one costs one read of the store, of
//! which few run at once, and is remembered for a moment.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use herald_engine::{
    Caller, CredentialKind, Engine, Identity, Scopes, Validity, Visibility,
    keys::{self, ApiKeySecret},
    store::{ApiKey, ApiKeyId},
};
use herald_protocol::{Error, ErrorKind, TenantId, Timestamp, locks::lock};
use subtle::ConstantTimeEq;
use tokio::{
    sync::{OnceCell, Semaphore},
    time::{Instant, sleep, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use crate::auth::cache::{CredentialHash, RecentCache};

/// Known keys, and refused ones, in each generation of their caches.
const KNOWN: usize = 8 << 10;
const REFUSED: usize = 2 << 10;
/// The time for which an unknown key is refused without asking the store.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Reads of the store at once because of keys that are not in memory, and the time that others wait.
const LOOKUPS: usize = 4;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which keys are read again, in case a notification of a revocation was lost, and the
/// number of keys that are read each time.
const REREAD_EVERY: Duration = Duration::from_secs(2);
const REREAD_KEYS: usize = 500;
/// The interval at which the use of a key is recorded.
const RECORD_EVERY: Duration = Duration::from_secs(30);

/// The API keys of a store.
#[derive(Debug)]
pub(crate) struct ApiKeys {
    engine: Engine,
    /// The visibility of keys that have none of their own.
    visibility: Visibility,
    operator: Option<OperatorToken>,
    known: RecentCache<Arc<KnownKey>>,
    /// The keys that a call or the cache uses. The cache alone would forget a key whose stream is still
    /// open.
    in_use: Mutex<Vec<KeyInUse>>,
    refused: RecentCache<Instant>,
    lookups: Semaphore,
    /// True if the store has keys, valid or not.
    exist: AtomicBool,
    started: Instant,
    follower: OnceCell<AbortOnDropHandle<()>>,
}

/// The token of the operator, which the server keeps in its data directory.
#[derive(Debug)]
struct OperatorToken {
    hash: CredentialHash,
    caller: Caller,
}

/// A key in use: its revocation is dropped with the last call, stream and cache entry of the key.
#[derive(Debug, Clone)]
struct KeyInUse {
    id: ApiKeyId,
    revoked: Weak<CancellationToken>,
}

/// A key of the store in memory.
#[derive(Debug)]
struct KnownKey {
    id: ApiKeyId,
    caller: Caller,
    /// The time of the last recorded use, in seconds since the start, plus one.
    recorded: AtomicU64,
}

impl ApiKeys {
    pub(crate) fn new(
        engine: Engine,
        visibility: Visibility,
        operator: Option<&ApiKeySecret>,
    ) -> Arc<Self> {
        Arc::new(Self {
            engine,
            visibility,
            operator: operator.map(OperatorToken::new),
            known: RecentCache::new(KNOWN),
            in_use: Mutex::default(),
            refused: RecentCache::new(REFUSED),
            lookups: Semaphore::new(LOOKUPS),
            exist: AtomicBool::new(false),
            started: Instant::now(),
            follower: OnceCell::new(),
        })
    }

    /// Reads whether there are keys, and begins to follow their changes. Only the first call does so.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), Error> {
        let start = || async {
            self.exist.store(self.engine.has_keys().await?, Ordering::Relaxed);
            let follower = TaskTracker::new().spawn(follow(Arc::downgrade(self)));
            Ok(AbortOnDropHandle::new(follower))
        };
        self.follower.get_or_try_init(start).await.map(|_| ())
    }

    /// True if the store has keys, valid or not.
    pub(crate) fn exist(&self) -> bool {
        self.exist.load(Ordering::Relaxed)
    }

    /// True once the store was asked whether it has keys.
    pub(crate) fn has_started(&self) -> bool {
        self.follower.initialized()
    }

    /// The caller of a key in memory or of the operator token; `None` if the store has to be asked.
    /// `is_local` says whether the request comes from this machine.
    pub(crate) fn cached(
        &self,
        hash: &CredentialHash,
        is_local: impl FnOnce() -> bool,
    ) -> Option<Result<Caller, Error>> {
        if let Some(operator) = &self.operator
            && bool::from(operator.hash.ct_eq(hash))
        {
            return Some(operator.caller_at(is_local()));
        }
        self.known.get(hash).map(|known| self.use_key(&known))
    }

    /// The caller of a key that is not in memory.
    pub(crate) async fn look_up(&self, hash: CredentialHash) -> Result<Caller, Error> {
        let known = self.read(hash).await?;
        self.use_key(&known)
    }

    /// The caller of a key, unless the key has ended.
    fn use_key(&self, known: &KnownKey) -> Result<Caller, Error> {
        if known.caller.identity().validity.is_over() {
            return Err(refused("the API key was revoked or has expired"));
        }
        self.record_use(known);
        Ok(known.caller.clone())
    }

    /// Reads a key that is not in memory.
    async fn read(&self, hash: CredentialHash) -> Result<Arc<KnownKey>, Error> {
        let unknown = || refused("the API key is unknown");
        if self.refused.get(&hash).is_some_and(|since| since.elapsed() < REFUSED_FOR) {
            return Err(unknown());
        }
        let permit = timeout(LOOKUP_TIMEOUT, self.lookups.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            let text = "too many unknown API keys are being checked; try again";
            return Err(Error::new(ErrorKind::Unavailable, text));
        };
        let found = self.engine.find_key_by_hash(&hash).await?;
        let Some(key) = found.filter(|key| bool::from(key.hash.ct_eq(&hash))) else {
            self.refused.insert(hash, Instant::now());
            return Err(unknown());
        };
        let revoked = Arc::default();
        let in_use = KeyInUse { id: Arc::clone(&key.id), revoked: Arc::downgrade(&revoked) };
        lock(&self.in_use).push(in_use);
        let known = KnownKey::new(&key, revoked, self.engine.now(), self.visibility);
        // Lookups that run at once share one entry.
        Ok(self.known.get_or_insert(hash, Arc::new(known)))
    }

    /// Records the use of a key, now and then.
    fn record_use(&self, key: &KnownKey) {
        let now = self.started.elapsed().as_secs() + 1;
        let last = key.recorded.load(Ordering::Relaxed);
        if last == 0 || now >= last + RECORD_EVERY.as_secs() {
            key.recorded.store(now, Ordering::Relaxed);
            self.engine.record_key_use(&key.id);
        }
    }

    /// Reads keys again, and revokes those that the store has revoked. The number continues from one
    /// call to the next.
    async fn reread(&self, from: usize, limit: usize) -> Result<usize, Error> {
        self.exist.store(self.engine.has_keys().await?, Ordering::Relaxed);
        let in_use = {
            let mut in_use = lock(&self.in_use);
            in_use.retain(|key| key.revoked.strong_count() > 0);
            in_use.clone()
        };
        let from = if from < in_use.len() { from } else { 0 };
        for key in in_use.iter().skip(from).take(limit) {
            let found = self.engine.find_key(&key.id).await?;
            if found.is_none_or(|found| found.revoked.is_some())
                && let Some(revoked) = key.revoked.upgrade()
            {
                revoked.cancel();
            }
        }
        Ok(from.saturating_add(limit))
    }
}

impl OperatorToken {
    fn new(secret: &ApiKeySecret) -> Self {
        let identity = Identity {
            credential: CredentialKind::Operator,
            ..Identity::new(TenantId::default(), "operator", Scopes::ALL)
        };
        Self { hash: secret.hash(), caller: Arc::new(identity).into() }
    }

    fn caller_at(&self, is_local: bool) -> Result<Caller, Error> {
        if is_local {
            Ok(self.caller.clone())
        } else {
            Err(refused("the operator token is accepted from the server's own machine only"))
        }
    }
}

impl KnownKey {
    fn new(
        key: &ApiKey,
        revoked: Arc<CancellationToken>,
        now: Timestamp,
        visibility: Visibility,
    ) -> Self {
        if key.revoked.is_some() {
            revoked.cancel();
        }
        let expires = key.expires.map(|expires| {
            let left = (expires.as_millis() - now.as_millis()).max(0);
            Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or_default())
        });
        let owner = &key.owner;
        let identity = Identity {
            agents: key.agents.clone(),
            skills: key.skills.clone(),
            visibility: key.visibility.unwrap_or(visibility),
            credential: CredentialKind::ApiKey(Arc::clone(&key.id)),
            validity: Validity { expires, revoked: Some(revoked) },
            ..Identity::new(owner.tenant.clone(), Arc::clone(&owner.principal), key.scopes)
        };
        let caller = Arc::new(identity).into();
        Self { id: Arc::clone(&key.id), caller, recorded: AtomicU64::new(0) }
    }
}

/// Follows the changes of keys until the authenticator is dropped.
async fn follow(keys: Weak<ApiKeys>) {
    let Some(mut changes) = keys.upgrade().map(|keys| keys.engine.key_changes()) else { return };
    let mut next = 0;
    loop {
        let changed = tokio::select! {
            changed = changes.changed() => changed.is_ok(),
            () = sleep(REREAD_EVERY) => false,
        };
        let Some(keys) = keys.upgrade() else { return };
        if changed {
            keys.refused.clear();
        }
        let (from, limit) = if changed { (0, usize::MAX) } else { (next, REREAD_KEYS) };
        match keys.reread(from, limit).await {
            Ok(end) => next = end,
            Err(error) => tracing::debug!(%error, "API keys could not be read again"),
        }
    }
}

/// The hash of a secret that has the form of an API key.
pub(crate) fn key_hash(secret: &[u8]) -> Option<CredentialHash> {
    /// Characters after the prefix: 256 bits in base64.
    const LENGTH: usize = 43;
    let text = std::str::from_utf8(secret).ok()?;
    let rest = text.strip_prefix(keys::SECRET_PREFIX)?;
    (rest.len() == LENGTH).then(|| keys::hash_secret(text))
}

fn refused(text: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, text)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use herald_engine::{
        Agent, AgentError, NewApiKey, Profile, Turn,
        store::{AuditActor, AuditEntry, Owner, Store, sqlite::Sqlite},
    };

    use super::*;

    #[derive(Debug)]
    struct Idle;

    #[async_trait]
    impl Agent for Idle {
        async fn run(&self, _: &Turn) -> Result<(), AgentError> {
            Ok(())
        }
    }

    async fn create(store: &Sqlite, now: Timestamp) -> ApiKey {
        let new = NewApiKey {
            owner: Owner { tenant: TenantId::from("acme"), principal: "ci".into() },
            scopes: Scopes::CALLER,
            agents: None,
            skills: None,
            visibility: None,
            expires: None,
            label: String::new(),
        };
        let (key, _) = new.issue("test", now).unwrap();
        store.create_key(key.clone(), entry()).await.unwrap();
        key
    }

    fn entry() -> AuditEntry {
        AuditEntry::new(AuditActor::default(), "test")
    }

    #[tokio::test]
    async fn a_key_that_the_cache_has_forgotten_is_revoked_for_its_open_streams() {
        let store = Arc::new(Sqlite::memory().unwrap());
        let engine = Engine::builder(Arc::<Sqlite>::clone(&store));
        let engine = engine.agent(Profile::new("idle", "Does nothing"), Idle).build().unwrap();
        let keys = ApiKeys::new(engine.clone(), Visibility::default(), None);
        keys.start().await.unwrap();
        let (key, other) = (create(&store, engine.now()).await, create(&store, engine.now()).await);
        // A stream holds no more of its caller.
        let stream = keys.look_up(key.hash).await.unwrap().identity().validity.clone();
        let filler = keys.read(other.hash).await.unwrap();
        for number in 0..=2 * KNOWN as u64 {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            keys.known.insert(hash, Arc::clone(&filler));
        }
        assert!(keys.known.get(&key.hash).is_none(), "the cache has forgotten the key");
        store.revoke_key(&key.id, engine.now(), entry()).await.unwrap().unwrap();
        let ended = timeout(Duration::from_secs(120), stream.ended()).await;
        assert!(ended.unwrap().message.contains("revoked"));
        assert!(!filler.caller.identity().validity.is_over());
        // Nothing is kept for a key that nobody uses.
        drop(stream);
        keys.reread(0, usize::MAX).await.unwrap();
        assert_eq!(lock(&keys.in_use).len(), 1);
    }
}
