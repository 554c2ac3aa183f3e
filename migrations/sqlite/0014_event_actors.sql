-- Who did it, as they call themselves, and what let them. NULL where nobody said.
ALTER TABLE event_actions ADD COLUMN actor TEXT;
ALTER TABLE event_actions ADD COLUMN authority TEXT;
