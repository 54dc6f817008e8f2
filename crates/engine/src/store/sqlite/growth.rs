//! Growth test: the cost of each operation does not depend on the size of the store. It counts steps
//! of the database, not time.

use bytes::Bytes;
use herald_protocol::{AgentName, TaskState, Timestamp};
use rusqlite::{StatementStatus, params};

use crate::store::{
    Append, Conversation, Dedup, FeedQuery, Header, HistoryQuery, Key, Kind, ListQuery, MemberId,
    Owner, Retention, Run, Snapshot, Store, Version,
};

use super::{Connection, Readers, Sqlite, open, statements as sql};

/// Sizes to compare. The small one has as many owners, agents, states and tasks in a conversation.
const FEW: i64 = 2_000;
const MANY: i64 = 100_000;

const OWNERS: i64 = 20;
const LIVING: MemberId = MemberId(0x11);
const DEAD: MemberId = MemberId(0x99);

/// The numbers from 1 to `?1`.
const NUMBERS: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)";

/// Tasks of every kind, three events each, ten in a conversation.
const TASKS: &str = "INSERT INTO tasks (row, owner, agent, id, context, state, changed, created, \
    hidden, phase, head, bytes, counted, turn, attempt, epoch, unread, holder, snapshot, status, \
    history, metadata, artifacts) \
    SELECT i, 1 + i % 20, 1 + i / 20 % 2, 't' || i, 'c' || (i / 400), \
    CASE kind WHEN 6 THEN 4 WHEN 7 THEN 6 WHEN 8 THEN 1 WHEN 9 THEN 2 ELSE 3 END, i, i, 0, \
    CASE kind WHEN 7 THEN 0 WHEN 8 THEN 1 WHEN 9 THEN 1 ELSE 2 END, 3, 6, 6, 1, 1, 1, \
    iif(kind = 8, '3', ''), iif(kind = 9, ?2, NULL), 3, x'7b7d', x'5b5d', x'', x'5b5d' \
    FROM (SELECT i, i / 40 % 10 AS kind FROM n)";
const EVENTS: &str = "INSERT INTO events (position, task, seq, kind, key, content, body) \
    SELECT i, 1 + (i - 1) / 3, 1 + (i - 1) % 3, 33, iif(i % 3 = 1, key, NULL), \
    iif(i % 3 = 1, key, NULL), x'7b7d' FROM (SELECT i, CAST(printf('%032d', i) AS BLOB) AS key FROM n)";

/// Tasks that wait, one event each; `?2` says whether each has a conversation of its own.
const WAITING: &str = "INSERT INTO tasks (row, owner, agent, id, context, state, changed, created, \
    hidden, phase, head, bytes, counted, turn, attempt, epoch, unread, holder) \
    SELECT i, 1, 1, 't' || i, iif(?2, 'c' || i, 'c'), 1, i, i, 0, 1, 1, 2, 2, 0, 0, 0, '1', NULL FROM n";
const MESSAGES: &str = "INSERT INTO events (position, task, seq, kind, body) \
    SELECT i, i, 1, 33, x'7b7d' FROM n";

/// A store that counts.
struct Counted {
    store: Sqlite,
    /// What was done, and the steps it took.
    done: Vec<(&'static str, i32)>,
    /// The statements that were run.
    run: Vec<&'static str>,
}

impl Counted {
    fn new(tasks: i64, positions: i64, fill: impl FnOnce(&Connection)) -> Self {
        let mut opened = open::memory().unwrap();
        let conn = &opened.conn;
        // Every statement stays at hand, or it could not be asked what it has done.
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
        let store = Sqlite::start(opened, None, Readers::Shared, Vec::new()).unwrap();
        Self { store, done: Vec::new(), run: Vec::new() }
    }

    /// Tasks of every kind.
    fn mixed(tasks: i64) -> Self {
        Self::new(tasks, 3 * tasks, |conn| {
            let tasks_sql = format!("{NUMBERS} {TASKS}");
            conn.execute(&tasks_sql, params![tasks, DEAD.0.to_be_bytes()]).unwrap();
            conn.execute(&format!("{NUMBERS} {EVENTS}"), [3 * tasks]).unwrap();
            conn.execute_batch(
                "INSERT INTO dedup (key, position) SELECT key, position FROM events
                 WHERE key IS NOT NULL",
            )
            .unwrap();
        })
    }

    /// Tasks that wait for the same agent.
    fn waiting(tasks: i64, apart: bool) -> Self {
        Self::new(tasks, tasks, |conn| {
            conn.execute(&format!("{NUMBERS} {WAITING}"), params![tasks, apart]).unwrap();
            conn.execute(&format!("{NUMBERS} {MESSAGES}"), [tasks]).unwrap();
        })
    }

    /// Notes the steps since the last note.
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
        assert!(steps > 0, "{what} has run nothing");
        self.done.push((what, steps));
    }
}

/// Where something costs more with many tasks than with few.
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

/// A first message.
fn received(key: Key, context: &str) -> Append {
    let run = Run { unread: vec![1], ..Run::default() };
    let header = Header { context: context.into(), ..header(TaskState::Submitted, run) };
    let events = vec![(Kind::Received(TaskState::Submitted), Bytes::from_static(b"{}"))];
    let dedup = Some(Dedup { key: [7; 32], content: [7; 32] });
    Append { key, expect: Version::default(), fence: None, header, events, snapshot: None, dedup }
}

/// Takes the first message up.
fn begun(key: Key) -> Append {
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(LIVING), ..Run::default() };
    let header = header(TaskState::Working, run);
    let events = vec![(Kind::Status(TaskState::Working), Bytes::from_static(b"{}"))];
    Append {
        key,
        expect: Version::new(1, 0),
        fence: None,
        header,
        events,
        snapshot: None,
        dedup: None,
    }
}

fn with_snapshot(append: Append, state: TaskState) -> Append {
    let seq = append.expect.head + append.events.len() as u64;
    let header = header(state, Run { epoch: 1, turn: 1, attempt: 1, ..Run::default() });
    Append { header, snapshot: Some(Snapshot { seq, ..Snapshot::default() }), ..append }
}

/// Everything that is asked of a store while it serves.
async fn everything(tasks: i64) -> Counted {
    let mut counted = Counted::mixed(tasks);
    reads(&mut counted, tasks).await;
    writes(&mut counted).await;
    counted
}

async fn reads(counted: &mut Counted, tasks: i64) {
    let agent = AgentName::from("a");
    let middle = key(tasks / 2);
    counted.store.load(&middle, u64::MAX).await.unwrap().unwrap();
    counted.note("load");
    assert_eq!(counted.store.read(&middle, 0, 10).await.unwrap().entries.len(), 3);
    counted.note("read");
    let dedup: [u8; 32] = format!("{:032}", 3 * (tasks / 2) - 2).into_bytes().try_into().unwrap();
    assert_eq!(counted.store.original(&dedup).await.unwrap().unwrap().task, middle.task);
    counted.note("original");

    let feed = |after| FeedQuery {
        owner: owner(1),
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

    let list = ListQuery {
        owner: owner(1),
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
    counted.note("its next page");
    let since = Some(Timestamp::from_millis(tasks - 200));
    let recent = ListQuery { since, agent: Some("a".into()), ..list.clone() };
    assert_eq!(counted.store.list(recent).await.unwrap().total, 6);
    counted.note("a list of what is new");
    let context = Some(format!("c{}", tasks / 800).as_str().into());
    let talk = ListQuery { context, ..list.clone() };
    assert_eq!(counted.store.list(talk.clone()).await.unwrap().total, 20);
    counted.note("a list of a conversation");
    let asking = ListQuery { state: Some(TaskState::InputRequired), ..talk };
    assert_eq!(counted.store.list(asking).await.unwrap().total, 2);
    counted.note("a list of what waits for its caller");
    let query = HistoryQuery {
        owner: owner(1),
        agent: agent.clone(),
        context: format!("c{}", tasks / 800).as_str().into(),
        tasks: 3,
        bytes: 1 << 20,
    };
    assert_eq!(counted.store.conversation_history(query).await.unwrap().len(), 3);
    counted.note("a conversation history");

    assert_eq!(counted.store.agents_at_work().await.unwrap().len(), 2);
    counted.note("agents at work");
    assert_eq!(counted.store.due(&agent, LIVING, 3).await.unwrap().len(), 3);
    counted.note("work of an agent");
    let before = Timestamp::from_millis(tasks);
    assert_eq!(counted.store.paused(&agent, before, 3).await.unwrap().len(), 3);
    counted.note("tasks whose callers take long");
}

async fn writes(counted: &mut Counted) {
    let new = Key { task: "new".into(), ..key(0) };
    counted.store.append(received(new.clone(), "c")).await.unwrap();
    counted.note("a new task");
    assert!(counted.store.append(received(new.clone(), "c")).await.is_err());
    counted.note("a new task once more");
    let taken = Dedup { key: [8; 32], content: [8; 32] };
    let refused = Append { dedup: Some(taken), ..received(new.clone(), "c") };
    assert!(counted.store.append(refused).await.is_err());
    counted.note("a new task of a known name");
    counted.store.append(begun(new.clone())).await.unwrap();
    counted.note("a turn that begins");
    let words = Append { expect: Version::new(2, 1), ..begun(new.clone()) };
    counted.store.append(words.clone()).await.unwrap();
    counted.note("a turn that speaks");
    let asks = with_snapshot(
        Append { expect: Version::new(3, 1), ..words.clone() },
        TaskState::InputRequired,
    );
    counted.store.append(asks).await.unwrap();
    counted.note("a turn that asks");
    let ends = with_snapshot(Append { expect: Version::new(4, 1), ..words }, TaskState::Completed);
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
    counted.store.probe().await.unwrap();
    counted.note("a probe");
    let retention = Retention { ended_before: None, tasks: Some(100), bytes: None };
    assert_eq!(counted.store.sweep(retention, 3).await.unwrap(), 3);
    counted.note("retention");
}

/// Statements that run when a process starts, when a disk is full or for serial agents.
const ELSEWHERE: [&str; 13] = [
    "PUT_RANDOM_META",
    "FILL_SERIAL_QUEUE",
    "CLEAR_SERIAL_HEADS",
    "FILL_SERIAL_HEADS",
    "FIND_SERIAL_POSITION",
    "FIND_POSITION",
    "FIRST_SERIAL_POSITION",
    "ENQUEUE_SERIAL",
    "DEQUEUE_SERIAL",
    "ADD_SERIAL_HEAD",
    "REMOVE_SERIAL_HEAD",
    "SERIAL_HEADS",
    "READ_SERIAL_QUEUE",
];

#[tokio::test]
async fn nothing_costs_more_when_more_is_stored() {
    let (few, many) = (everything(FEW).await, everything(MANY).await);
    compare(&few, &many);
    let forgotten: Vec<_> = sql::ALL.iter().filter(|(name, _)| !many.run.contains(name)).collect();
    let forgotten: Vec<_> =
        forgotten.iter().filter(|(name, _)| !ELSEWHERE.contains(name)).collect();
    assert!(forgotten.is_empty(), "nobody has looked at {forgotten:?}");
}

/// Finds work, takes it up and adds some, while many wait in one conversation or in as many.
async fn serial(tasks: i64, apart: bool) -> Counted {
    let agent = AgentName::from("a");
    let mut counted = Counted::waiting(tasks, apart);
    counted.store.enable_serial(&agent, LIVING).await.unwrap();
    counted.note("enabling the serial queue");
    counted.done.clear();
    let of_first = |task: &str| Key { owner: owner(1), task: task.into() };
    let first = if apart { "c1" } else { "c" };
    let busy = [Conversation { owner: owner(1), context: first.into() }];
    let due = async |counted: &Counted, busy: &[Conversation]| {
        let due = counted.store.next_serial(&agent, busy, 1).await.unwrap();
        due.into_iter().map(|due| due.key.task.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(due(&counted, &[]).await, ["t1"]);
    counted.note("the first in the queue");
    counted.store.append(begun(of_first("t1"))).await.unwrap();
    counted.note("the first in the queue begins");
    let next = due(&counted, &busy).await;
    assert_eq!(next, if apart { vec!["t2".to_owned()] } else { Vec::new() });
    counted.note("the next, while the first is at work");
    let elsewhere = Append { dedup: None, ..received(of_first("elsewhere"), "elsewhere") };
    counted.store.append(elsewhere).await.unwrap();
    counted.note("a message in another conversation");
    let same = Append { dedup: None, ..received(of_first("same"), first) };
    counted.store.append(same).await.unwrap();
    counted.note("a message in the same conversation");
    assert_eq!(due(&counted, &busy).await, [if apart { "t2" } else { "elsewhere" }]);
    counted.note("the next in a conversation that is not busy");
    let done = Append { expect: Version::new(2, 1), ..begun(of_first("t1")) };
    counted.store.append(with_snapshot(done, TaskState::Completed)).await.unwrap();
    counted.note("the first in the queue ends");
    assert_eq!(due(&counted, &[]).await, ["t2"]);
    counted.note("the next, once the first is done");
    counted
}

#[tokio::test]
async fn who_is_next_in_line_is_found_at_once_however_many_wait() {
    for apart in [false, true] {
        let (few, many) = (serial(100, apart).await, serial(MANY, apart).await);
        compare(&few, &many);
        for name in ELSEWHERE.iter().filter(|name| **name != "PUT_RANDOM_META") {
            assert!(many.run.contains(name), "{name} was not run");
        }
    }
}
