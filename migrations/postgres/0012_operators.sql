-- What people have decided about entries. Written in the transaction that carries it out, and never removed: the entry
-- itself may be gone.
CREATE TABLE entry_actions (
    -- In the order of the decisions.
    number          BIGINT   NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Random: a decision whose commit was unclear is tried again, and is found here if it was carried out.
    id              BYTEA    NOT NULL UNIQUE,
    entry           BYTEA    NOT NULL,
    -- The nonce of the claim that made the entry: a key may have had several entries, one after the other.
    origin          BYTEA    NOT NULL,
    -- The entry in the clear.
    namespace       TEXT     COLLATE "C" NOT NULL,
    scope           TEXT     COLLATE "C" NOT NULL,
    idempotency_key TEXT     COLLATE "C" NOT NULL,
    route           TEXT     COLLATE "C" NOT NULL,
    attempt         INTEGER  NOT NULL,
    -- Since when its outcome was unknown.
    unknown_since   BIGINT   NOT NULL,
    -- 'completed' or 'not_executed'.
    outcome         TEXT     COLLATE "C" NOT NULL,
    -- Of the answer that was given, where it was completed.
    status          SMALLINT,
    -- Who has decided, as they call themselves; and what let them.
    actor           TEXT     NOT NULL,
    authority       TEXT     COLLATE "C" NOT NULL,
    reason          TEXT     NOT NULL,
    acted_at        BIGINT   NOT NULL,
    -- The answer of an execution that came after all.
    evidence        BYTEA
);

-- The story of one entry.
CREATE INDEX entry_actions_by_entry ON entry_actions (entry);

-- What people have switched while gateways run. All gateways read it, again and again.
CREATE TABLE switches (
    -- 'route' or 'subscription'.
    kind       TEXT   COLLATE "C" NOT NULL,
    name       TEXT   COLLATE "C" NOT NULL,
    -- A route's mode, or 'paused'.
    setting    TEXT   COLLATE "C" NOT NULL,
    actor      TEXT   NOT NULL,
    authority  TEXT   COLLATE "C" NOT NULL,
    reason     TEXT   NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
);

-- Every switching, for people. Never removed.
CREATE TABLE switch_actions (
    number    BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      TEXT   COLLATE "C" NOT NULL,
    name      TEXT   COLLATE "C" NOT NULL,
    -- From and to; NULL is what is configured.
    was       TEXT   COLLATE "C",
    setting   TEXT   COLLATE "C",
    actor     TEXT   NOT NULL,
    authority TEXT   COLLATE "C" NOT NULL,
    reason    TEXT   NOT NULL,
    acted_at  BIGINT NOT NULL
);
