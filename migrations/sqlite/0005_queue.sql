-- The embedded queue: messages of those queues whose broker is this database.
CREATE TABLE messages (
    -- In the order of insertion and, within a queue, of commits.
    position     INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    queue        TEXT NOT NULL,
    -- CloudEvents `id`.
    id           TEXT NOT NULL,
    topic        TEXT NOT NULL,
    -- What they are ordered by.
    message_key  TEXT NOT NULL,
    content_type TEXT NOT NULL,
    -- All other attributes of CloudEvents, as a JSON object.
    attributes   TEXT NOT NULL,
    data         BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    -- A message that is published again is the same one.
    UNIQUE (queue, id)
) STRICT;

-- What a topic has, in order.
CREATE INDEX messages_by_topic ON messages (queue, topic, position);
