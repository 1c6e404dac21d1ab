-- A task ends once, still said by the file itself, but without an index: that cost every commit a
-- page. A task that ended in its first write has no frozen form; its log is short enough.

DROP INDEX piece_final;
CREATE TRIGGER piece_one_end BEFORE INSERT ON piece WHEN NEW.final = 1 AND (
  EXISTS (SELECT 1 FROM frozen WHERE task_id = NEW.task_id)
  OR EXISTS (SELECT 1 FROM piece WHERE task_id = NEW.task_id AND seq = 1 AND final = 1)
) BEGIN SELECT RAISE(ABORT, 'a task ends once'); END;
