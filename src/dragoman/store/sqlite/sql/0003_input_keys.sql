-- Keys of messages to tasks that exist, so that an answer that is sent twice is told once.

ALTER TABLE input ADD COLUMN key TEXT;
ALTER TABLE input ADD COLUMN digest BLOB;
CREATE INDEX input_key ON input (key) WHERE key IS NOT NULL;
