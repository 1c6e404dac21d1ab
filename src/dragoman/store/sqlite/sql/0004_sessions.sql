-- Session tokens that agents gave out, as digests, and signatures that were used.

CREATE TABLE session (
  key       BLOB NOT NULL PRIMARY KEY,    -- the digest of the token
  agent     TEXT NOT NULL,
  who       TEXT NOT NULL,
  until     INTEGER NOT NULL,
  revoked   INTEGER NOT NULL,             -- it stays until its time is over, so that others hear
  revision  INTEGER NOT NULL,             -- grows with every change of any session
  body      BLOB NOT NULL                 -- on whose behalf, since when, with which tools
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX session_revision ON session (revision);
CREATE INDEX session_until ON session (until);
CREATE INDEX session_who ON session (who, agent);

-- What is good once: digests of signatures, until they would be too old anyway.
CREATE TABLE said (
  key    BLOB NOT NULL PRIMARY KEY,
  until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX said_until ON said (until);
