-- The tenant of each task that has not ended, so that a worker of one tenant finds the next task in one step,
-- however many tasks of other tenants wait.
ALTER TABLE tasks ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
UPDATE tasks SET tenant = (SELECT o.tenant FROM owners o WHERE o.id = tasks.owner)
WHERE phase <> 2 AND owner IN (SELECT id FROM owners WHERE tenant <> '');
DROP INDEX tasks_active;
CREATE INDEX tasks_active ON tasks (agent, holder, requires, tenant, owner, rank, created) WHERE phase = 1;

-- Made anew by every start, with the tenants.
ALTER TABLE serial_heads ADD COLUMN tenant TEXT NOT NULL DEFAULT '';
DROP INDEX serial_heads_by_owner;
CREATE INDEX serial_heads_by_owner ON serial_heads (agent, tenant, owner, position);

-- The tasks that have not ended and require labels: by their set, to find sets that nobody requires any more, and
-- by their owner, to limit the sets of each.
CREATE INDEX tasks_by_label_set ON tasks (requires) WHERE requires <> 0 AND phase <> 2;
CREATE INDEX tasks_with_labels ON tasks (owner, requires) WHERE requires <> 0 AND phase <> 2;
