-- The status of links, as the processes that have them report it, for operators.

CREATE TABLE link_status (
  side         TEXT NOT NULL,
  agent_id     TEXT NOT NULL,
  server       TEXT NOT NULL,
  host         TEXT NOT NULL,
  reported_at  INTEGER NOT NULL,          -- it is dropped a day later, unless it is renewed
  body         BLOB NOT NULL,             -- the whole status
  PRIMARY KEY (side, agent_id, server, host)
) STRICT, WITHOUT ROWID;
