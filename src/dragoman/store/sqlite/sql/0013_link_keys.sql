-- Keys of agents that dial in. The secret half is in the body, sealed with the key of the server.

CREATE TABLE link_key (
  access_key  TEXT NOT NULL PRIMARY KEY,
  added_at    INTEGER NOT NULL,
  revoked_at  INTEGER NOT NULL,           -- 0: it is valid
  body        BLOB NOT NULL               -- the whole pair
) STRICT, WITHOUT ROWID;
