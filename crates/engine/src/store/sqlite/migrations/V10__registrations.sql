-- Workers and remote agents that discovery lists.
CREATE TABLE registrations (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    instance TEXT NOT NULL,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    -- The description of itself: a JSON object.
    declaration TEXT NOT NULL,
    -- The session of a worker.
    session BLOB,
    -- The pinned card of a remote agent; none, if it is a worker.
    card_url TEXT,
    card_digest TEXT,
    card TEXT,
    -- The digest of another card that was found since.
    card_changed_to TEXT,
    created INTEGER NOT NULL,
    last_seen INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX registrations_unseen ON registrations (last_seen) WHERE card_url IS NULL;

-- Tasks that wait for their turn, by the time since when: a role can have a deadline for them.
CREATE INDEX tasks_queued ON tasks (agent, changed) WHERE phase = 1 AND state = 1 AND holder IS NULL;
