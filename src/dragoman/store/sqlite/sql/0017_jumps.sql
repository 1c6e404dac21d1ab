-- Any piece of a long log is found in few steps. Besides the piece before it, each piece knows one
-- that is further back: the piece at place 12 (1100 in binary) knows that at place 8 (1000), as in
-- a Fenwick tree.

ALTER TABLE piece RENAME TO chained;
CREATE INDEX chained_previous ON chained (previous);

CREATE TABLE piece (
  n         INTEGER PRIMARY KEY,
  seq       INTEGER NOT NULL,             -- of its first event
  place     INTEGER NOT NULL,             -- of the piece in its log, from 1
  previous  INTEGER NOT NULL,             -- the piece before it; 0: it is the first one
  jump      INTEGER NOT NULL,             -- the piece at place & (place - 1); 0: there is none
  body      BLOB NOT NULL
) STRICT;

CREATE TEMP TABLE placed (log INTEGER, place INTEGER, n INTEGER, PRIMARY KEY (log, place));
INSERT INTO placed
  WITH RECURSIVE chain(log, place, n) AS (
    SELECT n, 1, n FROM chained WHERE previous = 0
    UNION ALL
    SELECT log, place + 1, chained.n FROM chain JOIN chained ON chained.previous = chain.n)
  SELECT log, place, n FROM chain;
INSERT INTO piece (n, seq, place, previous, jump, body)
  SELECT placed.n, seq, placed.place, previous, coalesce(target.n, 0), body
  FROM placed JOIN chained ON chained.n = placed.n LEFT JOIN placed AS target
    ON target.log = placed.log AND target.place = placed.place & (placed.place - 1);

DROP TABLE placed;
DROP TABLE chained;
