-- The priority of a task: which of the waiting tasks is claimed first. A level is worth ten minutes
-- of waiting (store/rules.py), so the index holds the time from which a task counts as waiting.

ALTER TABLE task ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;

DROP INDEX task_runnable;
CREATE INDEX task_runnable ON task (agent, run_at - priority * 600000, task_id, run_at)
  WHERE runnable = 1;
