-- Tasks are counted for each caller, so that a list can say how many there are without a scan.

DROP TABLE tally;
CREATE TABLE tally (
  agent      TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  principal  TEXT NOT NULL,
  state      TEXT NOT NULL,
  n          INTEGER NOT NULL,
  PRIMARY KEY (agent, tenant, principal, state)
) STRICT, WITHOUT ROWID;
INSERT INTO tally SELECT agent, tenant, principal, state, count(*) FROM task GROUP BY 1, 2, 3, 4;
