-- Queued tasks are found by their tenant and skill, so that a long queue of one tenant is passed over
-- in one step. Within a lane they stand in the order in which they are claimed, as before.

DROP INDEX task_runnable;
CREATE INDEX task_runnable
  ON task (agent, tenant, skill, run_at - priority * 600000, task_id, run_at)
  WHERE runnable = 1;

-- What the processes of this file share (store/budgets.py): how often callers may still call,
CREATE TABLE rate (
  kind   TEXT NOT NULL,
  owner  TEXT NOT NULL,
  units  REAL NOT NULL,                   -- what was left
  since  INTEGER NOT NULL,                -- at this time
  PRIMARY KEY (kind, owner)
) STRICT, WITHOUT ROWID;

-- and the places that each worker holds for its callers.
CREATE TABLE quota (
  kind    TEXT NOT NULL,
  owner   TEXT NOT NULL,
  worker  TEXT NOT NULL,
  held    INTEGER NOT NULL,
  PRIMARY KEY (kind, owner, worker)
) STRICT, WITHOUT ROWID;
