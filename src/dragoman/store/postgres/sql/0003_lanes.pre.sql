-- Queued tasks are found by their tenant and skill, so that a long queue of one tenant is passed over
-- in one step. Older processes still use the index that the second half drops.

CREATE INDEX task_lane
  ON dragoman.task (agent, tenant, skill, (run_at - priority * 600000), task_id, run_at)
  WHERE runnable;
