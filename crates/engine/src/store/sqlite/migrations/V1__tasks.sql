-- "HRLD": tells our files from those of other programs.
PRAGMA application_id = 1213353028;

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    UNIQUE (tenant, principal)
) STRICT;

CREATE TABLE agents (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- How many tasks each owner has and how large their logs are, by where a list would look for them.
-- Brought up to date when a status changes, not with every chunk.
CREATE TABLE counters (
    owner INTEGER NOT NULL,
    hidden INTEGER NOT NULL,
    agent INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (owner, hidden, agent, state)
) STRICT, WITHOUT ROWID;

-- A task that is over never changes again, so that its snapshot is here, in the row that every
-- reader comes to; the snapshot of a paused one is in a table of its own, or each later event would
-- rewrite it. Artifacts come last: a list that leaves them out never touches their pages.
CREATE TABLE tasks (
    row INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    agent INTEGER NOT NULL,
    id TEXT NOT NULL,
    context TEXT NOT NULL,
    state INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    created INTEGER NOT NULL,
    hidden INTEGER NOT NULL,
    -- 0: nothing to do until its caller acts. 1: something to do. 2: over.
    phase INTEGER NOT NULL,
    -- The last event and the bytes of them all, as of the last change of anything here: while
    -- there is something to do, more events may follow, which leave this row alone.
    head INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    -- The part of bytes that the counters hold.
    counted INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    unread TEXT NOT NULL,
    holder BLOB,
    -- The last event that the snapshot contains; none, if there is no snapshot.
    snapshot INTEGER,
    status BLOB,
    history BLOB,
    metadata BLOB,
    artifacts BLOB
) STRICT;

CREATE UNIQUE INDEX tasks_by_name ON tasks (owner, id);
CREATE INDEX tasks_by_status ON tasks (owner, hidden, agent, state, changed);
-- Without the time of the status, which would move every task once more: a conversation is small
-- enough to be sorted when it is listed.
CREATE INDEX tasks_by_context ON tasks (owner, context) WHERE hidden = 0;
-- Those of a conversation that wait for their caller: every message of the older generations that
-- names only its conversation looks for them.
CREATE INDEX tasks_waiting ON tasks (owner, context) WHERE hidden = 0 AND state IN (6, 8);
CREATE INDEX tasks_active ON tasks (agent, holder, created) WHERE phase = 1;
CREATE INDEX tasks_paused ON tasks (agent, changed) WHERE phase = 0 AND state IN (6, 8);

-- The position orders the events of all tasks; the writer never gives one out twice. The hashes
-- are those of the idempotency key that led to the event and of what was sent under it. The body
-- comes last, so that the rest can be read without it.
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key BLOB,
    content BLOB,
    body BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX events_by_task ON events (task, seq);

-- Of tasks that are not over.
CREATE TABLE snapshots (
    task INTEGER PRIMARY KEY,
    status BLOB NOT NULL,
    history BLOB NOT NULL,
    metadata BLOB NOT NULL,
    artifacts BLOB NOT NULL
) STRICT;

-- Idempotency keys come in no order, so each costs a page of its own: the rows are kept small.
CREATE TABLE dedup (
    key BLOB PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
