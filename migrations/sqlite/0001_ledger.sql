-- The ledger: one row per (namespace, scope, key). The truth. All times are milliseconds since the epoch by
-- this database's clock.
CREATE TABLE entries (
    -- SHA-256 of the length-prefixed namespace, scope and key: narrow, and compared byte by byte.
    id              BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 32),
    -- The identity in the clear, for people. Uniqueness is the id's.
    namespace       TEXT    NOT NULL,
    scope           TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    -- The route by name: where a rescuer finds the policy.
    route           TEXT    NOT NULL,
    -- 1 in progress, 2 unknown, 3 completed, 4 tombstone.
    state           INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
    -- Fences every write: who does not know it can't change the row.
    nonce           BLOB    NOT NULL,
    -- The nonce of the claim that made the row; event ids derive from it.
    origin          BLOB    NOT NULL,
    -- Number of the latest execution. Above 1 an earlier one was unknown.
    attempt         INTEGER NOT NULL,
    -- Whose lease vouches for the latest execution.
    instance        BLOB    NOT NULL,
    -- What the first request meant: rule version, secret id, digest.
    fingerprint     BLOB    NOT NULL,
    -- What settling needs of the request after a crash. Dropped with the completion.
    context         BLOB,
    -- The upstream's status, once completed. Kept apart from the response, which may not be kept at all.
    status          INTEGER,
    -- The stored answer in its encoded form.
    response        BLOB,
    -- How much longer than its answer the key is remembered; NULL is for ever.
    tombstone_ms    INTEGER,
    -- Lookups made so far, for the back-off.
    lookups         INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    -- When the latest execution was claimed.
    started_at      INTEGER NOT NULL,
    -- When the row came into its state.
    changed_at      INTEGER NOT NULL,
    -- When somebody has to look at the row again, by state: in progress = when claimed; unknown = the next
    -- lookup, NULL for none; completed = the end of its retention; tombstone = when forgotten, NULL for never.
    due_at          INTEGER,
    -- The answer of an execution that lost the row to somebody else, for a person.
    evidence        BLOB
) STRICT;

-- The one secondary index: it serves the sweep of orphans, the due lookups and the reaper.
CREATE INDEX entries_due ON entries (state, due_at);
