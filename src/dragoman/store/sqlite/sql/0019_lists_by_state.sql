-- A list of the tasks in one state finds them in the index, however many there are in other states.
-- A list of all tasks merges those of all states.
DROP INDEX task_list;
CREATE INDEX task_list ON task (tenant, principal, agent, state, status_at) WHERE hidden = 0;

-- No list shows these, but a shorter retention of a tenant must find them too.
CREATE INDEX task_hidden ON task (agent, tenant, status_at) WHERE hidden = 1 AND ended > 0;
