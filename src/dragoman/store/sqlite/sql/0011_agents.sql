-- Several agents share a file, and what belongs to one does not exist for another: its name is part
-- of every search, of the keys of its callers, and of what is due to their webhooks.

-- What no list shows had an empty name instead of an agent: direct replies that are kept, and names
-- of a backend's tasks. Whose they are is known where only one agent has used the file.
ALTER TABLE task ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
UPDATE task SET hidden = 1, agent = CASE
  WHEN (SELECT count(DISTINCT agent) FROM task WHERE agent <> '') = 1
  THEN (SELECT max(agent) FROM task) ELSE '' END
WHERE agent = '';
DELETE FROM tally WHERE agent = '';

DROP INDEX task_list;
CREATE INDEX task_list ON task (tenant, principal, agent, status_at) WHERE hidden = 0;
DROP INDEX task_key;
CREATE UNIQUE INDEX task_key ON task (tenant, principal, agent, key) WHERE key IS NOT NULL;
DROP INDEX task_ended;
CREATE INDEX task_ended ON task (ended, agent, status_at) WHERE ended > 0;

ALTER TABLE hook ADD COLUMN agent TEXT NOT NULL DEFAULT '';
UPDATE hook SET agent = coalesce(
  (SELECT task.agent FROM task WHERE task.task_id = hook.task_id), '');
DROP INDEX hook_due;
CREATE INDEX hook_due ON hook (agent, due_at, n, tenant, principal, host) WHERE due_at > 0;
