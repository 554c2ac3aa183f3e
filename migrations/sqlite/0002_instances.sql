-- The runs of gateway processes. An entry in progress names one, and the one's lease vouches for it.
CREATE TABLE instances (
    -- Random, so that an id once expired never comes back.
    id         BLOB NOT NULL PRIMARY KEY,
    -- For people: host and process.
    name       TEXT NOT NULL,
    -- Raised by each renewal. Who observes it unchanged for a whole lease may expire the instance, by
    -- compare-and-set on it: a pause of the database expires nobody.
    renewals   INTEGER NOT NULL,
    -- 1 alive, 2 ended. An ended one never revives.
    state      INTEGER NOT NULL CHECK (state BETWEEN 1 AND 2),
    started_at INTEGER NOT NULL,
    -- For people only: expiry goes by the counter.
    renewed_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;
