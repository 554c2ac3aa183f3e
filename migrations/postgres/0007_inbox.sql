-- What consumers have done: one row per consumer and message, written in the transaction of its effect. All times are
-- milliseconds since the epoch by this database's clock.
CREATE TABLE inbox (
    -- SHA-256 of the length-prefixed consumer and key: narrow, and compared byte by byte.
    id          BYTEA  NOT NULL PRIMARY KEY CHECK (octet_length(id) = 32),
    -- Who has handled it: two consumers each handle a message once.
    consumer    TEXT   COLLATE "C" NOT NULL,
    -- The message's business key, for people. Uniqueness is the id's.
    message_key TEXT   COLLATE "C" NOT NULL,
    -- How its producer or its broker called the first one of that key, where that is not the key itself.
    message_id  TEXT   COLLATE "C",
    -- SHA-256 of what it meant; NULL where nobody said.
    digest      BYTEA,
    -- Random: tells the transaction that wrote the row that it was the one.
    nonce       BIGINT NOT NULL,
    recorded_at BIGINT NOT NULL
);

-- What may leave, the oldest first.
CREATE INDEX inbox_by_time ON inbox (consumer, recorded_at);

-- The newest version of each entity that a consumer has applied. Stays for as long as the entity may get messages.
CREATE TABLE inbox_versions (
    -- SHA-256 of the length-prefixed consumer and entity.
    id         BYTEA  NOT NULL PRIMARY KEY CHECK (octet_length(id) = 32),
    consumer   TEXT   COLLATE "C" NOT NULL,
    entity     TEXT   COLLATE "C" NOT NULL,
    version    BIGINT NOT NULL,
    -- SHA-256 of what the message of that version meant; NULL where nobody said.
    digest     BYTEA,
    -- Random: tells the transaction that made the row that it was the one.
    nonce      BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);
