-- API keys. The secret is not here, only its hash. Revoked and expired keys stay.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    -- Names, separated by spaces.
    scopes TEXT NOT NULL,
    -- JSON arrays of names; none, if all are allowed.
    agents TEXT,
    skills TEXT,
    visibility TEXT,
    created INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires INTEGER,
    last_used INTEGER,
    revoked INTEGER,
    label TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);

-- The audit log: refusals and administrative acts. Each row has the hash of the row before it. Both
-- ends of the chain are in meta, as audit_head and audit_checkpoint.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    principal TEXT NOT NULL,
    credential TEXT NOT NULL,
    credential_id TEXT,
    address TEXT,
    action TEXT NOT NULL,
    subject_kind TEXT,
    subject_id TEXT,
    subject_tenant TEXT,
    subject_principal TEXT,
    -- The reason of a refusal; none, if the act was done.
    refused TEXT,
    detail TEXT NOT NULL,
    request TEXT,
    previous BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
