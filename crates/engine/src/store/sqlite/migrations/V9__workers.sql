-- Workers that register themselves. A worker's row has more than that of a node: a JSON object with its
-- tenant, its principal, its labels and its concurrency.
ALTER TABLE members ADD COLUMN worker TEXT;
CREATE INDEX members_by_name ON members (name) WHERE kind = 1;

-- The session and the number of a worker's write, so that a repeated write is found after a restart.
ALTER TABLE causes ADD COLUMN session BLOB;
ALTER TABLE causes ADD COLUMN number INTEGER;

-- Sets of labels that tasks require of their worker: JSON arrays, sorted. A task with 0 requires none.
CREATE TABLE label_sets (
    id INTEGER PRIMARY KEY,
    labels TEXT NOT NULL UNIQUE
) STRICT;

ALTER TABLE tasks ADD COLUMN requires INTEGER NOT NULL DEFAULT 0;
-- The priority with its sign changed, so that the index has the highest first.
ALTER TABLE tasks ADD COLUMN rank INTEGER NOT NULL DEFAULT 0;
DROP INDEX tasks_active;
CREATE INDEX tasks_active ON tasks (agent, holder, requires, owner, rank, created) WHERE phase = 1;
