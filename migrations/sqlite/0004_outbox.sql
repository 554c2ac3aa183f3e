-- Each queue's events are split into lanes by a hash of their key, and each lane is leased to one relay.
CREATE TABLE lanes (
    queue      TEXT NOT NULL,
    lane       INTEGER NOT NULL,
    -- How many lanes the queue has. Lane 0's row decides, whoever made it: a process that is configured otherwise
    -- follows it, so that no event becomes unreachable and no key moves.
    lanes      INTEGER NOT NULL,
    -- The relay that holds it; NULL for nobody.
    owner      BLOB,
    -- Grows with each acquisition. Whoever marks events names owner and epoch.
    epoch      INTEGER NOT NULL,
    -- By this database's clock. Past it, anybody may take the lane.
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue, lane)
) STRICT;

-- The relays that are alive, so that lanes are shared out fairly.
CREATE TABLE relays (
    id         BLOB NOT NULL PRIMARY KEY,
    queue      TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- The outbox: events committed together with the outcome that they announce.
CREATE TABLE events (
    -- In the order of insertion; commits that do not overlap get growing ones. The sequence that consumers see.
    position     INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- From the entry's origin and the event's name: no retry can mint a second one.
    id           BLOB NOT NULL UNIQUE,
    queue        TEXT NOT NULL,
    lane         INTEGER NOT NULL,
    -- What it is ordered by.
    event_key    TEXT NOT NULL,
    -- 1 ready, 2 retrying (again at due_at), 3 waiting behind another one of its key, 4 parked for a person,
    -- 5 sent, 6 discarded (both kept until due_at), 7 early: waits for another one of its key, which may come
    -- behind it, and stops nobody (again at due_at).
    state        INTEGER NOT NULL CHECK (state BETWEEN 1 AND 7),
    -- Whether later ones of its key wait while it is parked: 0 or 1.
    holds        INTEGER NOT NULL CHECK (holds BETWEEN 0 AND 1),
    -- Counted when a relay takes it up, before it publishes: one that kills its relay is counted too.
    attempts     INTEGER NOT NULL,
    -- How many relays had it in their hands and did not live to conclude it. Such an event is handed out alone.
    deaths       INTEGER NOT NULL DEFAULT 0,
    -- How often it could not be then, which does not count as an attempt: its next pause grows with it.
    deferrals    INTEGER NOT NULL DEFAULT 0,
    -- Under which epoch a relay has taken it up, until it is concluded.
    epoch        INTEGER,
    due_at       INTEGER,
    created_at   INTEGER NOT NULL,
    changed_at   INTEGER NOT NULL,
    -- Why it was tried again, parked or discarded: for people. In states 1 and 3: nobody can publish it, for this
    -- reason; it is parked when its turn comes.
    reason       TEXT,
    -- What came of a delivery, in a word. NULL for what is published.
    result       TEXT,
    -- The entry and the route (or subscription) that it came from: for people.
    entry        BLOB NOT NULL,
    route        TEXT NOT NULL,
    -- Where in the queue.
    topic        TEXT NOT NULL,
    -- Attributes of CloudEvents.
    type         TEXT NOT NULL,
    source       TEXT NOT NULL,
    content_type TEXT NOT NULL,
    -- The trace of the request, as it was when the request was claimed.
    traceparent  TEXT,
    -- What else is said: a JSON object of texts, or NULL for nothing.
    attributes   TEXT,
    data         BLOB NOT NULL
) STRICT;

-- Every read is by state: what is ready in a lane, what waits there, what may leave.
CREATE INDEX events_by_state ON events (state, queue, lane, position);

-- The lines of stopped keys: per key, in order, who stops it (retrying, parked and holding, or in hand) and who
-- waits behind. Of a key that is in here only the first one may be taken up. Written under the lock of the lane's
-- row.
CREATE TABLE blocked (
    position  INTEGER NOT NULL PRIMARY KEY,
    queue     TEXT NOT NULL,
    lane      INTEGER NOT NULL,
    event_key TEXT NOT NULL
) STRICT;

CREATE INDEX blocked_by_key ON blocked (queue, lane, event_key, position);

-- What people did to events, for those who ask later.
CREATE TABLE event_actions (
    number   INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    event    BLOB NOT NULL,
    -- 'retry' or 'discard'.
    action   TEXT NOT NULL,
    -- In which state it was.
    state    INTEGER NOT NULL,
    reason   TEXT NOT NULL,
    acted_at INTEGER NOT NULL
) STRICT;

CREATE INDEX event_actions_by_event ON event_actions (event);
