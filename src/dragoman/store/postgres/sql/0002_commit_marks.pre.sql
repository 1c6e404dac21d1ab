-- The latest transaction of each connection. If a connection is lost during a commit, its process
-- looks here whether the commit has happened.
CREATE TABLE dragoman.commit_mark (
  connection  text COLLATE "C" NOT NULL PRIMARY KEY,  -- a name that never recurs
  number      bigint NOT NULL,                        -- of the transaction within its connection
  marked_at   timestamptz NOT NULL                    -- the mark is dropped an hour later
) WITH (fillfactor = 50);
