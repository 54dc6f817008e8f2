//! Growth test: the cost of each operation does not depend on the size of the store. It counts
//! steps of the SQLite virtual machine, not time.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use herald_protocol::{AgentName, Dialect, TaskState, TenantId, Timestamp};
use rusqlite::{StatementStatus, params};

use crate::{
    clock::Clock,
    store::{
        Actor, ApiKey, ApiKeyQuery, Append, AuditActor, AuditEntry, AuditQuery, AuditRetention,
        Conversation, Declaration, Dedup, DeliveryAttempt, Demands, DueQuery, FeedQuery, Header,
        HistoryQuery, Key, Kind, ListQuery, Loaded, MemberId, MemberKind, NewRegistration,
        NewWebhook, NextDelivery, Owner, OwnerQuery, PinnedCard, Registration, RegistrationStore,
        Retention, Run, Scope, Snapshot, Store, TaskVersion, WebhookClaim, WebhookId,
        WebhookLimits, WebhookProgress, WebhookQuery, WebhookStore, WebhookTarget, WorkerMember,
    },
};

use super::{Connection, Readers, Sqlite, open, statements as sql};

/// The two sizes to compare. Both stores have the same number of owners, agents, states and tasks
/// per conversation.
const FEW: i64 = 2_000;
const MANY: i64 = 100_000;

const OWNERS: i64 = 20;
const LIVING: MemberId = MemberId(0x11);
const OTHER: MemberId = MemberId(0x22);
const DEAD: MemberId = MemberId(0x99);

/// The numbers from 1 to `?1`.
const NUMBERS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";

/// Tasks in every state, three events each, ten per conversation.
const TASKS: &str = "INSERT INTO tasks (row, owner, agent, id, context, state, changed, created, \
    hidden, phase, head, bytes, counted, turn, attempt, epoch, unread, holder, snapshot, status, \
    history, metadata, artifacts, tenant) \
    SELECT i, 1 + i % 20, 1 + i / 20 % 2, 't' || i, 'c' || (i / 400), \
    CASE kind WHEN 6 THEN 4 WHEN 7 THEN 6 WHEN 8 THEN 1 WHEN 9 THEN 2 ELSE 3 END, i, i, 0, \
    CASE kind WHEN 7 THEN 0 WHEN 8 THEN 1 WHEN 9 THEN 1 ELSE 2 END, 3, 6, 6, 1, 1, 1, \
    iif(kind = 8, '3', ''), iif(kind = 9, ?2, NULL), 3, x'7b7d', x'5b5d', x'', x'5b5d', 'acme' \
    FROM (SELECT i, i / 40 % 10 AS kind FROM n)";
const EVENTS: &str = "INSERT INTO events (position, task, seq, kind, key, content, body) \
    SELECT i, 1 + (i - 1) / 3, 1 + (i - 1) % 3, 33, iif(i % 3 = 1, key, NULL), \
    iif(i % 3 = 1, key, NULL), x'7b7d' FROM (SELECT i, CAST(printf('%032d', i) AS BLOB) AS key FROM n)";

const KEYS: &str = "INSERT INTO api_keys (id, hash, tenant, principal, scopes, created, \
    created_by, label) \
    SELECT printf('k%08d', i), CAST(printf('%032d', i) AS BLOB), 'acme', 'p', 'send', i, '', '' FROM n";
const AUDIT: &str = "INSERT INTO audit (number, at, tenant, principal, credential, action, detail, \
    previous, hash) SELECT i, i, 'acme', 'p', 'key', 'a', '', zeroblob(32), zeroblob(32) FROM n";

/// A parked webhook of each task.
const WEBHOOKS: &str = "INSERT INTO webhooks (row, id, task, owner, config, receiver, url, secrets, \
    dialect, created, start, cursor, state, failures, due, attempts) \
    SELECT i, CAST(printf('%016d', i) AS BLOB), i, 1 + i % 20, 'a', 'acme http://r' || i, 'http://r' || i, \
    x'', 10, i, 3, 2, 3, 9, i, 9 FROM n";

/// Workers, half of them unseen for long.
const REGISTRATIONS: &str = "INSERT INTO registrations (name, role, instance, tenant, principal, \
    declaration, created, last_seen) \
    SELECT printf('role:h:%08d', i), 'role', printf('h:%08d', i), 'acme', 'p', '{}', i, i FROM n";

const LABEL_SETS: &str = "INSERT INTO label_sets (labels) SELECT '[\"old-' || i || '\"]' FROM n";

/// Waiting tasks, one event each. With `?2` each has its own conversation.
const WAITING: &str = "INSERT INTO tasks (row, owner, agent, id, context, state, changed, created, \
    hidden, phase, head, bytes, counted, turn, attempt, epoch, unread, holder, tenant) \
    SELECT i, 1, 1, 't' || i, iif(?2, 'c' || i, 'c'), 1, i, i, 0, 1, 1, 2, 2, 0, 0, 0, '1', NULL, 'acme' FROM n";
const MESSAGES: &str = "INSERT INTO events (position, task, seq, kind, body) \
    SELECT i, i, 1, 33, x'7b7d' FROM n";

/// A store whose steps are counted.
struct Counted {
    store: Sqlite,
    /// The operations so far, each with its steps.
    done: Vec<(&'static str, i32)>,
    /// The statements that ran.
    run: Vec<&'static str>,
}

impl Counted {
    fn new(tasks: i64, positions: i64, fill: impl FnOnce(&Connection)) -> Self {
        let mut opened = open::memory().unwrap();
        let conn = &opened.conn;
        // Every statement must stay in the cache, because its counter is read afterwards.
        conn.set_prepared_statement_cache_capacity(2 * sql::ALL.len());
        conn.execute_batch("INSERT INTO agents (name) VALUES ('a'), ('b')").unwrap();
        let owners = format!(
            "{NUMBERS} INSERT INTO owners (tenant, principal) SELECT 'acme', 'p' || i FROM n"
        );
        conn.execute(&owners, [OWNERS]).unwrap();
        fill(conn);
        conn.execute_batch(
            "INSERT INTO counters (owner, hidden, agent, state, tasks, bytes)
             SELECT owner, hidden, agent, state, count(*), sum(bytes) FROM tasks GROUP BY 1, 2, 3, 4;
             INSERT INTO presence (owner, block)
             SELECT DISTINCT t.owner, e.position / 512 FROM events e JOIN tasks t ON t.row = e.task",
        )
        .unwrap();
        (opened.next.row, opened.next.position) = (tasks + 1, positions + 1);
        let store =
            Sqlite::start(opened, None, Clock::system(), Readers::Shared, Vec::new()).unwrap();
        Self { store, done: Vec::new(), run: Vec::new() }
    }

    /// A store of tasks in every state.
    fn mixed(tasks: i64) -> Self {
        Self::new(tasks, 3 * tasks, |conn| {
            let tasks_sql = format!("{NUMBERS} {TASKS}");
            conn.execute(&tasks_sql, params![tasks, DEAD.blob()]).unwrap();
            conn.execute(&format!("{NUMBERS} {EVENTS}"), [3 * tasks]).unwrap();
            conn.execute(&format!("{NUMBERS} {KEYS}"), [tasks]).unwrap();
            conn.execute(&format!("{NUMBERS} {AUDIT}"), [tasks]).unwrap();
            conn.execute(&format!("{NUMBERS} {WEBHOOKS}"), [tasks]).unwrap();
            conn.execute("UPDATE tasks SET webhooks = 1", []).unwrap();
            // One that cannot be read, which the first claim parks.
            conn.execute("UPDATE webhooks SET dialect = 99, state = 1 WHERE row = 1", []).unwrap();
            conn.execute(&format!("{NUMBERS} {REGISTRATIONS}"), [tasks]).unwrap();
            // As many as there may be but one, of tasks that have ended.
            conn.execute(&format!("{NUMBERS} {LABEL_SETS}"), [255]).unwrap();
            conn.execute_batch(
                "INSERT INTO dedup (key, position) SELECT key, position FROM events
                 WHERE key IS NOT NULL;
                 INSERT INTO commits (position, at) SELECT position, position FROM events
                 WHERE seq = 1;
                 INSERT INTO causes (position) SELECT position FROM events WHERE seq = 1",
            )
            .unwrap();
        })
    }

    /// A store of tasks that wait for the same agent.
    fn waiting(tasks: i64, apart: bool) -> Self {
        Self::new(tasks, tasks, |conn| {
            conn.execute(&format!("{NUMBERS} {WAITING}"), params![tasks, apart]).unwrap();
            conn.execute(&format!("{NUMBERS} {MESSAGES}"), [tasks]).unwrap();
        })
    }

    /// Records the steps since the last record.
    fn note(&mut self, what: &'static str) {
        let mut steps = 0;
        for (name, sql) in sql::ALL {
            let conn = self.store.conn.lock().unwrap();
            let statement = conn.prepare_cached(sql).unwrap();
            let took = statement.reset_status(StatementStatus::VmStep);
            if took > 0 && !self.run.contains(name) {
                self.run.push(name);
            }
            steps += took;
        }
        assert!(steps > 0, "{what} ran no statement");
        self.done.push((what, steps));
    }
}

/// Asserts that no operation needs more steps with many tasks than with few.
fn compare(few: &Counted, many: &Counted) {
    assert_eq!(few.done.len(), many.done.len());
    for ((what, before), (_, after)) in few.done.iter().zip(&many.done) {
        assert!(*after <= before + before / 4 + 20, "{what}: {before} steps became {after}");
    }
}

fn owner(number: i64) -> Owner {
    Owner { tenant: "acme".into(), principal: format!("p{number}").into() }
}

fn key(task: i64) -> Key {
    Key { owner: owner(1 + task % OWNERS), task: format!("t{task}").as_str().into() }
}

fn header(state: TaskState, run: Run) -> Header {
    let now = Timestamp::from_millis(1_000_000);
    Header {
        agent: "a".into(),
        context: "c".into(),
        state,
        changed: now,
        created: now,
        hidden: false,
        bytes: 2,
        run,
    }
}

/// The first message of a task.
fn received(key: Key, context: &str) -> Append {
    let run = Run { unread: vec![1], ..Run::default() };
    let header = Header { context: context.into(), ..header(TaskState::Submitted, run) };
    let events = vec![(Kind::Received(TaskState::Submitted), Bytes::from_static(b"{}"))];
    let dedup = Some(Dedup { key: [7; 32], content: [7; 32] });
    Append {
        key,
        expect: TaskVersion::default(),
        fence: None,
        writer: LIVING,
        node: None,
        header,
        events,
        snapshot: None,
        dedup,
        webhook: None,
        cause: Actor::Caller.into(),
        demands: None,
    }
}

/// The beginning of the turn of that message.
fn begun(key: Key) -> Append {
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(LIVING), ..Run::default() };
    let header = header(TaskState::Working, run);
    let events = vec![(Kind::Status(TaskState::Working), Bytes::from_static(b"{}"))];
    Append {
        key,
        expect: TaskVersion::new(1, 0),
        fence: None,
        writer: LIVING,
        node: None,
        header,
        events,
        snapshot: None,
        dedup: None,
        webhook: None,
        cause: Actor::Agent.into(),
        demands: None,
    }
}

fn with_snapshot(append: Append, state: TaskState) -> Append {
    let seq = append.expect.head + append.events.len() as u64;
    let header = header(state, Run { epoch: 1, turn: 1, attempt: 1, ..Run::default() });
    Append { header, snapshot: Some(Snapshot { seq, ..Snapshot::default() }), ..append }
}

/// Every operation of a store in use.
async fn everything(tasks: i64) -> Counted {
    let mut counted = Counted::mixed(tasks);
    counted.store.join(LIVING, MemberKind::Node, "node").await.unwrap();
    counted.store.join(OTHER, MemberKind::Worker, "worker").await.unwrap();
    counted.note("two members that join");
    counted.store.serve(LIVING, &["a".into()]).await.unwrap();
    assert_eq!(counted.store.heartbeat(LIVING).await.unwrap().members.len(), 2);
    counted.note("a heartbeat");
    reads(&mut counted, tasks).await;
    owners(&mut counted, tasks).await;
    writes(&mut counted).await;
    keys_and_audit(&mut counted, tasks).await;
    webhooks(&mut counted, tasks).await;
    registrations(&mut counted, tasks).await;
    workers(&mut counted).await;
    counted
}

fn worker(number: i64) -> WorkerMember {
    WorkerMember {
        name: format!("a:vm:{number}"),
        role: "a".into(),
        owner: owner(1),
        labels: vec!["gpu".to_owned()],
        concurrency: 1,
    }
}

/// Workers, and tasks with demands.
async fn workers(counted: &mut Counted) {
    let (first, second) = (MemberId(0x33), MemberId(0x44));
    counted.store.join_worker(first, &worker(1)).await.unwrap();
    counted.note("a worker that joins");
    assert_eq!(counted.store.join_worker(second, &worker(1)).await, Ok(vec![first]));
    counted.note("the second life of a worker");
    counted.store.count_heartbeat(second).await.unwrap();
    counted.note("a poll of a worker");
    counted.store.find_worker(second).await.unwrap().unwrap();
    counted.note("a worker by its session");
    for (task, label) in [("one", "gpu"), ("two", "gpu"), ("three", "tpu")] {
        let demands = Demands { labels: vec![label.to_owned()], priority: 5 };
        let key = Key { owner: owner(1), task: task.into() };
        let append = Append { dedup: None, ..received(key, "demands") };
        counted.store.append(Append { demands: Some(Box::new(demands)), ..append }).await.unwrap();
        counted.note("a task with demands");
    }
    let agent = AgentName::from("a");
    let labels = ["gpu".to_owned()];
    let query = DueQuery { labels: Some(&labels), ..DueQuery::new(&agent, 1) };
    assert_eq!(counted.store.due(query).await.unwrap().len(), 1);
    counted.note("the next task of a worker");
    let tenant = TenantId::from("acme");
    let query = DueQuery { tenant: Some(&tenant), ..query };
    assert_eq!(counted.store.due(query).await.unwrap().len(), 1);
    counted.note("the next task of a worker of a tenant");
    let mut claim = begun(Key { owner: owner(1), task: "one".into() });
    claim.header.run.holder = Some(second);
    counted.store.append(claim).await.unwrap();
    counted.note("a claim for a worker");
    assert_eq!(counted.store.held(&agent, second, 9).await.unwrap().len(), 1);
    counted.note("the turns of a worker after a restart");
}

/// Registrations, beside as many as there are tasks.
async fn registrations(counted: &mut Counted, tasks: i64) {
    let now = Timestamp::from_millis(tasks);
    let new = |name: &str, card: Option<PinnedCard>| NewRegistration {
        registration: Registration {
            name: name.into(),
            role: "role".into(),
            instance: "h:new".to_owned(),
            owner: owner(1),
            declaration: Declaration::default(),
            session: Some(LIVING),
            card,
            created: now,
            last_seen: now,
        },
        alive_since: now,
        audit: AuditEntry::new(AuditActor::default(), "a"),
    };
    counted.store.put_registration(new("role:h:new", None)).await.unwrap();
    counted.note("a new worker");
    counted.store.put_registration(new("role:h:new", None)).await.unwrap().unwrap();
    counted.note("a worker that registers again");
    let (url, digest, document) = (String::new(), String::new(), String::new());
    let card = PinnedCard { url, digest, document, changed_to: None };
    counted.store.put_registration(new("remote", Some(card))).await.unwrap();
    counted.note("a new remote agent");
    assert_eq!(counted.store.record_card_change("remote", None).await, Ok(true));
    counted.note("a changed card");
    counted.store.record_seen(vec![("role:h:00000007".into(), now)]).await.unwrap();
    counted.note("a sign of life");
    counted.store.find_registration("role:h:00000009").await.unwrap().unwrap();
    counted.note("one registration");
    assert_eq!(counted.store.registrations(Some("role:h:00000100"), 3).await.unwrap().len(), 3);
    counted.note("a page of registrations");
    assert_eq!(counted.store.remove_unseen(now, 3).await.unwrap().len(), 3);
    counted.note("unseen workers that are removed");
    let removed = AuditEntry::new(AuditActor::default(), "a");
    counted.store.remove_registration("remote", removed).await.unwrap().unwrap();
    counted.note("a remote agent that is removed");
}

/// Webhooks, while each of the tasks has a parked one.
async fn webhooks(counted: &mut Counted, tasks: i64) {
    let task = key(tasks / 2);
    let new = |config: &str| NewWebhook {
        id: WebhookId::random(),
        target: WebhookTarget {
            config: config.into(),
            url: "http://new/".to_owned(),
            scheme: None,
            secrets: Bytes::new(),
            dialect: Dialect::V1,
        },
        limits: WebhookLimits { per_task: 9, per_tenant: 9 },
    };
    let id = counted.store.put_webhook(&task, new("b")).await.unwrap().unwrap().id;
    counted.note("a new webhook");
    counted.store.put_webhook(&task, new("b")).await.unwrap().unwrap();
    counted.note("a renewed webhook");
    assert_eq!(counted.store.webhooks_of(&task, None, 9).await.unwrap().len(), 2);
    counted.note("the webhooks of a task");
    let now = Timestamp::from_millis(4_102_444_800_000);
    let claim =
        || WebhookClaim { others: 9, others_per_tenant: 9, limit: 9, ..WebhookClaim::default() };
    assert_eq!(counted.store.claim_webhooks(LIVING, claim(), now).await.unwrap().len(), 1);
    counted.note("a claimed webhook");
    let attempt = DeliveryAttempt {
        seq: 3,
        at: now,
        millis: 1,
        delivered: false,
        status: None,
        detail: String::new(),
        next: None,
    };
    let failed = WebhookProgress {
        cursor: 2,
        attempt: Some(attempt.clone()),
        next: NextDelivery::Wait(now),
    };
    assert_eq!(counted.store.record_progress(LIVING, id, failed).await, Ok(true));
    counted.note("a failed attempt");
    assert_eq!(counted.store.next_attempt().await, Ok(Some(now)));
    counted.note("the time of the next attempt");
    assert_eq!(counted.store.attempts(id).await.unwrap().len(), 1);
    counted.note("the attempts of a webhook");
    counted.store.add_attempt(id, attempt).await.unwrap();
    counted.note("an attempt outside of a claim");
    assert_eq!(counted.store.claim_webhooks(LIVING, claim(), now).await.unwrap().len(), 1);
    counted.note("a webhook whose time has come");
    let next = NextDelivery::Release(3);
    let done = WebhookProgress { cursor: 3, attempt: None, next };
    assert_eq!(counted.store.record_progress(LIVING, id, done).await, Ok(true));
    counted.note("a delivered event");
    counted.store.restart_webhook(id, Some(0)).await.unwrap().unwrap();
    counted.note("a restarted webhook");
    for scope in [Scope::Own(owner(1)), Scope::All] {
        let query = WebhookQuery { scope, state: None, before: None, limit: 3 };
        assert_eq!(counted.store.list_webhooks(query).await.unwrap().webhooks.len(), 3);
    }
    assert_eq!(counted.store.count_webhooks(10).await.unwrap().len(), 4);
    counted.store.remove_webhook(&task, &"b".into()).await.unwrap();
    // The lists examine a fixed number of webhooks, which a small store does not have.
    counted.note("lists of webhooks");
    counted.done.pop();
    let owned = Key { owner: owner(1), task: "hooked".into() };
    let webhook = Some(Box::new(new("a")));
    let first = Append { webhook, dedup: None, ..received(owned.clone(), "c") };
    counted.store.append(first).await.unwrap();
    counted.note("a message with a webhook");
    let claimed = counted.store.claim_webhooks(LIVING, claim(), now).await.unwrap();
    let done = WebhookProgress { cursor: 1, attempt: None, next: NextDelivery::Release(1) };
    let id = claimed[0].webhook.id;
    assert_eq!(counted.store.record_progress(LIVING, id, done).await, Ok(true));
    counted.store.append(begun(owned)).await.unwrap();
    counted.note("an event of a task with a webhook");
}

async fn reads(counted: &mut Counted, tasks: i64) {
    let agent = AgentName::from("a");
    let middle = key(tasks / 2);
    counted.store.load(&middle, None, u64::MAX).await.unwrap().whole().unwrap();
    counted.note("load");
    let known = Some(TaskVersion::new(1, 1));
    let more = counted.store.load(&middle, known, u64::MAX).await.unwrap();
    assert!(matches!(more, Loaded::More { head: 3, .. }), "{more:?}");
    counted.note("load since a known version");
    assert_eq!(counted.store.read(&middle, 0, 10).await.unwrap().entries.len(), 3);
    counted.note("read");
    let log = counted.store.read_log(&middle, 0, 10).await.unwrap();
    assert!(log.len() == 3 && log[2].at.is_some());
    counted.note("read with times and causes");
    let dedup: [u8; 32] = format!("{:032}", 3 * (tasks / 2) - 2).into_bytes().try_into().unwrap();
    assert_eq!(counted.store.original(&dedup).await.unwrap().unwrap().key, middle);
    counted.note("original");

    let feed = |after| FeedQuery {
        scope: Scope::Own(owner(1)),
        agent: Some("a".into()),
        tasks: Vec::new(),
        after,
        limit: 3,
    };
    let end = counted.store.feed(&feed(None)).await.unwrap().reached;
    counted.note("the end of a feed");
    let page = counted.store.feed(&feed(Some(0))).await.unwrap();
    assert_eq!(page.entries.len(), 3);
    counted.note("a feed from far back");
    assert!(counted.store.feed(&feed(Some(end))).await.unwrap().entries.is_empty());
    counted.note("a feed at its end");
    let tenant = || Scope::Tenant("acme".into());
    let wide = FeedQuery { scope: tenant(), ..feed(Some(end / 2)) };
    assert_eq!(counted.store.feed(&wide).await.unwrap().entries.len(), 3);
    counted.note("a feed of a tenant");

    let list = ListQuery {
        scope: Scope::Own(owner(1)),
        agent: None,
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 3,
        artifacts: false,
    };
    let listed = counted.store.list(list.clone()).await.unwrap();
    assert_eq!((listed.tasks.len(), listed.total), (3, (tasks / OWNERS).unsigned_abs()));
    counted.note("a list");
    let next = ListQuery { after: listed.next, artifacts: true, ..list.clone() };
    assert_eq!(counted.store.list(next).await.unwrap().tasks.len(), 3);
    counted.note("the next page of a list");
    for scope in [tenant(), Scope::All] {
        let wide = ListQuery { scope, ..list.clone() };
        let listed = counted.store.list(wide).await.unwrap();
        assert_eq!((listed.tasks.len(), listed.total), (3, tasks.unsigned_abs()));
    }
    counted.note("a list of all owners");
    let since = Some(Timestamp::from_millis(tasks - 200));
    let recent = ListQuery { since, agent: Some("a".into()), ..list.clone() };
    assert_eq!(counted.store.list(recent).await.unwrap().total, 6);
    counted.note("a list of recent tasks");
    let context = Some(format!("c{}", tasks / 800).as_str().into());
    let talk = ListQuery { context, ..list.clone() };
    assert_eq!(counted.store.list(talk.clone()).await.unwrap().total, 20);
    counted.note("a list of a conversation");
    let asking = ListQuery { state: Some(TaskState::InputRequired), ..talk };
    assert_eq!(counted.store.list(asking).await.unwrap().total, 2);
    counted.note("a list of tasks that wait for their caller");
    let query = HistoryQuery {
        owner: owner(1),
        agent: agent.clone(),
        context: format!("c{}", tasks / 800).as_str().into(),
        tasks: 3,
        bytes: 1 << 20,
    };
    assert_eq!(counted.store.conversation_history(query).await.unwrap().len(), 3);
    counted.note("a conversation history");

    assert_eq!(counted.store.agents_unserved().await.unwrap(), ["b".into()]);
    counted.note("unserved agents");
    assert_eq!(counted.store.due(DueQuery::new(&agent, 3)).await.unwrap().len(), 3);
    counted.note("due tasks of an agent");
    let before = Timestamp::from_millis(tasks);
    assert_eq!(counted.store.paused(&agent, before, 3).await.unwrap().len(), 3);
    counted.note("paused tasks");
    assert_eq!(counted.store.queued(&agent, before, 3).await.unwrap().len(), 3);
    counted.note("queued tasks");
}

async fn writes(counted: &mut Counted) {
    let new = Key { task: "new".into(), ..key(0) };
    counted.store.append(received(new.clone(), "c")).await.unwrap();
    counted.note("a new task");
    assert!(counted.store.append(received(new.clone(), "c")).await.is_err());
    counted.note("a repeated send");
    let taken = Dedup { key: [8; 32], content: [8; 32] };
    let refused = Append { dedup: Some(taken), ..received(new.clone(), "c") };
    assert!(counted.store.append(refused).await.is_err());
    counted.note("a new task with a known id");
    counted.store.append(begun(new.clone())).await.unwrap();
    counted.note("a turn that begins");
    let event = Append { expect: TaskVersion::new(2, 1), ..begun(new.clone()) };
    counted.store.append(event.clone()).await.unwrap();
    counted.note("an event of a turn");
    let asks = with_snapshot(
        Append { expect: TaskVersion::new(3, 1), ..event.clone() },
        TaskState::InputRequired,
    );
    counted.store.append(asks).await.unwrap();
    counted.note("a turn that asks");
    let ends =
        with_snapshot(Append { expect: TaskVersion::new(4, 1), ..event }, TaskState::Completed);
    counted.store.append(ends).await.unwrap();
    counted.note("a turn that ends");
    let hidden = Key { task: "hidden".into(), ..key(0) };
    let mut direct = Append { dedup: None, ..received(hidden.clone(), "c") };
    direct.header.hidden = true;
    counted.store.append(direct).await.unwrap();
    assert!(!counted.store.read(&hidden, 0, 10).await.unwrap().closed);
    counted.note("a direct answer");
    counted.store.append(begun(hidden)).await.unwrap();
    counted.note("a direct answer that becomes a task");
    let stranger = Owner { tenant: "other".into(), principal: "".into() };
    let mut theirs = Append { dedup: None, ..received(Key { owner: stranger, ..new }, "c") };
    theirs.header.agent = "c".into();
    counted.store.append(theirs).await.unwrap();
    counted.note("a new owner of a new agent");
    assert_eq!(counted.store.mark_dead(OTHER, 0).await, Ok(true));
    counted.note("a member that dies");
    counted.store.probe().await.unwrap();
    counted.note("a probe");
    let retention = Retention { ended_before: None, tasks: Some(100), bytes: None };
    assert_eq!(counted.store.sweep(retention, 3).await.unwrap(), 3);
    counted.note("retention");
}

async fn owners(counted: &mut Counted, tasks: i64) {
    let middle = key(tasks / 2);
    for scope in [Scope::Tenant("acme".into()), Scope::All] {
        let found = counted.store.owners_of(&scope, &middle.task, 2).await.unwrap();
        assert_eq!(found, std::slice::from_ref(&middle.owner));
        counted.note("the owners of a task");
    }
    for scope in [Scope::Own(owner(1)), Scope::Tenant("acme".into()), Scope::All] {
        assert!(counted.store.usage(&scope).await.unwrap().active > 0);
        counted.note("usage");
    }
    for tenant in [None, Some("acme".into())] {
        let query = OwnerQuery { tenant, after: Some(owner(1)), limit: 3 };
        assert_eq!(counted.store.owners(query).await.unwrap().len(), 3);
        counted.note("a page of owners");
    }
    assert!(counted.store.status().await.unwrap().oldest.is_some());
    counted.note("the status of the store");
}

async fn keys_and_audit(counted: &mut Counted, tasks: i64) {
    let id = |number: i64| format!("k{number:08}");
    let now = Timestamp::from_millis(tasks);
    let act = || AuditEntry::new(AuditActor::default(), "test.act");
    let hash: [u8; 32] = format!("{:032}", tasks / 2).into_bytes().try_into().unwrap();
    let found = counted.store.find_key_by_hash(&hash).await.unwrap().unwrap();
    counted.note("an API key by its hash");
    assert_eq!(counted.store.find_key(&id(tasks / 2)).await, Ok(Some(found.clone())));
    counted.note("an API key by its id");
    for tenant in [None, Some("acme".into())] {
        let query = ApiKeyQuery { tenant, after: Some(found.id.clone()), limit: 3 };
        assert_eq!(counted.store.list_keys(query).await.unwrap().len(), 3);
        counted.note("a page of API keys");
    }
    let new = ApiKey { id: "new".into(), hash: [1; 32], ..found.clone() };
    counted.store.create_key(new, act()).await.unwrap();
    counted.note("a new API key");
    counted.store.record_key_uses(vec![(found.id.clone(), now)]).await.unwrap();
    counted.note("the use of an API key");
    assert!(counted.store.revoke_key(&found.id, now, act()).await.unwrap().is_some());
    counted.note("a revoked API key");
    counted.store.append_audit(vec![act()]).await.unwrap();
    counted.note("an audit record");
    for oldest_first in [true, false] {
        let after = Some(tasks as u64 / 2);
        let query = AuditQuery { oldest_first, after, limit: 3, ..AuditQuery::default() };
        assert_eq!(counted.store.read_audit(query).await.unwrap().records.len(), 3);
        counted.note("a page of the audit log");
    }
    assert_eq!(counted.store.audit_ends().await.unwrap().head.number, tasks as u64 + 3);
    counted.note("the ends of the audit log");
    let retention = AuditRetention { before: None, records: Some(100) };
    assert_eq!(counted.store.sweep_audit(retention, 3).await, Ok(3));
    counted.note("retention of the audit log");
}

/// Statements that run only at the start, on a full disk or for serial agents.
const ELSEWHERE: [&str; 20] = [
    "PUT_RANDOM_META",
    "FILL_SERIAL_QUEUE",
    "CLEAR_SERIAL_HEADS",
    "FILL_SERIAL_HEADS",
    "FIND_SERIAL_POSITION",
    "FIND_POSITION",
    "FIND_TURN_POSITION",
    "HELD_TASKS",
    "FIND_LOCK",
    "LOCK_CONVERSATION",
    "UNLOCK_CONVERSATION",
    "FIRST_SERIAL_POSITION",
    "ENQUEUE_SERIAL",
    "DEQUEUE_SERIAL",
    "ADD_SERIAL_HEAD",
    "REMOVE_SERIAL_HEAD",
    "SERIAL_OWNER",
    "SERIAL_OWNER_OF_TENANT",
    "SERIAL_HEADS",
    "READ_SERIAL_QUEUE",
];

#[tokio::test]
async fn costs_do_not_grow_with_the_number_of_tasks() {
    let (few, many) = (everything(FEW).await, everything(MANY).await);
    compare(&few, &many);
    let forgotten: Vec<_> = sql::ALL.iter().filter(|(name, _)| !many.run.contains(name)).collect();
    let forgotten: Vec<_> =
        forgotten.iter().filter(|(name, _)| !ELSEWHERE.contains(name)).collect();
    assert!(forgotten.is_empty(), "these statements were not measured: {forgotten:?}");
}

/// Finds, claims and adds tasks, while many wait in one conversation or in as many conversations.
async fn serial(tasks: i64, apart: bool) -> Counted {
    let agent = AgentName::from("a");
    let mut counted = Counted::waiting(tasks, apart);
    counted.store.join(LIVING, MemberKind::Node, "node").await.unwrap();
    counted.store.join(OTHER, MemberKind::Node, "node").await.unwrap();
    counted.store.enable_serial(&agent).await.unwrap();
    counted.note("enabling the serial queue");
    counted.done.clear();
    let of_first = |task: &str| Key { owner: owner(1), task: task.into() };
    let first = if apart { "c1" } else { "c" };
    let due = async |counted: &Counted| {
        let due = counted.store.next_serial(DueQuery::new(&agent, 1)).await.unwrap();
        due.into_iter().map(|due| due.key.task.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(due(&counted).await, ["t1"]);
    counted.note("the first in the queue");
    let tenant = TenantId::from("acme");
    let query = DueQuery { tenant: Some(&tenant), ..DueQuery::new(&agent, 1) };
    assert_eq!(counted.store.next_serial(query).await.unwrap().len(), 1);
    counted.note("the first of a tenant in the queue");
    counted.store.append(begun(of_first("t1"))).await.unwrap();
    counted.note("the first in the queue begins");
    let next = due(&counted).await;
    assert_eq!(next, if apart { vec!["t2".to_owned()] } else { Vec::new() });
    counted.note("the next, while the first is at work");
    let elsewhere = Append { dedup: None, ..received(of_first("elsewhere"), "elsewhere") };
    counted.store.append(elsewhere).await.unwrap();
    counted.note("a message in another conversation");
    let same = Append { dedup: None, ..received(of_first("same"), first) };
    counted.store.append(same).await.unwrap();
    counted.note("a message in the same conversation");
    assert_eq!(due(&counted).await, [if apart { "t2" } else { "elsewhere" }]);
    counted.note("the next in a conversation that is not locked");
    let done = Append { expect: TaskVersion::new(2, 1), ..begun(of_first("t1")) };
    counted.store.append(with_snapshot(done, TaskState::Completed)).await.unwrap();
    counted.note("the first in the queue ends");
    let conversation = Conversation { owner: owner(1), context: first.into() };
    counted.store.unlock_conversation(&agent, &conversation, LIVING).await.unwrap();
    counted.note("a conversation that is unlocked");
    assert_eq!(due(&counted).await, ["t2"]);
    counted.note("the next, once the first is done");
    let mut cut_off = begun(of_first("t2"));
    cut_off.header.run.holder = Some(OTHER);
    counted.store.append(cut_off).await.unwrap();
    counted.note("the next begins");
    assert_eq!(counted.store.mark_dead(OTHER, 0).await, Ok(true));
    counted.note("the death of its member");
    assert_eq!(due(&counted).await, ["t2"]);
    counted.note("the interrupted turn");
    counted
}

/// Finds the next due task, while each of many owners waits with one.
async fn taking_turns(owners: i64) -> Counted {
    let agent = AgentName::from("a");
    let mut counted = Counted::new(owners, owners, |conn| {
        let more = format!(
            "{NUMBERS} INSERT OR IGNORE INTO owners (tenant, principal) \
                            SELECT 'acme', 'p' || i FROM n"
        );
        conn.execute(&more, [owners]).unwrap();
        conn.execute(&format!("{NUMBERS} {WAITING}"), params![owners, true]).unwrap();
        conn.execute(&format!("{NUMBERS} {MESSAGES}"), [owners]).unwrap();
        conn.execute("UPDATE tasks SET owner = row", []).unwrap();
    });
    counted.store.join(LIVING, MemberKind::Node, "node").await.unwrap();
    counted.store.enable_serial(&agent).await.unwrap();
    counted.note("enabling the serial queue");
    counted.done.clear();
    for (after, next) in [(None, 1), (Some(owner(1)), 2), (Some(owner(90)), 91)] {
        let query = DueQuery { after: after.as_ref(), ..DueQuery::new(&agent, 1) };
        let next = format!("t{next}");
        let due = counted.store.due(query).await.unwrap();
        assert_eq!(due.iter().map(|due| due.key.task.as_str()).collect::<Vec<_>>(), [&next]);
        counted.note("the next owner");
        let due = counted.store.next_serial(query).await.unwrap();
        assert_eq!(due.iter().map(|due| due.key.task.as_str()).collect::<Vec<_>>(), [&next]);
        counted.note("the next owner of a serial agent");
    }
    counted
}

#[tokio::test]
async fn costs_of_the_next_task_do_not_grow_with_the_number_of_owners() {
    compare(&taking_turns(100).await, &taking_turns(10_000).await);
}

/// Claims, while this many receivers that have not answered yet have webhooks that are ready.
async fn hanging(receivers: i64) -> Counted {
    let mut counted = Counted::new(receivers, 3 * receivers, |conn| {
        let tasks = format!("{NUMBERS} {TASKS}");
        conn.execute(&tasks, params![receivers, DEAD.blob()]).unwrap();
        conn.execute(&format!("{NUMBERS} {EVENTS}"), [3 * receivers]).unwrap();
        conn.execute(&format!("{NUMBERS} {WEBHOOKS}"), [receivers]).unwrap();
        conn.execute("UPDATE webhooks SET state = 1", []).unwrap();
        conn.execute("UPDATE webhooks SET receiver = 'acme https://fine' WHERE row = 9", [])
            .unwrap();
    });
    counted.store.join(LIVING, MemberKind::Node, "node").await.unwrap();
    counted.note("a member that joins");
    let now = Timestamp::from_millis(4_102_444_800_000);
    let proven = Arc::new(HashSet::from(["acme https://fine".to_owned()]));
    for (others, per_tenant, claimed) in [(0, 5, 1), (5, 0, 1), (5, 2, 2)] {
        let claim = WebhookClaim {
            proven: Arc::clone(&proven),
            per_proven: 8,
            others,
            others_per_tenant: per_tenant,
            limit: 100,
            ..WebhookClaim::default()
        };
        let found = counted.store.claim_webhooks(LIVING, claim, now).await.unwrap();
        assert_eq!(found.len(), claimed, "{others} {per_tenant}");
        counted.note("a claim while others hang");
        if others == 0 {
            counted.store.restart_webhook(found[0].webhook.id, None).await.unwrap();
            counted.note("a restarted webhook");
        }
    }
    counted
}

#[tokio::test]
async fn costs_of_a_claim_do_not_grow_with_the_number_of_receivers_that_hang() {
    compare(&hanging(100).await, &hanging(10_000).await);
}

/// Finds and claims the next task, while many workers hold one each and many tasks wait.
async fn at_work(workers: i64, waiting: i64) -> Counted {
    let agent = AgentName::from("a");
    let mut counted = Counted::new(waiting + workers, waiting + workers, |conn| {
        let tasks = waiting + workers;
        conn.execute(&format!("{NUMBERS} {WAITING}"), params![tasks, true]).unwrap();
        conn.execute(&format!("{NUMBERS} {MESSAGES}"), [tasks]).unwrap();
    });
    counted.store.join(LIVING, MemberKind::Node, "node").await.unwrap();
    for number in 1..=workers {
        let id = MemberId(0x1_0000 + number as u128);
        counted.store.join_worker(id, &worker(number)).await.unwrap();
        let mut held = begun(Key { owner: owner(1), task: format!("t{number}").as_str().into() });
        held.header.run.holder = Some(id);
        held.header.created = Timestamp::from_millis(0);
        counted.store.append(held).await.unwrap();
    }
    // The first search reads all holders.
    counted.store.due(DueQuery::new(&agent, 1)).await.unwrap();
    counted.note("the workers");
    counted.done.clear();
    let next = async |counted: &Counted| {
        let due = counted.store.due(DueQuery::new(&agent, 1)).await.unwrap().swap_remove(0);
        (due.key.task.to_string(), due.holder)
    };
    assert_eq!(next(&counted).await, (format!("t{}", workers + 1), None));
    counted.note("the next task");
    let worker = MemberId(0x1_0001);
    counted.store.count_heartbeat(worker).await.unwrap();
    counted.note("a poll");
    let mut claim =
        begun(Key { owner: owner(1), task: format!("t{}", workers + 1).as_str().into() });
    claim.header.run.holder = Some(worker);
    counted.store.append(claim).await.unwrap();
    counted.note("a claim");
    assert_eq!(counted.store.mark_dead(worker, 1).await, Ok(true));
    counted.note("the death of a worker");
    assert_eq!(next(&counted).await, ("t1".to_owned(), Some(worker)));
    counted.note("the turn of the dead worker");
    counted
}

#[tokio::test]
async fn costs_of_a_claim_do_not_grow_with_the_workers_or_the_queue() {
    compare(&at_work(10, 100).await, &at_work(1_000, 10_000).await);
}

/// Finds and claims the next task of a tenant with few tasks, behind the tasks of another tenant and its owners.
async fn behind_another_tenant(waiting: i64) -> Counted {
    let agent = AgentName::from("a");
    let mut counted = Counted::new(waiting, waiting, |conn| {
        let more = format!(
            "{NUMBERS} INSERT OR IGNORE INTO owners (tenant, principal) \
                            SELECT 'acme', 'p' || i FROM n"
        );
        conn.execute(&more, [waiting / 2]).unwrap();
        conn.execute(&format!("{NUMBERS} {WAITING}"), params![waiting, true]).unwrap();
        conn.execute(&format!("{NUMBERS} {MESSAGES}"), [waiting]).unwrap();
        conn.execute("UPDATE tasks SET owner = 1 + row / 2", []).unwrap();
    });
    counted.store.join(LIVING, MemberKind::Node, "node").await.unwrap();
    counted.store.enable_serial(&agent).await.unwrap();
    let small = Owner { tenant: "small".into(), principal: "".into() };
    for task in ["one", "two"] {
        let key = Key { owner: small.clone(), task: task.into() };
        counted.store.append(Append { dedup: None, ..received(key, task) }).await.unwrap();
    }
    counted.note("the tasks of the tenant");
    counted.done.clear();
    for tenant in ["small", "acme", "unknown"] {
        let tenant = TenantId::from(tenant);
        let query = DueQuery { tenant: Some(&tenant), ..DueQuery::new(&agent, 1) };
        let found = usize::from(tenant.as_str() != "unknown");
        assert_eq!(counted.store.due(query).await.unwrap().len(), found);
        counted.note("the next task of a tenant");
        assert_eq!(counted.store.next_serial(query).await.unwrap().len(), found);
        counted.note("the next serial task of a tenant");
    }
    counted.store.append(begun(Key { owner: small, task: "one".into() })).await.unwrap();
    counted.note("a claim");
    let tenant = TenantId::from("small");
    let query = DueQuery { tenant: Some(&tenant), ..DueQuery::new(&agent, 9) };
    assert_eq!(counted.store.due(query).await.unwrap().len(), 1);
    counted.note("all tasks of the tenant");
    counted
}

#[tokio::test]
async fn costs_of_a_claim_for_a_tenant_do_not_grow_with_the_queue_of_another() {
    compare(&behind_another_tenant(100).await, &behind_another_tenant(10_000).await);
}

#[tokio::test]
async fn costs_of_the_serial_queue_do_not_grow_with_its_length() {
    for apart in [false, true] {
        let (few, many) = (serial(100, apart).await, serial(MANY, apart).await);
        compare(&few, &many);
        for name in ELSEWHERE.iter().filter(|name| **name != "PUT_RANDOM_META") {
            assert!(many.run.contains(name), "{name} was not run");
        }
    }
}
