-- A list of the tasks in one state finds them in the index, however many there are in other states.
-- A list of all tasks merges those of all states.
--
-- Writers wait while an index is built, about 5 s for a million tasks. With more tasks, build both
-- before the new version starts, with CREATE INDEX CONCURRENTLY.
SET LOCAL statement_timeout = 0;
CREATE INDEX IF NOT EXISTS task_state ON dragoman.task
  (tenant, principal, agent, state, status_at, task_id) WHERE NOT hidden;

-- No list shows these, but a shorter retention of a tenant must find them too.
CREATE INDEX IF NOT EXISTS task_hidden ON dragoman.task (agent, tenant, status_at)
  WHERE hidden AND ended > 0;
