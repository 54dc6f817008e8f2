-- The owners of an agent's due tasks take turns: with the owner before the time of creation, the next owner
-- and its oldest task are found in one step each.
DROP INDEX tasks_active;
CREATE INDEX tasks_active ON tasks (agent, holder, owner, created) WHERE phase = 1;
CREATE INDEX serial_heads_by_owner ON serial_heads (agent, owner, position);
