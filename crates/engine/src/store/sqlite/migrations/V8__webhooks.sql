-- True if the task has webhooks, so that an append to a task without any does not look for them.
ALTER TABLE tasks ADD COLUMN webhooks INTEGER NOT NULL DEFAULT 0;

-- Webhooks of tasks: readers of the task's log with a cursor.
CREATE TABLE webhooks (
    row INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    task INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    -- The name within the task.
    config TEXT NOT NULL,
    -- Tenant, and scheme, host and port of the URL: receivers take turns.
    receiver TEXT NOT NULL,
    url TEXT NOT NULL,
    scheme TEXT,
    -- Encrypted.
    secrets BLOB NOT NULL,
    dialect INTEGER NOT NULL,
    created INTEGER NOT NULL,
    start INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    -- 0: idle. 1: ready. 2: waiting. 3: parked. 4: disabled.
    state INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    due INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    holder BLOB
) STRICT;

CREATE UNIQUE INDEX webhooks_by_task ON webhooks (task, config);
CREATE INDEX webhooks_by_owner ON webhooks (owner, row);
CREATE INDEX webhooks_ready ON webhooks (receiver, due) WHERE state = 1 AND holder IS NULL;
CREATE INDEX webhooks_waiting ON webhooks (due) WHERE state = 2;
CREATE INDEX webhooks_stopped ON webhooks (state) WHERE state IN (3, 4);
CREATE INDEX webhooks_held ON webhooks (holder) WHERE holder IS NOT NULL;

-- The latest attempts of each webhook.
CREATE TABLE webhook_attempts (
    webhook INTEGER NOT NULL,
    number INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    millis INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    status INTEGER,
    next INTEGER,
    detail TEXT NOT NULL,
    PRIMARY KEY (webhook, number)
) STRICT, WITHOUT ROWID;

-- The number of webhooks of each tenant, for its limit.
CREATE TABLE webhook_counts (
    tenant TEXT PRIMARY KEY,
    webhooks INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
