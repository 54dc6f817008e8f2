-- How many artifacts a task had when its turn began: an attempt that is made again replaces those
-- that came later. After the artifacts, where it costs a list nothing, since a list does not read it.
ALTER TABLE tasks ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;

-- Until now every turn began with a snapshot.
UPDATE tasks SET kept = (
    SELECT json_array_length(CAST(s.artifacts AS TEXT)) FROM snapshots s WHERE s.task = tasks.row
)
WHERE phase = 1 AND EXISTS (
    SELECT 1 FROM snapshots s WHERE s.task = tasks.row AND json_valid(CAST(s.artifacts AS TEXT))
);
