-- What people have decided about entries. Written in the transaction that carries it out, and never removed: the entry
-- itself may be gone.
CREATE TABLE entry_actions (
    -- In the order of the decisions.
    number          INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- Random: a decision whose commit was unclear is tried again, and is found here if it was carried out.
    id              BLOB NOT NULL UNIQUE,
    entry           BLOB NOT NULL,
    -- The nonce of the claim that made the entry: a key may have had several entries, one after the other.
    origin          BLOB NOT NULL,
    -- The entry in the clear.
    namespace       TEXT     NOT NULL,
    scope           TEXT     NOT NULL,
    idempotency_key TEXT     NOT NULL,
    route           TEXT     NOT NULL,
    attempt         INTEGER  NOT NULL,
    -- Since when its outcome was unknown.
    unknown_since   INTEGER NOT NULL,
    -- 'completed' or 'not_executed'.
    outcome         TEXT     NOT NULL,
    -- Of the answer that was given, where it was completed.
    status          INTEGER,
    -- Who has decided, as they call themselves; and what let them.
    actor           TEXT     NOT NULL,
    authority       TEXT     NOT NULL,
    reason          TEXT     NOT NULL,
    acted_at        INTEGER NOT NULL,
    -- The answer of an execution that came after all.
    evidence        BLOB
);

-- The story of one entry.
CREATE INDEX entry_actions_by_entry ON entry_actions (entry);

-- What people have switched while gateways run. All gateways read it, again and again.
CREATE TABLE switches (
    -- 'route' or 'subscription'.
    kind       TEXT   NOT NULL,
    name       TEXT   NOT NULL,
    -- A route's mode, or 'paused'.
    setting    TEXT   NOT NULL,
    actor      TEXT   NOT NULL,
    authority  TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Every switching, for people. Never removed.
CREATE TABLE switch_actions (
    number    INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind      TEXT   NOT NULL,
    name      TEXT   NOT NULL,
    -- From and to; NULL is what is configured.
    was       TEXT,
    setting   TEXT,
    actor     TEXT   NOT NULL,
    authority TEXT   NOT NULL,
    reason    TEXT   NOT NULL,
    acted_at  INTEGER NOT NULL
);
