-- Why the broker takes nothing from a relay now, and since when it takes nothing: for people. NULL while it does.
ALTER TABLE relays
    ADD COLUMN trouble     TEXT,
    ADD COLUMN troubled_at BIGINT;
