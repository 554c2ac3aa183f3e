-- Each queue's events are split into lanes by a hash of their key, and each lane is leased to one relay.
CREATE TABLE lanes (
    queue      VARBINARY(100) NOT NULL,
    lane       INTEGER NOT NULL,
    -- How many lanes the queue has. Lane 0's row decides, whoever made it: a process that is configured otherwise
    -- follows it, so that no event becomes unreachable and no key moves.
    lanes      INTEGER NOT NULL,
    -- The relay that holds it; NULL for nobody.
    owner      BINARY(16),
    -- Grows with each acquisition. Whoever marks events names owner and epoch.
    epoch      BIGINT NOT NULL,
    -- By this database's clock. Past it, anybody may take the lane.
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (queue, lane)
) ENGINE = InnoDB;

-- The relays that are alive, so that lanes are shared out fairly.
CREATE TABLE relays (
    id         BINARY(16) NOT NULL PRIMARY KEY,
    queue      VARBINARY(100) NOT NULL,
    expires_at BIGINT NOT NULL
) ENGINE = InnoDB;

-- The outbox: events committed together with the outcome that they announce.
CREATE TABLE events (
    -- In the order of insertion; commits that do not overlap get growing ones. The sequence that consumers see.
    position     BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    -- From the entry's origin and the event's name: no retry can mint a second one.
    id           BINARY(16) NOT NULL UNIQUE,
    queue        VARBINARY(100) NOT NULL,
    lane         INTEGER NOT NULL,
    -- What it is ordered by.
    event_key    VARBINARY(255) NOT NULL,
    -- 1 ready, 2 retrying (again at due_at), 3 waiting behind another one of its key, 4 parked for a person,
    -- 5 sent, 6 discarded (both kept until due_at), 7 early: waits for another one of its key, which may come
    -- behind it, and stops nobody (again at due_at).
    state        TINYINT NOT NULL CHECK (state BETWEEN 1 AND 7),
    -- Whether later ones of its key wait while it is parked: 0 or 1.
    holds        TINYINT NOT NULL CHECK (holds BETWEEN 0 AND 1),
    -- Counted when a relay takes it up, before it publishes: one that kills its relay is counted too.
    attempts     INTEGER NOT NULL,
    -- How many relays had it in their hands and did not live to conclude it. Such an event is handed out alone.
    deaths       INTEGER NOT NULL DEFAULT 0,
    -- How often it could not be then, which does not count as an attempt: its next pause grows with it.
    deferrals    INTEGER NOT NULL DEFAULT 0,
    -- Under which epoch a relay has taken it up, until it is concluded.
    epoch        BIGINT,
    due_at       BIGINT,
    created_at   BIGINT NOT NULL,
    changed_at   BIGINT NOT NULL,
    -- Why it was tried again, parked or discarded: for people. In states 1 and 3: nobody can publish it, for this
    -- reason; it is parked when its turn comes.
    reason       LONGBLOB,
    -- What came of a delivery, in a word. NULL for what is published.
    result       VARBINARY(40),
    -- The entry and the route (or subscription) that it came from: for people.
    entry        BINARY(32) NOT NULL,
    route        VARBINARY(255) NOT NULL,
    -- Where in the queue.
    topic        VARBINARY(255) NOT NULL,
    -- Attributes of CloudEvents.
    type         VARBINARY(255) NOT NULL,
    source       VARBINARY(255) NOT NULL,
    content_type VARBINARY(255) NOT NULL,
    -- The trace of the request, as it was when the request was claimed.
    traceparent  VARBINARY(255),
    -- What else is said: a JSON object of texts, or NULL for nothing.
    attributes   LONGBLOB,
    data         LONGBLOB NOT NULL,
    -- Every read is by state: what is ready in a lane, what waits there, what may leave.
    INDEX events_by_state (state, queue, lane, position)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The lines of stopped keys: per key, in order, who stops it (retrying, parked and holding, or in hand) and who
-- waits behind. Of a key that is in here only the first one may be taken up. Written under the lock of the lane's
-- row.
CREATE TABLE blocked (
    position  BIGINT NOT NULL PRIMARY KEY,
    queue     VARBINARY(100) NOT NULL,
    lane      INTEGER NOT NULL,
    event_key VARBINARY(255) NOT NULL,
    INDEX blocked_by_key (queue, lane, event_key, position)
) ENGINE = InnoDB;

-- What people did to events, for those who ask later.
CREATE TABLE event_actions (
    number   BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event    BINARY(16) NOT NULL,
    -- 'retry' or 'discard'.
    action   VARBINARY(20) NOT NULL,
    -- In which state it was.
    state    TINYINT NOT NULL,
    reason   LONGBLOB NOT NULL,
    acted_at BIGINT NOT NULL,
    INDEX event_actions_by_event (event)
) ENGINE = InnoDB;
