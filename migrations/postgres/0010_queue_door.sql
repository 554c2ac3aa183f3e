-- How often a consumer of the library has tried a message that did not end with its first try: it failed, or came
-- again. Written before the try, so that one that ends its process is counted too; gone with what ends the message.
CREATE TABLE inbox_attempts (
    -- As the inbox's.
    id         BYTEA   NOT NULL PRIMARY KEY CHECK (octet_length(id) = 32),
    consumer   TEXT    COLLATE "C" NOT NULL,
    attempts   INTEGER NOT NULL,
    changed_at BIGINT  NOT NULL
);

-- What may leave, the oldest first.
CREATE INDEX inbox_attempts_by_time ON inbox_attempts (consumer, changed_at);

-- Versions of entities that get no messages any more leave too, where keys are not remembered for ever.
CREATE INDEX versions_by_time ON versions (subscription, changed_at);
