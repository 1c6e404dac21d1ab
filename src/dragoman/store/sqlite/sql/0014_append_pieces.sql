-- Pieces are appended at the end of one table, whatever their task. Clustered by task, each chunk of
-- a slow stream changed a page of its own, so that a commit of many streams wrote many pages.
--
-- A task knows its last piece, and each piece the one before it, so reading a log needs no index.

ALTER TABLE task ADD COLUMN last_piece INTEGER NOT NULL DEFAULT 0;

DROP TRIGGER piece_one_end;
ALTER TABLE piece RENAME TO clustered;
CREATE TABLE piece (
  n         INTEGER PRIMARY KEY,
  seq       INTEGER NOT NULL,             -- of its first event
  previous  INTEGER NOT NULL,             -- the piece before it; 0: it is the first one
  body      BLOB NOT NULL
) STRICT;

CREATE TEMP TABLE numbered AS
  SELECT row_number() OVER (ORDER BY task_id, seq) AS n, task_id, seq, body FROM clustered;
INSERT INTO piece (n, seq, previous, body)
  SELECT n, seq, coalesce(lag(n) OVER (PARTITION BY task_id ORDER BY seq), 0), body FROM numbered;
UPDATE task SET last_piece = latest.n
  FROM (SELECT task_id, max(n) AS n FROM numbered GROUP BY task_id) AS latest
  WHERE latest.task_id = task.task_id;
DROP TABLE numbered;
DROP TABLE clustered;

-- Second guard of a promise the code already keeps: a task ends once, and nothing follows its end.
CREATE TRIGGER task_one_end BEFORE UPDATE OF last_seq ON task
WHEN OLD.ended > 0 AND NEW.last_seq <> OLD.last_seq
BEGIN SELECT RAISE(ABORT, 'a task ends once'); END;
