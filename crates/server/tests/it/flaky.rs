//! A store that fails when it is told to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use herald_engine::store::{
    Append, Holder, Key, ListQuery, Listing, Original, Page, Retention, Store, StoreError, Stored,
    sqlite::Sqlite,
};
use herald_protocol::{AgentName, Seq, Timestamp};

#[derive(Debug)]
pub(crate) struct Flaky {
    store: Sqlite,
    writes_fail: AtomicBool,
    /// How many reads of a log succeed before they begin to fail.
    reads_left: AtomicUsize,
}

impl Flaky {
    pub(crate) fn new() -> Self {
        Self {
            store: Sqlite::memory().unwrap(),
            writes_fail: AtomicBool::new(false),
            reads_left: AtomicUsize::new(usize::MAX),
        }
    }

    pub(crate) fn fail_writes(&self, fail: bool) {
        self.writes_fail.store(fail, Ordering::Relaxed);
    }

    pub(crate) fn fail_reads_after(&self, count: usize) {
        self.reads_left.store(count, Ordering::Relaxed);
    }

    fn write(&self) -> Result<(), StoreError> {
        match self.writes_fail.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("the disk is full".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Flaky {
    async fn append(&self, append: Append) -> Result<Seq, StoreError> {
        self.write()?;
        self.store.append(append).await
    }

    async fn load(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.store.load(key).await
    }

    async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<Page, StoreError> {
        let left = self.reads_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(StoreError::Unavailable("the disk is gone".into()));
        }
        self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        self.store.read(key, after, limit).await
    }

    async fn list(&self, query: ListQuery) -> Result<Listing, StoreError> {
        self.store.list(query).await
    }

    async fn due(
        &self,
        agent: Option<&AgentName>,
        living: Holder,
        limit: usize,
    ) -> Result<Vec<(Key, AgentName)>, StoreError> {
        self.store.due(agent, living, limit).await
    }

    async fn original(&self, key: &[u8; 32]) -> Result<Option<Original>, StoreError> {
        self.store.original(key).await
    }

    async fn paused(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Key>, StoreError> {
        self.store.paused(agent, before, limit).await
    }

    async fn sweep(&self, retention: Retention, limit: usize) -> Result<usize, StoreError> {
        self.store.sweep(retention, limit).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.write()?;
        self.store.probe().await
    }

    fn secret(&self) -> [u8; 32] {
        self.store.secret()
    }
}
