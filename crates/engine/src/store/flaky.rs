//! Fault-injecting store for tests: a real store whose calls fail on demand.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use herald_protocol::{AgentName, PushConfigId, Seq, TaskId, Timestamp};

use crate::metrics::StoreMetrics;

use super::{
    ApiKey, ApiKeyId, ApiKeyQuery, Append, AuditEnds, AuditEntry, AuditPage, AuditQuery,
    AuditRetention, Changes, Conversation, Due, DueQuery, FeedPage, FeedQuery, HeartbeatReply,
    HistoryQuery, Key, ListQuery, Listing, Loaded, LogEntry, LogPage, MemberId, MemberKind,
    Original, Owner, OwnerQuery, Position, Retention, Scope, Store, StoreError, StoreStatus,
    Stored, TaskVersion, Usage, WorkerMember, sqlite::Sqlite,
};
use super::{
    ClaimedWebhook, DeliveryAttempt, NewRegistration, NewWebhook, Registration, RegistrationName,
    RegistrationStore, Webhook, WebhookClaim, WebhookId, WebhookPage, WebhookProgress,
    WebhookQuery, WebhookState, WebhookStore,
};

type FailingAppends = (fn(&Append) -> bool, usize);

/// SQLite in memory with injected faults: a full disk, a disk that is gone, slow writes.
#[derive(Debug)]
pub struct Flaky {
    store: Sqlite,
    writes_fail: AtomicBool,
    /// The appends that fail, and how many of them still do.
    failing_appends: Mutex<FailingAppends>,
    delay_millis: AtomicU64,
    /// The number of reads of logs until they fail.
    reads_left: AtomicUsize,
    /// The number of loads that still fail.
    loads_fail: AtomicUsize,
    /// The number of calls of `feed` before a position that run now, and the highest number so far.
    feeds_before: AtomicU64,
    feeds: AtomicUsize,
    most_feeds: AtomicUsize,
}

impl Flaky {
    /// A store without faults.
    pub fn new() -> Result<Self, super::sqlite::OpenError> {
        Ok(Self {
            store: Sqlite::memory()?,
            writes_fail: AtomicBool::new(false),
            failing_appends: Mutex::new((|_| false, 0)),
            delay_millis: AtomicU64::new(0),
            reads_left: AtomicUsize::new(usize::MAX),
            loads_fail: AtomicUsize::new(0),
            feeds_before: AtomicU64::new(0),
            feeds: AtomicUsize::new(0),
            most_feeds: AtomicUsize::new(0),
        })
    }

    /// Makes every write fail from now on, or succeed again.
    pub fn fail_writes(&self, fail: bool) {
        self.writes_fail.store(fail, Ordering::Relaxed);
    }

    /// Makes the next `count` appends of this kind fail.
    pub fn fail_appends(&self, which: fn(&Append) -> bool, count: usize) {
        *self.failing_appends.lock().expect("nothing panics while it holds this lock") =
            (which, count);
    }

    /// Delays every append from now on, before it reaches the store.
    pub fn delay_appends(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self.delay_millis.store(millis, Ordering::Relaxed);
    }

    /// Drops all notifications of changes from now on, so that only fallback timers find the
    /// changes.
    pub fn lose_changes(&self, lose: bool) {
        self.store.lose_changes(lose);
    }

    /// Makes reads of logs, of one task or of all, fail after `count` more.
    pub fn fail_reads_after(&self, count: usize) {
        self.reads_left.store(count, Ordering::Relaxed);
    }

    /// Makes the next `count` loads of a task fail.
    pub fn fail_loads(&self, count: usize) {
        self.loads_fail.store(count, Ordering::Relaxed);
    }

    /// Counts the calls of `feed` that begin before this position.
    pub fn count_feeds_before(&self, position: Position) {
        self.feeds_before.store(position, Ordering::Relaxed);
    }

    /// The highest number of counted calls that ran at the same time.
    pub fn most_feeds(&self) -> usize {
        self.most_feeds.load(Ordering::Relaxed)
    }

    fn check_write(&self) -> Result<(), StoreError> {
        if self.writes_fail.load(Ordering::Relaxed) {
            Err(StoreError::Unavailable("the disk is full".into()))
        } else {
            Ok(())
        }
    }

    fn check_read(&self) -> Result<(), StoreError> {
        let left = self.reads_left.load(Ordering::Relaxed);
        if left == 0 {
            return Err(StoreError::Unavailable("the disk is gone".into()));
        }
        self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        Ok(())
    }

    fn check_append(&self, append: &Append) -> Result<(), StoreError> {
        let mut failing =
            self.failing_appends.lock().expect("nothing panics while it holds this lock");
        if failing.1 > 0 && (failing.0)(append) {
            failing.1 -= 1;
            return Err(StoreError::Unavailable("the disk is full".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Flaky {
    async fn append(&self, append: Append) -> Result<Seq, StoreError> {
        self.check_write()?;
        self.check_append(&append)?;
        let delay = self.delay_millis.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        self.store.append(append).await
    }

    async fn load(
        &self,
        key: &Key,
        known: Option<TaskVersion>,
        limit: u64,
    ) -> Result<Loaded, StoreError> {
        let left = self.loads_fail.load(Ordering::Relaxed);
        if left > 0 {
            self.loads_fail.store(left - 1, Ordering::Relaxed);
            return Err(StoreError::Unavailable("the disk is gone".into()));
        }
        self.store.load(key, known, limit).await
    }

    async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<LogPage, StoreError> {
        self.check_read()?;
        self.store.read(key, after, limit).await
    }

    async fn read_log(
        &self,
        key: &Key,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        self.check_read()?;
        self.store.read_log(key, after, limit).await
    }

    async fn feed(&self, query: &FeedQuery) -> Result<FeedPage, StoreError> {
        self.check_read()?;
        let before = self.feeds_before.load(Ordering::Relaxed);
        if query.after.is_none_or(|after| after >= before) {
            return self.store.feed(query).await;
        }
        let at_once = self.feeds.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_feeds.fetch_max(at_once, Ordering::Relaxed);
        // Lets concurrent calls begin.
        tokio::task::yield_now().await;
        let page = self.store.feed(query).await;
        self.feeds.fetch_sub(1, Ordering::Relaxed);
        page
    }

    async fn list(&self, query: ListQuery) -> Result<Listing, StoreError> {
        self.store.list(query).await
    }

    async fn conversation_history(
        &self,
        query: HistoryQuery,
    ) -> Result<Vec<(TaskId, Stored)>, StoreError> {
        self.check_read()?;
        self.store.conversation_history(query).await
    }

    async fn agents_unserved(&self) -> Result<Vec<AgentName>, StoreError> {
        self.store.agents_unserved().await
    }

    async fn due(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError> {
        self.store.due(query).await
    }

    async fn enable_serial(&self, agent: &AgentName) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.enable_serial(agent).await
    }

    async fn next_serial(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError> {
        self.store.next_serial(query).await
    }

    async fn unlock_conversation(
        &self,
        agent: &AgentName,
        conversation: &Conversation,
        me: MemberId,
    ) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.unlock_conversation(agent, conversation, me).await
    }

    async fn original(&self, key: &[u8; 32]) -> Result<Option<Original>, StoreError> {
        self.store.original(key).await
    }

    async fn paused(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError> {
        self.store.paused(agent, before, limit).await
    }

    async fn queued(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError> {
        self.store.queued(agent, before, limit).await
    }

    async fn sweep(&self, retention: Retention, limit: usize) -> Result<usize, StoreError> {
        self.store.sweep(retention, limit).await
    }

    async fn join(&self, id: MemberId, kind: MemberKind, name: &str) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.join(id, kind, name).await
    }

    async fn join_worker(
        &self,
        id: MemberId,
        worker: &WorkerMember,
    ) -> Result<Vec<MemberId>, StoreError> {
        self.check_write()?;
        self.store.join_worker(id, worker).await
    }

    async fn find_worker(&self, id: MemberId) -> Result<Option<WorkerMember>, StoreError> {
        self.store.find_worker(id).await
    }

    async fn is_member(&self, id: MemberId) -> Result<bool, StoreError> {
        self.store.is_member(id).await
    }

    async fn count_heartbeat(&self, me: MemberId) -> Result<(), StoreError> {
        self.store.count_heartbeat(me).await
    }

    async fn held(
        &self,
        agent: &AgentName,
        holder: MemberId,
        limit: usize,
    ) -> Result<Vec<Due>, StoreError> {
        self.store.held(agent, holder, limit).await
    }

    async fn serve(&self, me: MemberId, agents: &[AgentName]) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.serve(me, agents).await
    }

    async fn heartbeat(&self, me: MemberId) -> Result<HeartbeatReply, StoreError> {
        self.store.heartbeat(me).await
    }

    async fn mark_dead(&self, member: MemberId, seen: u64) -> Result<bool, StoreError> {
        self.check_write()?;
        self.store.mark_dead(member, seen).await
    }

    async fn leave(&self, me: MemberId) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.leave(me).await
    }

    async fn owners_of(
        &self,
        scope: &Scope,
        task: &TaskId,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        self.store.owners_of(scope, task, limit).await
    }

    async fn usage(&self, scope: &Scope) -> Result<Usage, StoreError> {
        self.store.usage(scope).await
    }

    async fn owners(&self, query: OwnerQuery) -> Result<Vec<(Owner, Usage)>, StoreError> {
        self.store.owners(query).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        self.store.status().await
    }

    async fn create_key(&self, key: ApiKey, audit: AuditEntry) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.create_key(key, audit).await
    }

    async fn revoke_key(
        &self,
        id: &str,
        at: Timestamp,
        audit: AuditEntry,
    ) -> Result<Option<ApiKey>, StoreError> {
        self.check_write()?;
        self.store.revoke_key(id, at, audit).await
    }

    async fn record_key_uses(&self, uses: Vec<(ApiKeyId, Timestamp)>) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.record_key_uses(uses).await
    }

    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        self.store.find_key(id).await
    }

    async fn find_key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError> {
        self.store.find_key_by_hash(hash).await
    }

    async fn list_keys(&self, query: ApiKeyQuery) -> Result<Vec<ApiKey>, StoreError> {
        self.store.list_keys(query).await
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.append_audit(entries).await
    }

    async fn read_audit(&self, query: AuditQuery) -> Result<AuditPage, StoreError> {
        self.store.read_audit(query).await
    }

    async fn audit_ends(&self) -> Result<AuditEnds, StoreError> {
        self.store.audit_ends().await
    }

    async fn sweep_audit(
        &self,
        retention: AuditRetention,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.check_write()?;
        self.store.sweep_audit(retention, limit).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.probe().await
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn changes(&self, me: MemberId) -> Changes {
        self.store.changes(me)
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        self.store.metrics()
    }

    fn is_durable(&self) -> bool {
        self.store.is_durable()
    }

    fn secret(&self) -> [u8; 32] {
        self.store.secret()
    }
}

#[async_trait]
impl WebhookStore for Flaky {
    async fn put_webhook(&self, key: &Key, new: NewWebhook) -> Result<Option<Webhook>, StoreError> {
        self.check_write()?;
        self.store.put_webhook(key, new).await
    }

    async fn remove_webhook(&self, key: &Key, config: &PushConfigId) -> Result<bool, StoreError> {
        self.check_write()?;
        self.store.remove_webhook(key, config).await
    }

    async fn webhooks_of(
        &self,
        key: &Key,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Vec<Webhook>, StoreError> {
        self.store.webhooks_of(key, after, limit).await
    }

    async fn find_webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        self.store.find_webhook(id).await
    }

    async fn list_webhooks(&self, query: WebhookQuery) -> Result<WebhookPage, StoreError> {
        self.store.list_webhooks(query).await
    }

    async fn attempts(&self, id: WebhookId) -> Result<Vec<DeliveryAttempt>, StoreError> {
        self.store.attempts(id).await
    }

    async fn claim_webhooks(
        &self,
        me: MemberId,
        claim: WebhookClaim,
        now: Timestamp,
    ) -> Result<Vec<ClaimedWebhook>, StoreError> {
        self.check_write()?;
        self.store.claim_webhooks(me, claim, now).await
    }

    async fn record_progress(
        &self,
        me: MemberId,
        id: WebhookId,
        progress: WebhookProgress,
    ) -> Result<bool, StoreError> {
        self.check_write()?;
        self.store.record_progress(me, id, progress).await
    }

    async fn add_attempt(&self, id: WebhookId, attempt: DeliveryAttempt) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.add_attempt(id, attempt).await
    }

    async fn restart_webhook(
        &self,
        id: WebhookId,
        cursor: Option<Seq>,
    ) -> Result<Option<Webhook>, StoreError> {
        self.check_write()?;
        self.store.restart_webhook(id, cursor).await
    }

    async fn next_attempt(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_attempt().await
    }

    async fn count_webhooks(&self, limit: usize) -> Result<Vec<(WebhookState, u64)>, StoreError> {
        self.store.count_webhooks(limit).await
    }
}

#[async_trait]
impl RegistrationStore for Flaky {
    async fn put_registration(
        &self,
        new: NewRegistration,
    ) -> Result<Option<Registration>, StoreError> {
        self.check_write()?;
        self.store.put_registration(new).await
    }

    async fn remove_registration(
        &self,
        name: &str,
        audit: AuditEntry,
    ) -> Result<Option<Registration>, StoreError> {
        self.check_write()?;
        self.store.remove_registration(name, audit).await
    }

    async fn record_seen(
        &self,
        seen: Vec<(RegistrationName, Timestamp)>,
    ) -> Result<(), StoreError> {
        self.check_write()?;
        self.store.record_seen(seen).await
    }

    async fn record_card_change(
        &self,
        name: &str,
        changed_to: Option<String>,
    ) -> Result<bool, StoreError> {
        self.check_write()?;
        self.store.record_card_change(name, changed_to).await
    }

    async fn find_registration(&self, name: &str) -> Result<Option<Registration>, StoreError> {
        self.store.find_registration(name).await
    }

    async fn registrations(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Registration>, StoreError> {
        self.store.registrations(after, limit).await
    }

    async fn remove_unseen(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<RegistrationName>, StoreError> {
        self.check_write()?;
        self.store.remove_unseen(before, limit).await
    }
}
