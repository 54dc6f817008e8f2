-- The serial queue under the name that the code has for it.
ALTER TABLE line RENAME TO serial_queue;
ALTER TABLE heads RENAME TO serial_heads;
DROP INDEX line_by_conversation;
CREATE INDEX serial_queue_by_conversation ON serial_queue (agent, owner, context, position);

-- The living members. A holder of a task that is not here is dead.
CREATE TABLE members (
    id BLOB PRIMARY KEY,
    -- 0: a node. 1: a worker.
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- The agents that it serves: a JSON array of names.
    agents TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Conversations of serial agents in which a turn runs. The owner comes first, so that one look tells
-- whether an owner still has any.
CREATE TABLE conversation_locks (
    owner INTEGER NOT NULL,
    agent INTEGER NOT NULL,
    context TEXT NOT NULL,
    member BLOB NOT NULL,
    PRIMARY KEY (owner, agent, context)
) STRICT, WITHOUT ROWID;

CREATE INDEX conversation_locks_by_member ON conversation_locks (member);

-- When events became durable: one row for each transaction that wrote any, at the position of its
-- first. Events before the first row are older than this table.
CREATE TABLE commits (
    position INTEGER PRIMARY KEY,
    at INTEGER NOT NULL
) STRICT;

-- Who caused an append, at the position of its first event: callers and operators only. All other
-- events are the agent's.
CREATE TABLE causes (
    position INTEGER PRIMARY KEY,
    -- The principal of an operator; none, if it was the caller.
    actor TEXT,
    request TEXT,
    binding TEXT
) STRICT;
