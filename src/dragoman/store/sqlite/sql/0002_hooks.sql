-- Webhooks, and what was told to them.
--
-- The log of a task is the outbox: every event behind `sent` is on its way, so an event and its
-- deliveries are one write. Only what was given up has rows of its own.

CREATE TABLE hook (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,  -- ids of deliveries are made of it: never reused
  task_id    TEXT NOT NULL,
  hook_id    TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  principal  TEXT NOT NULL,
  body       BLOB NOT NULL,               -- the hook; its secrets are sealed before they come here
  sent       INTEGER NOT NULL,            -- everything up to this seq was delivered or given up
  due_at     INTEGER NOT NULL,            -- when the next one is to be tried; 0: nothing waits
  taken      INTEGER NOT NULL,            -- the seq that someone is delivering now
  attempt    INTEGER NOT NULL,
  status     INTEGER NOT NULL,
  error      TEXT NOT NULL,
  UNIQUE (task_id, hook_id)
) STRICT;

CREATE INDEX hook_due ON hook (due_at) WHERE due_at > 0;

CREATE TABLE letter (
  n        INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  dead_at  INTEGER NOT NULL,              -- when it was given up; 0: it is tried again
  attempt  INTEGER NOT NULL,
  status   INTEGER NOT NULL,
  error    TEXT NOT NULL,
  PRIMARY KEY (n, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX letter_dead ON letter (dead_at) WHERE dead_at > 0;
