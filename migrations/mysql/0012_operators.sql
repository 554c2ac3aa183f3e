-- What people have decided about entries. Written in the transaction that carries it out, and never removed: the entry
-- itself may be gone.
CREATE TABLE entry_actions (
    -- In the order of the decisions.
    number          BIGINT   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- Random: a decision whose commit was unclear is tried again, and is found here if it was carried out.
    id              BINARY(16)    NOT NULL UNIQUE,
    entry           BINARY(32)    NOT NULL,
    -- The nonce of the claim that made the entry: a key may have had several entries, one after the other.
    origin          BINARY(16)    NOT NULL,
    -- The entry in the clear.
    namespace       VARBINARY(100) NOT NULL,
    scope           VARBINARY(600) NOT NULL,
    idempotency_key VARBINARY(255) NOT NULL,
    route           VARBINARY(255) NOT NULL,
    attempt         INTEGER  NOT NULL,
    -- Since when its outcome was unknown.
    unknown_since   BIGINT   NOT NULL,
    -- 'completed' or 'not_executed'.
    outcome         VARBINARY(20) NOT NULL,
    -- Of the answer that was given, where it was completed.
    status          SMALLINT,
    -- Who has decided, as they call themselves; and what let them.
    actor           BLOB     NOT NULL,
    authority       VARBINARY(40) NOT NULL,
    reason          BLOB     NOT NULL,
    acted_at        BIGINT   NOT NULL,
    -- The answer of an execution that came after all.
    evidence        LONGBLOB,
    -- The story of one entry.
    INDEX entry_actions_by_entry (entry)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What people have switched while gateways run. All gateways read it, again and again.
CREATE TABLE switches (
    -- 'route' or 'subscription'.
    kind       VARBINARY(20) NOT NULL,
    name       VARBINARY(255) NOT NULL,
    -- A route's mode, or 'paused'.
    setting    VARBINARY(20) NOT NULL,
    actor      BLOB   NOT NULL,
    authority  VARBINARY(40) NOT NULL,
    reason     BLOB   NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Every switching, for people. Never removed.
CREATE TABLE switch_actions (
    number    BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind      VARBINARY(20) NOT NULL,
    name      VARBINARY(255) NOT NULL,
    -- From and to; NULL is what is configured.
    was       VARBINARY(20),
    setting   VARBINARY(20),
    actor     BLOB   NOT NULL,
    authority VARBINARY(40) NOT NULL,
    reason    BLOB   NOT NULL,
    acted_at  BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
