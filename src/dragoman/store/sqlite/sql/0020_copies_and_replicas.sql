-- The store that this one is a copy of, and whether the copy is complete. There is at most one row.

CREATE TABLE copy (
  source       TEXT NOT NULL,             -- where it was copied from, without secrets
  begun_at     INTEGER NOT NULL,
  finished_at  INTEGER NOT NULL           -- 0: a part is still missing
) STRICT;

-- The processes that serve from this store, as they report themselves, for operators.
CREATE TABLE replica (
  id           TEXT NOT NULL PRIMARY KEY,
  reported_at  INTEGER NOT NULL,          -- it is dropped an hour later, unless it is renewed
  body         BLOB NOT NULL              -- the whole report
) STRICT, WITHOUT ROWID;
