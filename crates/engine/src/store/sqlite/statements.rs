//! SQL statements that run after the database is open. They are in one file, so that a test can
//! check the plan of each. `CROSS JOIN` and named indexes pin these plans, because the planner has
//! no statistics.

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: &str = $sql;)*
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}

/// The columns that [`super::rows::stored`] reads.
macro_rules! header {
    () => {
        "t.row, t.id, a.name, t.context, t.state, t.changed, t.created, t.hidden, t.bytes, t.head, \
         t.turn, t.attempt, t.epoch, t.unread, t.holder, t.snapshot, \
         coalesce(t.status, s.status), coalesce(t.history, s.history), \
         coalesce(t.metadata, s.metadata)"
    };
}

/// The snapshot `s` of a task `t` that is stored in its own table.
macro_rules! snapshot_beside {
    () => {
        "LEFT JOIN snapshots s ON s.task = CASE WHEN t.status IS NULL THEN t.row END"
    };
}

/// Finds the task `t` of tenant `?1`, principal `?2` and id `?3`.
macro_rules! task_of_key {
    () => {
        "FROM owners o CROSS JOIN tasks t ON t.owner = o.id AND t.id = ?3"
    };
}

/// The columns that [`super::api_keys::read`] reads.
macro_rules! api_key {
    () => {
        "SELECT id, hash, tenant, principal, scopes, agents, skills, visibility, created, \
         created_by, expires, last_used, revoked, label FROM api_keys"
    };
}

/// The columns that [`super::registrations::read`] reads.
macro_rules! registration {
    () => {
        "SELECT name, role, instance, tenant, principal, declaration, session, card_url, card_digest, \
         card, card_changed_to, created, last_seen FROM registrations"
    };
}

/// The columns that [`super::audit::record`] reads.
macro_rules! audit_record {
    () => {
        "SELECT number, at, tenant, principal, credential, credential_id, address, action, \
         subject_kind, subject_id, subject_tenant, subject_principal, refused, detail, request, \
         previous, hash FROM audit"
    };
}

/// The columns that [`super::webhooks::read`] reads.
macro_rules! webhook {
    () => {
        "SELECT w.id, o.tenant, o.principal, t.id, w.config, w.url, w.scheme, w.secrets, w.dialect, \
         w.created, w.start, w.cursor, w.state, w.failures, w.due, w.attempts FROM webhooks w \
         CROSS JOIN tasks t ON t.row = w.task CROSS JOIN owners o ON o.id = t.owner"
    };
}

statements! {
    // Names.
    FIND_OWNER = "SELECT id FROM owners WHERE tenant = ?1 AND principal = ?2";
    ADD_OWNER = "INSERT INTO owners (tenant, principal) VALUES (?1, ?2)";
    FIND_AGENT = "SELECT id FROM agents WHERE name = ?1";
    ADD_AGENT = "INSERT INTO agents (name) VALUES (?1)";

    // Appends.
    CLAIM_KEY =
        "INSERT INTO dedup (key, position) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING";
    RELEASE_KEY = "DELETE FROM dedup WHERE key = ?1";
    FIND_KEY =
        "SELECT t.id, e.seq, e.content, o.tenant, o.principal FROM dedup d \
         CROSS JOIN events e ON e.position = d.position \
         CROSS JOIN tasks t ON t.row = e.task CROSS JOIN owners o ON o.id = t.owner \
         WHERE d.key = ?1";
    FIND_TASK =
        "SELECT row, coalesce((SELECT max(seq) FROM events WHERE task = row), 0), counted, \
         snapshot, agent, state, hidden, changed, created, phase, turn, attempt, epoch, unread, \
         holder, kept, webhooks FROM tasks WHERE owner = ?1 AND id = ?2";
    ADD_TASK =
        "INSERT INTO tasks (row, owner, id, agent, context, state, changed, created, hidden, phase, \
         head, bytes, counted, turn, attempt, epoch, unread, holder, kept, requires, rank, tenant) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13, ?14, ?15, ?16, \
         ?17, ?18, ?19, ?20, ?21) ON CONFLICT (owner, id) DO NOTHING";
    /// All columns that can change. SQLite rewrites every index with a column in SET, even if its
    /// value stays the same, so the other columns are not here.
    UPDATE_TASK =
        "UPDATE tasks SET head = ?2, bytes = ?3, turn = ?4, attempt = ?5, epoch = ?6, unread = ?7, \
         counted = ?3, state = ?8, changed = ?9, created = ?10, phase = ?11, holder = ?12, \
         kept = ?13 WHERE row = ?1";
    /// The same, with the snapshot of an ended task.
    END_TASK =
        "UPDATE tasks SET head = ?2, bytes = ?3, turn = ?4, attempt = ?5, epoch = ?6, unread = ?7, \
         counted = ?3, state = ?8, changed = ?9, created = ?10, phase = ?11, holder = ?12, \
         kept = ?13, snapshot = ?2, status = ?14, history = ?15, metadata = ?16, artifacts = ?17 \
         WHERE row = ?1";
    SHOW_TASK = "UPDATE tasks SET hidden = ?2 WHERE row = ?1";
    ADD_EVENT =
        "INSERT INTO events (position, task, seq, kind, key, content, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    ADD_COMMIT = "INSERT INTO commits (position, at) VALUES (?1, ?2)";
    ADD_CAUSE =
        "INSERT INTO causes (position, actor, request, binding, session, number) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    ADD_BLOCK = "INSERT OR IGNORE INTO presence (owner, block) VALUES (?1, ?2)";
    PUT_SNAPSHOT =
        "INSERT OR REPLACE INTO snapshots (task, status, history, metadata, artifacts) \
         VALUES (?1, ?2, ?3, ?4, ?5)";
    SNAPSHOT_BESIDE =
        "UPDATE tasks SET snapshot = ?2, status = NULL, history = NULL, metadata = NULL, \
         artifacts = NULL WHERE row = ?1";
    ADD_COUNT =
        "UPDATE counters SET tasks = tasks + ?5, bytes = bytes + ?6 \
         WHERE owner = ?1 AND hidden = ?2 AND agent = ?3 AND state = ?4";
    NEW_COUNT =
        "INSERT INTO counters (owner, hidden, agent, state, tasks, bytes) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    PUT_META =
        "INSERT INTO meta (key, value) VALUES (?1, ?2) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    PUT_RANDOM_META =
        "INSERT INTO meta (key, value) VALUES (?1, randomblob(131072)) \
         ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    DROP_META = "DELETE FROM meta WHERE key = ?1";

    // Point reads.
    LOAD = concat!(
        "SELECT ", header!(), ", coalesce(t.artifacts, s.artifacts), t.kept ", task_of_key!(),
        " CROSS JOIN agents a ON a.id = t.agent ", snapshot_beside!(),
        " WHERE o.tenant = ?1 AND o.principal = ?2"
    );
    FIND_VERSION = concat!(
        "SELECT t.row, coalesce((SELECT max(seq) FROM events WHERE task = t.row), 0), t.epoch ",
        task_of_key!(), " WHERE o.tenant = ?1 AND o.principal = ?2"
    );
    /// The task without its snapshot.
    LOAD_HEADER =
        "SELECT t.row, t.id, a.name, t.context, t.state, t.changed, t.created, t.hidden, t.bytes, \
         t.head, t.turn, t.attempt, t.epoch, t.unread, t.holder, NULL, NULL, NULL, NULL, NULL, \
         t.kept FROM tasks t CROSS JOIN agents a ON a.id = t.agent WHERE t.row = ?1";
    SUM_EVENTS = "SELECT coalesce(sum(length(body)), 0) FROM events WHERE task = ?1 AND seq > ?2";
    FIND_HEAD =
        concat!(
            "SELECT t.row, t.head, t.phase, t.state, t.hidden ", task_of_key!(),
            " WHERE o.tenant = ?1 AND o.principal = ?2"
        );
    READ_EVENTS =
        "SELECT seq, kind, body FROM events WHERE task = ?1 AND seq > ?2 AND seq <= ?3 \
         ORDER BY seq LIMIT ?4";
    READ_LOG =
        "SELECT e.seq, e.kind, e.body, e.position, \
         (SELECT at FROM commits WHERE position <= e.position ORDER BY position DESC LIMIT 1), \
         c.position, c.actor, c.request, c.binding, c.session, c.number \
         FROM events e LEFT JOIN causes c ON c.position = e.position \
         WHERE e.task = ?1 AND e.seq > ?2 ORDER BY e.seq LIMIT ?3";
    FIND_KIND = "SELECT kind FROM events WHERE task = ?1 AND seq = ?2";

    // Feeds.
    READ_FEED =
        "SELECT e.position, t.id, a.name, e.seq, e.kind, e.body \
         FROM events e CROSS JOIN tasks t ON t.row = e.task CROSS JOIN agents a ON a.id = t.agent \
         WHERE e.position > ?1 AND e.position <= ?2 AND t.owner = ?3 AND t.hidden = 0 \
         AND (?4 IS NULL OR t.agent = ?4) ORDER BY e.position";
    NEXT_BLOCK =
        "SELECT block FROM presence WHERE owner = ?1 AND block >= ?2 ORDER BY block LIMIT 1";
    LAST_POSITION = "SELECT max(position) FROM events";
    FIND_META = "SELECT value FROM meta WHERE key = ?1";

    /// The feed of a tenant `?3`, or of everybody.
    READ_WIDE_FEED =
        "SELECT e.position, t.id, a.name, e.seq, e.kind, e.body, o.tenant, o.principal \
         FROM events e CROSS JOIN tasks t ON t.row = e.task CROSS JOIN agents a ON a.id = t.agent \
         CROSS JOIN owners o ON o.id = t.owner \
         WHERE e.position > ?1 AND e.position <= ?2 AND (?3 IS NULL OR o.tenant = ?3) \
         AND t.hidden = 0 AND (?4 IS NULL OR t.agent = ?4) ORDER BY e.position";
    NEXT_POSITION = "SELECT min(position) FROM events WHERE position > ?1";

    // Lists.
    OWNERS_OF_TENANT = "SELECT id FROM owners WHERE tenant = ?1";
    /// Every id is above zero. The condition only avoids a scan in the plan: the query reads all
    /// owners, but no tasks.
    ALL_OWNERS = "SELECT id FROM owners WHERE id > 0";
    LIST_GROUPS =
        "SELECT agent, state, tasks FROM counters WHERE owner = ?1 AND hidden = 0 AND tasks > 0";
    LIST_GROUP =
        "SELECT changed, row FROM tasks INDEXED BY tasks_by_status \
         WHERE owner = ?1 AND hidden = 0 AND agent = ?2 AND state = ?3 AND changed >= ?4 \
         AND (changed, row) < (?5, ?6) ORDER BY changed DESC, row DESC LIMIT ?7";
    COUNT_GROUP =
        "SELECT count(*) FROM tasks INDEXED BY tasks_by_status \
         WHERE owner = ?1 AND hidden = 0 AND agent = ?2 AND state = ?3 AND changed >= ?4";
    LIST_CONTEXT =
        "SELECT changed, row FROM tasks INDEXED BY tasks_by_context \
         WHERE owner = ?1 AND context = ?2 AND hidden = 0 AND changed >= ?3 \
         AND (?4 IS NULL OR agent = ?4) AND (?5 IS NULL OR state = ?5)";
    LIST_WAITING =
        "SELECT changed, row FROM tasks INDEXED BY tasks_waiting \
         WHERE owner = ?1 AND context = ?2 AND hidden = 0 AND state IN (6, 8) AND changed >= ?3 \
         AND (?4 IS NULL OR agent = ?4) AND state = ?5";
    LIST_ITEM = concat!(
        "SELECT ", header!(), ", x'', 0 FROM tasks t CROSS JOIN agents a ON a.id = t.agent ",
        snapshot_beside!(), " WHERE t.row = ?1"
    );
    LIST_ITEM_WITH_ARTIFACTS = concat!(
        "SELECT ", header!(), ", coalesce(t.artifacts, s.artifacts), 0 FROM tasks t \
         CROSS JOIN agents a ON a.id = t.agent ", snapshot_beside!(), " WHERE t.row = ?1"
    );

    /// The second column is the size of a task: its snapshot and, if it has not ended, the events
    /// after it.
    CONVERSATION_HISTORY = concat!(
        "SELECT t.row, coalesce(length(t.history), length(s.history), 0) \
         + coalesce(length(t.artifacts), length(s.artifacts), 0) \
         + CASE WHEN t.status IS NULL THEN (SELECT coalesce(sum(length(e.body)), 0) FROM events e \
         WHERE e.task = t.row AND e.seq > coalesce(t.snapshot, 0)) ELSE 0 END \
         FROM tasks t INDEXED BY tasks_by_context ", snapshot_beside!(),
        " WHERE t.owner = ?1 AND t.context = ?2 AND t.hidden = 0 AND t.agent = ?3 AND t.phase <> 1 \
         ORDER BY t.row DESC LIMIT ?4"
    );

    // Members.
    ADD_MEMBER =
        "INSERT INTO members (id, kind, name, agents) VALUES (?1, ?2, ?3, '[]') \
         ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, name = excluded.name";
    SERVE_AGENTS = "UPDATE members SET agents = ?2 WHERE id = ?1";
    DROP_MEMBER = "DELETE FROM members WHERE id = ?1";
    FIND_MEMBER = "SELECT 1 FROM members WHERE id = ?1";
    /// Every id has 16 bytes. The condition only avoids a scan in the plan.
    ALL_MEMBERS = "SELECT id, kind, name, agents FROM members WHERE id > x'' ORDER BY id";
    ADD_WORKER =
        "INSERT INTO members (id, kind, name, agents, worker) VALUES (?1, 1, ?2, ?3, ?4)";
    FIND_WORKER = "SELECT name, agents, worker FROM members WHERE id = ?1 AND kind = 1";
    WORKERS_OF_NAME =
        "SELECT id, worker FROM members INDEXED BY members_by_name WHERE kind = 1 AND name = ?1";

    // Due tasks. The statements step from one agent and holder to the next, instead of reading past
    // the tasks that living members hold.
    NEXT_ACTIVE_AGENT =
        "SELECT agent, (SELECT name FROM agents WHERE id = agent) \
         FROM tasks INDEXED BY tasks_active WHERE phase = 1 AND agent > ?1 ORDER BY agent LIMIT 1";
    NEXT_LABEL_SET =
        "SELECT requires, (SELECT labels FROM label_sets WHERE id = requires) \
         FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder IS ?2 AND requires > ?3 \
         ORDER BY requires LIMIT 1";
    /// With `>=` and the next number, because a search for `>` by two columns reads past every task of the owner.
    DUE_OWNER =
        "SELECT tenant, owner FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder IS ?2 AND requires = ?3 \
         AND (tenant, owner) >= (?4, ?5) ORDER BY tenant, owner LIMIT 1";
    DUE_OWNER_OF_TENANT =
        "SELECT tenant, owner FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder IS ?2 AND requires = ?3 AND tenant = ?4 \
         AND owner >= ?5 ORDER BY owner LIMIT 1";
    DUE_TASKS =
        "SELECT rank, created, row FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder IS ?2 AND requires = ?3 AND tenant = ?4 \
         AND owner = ?5 ORDER BY rank, created, row";
    FIND_LABEL_SET = "SELECT id FROM label_sets WHERE labels = ?1";
    ADD_LABEL_SET = "INSERT INTO label_sets (labels) VALUES (?1)";
    /// Every id is above zero. The condition only avoids a scan in the plan.
    COUNT_LABEL_SETS = "SELECT count(*) FROM label_sets WHERE id > 0";
    /// The sets that no task requires which has not ended.
    DROP_LABEL_SETS =
        "DELETE FROM label_sets WHERE id > 0 AND NOT EXISTS \
         (SELECT 1 FROM tasks INDEXED BY tasks_by_label_set \
         WHERE requires = label_sets.id AND requires <> 0 AND phase <> 2)";
    /// The sets of the tasks of one owner that have not ended, one after the other.
    NEXT_SET_OF_OWNER =
        "SELECT requires FROM tasks INDEXED BY tasks_with_labels \
         WHERE requires <> 0 AND phase <> 2 AND owner = ?1 AND requires > ?2 \
         ORDER BY requires LIMIT 1";
    NEXT_HOLDER =
        "SELECT holder FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder > ?2 ORDER BY holder LIMIT 1";
    HELD_TASKS =
        "SELECT row FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder = ?2";
    SOME_HELD_TASKS =
        "SELECT row FROM tasks INDEXED BY tasks_active \
         WHERE phase = 1 AND agent = ?1 AND holder = ?2 LIMIT ?3";
    NAME_TASK =
        "SELECT o.tenant, o.principal, t.id FROM tasks t \
         CROSS JOIN owners o ON o.id = t.owner WHERE t.row = ?1";
    FIND_CLAIM = "SELECT epoch, holder FROM tasks WHERE row = ?1";
    PAUSED_TASKS =
        "SELECT row, changed FROM tasks INDEXED BY tasks_paused \
         WHERE phase = 0 AND state IN (6, 8) AND agent = ?1 AND changed < ?2 \
         ORDER BY changed, row LIMIT ?3";
    QUEUED_TASKS =
        "SELECT row, changed FROM tasks INDEXED BY tasks_queued \
         WHERE phase = 1 AND state = 1 AND holder IS NULL AND agent = ?1 AND changed < ?2 \
         ORDER BY changed, row LIMIT ?3";

    // Serial queue. A task `?1` names its conversation.
    FILL_SERIAL_QUEUE =
        "INSERT OR IGNORE INTO serial_queue (task, agent, owner, context, position) \
         SELECT t.row, t.agent, t.owner, t.context, e.position \
         FROM tasks t INDEXED BY tasks_active CROSS JOIN events e ON e.task = t.row \
         AND e.seq = CASE WHEN t.holder IS NULL THEN CAST(t.unread AS INTEGER) ELSE t.turn END \
         WHERE t.phase = 1 AND t.agent = ?1 \
         AND NOT EXISTS (SELECT 1 FROM members WHERE id = t.holder)";
    CLEAR_SERIAL_HEADS = "DELETE FROM serial_heads WHERE agent = ?1";
    FILL_SERIAL_HEADS =
        "INSERT INTO serial_heads (agent, position, owner, context, tenant) \
         SELECT agent, min(position), owner, context, \
         coalesce((SELECT o.tenant FROM owners o WHERE o.id = owner), '') \
         FROM serial_queue WHERE agent = ?1 GROUP BY agent, owner, context";
    FIND_SERIAL_POSITION = "SELECT position FROM serial_queue WHERE task = ?1";
    FIND_TURN_POSITION =
        "SELECT e.position FROM tasks t CROSS JOIN events e ON e.task = t.row AND e.seq = t.turn \
         WHERE t.row = ?1";
    FIND_POSITION = "SELECT position FROM events WHERE task = ?1 AND seq = ?2";
    FIRST_SERIAL_POSITION =
        "SELECT l.position FROM tasks t CROSS JOIN serial_queue l INDEXED BY serial_queue_by_conversation \
         ON l.agent = t.agent AND l.owner = t.owner AND l.context = t.context \
         WHERE t.row = ?1 ORDER BY l.position LIMIT 1";
    ENQUEUE_SERIAL =
        "INSERT INTO serial_queue (task, agent, owner, context, position) \
         SELECT row, agent, owner, context, ?2 FROM tasks WHERE row = ?1";
    DEQUEUE_SERIAL = "DELETE FROM serial_queue WHERE task = ?1";
    ADD_SERIAL_HEAD =
        "INSERT INTO serial_heads (agent, position, owner, context, tenant) \
         SELECT agent, ?2, owner, context, tenant FROM tasks WHERE row = ?1 AND ?2 IS NOT NULL";
    REMOVE_SERIAL_HEAD =
        "DELETE FROM serial_heads WHERE agent = (SELECT agent FROM tasks WHERE row = ?1) \
         AND position = ?2";
    SERIAL_OWNER =
        "SELECT tenant, owner FROM serial_heads INDEXED BY serial_heads_by_owner \
         WHERE agent = ?1 AND (tenant, owner) >= (?2, ?3) ORDER BY tenant, owner LIMIT 1";
    SERIAL_OWNER_OF_TENANT =
        "SELECT tenant, owner FROM serial_heads INDEXED BY serial_heads_by_owner \
         WHERE agent = ?1 AND tenant = ?2 AND owner >= ?3 ORDER BY owner LIMIT 1";
    SERIAL_HEADS =
        "SELECT position, context FROM serial_heads INDEXED BY serial_heads_by_owner \
         WHERE agent = ?1 AND tenant = ?2 AND owner = ?3 ORDER BY position";
    READ_SERIAL_QUEUE =
        "SELECT position, task FROM serial_queue INDEXED BY serial_queue_by_conversation \
         WHERE agent = ?1 AND owner = ?2 AND context = ?3 ORDER BY position";

    // Conversation locks. A lock is taken by the row of a task, whose conversation is looked up.
    FIND_LOCK =
        "SELECT 1 FROM conversation_locks WHERE owner = ?1 AND agent = ?2 AND context = ?3";
    LOCK_CONVERSATION =
        "INSERT OR IGNORE INTO conversation_locks (owner, agent, context, member) \
         SELECT owner, agent, context, ?2 FROM tasks WHERE row = ?1";
    UNLOCK_CONVERSATION =
        "DELETE FROM conversation_locks \
         WHERE owner = ?1 AND agent = ?2 AND context = ?3 AND member = ?4";
    DROP_LOCKS = "DELETE FROM conversation_locks WHERE member = ?1";

    // Retention.
    /// One row per owner, agent and state, however many tasks they have.
    ALL_GROUPS =
        "SELECT o.tenant, c.owner, c.hidden, c.agent, c.state, c.tasks, c.bytes FROM owners o \
         CROSS JOIN counters c ON c.owner = o.id ORDER BY o.tenant, o.principal";
    ENDED_TASKS =
        "SELECT changed, row, counted, head FROM tasks INDEXED BY tasks_by_status \
         WHERE owner = ?1 AND hidden = ?2 AND agent = ?3 AND state = ?4 AND changed < ?5 \
         AND phase = 2 AND (webhooks = 0 OR NOT EXISTS \
         (SELECT 1 FROM webhooks w WHERE w.task = tasks.row AND w.state IN (1, 2))) \
         ORDER BY changed, row LIMIT ?6";
    ENDED_TASK =
        "SELECT owner, hidden, agent, state, counted, webhooks FROM tasks \
         WHERE row = ?1 AND phase = 2 AND (webhooks = 0 OR NOT EXISTS \
         (SELECT 1 FROM webhooks w WHERE w.task = tasks.row AND w.state IN (1, 2)))";
    DROP_KEYS =
        "DELETE FROM dedup WHERE key IN \
         (SELECT key FROM events WHERE task = ?1 AND key IS NOT NULL)";
    DROP_CAUSES =
        "DELETE FROM causes WHERE position IN (SELECT position FROM events WHERE task = ?1)";
    /// The commits of its events that contain no event of another task.
    DROP_COMMITS =
        "DELETE FROM commits WHERE position IN \
         (SELECT (SELECT max(position) FROM commits WHERE position <= e.position) \
         FROM events e WHERE e.task = ?1) \
         AND NOT EXISTS (SELECT 1 FROM events o WHERE o.task <> ?1 \
         AND o.position >= commits.position AND o.position < \
         coalesce((SELECT min(n.position) FROM commits n WHERE n.position > commits.position), \
         9223372036854775807))";
    DROP_EVENTS = "DELETE FROM events WHERE task = ?1";
    DROP_SNAPSHOT = "DELETE FROM snapshots WHERE task = ?1";
    DROP_TASK = "DELETE FROM tasks WHERE row = ?1";
    DROP_COUNTS = "DELETE FROM counters WHERE owner = ?1 AND tasks = 0";
    /// The blocks before the first remaining event.
    DROP_BLOCKS =
        "DELETE FROM presence WHERE owner = ?1 AND block < ?2";
    /// Not while a conversation of the owner is locked, because the number of the owner may be used
    /// again.
    DROP_OWNER =
        "DELETE FROM owners WHERE id = ?1 \
         AND NOT EXISTS (SELECT 1 FROM counters WHERE owner = ?1) \
         AND NOT EXISTS (SELECT 1 FROM conversation_locks WHERE owner = ?1)";
    FIRST_POSITION = "SELECT min(position) FROM events";

    // Owners: the number of statements and rows follows the owners, never the tasks.
    FIND_OWNERS_OF_TENANT =
        "SELECT o.tenant, o.principal FROM owners o CROSS JOIN tasks t ON t.owner = o.id \
         AND t.id = ?1 WHERE o.tenant = ?2 ORDER BY o.principal LIMIT ?3";
    FIND_ALL_OWNERS =
        "SELECT o.tenant, o.principal FROM owners o CROSS JOIN tasks t ON t.owner = o.id \
         AND t.id = ?1 WHERE o.tenant >= '' ORDER BY o.tenant, o.principal LIMIT ?2";
    COUNTS_OF_OWNER = "SELECT hidden, state, tasks, bytes FROM counters WHERE owner = ?1";
    COUNTS_OF_TENANT =
        "SELECT c.hidden, c.state, c.tasks, c.bytes FROM owners o \
         CROSS JOIN counters c ON c.owner = o.id WHERE o.tenant = ?1";
    ALL_COUNTS =
        "SELECT c.hidden, c.state, c.tasks, c.bytes FROM owners o \
         CROSS JOIN counters c ON c.owner = o.id WHERE o.id > 0";
    LIST_OWNERS =
        "SELECT id, tenant, principal FROM owners WHERE (tenant, principal) >= (?1, ?2) \
         ORDER BY tenant, principal LIMIT ?3";
    LIST_OWNERS_OF_TENANT =
        "SELECT id, tenant, principal FROM owners WHERE tenant = ?1 AND principal >= ?2 \
         ORDER BY principal LIMIT ?3";
    OLDEST_COMMIT = "SELECT at FROM commits WHERE position > 0 ORDER BY position LIMIT 1";

    // API keys.
    ADD_API_KEY =
        "INSERT INTO api_keys (id, hash, tenant, principal, scopes, agents, skills, visibility, \
         created, created_by, expires, last_used, revoked, label) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
         ON CONFLICT DO NOTHING";
    REVOKE_API_KEY = "UPDATE api_keys SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL";
    USE_API_KEY =
        "UPDATE api_keys SET last_used = ?2 WHERE id = ?1 AND coalesce(last_used, 0) < ?2";
    FIND_API_KEY = concat!(api_key!(), " WHERE id = ?1");
    FIND_API_KEY_BY_HASH = concat!(api_key!(), " WHERE hash = ?1");
    LIST_API_KEYS = concat!(api_key!(), " WHERE id > ?1 ORDER BY id LIMIT ?2");
    LIST_API_KEYS_OF_TENANT =
        concat!(api_key!(), " WHERE id > ?1 AND tenant = ?3 ORDER BY id LIMIT ?2");

    // Audit log.
    ADD_AUDIT =
        "INSERT INTO audit (number, at, tenant, principal, credential, credential_id, address, \
         action, subject_kind, subject_id, subject_tenant, subject_principal, refused, detail, \
         request, previous, hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
    LAST_AUDIT = "SELECT number, at FROM audit WHERE number > 0 ORDER BY number DESC LIMIT 1";
    READ_AUDIT = concat!(audit_record!(), " WHERE number > ?1 ORDER BY number LIMIT ?2");
    READ_AUDIT_BACKWARDS =
        concat!(audit_record!(), " WHERE number < ?1 ORDER BY number DESC LIMIT ?2");
    OLDEST_AUDIT =
        "SELECT number, at, hash FROM audit WHERE number > 0 ORDER BY number LIMIT ?1";
    DROP_AUDIT = "DELETE FROM audit WHERE number <= ?1";

    // Registrations.
    PUT_REGISTRATION =
        "INSERT OR REPLACE INTO registrations (name, role, instance, tenant, principal, declaration, \
         session, card_url, card_digest, card, card_changed_to, created, last_seen) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    DROP_REGISTRATION = "DELETE FROM registrations WHERE name = ?1";
    SEE_REGISTRATION = "UPDATE registrations SET last_seen = ?2 WHERE name = ?1 AND last_seen < ?2";
    CHANGE_CARD =
        "UPDATE registrations SET card_changed_to = ?2 WHERE name = ?1 AND card_url IS NOT NULL";
    FIND_REGISTRATION = concat!(registration!(), " WHERE name = ?1");
    LIST_REGISTRATIONS = concat!(registration!(), " WHERE name > ?1 ORDER BY name LIMIT ?2");
    UNSEEN_REGISTRATIONS =
        "SELECT name FROM registrations INDEXED BY registrations_unseen \
         WHERE card_url IS NULL AND last_seen < ?1 ORDER BY last_seen LIMIT ?2";

    // Webhooks.
    FIND_TASK_HEAD =
        "SELECT row, coalesce((SELECT max(seq) FROM events WHERE task = row), 0) FROM tasks \
         WHERE owner = ?1 AND id = ?2";
    FIND_LAST_EVENT = "SELECT max(seq) FROM events WHERE task = ?1";
    FIND_WEBHOOK_NAMED =
        "SELECT row, url, dialect, id FROM webhooks WHERE task = ?1 AND config = ?2";
    ADD_WEBHOOK =
        "INSERT INTO webhooks (id, task, owner, config, receiver, url, scheme, secrets, dialect, \
         created, start, cursor, state, failures, due, attempts) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 1, 0, ?10, 0)";
    /// New secrets for a webhook, which also enables it: its next attempt is due now.
    RENEW_WEBHOOK =
        "UPDATE webhooks SET scheme = ?2, secrets = ?3, failures = 0, \
         state = CASE WHEN state = 0 THEN 0 ELSE 1 END, due = ?4 WHERE row = ?1";
    MARK_WEBHOOKS = "UPDATE tasks SET webhooks = ?2 WHERE row = ?1";
    READY_WEBHOOKS = "UPDATE webhooks SET state = 1, due = ?2 WHERE task = ?1 AND state = 0";
    COUNT_WEBHOOKS = "SELECT count(*) FROM webhooks WHERE task = ?1";
    WEBHOOKS_OF_TENANT = "SELECT webhooks FROM webhook_counts WHERE tenant = ?1";
    COUNT_TENANT_WEBHOOK =
        "INSERT INTO webhook_counts (tenant, webhooks) VALUES (?1, ?2) \
         ON CONFLICT (tenant) DO UPDATE SET webhooks = webhooks + excluded.webhooks";
    WEBHOOKS_TO_DROP =
        "SELECT w.row, o.tenant FROM webhooks w CROSS JOIN owners o ON o.id = w.owner \
         WHERE w.task = ?1";
    DROP_WEBHOOK = "DELETE FROM webhooks WHERE row = ?1";
    DROP_ATTEMPTS = "DELETE FROM webhook_attempts WHERE webhook = ?1";
    RELEASE_WEBHOOKS =
        "UPDATE webhooks SET holder = NULL WHERE holder IS NOT NULL AND holder = ?1";
    WAKE_WEBHOOKS =
        "UPDATE webhooks SET state = 1 WHERE row IN \
         (SELECT row FROM webhooks INDEXED BY webhooks_waiting WHERE state = 2 AND due <= ?1 \
         ORDER BY due LIMIT ?2)";
    NEXT_RECEIVER =
        "SELECT receiver FROM webhooks INDEXED BY webhooks_ready \
         WHERE state = 1 AND holder IS NULL AND receiver > ?1 ORDER BY receiver LIMIT 1";
    READY_OF_RECEIVER =
        "SELECT row FROM webhooks INDEXED BY webhooks_ready \
         WHERE state = 1 AND holder IS NULL AND receiver = ?1 ORDER BY due LIMIT ?2";
    PARK_WEBHOOK = "UPDATE webhooks SET state = 3 WHERE row = ?1";
    HOLD_WEBHOOK = "UPDATE webhooks SET holder = ?2 WHERE row = ?1";
    FIND_HELD_WEBHOOK =
        "SELECT row, task, failures FROM webhooks WHERE id = ?1 AND holder = ?2";
    MOVE_WEBHOOK =
        "UPDATE webhooks SET cursor = ?2, state = ?3, failures = ?4, due = ?5, holder = ?6, \
         attempts = attempts + ?7 WHERE row = ?1";
    /// Ends a claim, too, so that the progress of its holder is not recorded any more.
    RESTART_WEBHOOK =
        "UPDATE webhooks SET cursor = coalesce(?2, cursor), state = 1, failures = 0, due = ?3, \
         holder = NULL WHERE id = ?1";
    COUNT_ATTEMPT =
        "UPDATE webhooks SET attempts = attempts + 1 WHERE id = ?1 RETURNING row";
    ADD_ATTEMPT =
        "INSERT INTO webhook_attempts (webhook, number, seq, at, millis, delivered, status, next, \
         detail) SELECT ?1, attempts, ?2, ?3, ?4, ?5, ?6, ?7, ?8 FROM webhooks WHERE row = ?1";
    DROP_OLD_ATTEMPTS =
        "DELETE FROM webhook_attempts WHERE webhook = ?1 \
         AND number <= (SELECT attempts FROM webhooks WHERE row = ?1) - ?2";
    FIND_WEBHOOK = concat!(webhook!(), " WHERE w.id = ?1");
    LOAD_WEBHOOK = concat!(webhook!(), " WHERE w.row = ?1");
    WEBHOOKS_OF_TASK =
        concat!(webhook!(), " WHERE w.task = ?1 AND w.config > ?2 ORDER BY w.config LIMIT ?3");
    LIST_WEBHOOKS = "SELECT row FROM webhooks WHERE row < ?1 ORDER BY row DESC LIMIT ?2";
    LIST_WEBHOOKS_OF_OWNER =
        "SELECT row FROM webhooks INDEXED BY webhooks_by_owner \
         WHERE owner = ?3 AND row < ?1 ORDER BY row DESC LIMIT ?2";
    READ_ATTEMPTS =
        "SELECT a.seq, a.at, a.millis, a.delivered, a.status, a.next, a.detail FROM webhooks w \
         CROSS JOIN webhook_attempts a ON a.webhook = w.row WHERE w.id = ?1 ORDER BY a.number DESC";
    NEXT_ATTEMPT =
        "SELECT min(due) FROM webhooks INDEXED BY webhooks_waiting WHERE state = 2";
    COUNT_READY =
        "SELECT 1 FROM webhooks INDEXED BY webhooks_ready \
         WHERE state = 1 AND holder IS NULL AND receiver >= '' LIMIT ?1";
    COUNT_WAITING =
        "SELECT 1 FROM webhooks INDEXED BY webhooks_waiting \
         WHERE state = 2 AND due > 0 LIMIT ?1";
    COUNT_PARKED =
        "SELECT 1 FROM webhooks INDEXED BY webhooks_stopped \
         WHERE state IN (3, 4) AND state = 3 LIMIT ?1";
    COUNT_DISABLED =
        "SELECT 1 FROM webhooks INDEXED BY webhooks_stopped \
         WHERE state IN (3, 4) AND state = 4 LIMIT ?1";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::open;

    fn plan(sql: &str) -> Vec<String> {
        let conn = open::memory().unwrap().conn;
        let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        plan.raw_query().mapped(|row| row.get(3)).map(Result::unwrap).collect()
    }

    #[test]
    fn no_statement_scans_a_table_or_builds_an_index() {
        for (name, sql) in ALL {
            for step in plan(sql) {
                let scans = step.starts_with("SCAN") && step != "SCAN CONSTANT ROW";
                assert!(!scans || *name == "ALL_GROUPS", "{name}: {step}");
                assert!(!step.contains("TEMP B-TREE"), "{name} sorts: {step}");
                assert!(!step.contains("AUTOMATIC"), "{name} builds an index: {step}");
            }
        }
    }
}
