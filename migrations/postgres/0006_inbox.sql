-- The embedded queues. Who appends to one holds its row until the commit, so that positions are committed in order.
CREATE TABLE message_queues (
    queue TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

-- How far consumers of embedded queues have come. Moved in the transaction that keeps what was read.
CREATE TABLE cursors (
    queue    TEXT COLLATE "C" NOT NULL,
    topic    TEXT COLLATE "C" NOT NULL,
    consumer TEXT COLLATE "C" NOT NULL,
    -- Of the last message that was read.
    position BIGINT NOT NULL,
    PRIMARY KEY (queue, topic, consumer)
);

-- Which version of each entity a subscription has applied last, where its messages carry versions.
CREATE TABLE versions (
    subscription TEXT COLLATE "C" NOT NULL,
    entity       TEXT COLLATE "C" NOT NULL,
    version      BIGINT NOT NULL,
    -- Tells two messages of the same version apart.
    digest       BYTEA NOT NULL,
    changed_at   BIGINT NOT NULL,
    PRIMARY KEY (subscription, entity)
);
