-- The ledger: one row per (namespace, scope, key). The truth. All times are milliseconds since the epoch by
-- this database's clock. Texts are VARBINARY: every text collation that MySQL and MariaDB share ignores
-- trailing spaces, and keys compare byte for byte.
CREATE TABLE entries (
    -- SHA-256 of the length-prefixed namespace, scope and key: narrow, and compared byte by byte.
    id              BINARY(32)     NOT NULL PRIMARY KEY,
    -- The identity in the clear, for people. Uniqueness is the id's.
    namespace       VARBINARY(100) NOT NULL,
    scope           VARBINARY(600) NOT NULL,
    idempotency_key VARBINARY(255) NOT NULL,
    -- The route by name: where a rescuer finds the policy.
    route           VARBINARY(255) NOT NULL,
    -- 1 in progress, 2 unknown, 3 completed, 4 tombstone.
    state           TINYINT        NOT NULL CHECK (state BETWEEN 1 AND 4),
    -- Fences every write: who does not know it can't change the row.
    nonce           BINARY(16)     NOT NULL,
    -- The nonce of the claim that made the row; event ids derive from it.
    origin          BINARY(16)     NOT NULL,
    -- Number of the latest execution. Above 1 an earlier one was unknown.
    attempt         INTEGER        NOT NULL,
    -- Whose lease vouches for the latest execution.
    instance        BINARY(16)     NOT NULL,
    -- What the first request meant: rule version, secret id, digest.
    fingerprint     BINARY(37)     NOT NULL,
    -- What settling needs of the request after a crash. Dropped with the completion.
    context         LONGBLOB,
    -- The upstream's status, once completed. Kept apart from the response, which may not be kept at all.
    status          SMALLINT,
    -- The stored answer in its encoded form.
    response        LONGBLOB,
    -- How much longer than its answer the key is remembered; NULL is for ever.
    tombstone_ms    BIGINT,
    -- Lookups made so far, for the back-off.
    lookups         INTEGER        NOT NULL,
    created_at      BIGINT         NOT NULL,
    -- When the latest execution was claimed.
    started_at      BIGINT         NOT NULL,
    -- When the row came into its state.
    changed_at      BIGINT         NOT NULL,
    -- When somebody has to look at the row again, by state: in progress = when claimed; unknown = the next
    -- lookup, NULL for none; completed = the end of its retention; tombstone = when forgotten, NULL for never.
    due_at          BIGINT,
    -- The answer of an execution that lost the row to somebody else, for a person.
    evidence        LONGBLOB,
    -- The one secondary index: it serves the sweep of orphans, the due lookups and the reaper.
    INDEX entries_due (state, due_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
