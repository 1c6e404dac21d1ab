-- A context that began with a task has the task's id, and is found by it: only those who joined later,
-- or came with a name of the caller's, stand in the index.

DROP INDEX task_context;
CREATE INDEX task_context ON task (context_id) WHERE context_id <> task_id;
