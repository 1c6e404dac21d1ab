-- Agents that were registered: by an operator, by themselves with a token, or by dialling in.

CREATE TABLE registered (
  name        TEXT NOT NULL PRIMARY KEY,
  source      TEXT NOT NULL,
  owner       TEXT NOT NULL,
  until       INTEGER NOT NULL,           -- when the lease ends; 0: there is none
  removed_at  INTEGER NOT NULL,           -- it stays for a while, so that others hear of it
  revision    INTEGER NOT NULL,           -- grows with every change of any entry
  body        BLOB NOT NULL               -- the whole entry
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX registered_revision ON registered (revision);
CREATE INDEX registered_until ON registered (until) WHERE until > 0 AND removed_at = 0;
CREATE INDEX registered_owner ON registered (owner, source) WHERE removed_at = 0;
