-- The embedded queues. Who appends to one holds its row until the commit, so that positions are committed in order.
CREATE TABLE message_queues (
    queue TEXT NOT NULL PRIMARY KEY
) STRICT;

-- How far consumers of embedded queues have come. Moved in the transaction that keeps what was read.
CREATE TABLE cursors (
    queue    TEXT NOT NULL,
    topic    TEXT NOT NULL,
    consumer TEXT NOT NULL,
    -- Of the last message that was read.
    position INTEGER NOT NULL,
    PRIMARY KEY (queue, topic, consumer)
) STRICT;

-- Which version of each entity a subscription has applied last, where its messages carry versions.
CREATE TABLE versions (
    subscription TEXT NOT NULL,
    entity       TEXT NOT NULL,
    version      INTEGER NOT NULL,
    -- Tells two messages of the same version apart.
    digest       BLOB NOT NULL,
    changed_at   INTEGER NOT NULL,
    PRIMARY KEY (subscription, entity)
) STRICT;
