-- The store that this one is a copy of, and whether the copy is complete. There is at most one row.
CREATE TABLE dragoman.copy (
  source       text COLLATE "C" NOT NULL,  -- where it was copied from, without secrets
  begun_at     bigint NOT NULL,
  finished_at  bigint NOT NULL             -- 0: a part is still missing
);

-- The processes that serve from this store, as they report themselves, for operators.
CREATE TABLE dragoman.replica (
  id           text COLLATE "C" NOT NULL PRIMARY KEY,
  reported_at  bigint NOT NULL,            -- it is dropped an hour later, unless it is renewed
  body         bytea NOT NULL              -- the whole report
);
