-- Which host a webhook calls, so that those of a host that hangs can be passed over.
--
-- Webhooks from before have none; they are passed over by their principal only.

ALTER TABLE hook ADD COLUMN host TEXT NOT NULL DEFAULT '';

-- All that a look into the outbox asks of those it passes over.
DROP INDEX hook_due;
CREATE INDEX hook_due ON hook (due_at, n, tenant, principal, host) WHERE due_at > 0;
