-- In which blocks of 512 positions an owner has events: who looks for theirs from far back passes over
-- all blocks without any. A row for every event would cost every write a further b-tree; one for every
-- block is written once, by the first event there.
CREATE TABLE presence (
    owner INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (owner, block)
) STRICT, WITHOUT ROWID;

INSERT INTO presence (owner, block)
SELECT DISTINCT t.owner, e.position / 512 FROM events e CROSS JOIN tasks t ON t.row = e.task;
