-- The embedded queues. Who appends to one holds its row until the commit, so that positions are committed in order.
CREATE TABLE message_queues (
    queue VARBINARY(100) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- How far consumers of embedded queues have come. Moved in the transaction that keeps what was read.
CREATE TABLE cursors (
    queue    VARBINARY(100) NOT NULL,
    topic    VARBINARY(255) NOT NULL,
    consumer VARBINARY(255) NOT NULL,
    -- Of the last message that was read.
    position BIGINT NOT NULL,
    PRIMARY KEY (queue, topic, consumer)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Which version of each entity a subscription has applied last, where its messages carry versions.
CREATE TABLE versions (
    subscription VARBINARY(100) NOT NULL,
    entity       VARBINARY(255) NOT NULL,
    version      BIGINT NOT NULL,
    -- Tells two messages of the same version apart.
    digest       VARBINARY(64) NOT NULL,
    changed_at   BIGINT NOT NULL,
    PRIMARY KEY (subscription, entity)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
