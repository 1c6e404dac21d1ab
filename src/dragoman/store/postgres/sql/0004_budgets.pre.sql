-- What all processes share (store/budgets.py): how often callers may still call,
CREATE TABLE dragoman.rate (
  kind   text COLLATE "C" NOT NULL,
  owner  text COLLATE "C" NOT NULL,
  units  double precision NOT NULL,       -- what was left
  since  bigint NOT NULL,                 -- at this time
  PRIMARY KEY (kind, owner)
) WITH (fillfactor = 50);

-- and the places that each worker holds for its callers.
CREATE TABLE dragoman.quota (
  kind    text COLLATE "C" NOT NULL,
  owner   text COLLATE "C" NOT NULL,
  worker  text COLLATE "C" NOT NULL,
  held    bigint NOT NULL,
  PRIMARY KEY (kind, owner, worker)
) WITH (fillfactor = 50);
