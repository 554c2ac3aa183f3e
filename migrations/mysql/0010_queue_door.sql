-- How often a consumer of the library has tried a message that did not end with its first try: it failed, or came
-- again. Written before the try, so that one that ends its process is counted too; gone with what ends the message.
CREATE TABLE inbox_attempts (
    -- As the inbox's.
    id         BINARY(32)     NOT NULL PRIMARY KEY,
    consumer   VARBINARY(100) NOT NULL,
    attempts   INTEGER        NOT NULL,
    changed_at BIGINT         NOT NULL,
    -- What may leave, the oldest first.
    INDEX inbox_attempts_by_time (consumer, changed_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Versions of entities that get no messages any more leave too, where keys are not remembered for ever.
CREATE INDEX versions_by_time ON versions (subscription, changed_at);
