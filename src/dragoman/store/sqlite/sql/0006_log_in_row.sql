-- A task that ended in its first write has its log in its row: most tasks are such, and a row of its
-- own for the log cost each of them another page.

ALTER TABLE task ADD COLUMN log BLOB;

-- A first piece needs no look: there cannot be two.
DROP TRIGGER piece_one_end;
CREATE TRIGGER piece_one_end BEFORE INSERT ON piece WHEN NEW.final = 1 AND NEW.seq > 1 AND (
  EXISTS (SELECT 1 FROM frozen WHERE task_id = NEW.task_id)
  OR EXISTS (SELECT 1 FROM task WHERE task_id = NEW.task_id AND log IS NOT NULL)
  OR EXISTS (SELECT 1 FROM piece WHERE task_id = NEW.task_id AND seq = 1 AND final = 1)
) BEGIN SELECT RAISE(ABORT, 'a task ends once'); END;
