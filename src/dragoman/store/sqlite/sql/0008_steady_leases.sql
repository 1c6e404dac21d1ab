-- A worker's lease is kept in its locked file beside the database, by the time that only passes: the
-- clock on the wall may be set, and a lease must not wait for whoever writes to the database.

ALTER TABLE worker DROP COLUMN lease_until;

CREATE TABLE clock (
  latest  INTEGER NOT NULL,               -- the latest time of day that anyone saw: if it is earlier
                                          -- now, the clock was set back
  probes  INTEGER NOT NULL                -- changes by those who only ask whether one can write
) STRICT;
INSERT INTO clock (latest, probes) VALUES (0, 0);
