-- Queued tasks are found by their tenant and skill, so that a long queue of one tenant is passed over
-- in one step. Within a lane they stand in the order in which they are claimed, as before.

DROP INDEX task_runnable;
CREATE INDEX task_runnable
  ON task (agent, tenant, skill, run_at - priority * 600000, task_id, run_at)
  WHERE runnable = 1;
