-- The embedded queue: messages of those queues whose broker is this database.
CREATE TABLE messages (
    -- In the order of insertion and, within a queue, of commits.
    position     BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue        TEXT COLLATE "C" NOT NULL,
    -- CloudEvents `id`.
    id           TEXT COLLATE "C" NOT NULL,
    topic        TEXT COLLATE "C" NOT NULL,
    -- What they are ordered by.
    message_key  TEXT COLLATE "C" NOT NULL,
    content_type TEXT COLLATE "C" NOT NULL,
    -- All other attributes of CloudEvents, as a JSON object.
    attributes   TEXT NOT NULL,
    data         BYTEA NOT NULL,
    created_at   BIGINT NOT NULL,
    -- A message that is published again is the same one.
    UNIQUE (queue, id)
);

-- What a topic has, in order.
CREATE INDEX messages_by_topic ON messages (queue, topic, position);
