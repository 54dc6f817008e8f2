//! Webhooks: registrations, claims, cursors and attempts as jobs of the writer; reads.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{Dialect, PushConfigId, Seq, TaskId, TenantId, Timestamp};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::store::{
    Change, ClaimedWebhook, DeliveryAttempt, Key, MemberId, NewWebhook, NextDelivery, Owner, Scope,
    StoreError, Webhook, WebhookClaim, WebhookId, WebhookPage, WebhookProgress, WebhookQuery,
    WebhookState, WebhookStore, WebhookTarget,
};

use super::{
    Sqlite,
    append::{Batch, JobResult},
    job::Work,
    list,
    members::NO_MEMBER,
    names::find_owner,
    rows::{Fault, first, int, readable, size, text, uint},
    statements as sql,
};

/// The attempts that are kept for each webhook.
const KEPT_ATTEMPTS: i64 = 32;

/// Webhooks whose time has come that one claim makes ready.
const WOKEN: i64 = 256;

/// Webhooks that one call of a list examines.
const EXAMINED: usize = 1000;

/// Stores or replaces a webhook of an existing task.
#[derive(Debug)]
struct PutWebhook(Box<(Key, NewWebhook)>);

/// Removes a webhook by its name.
#[derive(Debug)]
struct RemoveWebhook(Box<(Key, PushConfigId)>);

/// Claims webhooks for a member.
#[derive(Debug)]
struct ClaimWebhooks {
    me: MemberId,
    claim: WebhookClaim,
    now: Timestamp,
}

/// Records the progress of a claimed webhook.
#[derive(Debug)]
struct RecordProgress {
    me: MemberId,
    id: WebhookId,
    progress: Box<WebhookProgress>,
}

/// Records an attempt outside of a claim.
#[derive(Debug)]
struct AddAttempt(Box<(WebhookId, DeliveryAttempt)>);

/// Makes a webhook ready from a cursor.
#[derive(Debug)]
struct RestartWebhook {
    id: WebhookId,
    cursor: Option<Seq>,
}

#[async_trait]
impl WebhookStore for Sqlite {
    async fn put_webhook(&self, key: &Key, new: NewWebhook) -> Result<Option<Webhook>, StoreError> {
        self.write(PutWebhook(Box::new((key.clone(), new)))).await
    }

    async fn remove_webhook(&self, key: &Key, config: &PushConfigId) -> Result<bool, StoreError> {
        self.write(RemoveWebhook(Box::new((key.clone(), config.clone())))).await
    }

    async fn webhooks_of(
        &self,
        key: &Key,
        after: Option<&PushConfigId>,
        limit: usize,
    ) -> Result<Vec<Webhook>, StoreError> {
        self.readers.with(|conn| webhooks_of(conn, key, after, limit))
    }

    async fn find_webhook(&self, id: WebhookId) -> Result<Option<Webhook>, StoreError> {
        self.readers.with(|conn| find(conn, id))
    }

    async fn list_webhooks(&self, query: WebhookQuery) -> Result<WebhookPage, StoreError> {
        self.read_long(move |conn| list_webhooks(conn, &query)).await
    }

    async fn attempts(&self, id: WebhookId) -> Result<Vec<DeliveryAttempt>, StoreError> {
        self.readers.with(|conn| attempts(conn, id))
    }

    async fn claim_webhooks(
        &self,
        me: MemberId,
        claim: WebhookClaim,
        now: Timestamp,
    ) -> Result<Vec<ClaimedWebhook>, StoreError> {
        self.write(ClaimWebhooks { me, claim, now }).await
    }

    async fn record_progress(
        &self,
        me: MemberId,
        id: WebhookId,
        progress: WebhookProgress,
    ) -> Result<bool, StoreError> {
        self.write(RecordProgress { me, id, progress: Box::new(progress) }).await
    }

    async fn add_attempt(&self, id: WebhookId, attempt: DeliveryAttempt) -> Result<(), StoreError> {
        self.write(AddAttempt(Box::new((id, attempt)))).await
    }

    async fn restart_webhook(
        &self,
        id: WebhookId,
        cursor: Option<Seq>,
    ) -> Result<Option<Webhook>, StoreError> {
        self.write(RestartWebhook { id, cursor }).await
    }

    async fn next_attempt(&self) -> Result<Option<Timestamp>, StoreError> {
        let next = self.readers.with(|conn| {
            Ok(first(conn, sql::NEXT_ATTEMPT, [], |row| row.get::<_, Option<i64>>(0))?)
        });
        Ok(next?.flatten().map(Timestamp::from_millis))
    }

    async fn count_webhooks(&self, limit: usize) -> Result<Vec<(WebhookState, u64)>, StoreError> {
        self.readers.with(|conn| {
            let count = |state, statement: &str| -> Result<_, Fault> {
                let mut find = conn.prepare_cached(statement)?;
                let (mut rows, mut counted) = (find.query([size(limit)])?, 0);
                while rows.next()?.is_some() {
                    counted += 1;
                }
                Ok((state, counted))
            };
            Ok(vec![
                count(WebhookState::Ready, sql::COUNT_READY)?,
                count(WebhookState::Waiting, sql::COUNT_WAITING)?,
                count(WebhookState::Parked, sql::COUNT_PARKED)?,
                count(WebhookState::Disabled, sql::COUNT_DISABLED)?,
            ])
        })
    }
}

impl Work for PutWebhook {
    type Answer = Option<Webhook>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Option<Webhook>> {
        let (key, new) = &*self.0;
        let Some(owner) = batch.memory.names.owner(batch.conn, &key.owner)? else {
            return Ok(Ok(None));
        };
        let found =
            first(batch.conn, sql::FIND_TASK_HEAD, params![owner, key.task.as_str()], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?))
            })?;
        let Some((task, head)) = found else { return Ok(Ok(None)) };
        if let Err(refusal) = batch.check_webhook_limits(task, &key.owner.tenant, new)? {
            return Ok(Err(refusal));
        }
        let id = batch.put_webhook((task, owner), key, new, uint(head))?;
        batch.has_ready_webhooks = true;
        find(batch.conn, id).map(Ok)
    }

    fn weight(&self) -> usize {
        1024
    }
}

impl Work for RemoveWebhook {
    type Answer = bool;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<bool> {
        let (key, config) = &*self.0;
        let Some(owner) = batch.memory.names.owner(batch.conn, &key.owner)? else {
            return Ok(Ok(false));
        };
        let found =
            first(batch.conn, sql::FIND_TASK_HEAD, params![owner, key.task.as_str()], |row| {
                row.get::<_, i64>(0)
            })?;
        let Some(task) = found else { return Ok(Ok(false)) };
        let named = params![task, config.as_str()];
        let row = first(batch.conn, sql::FIND_WEBHOOK_NAMED, named, |row| row.get::<_, i64>(0))?;
        let Some(row) = row else { return Ok(Ok(false)) };
        batch.drop_webhook(row, &key.owner.tenant)?;
        Ok(Ok(true))
    }
}

impl Work for ClaimWebhooks {
    type Answer = Vec<ClaimedWebhook>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Vec<ClaimedWebhook>> {
        if !batch.is_member(self.me)? {
            return Ok(Err(StoreError::NotMember));
        }
        batch.prepared.run(sql::WAKE_WEBHOOKS, params![self.now.as_millis(), WOKEN])?;
        let Self { me, claim, .. } = self;
        let mut claimed = Vec::new();
        let mut walk = Walk::new(claim);
        // From the last receiver on, and then from the first one to it.
        for (from, to) in [(claim.after.as_str(), None), ("", Some(claim.after.as_str()))] {
            let mut at = from.to_owned();
            while claimed.len() < claim.limit && !walk.is_over() {
                let next =
                    first(batch.conn, sql::NEXT_RECEIVER, [&at], |row| row.get::<_, String>(0))?;
                let Some(receiver) = next else { break };
                if to.is_some_and(|to| *receiver > *to) {
                    break;
                }
                at = receiver;
                let most = match walk.places(&at) {
                    Some(most) => most.min(claim.limit - claimed.len()),
                    None => {
                        at = end_of_tenant(&at);
                        continue;
                    }
                };
                if most > 0 {
                    batch.claim_of_receiver(*me, &at, most, &mut claimed)?;
                }
            }
        }
        for (receiver, most) in walk.rest() {
            let most = most.min(claim.limit - claimed.len());
            if most > 0 {
                batch.claim_of_receiver(*me, &receiver, most, &mut claimed)?;
            }
        }
        Ok(Ok(claimed))
    }
}

/// The places of receivers during a claim. Receivers that have not answered yet can be any number, so the
/// claim does not look at more of them than have a place.
#[derive(Debug)]
struct Walk<'a> {
    claim: &'a WebhookClaim,
    /// The places that are left for receivers that have not answered yet.
    others: usize,
    /// The number of those that each tenant has.
    others_of: HashMap<String, usize>,
    /// Receivers that answer and were found.
    found: HashSet<String>,
    /// True if receivers were left out because those that have not answered yet have no place.
    is_cut: bool,
}

impl<'a> Walk<'a> {
    fn new(claim: &'a WebhookClaim) -> Self {
        let (others, others_of) = (claim.others, claim.others_of.clone());
        Self { claim, others, others_of, found: HashSet::new(), is_cut: false }
    }

    /// True if no receiver that has not answered yet has a place.
    fn is_over(&self) -> bool {
        self.is_cut && self.others == 0
    }

    /// The number of webhooks of this receiver to claim; `None` if its tenant has no place for receivers that
    /// have not answered yet.
    fn places(&mut self, receiver: &str) -> Option<usize> {
        if let Some(left) = self.claim.called.get(receiver) {
            self.found.insert(receiver.to_owned());
            return Some(*left);
        }
        if self.claim.proven.contains(receiver) {
            self.found.insert(receiver.to_owned());
            return Some(self.claim.per_proven);
        }
        let of_tenant = self.others_of.entry(tenant(receiver).to_owned()).or_default();
        if self.others == 0 || *of_tenant >= self.claim.others_per_tenant {
            self.is_cut = true;
            return None;
        }
        *of_tenant += 1;
        self.others -= 1;
        Some(1)
    }

    /// The receivers that answer and were left out, from the last receiver on, with their places.
    fn rest(self) -> Vec<(String, usize)> {
        if !self.is_cut {
            return Vec::new();
        }
        let Self { claim, found, .. } = self;
        let left = claim.proven.iter().filter(|receiver| !found.contains(*receiver));
        let mut left: Vec<_> = left
            .map(|receiver| {
                let places = claim.called.get(receiver).copied().unwrap_or(claim.per_proven);
                (receiver.clone(), places)
            })
            .collect();
        left.sort_unstable_by(|(a, _), (b, _)| (*a <= claim.after, a).cmp(&(*b <= claim.after, b)));
        left
    }
}

impl Work for RecordProgress {
    type Answer = bool;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<bool> {
        let Self { me, id, progress } = self;
        let held = params![id.0.as_bytes(), me.blob()];
        let found = first(batch.conn, sql::FIND_HELD_WEBHOOK, held, |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        let Some((row, task, failures)) = found else { return Ok(Ok(false)) };
        let WebhookProgress { cursor, attempt, next } = &**progress;
        let now = batch.clock.now().as_millis();
        let failures = match (attempt, next) {
            (Some(attempt), _) if !attempt.delivered => failures + 1,
            (None, NextDelivery::Wait(_)) => failures,
            (Some(_), _) | (None, _) => 0,
        };
        let (state, due, holder) = match next {
            NextDelivery::Keep => (WebhookState::Ready, now, Some(me.blob())),
            NextDelivery::Release(seen) => {
                let head = first(batch.conn, sql::FIND_LAST_EVENT, [task], |row| {
                    row.get::<_, Option<i64>>(0)
                })?;
                let has_more = head.flatten().is_some_and(|head| uint(head) > *seen);
                let state = if has_more { WebhookState::Ready } else { WebhookState::Idle };
                batch.has_ready_webhooks |= has_more;
                (state, now, None)
            }
            NextDelivery::Wait(at) => (WebhookState::Waiting, at.as_millis(), None),
            NextDelivery::Stop(state) => (*state, now, None),
        };
        batch.prepared.run(
            sql::MOVE_WEBHOOK,
            params![
                row,
                int(*cursor),
                code(state),
                failures,
                due,
                holder,
                i64::from(attempt.is_some())
            ],
        )?;
        if let Some(attempt) = attempt {
            batch.add_attempt(row, attempt)?;
        }
        Ok(Ok(true))
    }

    fn weight(&self) -> usize {
        256
    }
}

impl Work for AddAttempt {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        let (id, attempt) = &*self.0;
        let row =
            first(batch.conn, sql::COUNT_ATTEMPT, [id.0.as_bytes()], |row| row.get::<_, i64>(0))?;
        if let Some(row) = row {
            batch.add_attempt(row, attempt)?;
        }
        Ok(Ok(()))
    }
}

impl Work for RestartWebhook {
    type Answer = Option<Webhook>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Option<Webhook>> {
        let Self { id, cursor } = self;
        let now = batch.clock.now().as_millis();
        let moved = params![id.0.as_bytes(), cursor.map(int), now];
        batch.prepared.run(sql::RESTART_WEBHOOK, moved)?;
        batch.has_ready_webhooks = true;
        find(batch.conn, *id).map(Ok)
    }
}

impl Batch<'_> {
    /// Refuses a webhook that would be one too many of its task or its tenant. One that replaces another is
    /// not.
    pub(super) fn check_webhook_limits(
        &mut self,
        task: i64,
        tenant: &TenantId,
        new: &NewWebhook,
    ) -> JobResult<()> {
        let named = params![task, new.target.config.as_str()];
        if first(self.conn, sql::FIND_WEBHOOK_NAMED, named, |_| Ok(()))?.is_some() {
            return Ok(Ok(()));
        }
        let count = |statement, param: &dyn rusqlite::ToSql| -> Result<u64, Fault> {
            let counted = first(self.conn, statement, [param], |row| row.get::<_, i64>(0))?;
            Ok(uint(counted.unwrap_or_default()))
        };
        let limits = new.limits;
        if count(sql::COUNT_WEBHOOKS, &task)? >= limits.per_task as u64 {
            return Ok(Err(StoreError::LimitReached("webhooks of a task")));
        }
        if count(sql::WEBHOOKS_OF_TENANT, &tenant.as_str())? >= limits.per_tenant {
            return Ok(Err(StoreError::LimitReached("webhooks of a tenant")));
        }
        Ok(Ok(()))
    }

    /// Stores a webhook that begins at the event `start` of its task. Returns its id, which is that of the
    /// webhook before if URL and version are equal.
    pub(super) fn put_webhook(
        &mut self,
        (task, owner): (i64, i64),
        key: &Key,
        new: &NewWebhook,
        start: Seq,
    ) -> Result<WebhookId, Fault> {
        let WebhookTarget { config, url, scheme, secrets, dialect } = &new.target;
        let (dialect, now) = (dialect_code(*dialect), self.clock.now().as_millis());
        let named = params![task, config.as_str()];
        let before = first(self.conn, sql::FIND_WEBHOOK_NAMED, named, |row| {
            let same = row.get::<_, String>(1)? == *url && row.get::<_, i64>(2)? == dialect;
            Ok((row.get::<_, i64>(0)?, same, row.get::<_, [u8; 16]>(3)?))
        })?;
        match before {
            Some((row, true, id)) => {
                self.prepared.run(sql::RENEW_WEBHOOK, params![row, scheme, &secrets[..], now])?;
                return Ok(WebhookId(Uuid::from_bytes(id)));
            }
            Some((row, false, _)) => self.drop_webhook(row, &key.owner.tenant)?,
            None => {}
        }
        let tenant = key.owner.tenant.as_str();
        self.prepared.run(
            sql::ADD_WEBHOOK,
            params![
                new.id.0.as_bytes(),
                task,
                owner,
                config.as_str(),
                format!("{tenant} {}", receiver(url)),
                url,
                scheme,
                &secrets[..],
                dialect,
                now,
                int(start),
                int(start.saturating_sub(1)),
            ],
        )?;
        self.prepared.run(sql::COUNT_TENANT_WEBHOOK, params![tenant, 1])?;
        self.set_has_webhooks(task, owner, &key.task, true)?;
        Ok(new.id)
    }

    /// Makes the idle webhooks of a task ready, because it has a new event.
    pub(super) fn wake_webhooks_of(&mut self, task: i64) -> Result<(), Fault> {
        let now = self.clock.now().as_millis();
        if self.prepared.run(sql::READY_WEBHOOKS, params![task, now])? > 0 {
            self.has_ready_webhooks = true;
        }
        Ok(())
    }

    /// Removes all webhooks of a task that is removed.
    pub(super) fn drop_webhooks_of(&mut self, task: i64) -> Result<(), Fault> {
        let mut find = self.conn.prepare_cached(sql::WEBHOOKS_TO_DROP)?;
        let mut rows = find.query([task])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((row.get(0)?, TenantId::from(text(row, 1)?)));
        }
        for (row, tenant) in found {
            self.drop_webhook(row, &tenant)?;
        }
        Ok(())
    }

    fn drop_webhook(&mut self, row: i64, tenant: &TenantId) -> Result<(), Fault> {
        self.prepared.run(sql::DROP_ATTEMPTS, [row])?;
        self.prepared.run(sql::DROP_WEBHOOK, [row])?;
        self.prepared.run(sql::COUNT_TENANT_WEBHOOK, params![tenant.as_str(), -1])?;
        Ok(())
    }

    /// Ends the claims of a member that is gone.
    pub(super) fn release_webhooks_of(&mut self, member: MemberId) -> Result<(), Fault> {
        if self.prepared.run(sql::RELEASE_WEBHOOKS, [member.blob()])? > 0 {
            self.has_ready_webhooks = true;
        }
        Ok(())
    }

    /// Notifies every member that webhooks are ready.
    pub(super) fn announce_webhooks(&mut self) {
        if self.has_ready_webhooks {
            self.announce(NO_MEMBER, || Change::Webhooks);
        }
    }

    fn claim_of_receiver(
        &mut self,
        me: MemberId,
        receiver: &str,
        most: usize,
        claimed: &mut Vec<ClaimedWebhook>,
    ) -> Result<(), Fault> {
        let mut find = self.conn.prepare_cached(sql::READY_OF_RECEIVER)?;
        let mut rows = find.query(params![receiver, size(most)])?;
        let mut ready = Vec::new();
        while let Some(row) = rows.next()? {
            ready.push(row.get::<_, i64>(0)?);
        }
        for row in ready {
            let webhook = first_webhook(self.conn, sql::LOAD_WEBHOOK, &row);
            let Some(webhook) = readable(row, webhook)?.flatten() else {
                // Otherwise it would be found again and again, before others of its receiver.
                self.prepared.run(sql::PARK_WEBHOOK, [row])?;
                continue;
            };
            self.prepared.run(sql::HOLD_WEBHOOK, params![row, me.blob()])?;
            claimed.push(ClaimedWebhook { webhook, receiver: receiver.to_owned() });
        }
        Ok(())
    }

    fn add_attempt(&mut self, webhook: i64, attempt: &DeliveryAttempt) -> Result<(), Fault> {
        let DeliveryAttempt { seq, at, millis, delivered, status, detail, next } = attempt;
        self.prepared.run(
            sql::ADD_ATTEMPT,
            params![
                webhook,
                int(*seq),
                at.as_millis(),
                int(*millis),
                delivered,
                status,
                next.map(Timestamp::as_millis),
                detail,
            ],
        )?;
        self.prepared.run(sql::DROP_OLD_ATTEMPTS, params![webhook, KEPT_ATTEMPTS])?;
        Ok(())
    }
}

fn webhooks_of(
    conn: &Connection,
    key: &Key,
    after: Option<&PushConfigId>,
    limit: usize,
) -> Result<Vec<Webhook>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(owner) = find_owner(&conn, &key.owner)? else { return Ok(Vec::new()) };
    let task = params![owner, key.task.as_str()];
    let task = first(&conn, sql::FIND_TASK_HEAD, task, |row| row.get::<_, i64>(0))?;
    let Some(task) = task else { return Ok(Vec::new()) };
    let mut find = conn.prepare_cached(sql::WEBHOOKS_OF_TASK)?;
    let after = after.map_or("", PushConfigId::as_str);
    let mut rows = find.query(params![task, after, size(limit)])?;
    let mut webhooks = Vec::new();
    while let Some(row) = rows.next()? {
        webhooks.extend(readable(task, read(row))?);
    }
    Ok(webhooks)
}

pub(super) fn find(conn: &Connection, id: WebhookId) -> Result<Option<Webhook>, Fault> {
    first_webhook(conn, sql::FIND_WEBHOOK, id.0.as_bytes())
}

fn first_webhook(
    conn: &Connection,
    statement: &str,
    param: &dyn rusqlite::ToSql,
) -> Result<Option<Webhook>, Fault> {
    let mut find = conn.prepare_cached(statement)?;
    let mut rows = find.query([param])?;
    rows.next()?.map(read).transpose()
}

fn list_webhooks(conn: &Connection, query: &WebhookQuery) -> Result<WebhookPage, Fault> {
    let conn = conn.unchecked_transaction()?;
    let owners = match &query.scope {
        Scope::All => None,
        scope @ (Scope::Own(_) | Scope::Tenant(_)) => Some(list::owners(&conn, scope)?),
    };
    let before = query.before.unwrap_or(i64::MAX);
    let mut rows_found: Vec<i64> = Vec::new();
    let mut collect = |statement, owner: Option<i64>| -> Result<(), Fault> {
        let mut find = conn.prepare_cached(statement)?;
        let mut rows = match owner {
            Some(owner) => find.query(params![before, size(EXAMINED), owner])?,
            None => find.query(params![before, size(EXAMINED)])?,
        };
        while let Some(row) = rows.next()? {
            rows_found.push(row.get(0)?);
        }
        Ok(())
    };
    match owners {
        None => collect(sql::LIST_WEBHOOKS, None)?,
        Some(owners) => {
            for owner in owners {
                collect(sql::LIST_WEBHOOKS_OF_OWNER, Some(owner))?;
            }
        }
    }
    rows_found.sort_unstable_by(|a, b| b.cmp(a));
    let is_cut = rows_found.len() >= EXAMINED;
    rows_found.truncate(EXAMINED);
    let mut page = WebhookPage::default();
    for row in &rows_found {
        if page.webhooks.len() == query.limit {
            return Ok(page);
        }
        let webhook = readable(*row, first_webhook(&conn, sql::LOAD_WEBHOOK, row))?.flatten();
        let state = |webhook: &Webhook| query.state.is_none_or(|state| webhook.state == state);
        page.webhooks.extend(webhook.filter(state));
        page.next = Some(*row);
    }
    if !is_cut {
        page.next = None;
    }
    Ok(page)
}

fn attempts(conn: &Connection, id: WebhookId) -> Result<Vec<DeliveryAttempt>, Fault> {
    let mut find = conn.prepare_cached(sql::READ_ATTEMPTS)?;
    let mut rows = find.query([id.0.as_bytes()])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(DeliveryAttempt {
            seq: uint(row.get(0)?),
            at: Timestamp::from_millis(row.get(1)?),
            millis: uint(row.get(2)?),
            delivered: row.get(3)?,
            status: row.get(4)?,
            next: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
            detail: text(row, 6)?.to_owned(),
        });
    }
    Ok(attempts)
}

/// The webhook of a row.
fn read(row: &Row<'_>) -> Result<Webhook, Fault> {
    let tenant = TenantId::from(text(row, 1)?);
    let owner = Owner { tenant, principal: text(row, 2)?.into() };
    Ok(Webhook {
        id: WebhookId(Uuid::from_bytes(row.get(0)?)),
        key: Key { owner, task: TaskId::from(text(row, 3)?) },
        target: WebhookTarget {
            config: PushConfigId::from(text(row, 4)?),
            url: text(row, 5)?.to_owned(),
            scheme: row.get(6)?,
            secrets: Bytes::from(row.get::<_, Vec<u8>>(7)?),
            dialect: dialect(row.get(8)?)?,
        },
        created: Timestamp::from_millis(row.get(9)?),
        start: uint(row.get(10)?),
        cursor: uint(row.get(11)?),
        state: state(row.get(12)?)?,
        failures: row.get(13)?,
        due: Timestamp::from_millis(row.get(14)?),
        attempts: uint(row.get(15)?),
    })
}

/// The tenant of a stored receiver.
fn tenant(receiver: &str) -> &str {
    receiver.rsplit_once(' ').map_or("", |(tenant, _)| tenant)
}

/// A text after all receivers of the tenant of this one, and before those of the next.
fn end_of_tenant(receiver: &str) -> String {
    // Every URL begins with http.
    format!("{} i", tenant(receiver))
}

/// Scheme, host and port of a URL, in lower case.
fn receiver(url: &str) -> String {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find(['/', '?', '#', '\\']).map_or(url.len(), |at| authority + at);
    url[..end].to_ascii_lowercase()
}

fn code(state: WebhookState) -> i64 {
    match state {
        WebhookState::Idle => 0,
        WebhookState::Ready => 1,
        WebhookState::Waiting => 2,
        WebhookState::Parked => 3,
        WebhookState::Disabled => 4,
    }
}

fn state(stored: i64) -> Result<WebhookState, Fault> {
    let known = WebhookState::ALL.into_iter().find(|state| code(*state) == stored);
    known.ok_or_else(|| Fault::unreadable("state of a webhook"))
}

fn dialect_code(dialect: Dialect) -> i64 {
    match dialect {
        Dialect::V1 => 10,
        Dialect::V03 => 3,
        Dialect::V03Rest => 4,
        Dialect::V01 => 1,
    }
}

fn dialect(stored: i64) -> Result<Dialect, Fault> {
    let known = [Dialect::V1, Dialect::V03, Dialect::V03Rest, Dialect::V01];
    let known = known.into_iter().find(|dialect| dialect_code(*dialect) == stored);
    known.ok_or_else(|| Fault::unreadable("version of a webhook"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_of_a_url_has_no_path() {
        for (url, expected) in [
            ("https://A.example/hook?x=1", "https://a.example"),
            ("http://a.example:8080", "http://a.example:8080"),
            ("http://a.example?x", "http://a.example"),
            ("http://[::1]:80/x", "http://[::1]:80"),
        ] {
            assert_eq!(receiver(url), expected);
        }
    }
}
