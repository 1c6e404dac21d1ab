-- Tasks, their logs, and the processes that work on them.
--
-- Task ids sort by time (UUIDv7), so WITHOUT ROWID tables grow at their end and a commit of many
-- tasks touches few pages. Times are milliseconds since the epoch. Bodies are msgpack.

CREATE TABLE task (
  task_id     TEXT NOT NULL PRIMARY KEY,
  context_id  TEXT NOT NULL,
  tenant      TEXT NOT NULL,
  principal   TEXT NOT NULL,
  agent       TEXT NOT NULL,
  skill       TEXT NOT NULL,
  dialect     TEXT NOT NULL,
  state       TEXT NOT NULL,
  last_seq    INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  status_at   INTEGER NOT NULL,
  worker      TEXT NOT NULL,              -- who runs it; empty: nobody
  token       TEXT NOT NULL,              -- the claim in force; never recurs
  epoch       INTEGER NOT NULL,           -- grows with every claim
  attempt     INTEGER NOT NULL,
  runnable    INTEGER NOT NULL,
  run_at      INTEGER NOT NULL,
  inputs      INTEGER NOT NULL,           -- messages that came for the run,
  heard       INTEGER NOT NULL,           -- and how many of them its log holds
  question    TEXT NOT NULL,              -- what is asked now; empty: nothing
  asking      TEXT NOT NULL,
  expires_at  INTEGER NOT NULL,
  cancel      INTEGER NOT NULL,
  ended       INTEGER NOT NULL,           -- 0: no; 1: yes; 2: yes, and its log was dropped
  key         TEXT,                       -- the caller's idempotency key
  digest      BLOB
) STRICT, WITHOUT ROWID;

CREATE INDEX task_list ON task (tenant, principal, agent, status_at);
CREATE INDEX task_context ON task (context_id);
CREATE INDEX task_worker ON task (worker) WHERE worker <> '';
CREATE INDEX task_runnable ON task (agent, run_at) WHERE runnable = 1;
CREATE INDEX task_expires ON task (expires_at) WHERE expires_at > 0;
CREATE INDEX task_ended ON task (ended, status_at) WHERE ended > 0;
CREATE UNIQUE INDEX task_key ON task (tenant, principal, key) WHERE key IS NOT NULL;

-- The log: one row holds the events of one write, from `seq` on.
CREATE TABLE piece (
  task_id  TEXT NOT NULL,
  seq      INTEGER NOT NULL,
  final    INTEGER NOT NULL,
  body     BLOB NOT NULL,
  PRIMARY KEY (task_id, seq)
) STRICT, WITHOUT ROWID;

-- Second guard of a promise the code already keeps: a task ends once.
CREATE UNIQUE INDEX piece_final ON piece (task_id) WHERE final = 1;

-- What a finished task looks like, so that nobody has to add up its log again.
CREATE TABLE frozen (
  task_id  TEXT NOT NULL PRIMARY KEY,
  body     BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- What callers said to tasks that exist.
CREATE TABLE input (
  task_id  TEXT NOT NULL,
  n        INTEGER NOT NULL,
  body     BLOB NOT NULL,
  PRIMARY KEY (task_id, n)
) STRICT, WITHOUT ROWID;

-- Calls of a run that are done and must not be done again.
CREATE TABLE record (
  task_id  TEXT NOT NULL,
  n        INTEGER NOT NULL,
  key      TEXT NOT NULL,
  value    BLOB NOT NULL,
  seq      INTEGER NOT NULL,
  PRIMARY KEY (task_id, n),
  UNIQUE (task_id, key)
) STRICT, WITHOUT ROWID;

-- Processes that run tasks, and until when they count as alive.
CREATE TABLE worker (
  worker       TEXT NOT NULL PRIMARY KEY,
  lease_until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How many tasks are in each state: counting a million rows for every look would be too slow.
CREATE TABLE tally (
  agent  TEXT NOT NULL,
  state  TEXT NOT NULL,
  n      INTEGER NOT NULL,
  PRIMARY KEY (agent, state)
) STRICT, WITHOUT ROWID;
