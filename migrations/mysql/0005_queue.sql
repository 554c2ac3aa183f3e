-- The embedded queue: messages of those queues whose broker is this database.
CREATE TABLE messages (
    -- In the order of insertion and, within a queue, of commits.
    position     BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue        VARBINARY(100) NOT NULL,
    -- CloudEvents `id`.
    id           VARBINARY(255) NOT NULL,
    topic        VARBINARY(255) NOT NULL,
    -- What they are ordered by.
    message_key  VARBINARY(255) NOT NULL,
    content_type VARBINARY(255) NOT NULL,
    -- All other attributes of CloudEvents, as a JSON object.
    attributes   LONGBLOB NOT NULL,
    data         LONGBLOB NOT NULL,
    created_at   BIGINT NOT NULL,
    -- A message that is published again is the same one.
    UNIQUE (queue, id),
    -- What a topic has, in order.
    INDEX messages_by_topic (queue, topic, position)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
