-- Tasks, their logs, their webhooks, and the processes that work on them.
--
-- Times are milliseconds since the epoch, by the clock of this database. Bodies are msgpack, the
-- same bytes as in a SQLite file. Text is compared byte by byte, so that lists have one order
-- whatever the locale of the database.

CREATE TABLE dragoman.task (
  task_id     text COLLATE "C" NOT NULL PRIMARY KEY,
  context_id  text COLLATE "C" NOT NULL,
  tenant      text COLLATE "C" NOT NULL,
  principal   text COLLATE "C" NOT NULL,
  agent       text COLLATE "C" NOT NULL,
  skill       text COLLATE "C" NOT NULL,
  dialect     text COLLATE "C" NOT NULL,
  state       text COLLATE "C" NOT NULL,
  last_seq    bigint NOT NULL,
  created_at  bigint NOT NULL,
  status_at   bigint NOT NULL,
  worker      text COLLATE "C" NOT NULL,  -- the worker that holds it; empty: none
  token       text COLLATE "C" NOT NULL,  -- the claim in force; never recurs
  epoch       bigint NOT NULL,            -- grows with every claim
  attempt     bigint NOT NULL,
  runnable    boolean NOT NULL,
  run_at      bigint NOT NULL,
  inputs      bigint NOT NULL,            -- messages that came for the run,
  heard       bigint NOT NULL,            -- and how many of them its log holds
  question    text COLLATE "C" NOT NULL,  -- the open question; empty: none
  asking      text COLLATE "C" NOT NULL,
  expires_at  bigint NOT NULL,
  cancel      boolean NOT NULL,
  hidden      boolean NOT NULL,
  priority    bigint NOT NULL,            -- a level is worth ten minutes of waiting
  ended       smallint NOT NULL,          -- 0: no; 1: yes; 2: yes, and its log was dropped
  hooks       integer NOT NULL DEFAULT 0, -- how many webhooks it has
  watched     boolean NOT NULL DEFAULT false,  -- whether another process waits for its events
  log         bytea,                      -- the whole log, if the task ended with its first write
  frozen      bytea                       -- the finished task, so that nobody adds up its log again
) WITH (fillfactor = 80);

CREATE INDEX task_list ON dragoman.task (tenant, principal, agent, status_at, task_id)
  WHERE NOT hidden;
CREATE INDEX task_live ON dragoman.task (agent, tenant, principal) WHERE ended = 0;
-- A context that began with a task has the id of the task, and is found by it.
CREATE INDEX task_context ON dragoman.task (context_id) WHERE context_id <> task_id;
CREATE INDEX task_worker ON dragoman.task (worker) WHERE worker <> '';
CREATE INDEX task_runnable ON dragoman.task (agent, (run_at - priority * 600000), task_id, run_at)
  WHERE runnable;
CREATE INDEX task_expires ON dragoman.task (expires_at) WHERE expires_at > 0;
CREATE INDEX task_ended ON dragoman.task (agent, ended, status_at) WHERE ended > 0;

-- The log: one row holds the events of one write, from `seq` on.
CREATE TABLE dragoman.piece (
  task_id  text COLLATE "C" NOT NULL,
  seq      bigint NOT NULL,
  final    boolean NOT NULL,
  body     bytea NOT NULL,
  PRIMARY KEY (task_id, seq)
);

-- Second guard of a promise that the statements already keep: a task ends once.
CREATE UNIQUE INDEX piece_final ON dragoman.piece (task_id) WHERE final;

-- The idempotency keys of callers: of messages that opened a task, and of those to existing tasks.
CREATE TABLE dragoman.idempotency (
  agent      text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  task_id    text COLLATE "C" NOT NULL,
  digest     bytea NOT NULL,
  PRIMARY KEY (agent, tenant, principal, key)
);
CREATE INDEX idempotency_task ON dragoman.idempotency (task_id);

-- Messages of callers to existing tasks.
CREATE TABLE dragoman.input (
  task_id  text COLLATE "C" NOT NULL,
  n        bigint NOT NULL,
  body     bytea NOT NULL,
  PRIMARY KEY (task_id, n)
);

-- Calls of a run that were made and must not be repeated.
CREATE TABLE dragoman.record (
  task_id  text COLLATE "C" NOT NULL,
  n        bigint NOT NULL,
  key      text COLLATE "C" NOT NULL,
  value    bytea NOT NULL,
  seq      bigint NOT NULL,
  PRIMARY KEY (task_id, n),
  UNIQUE (task_id, key)
);

-- Processes that run tasks, until when they count as alive, and the layout that they know.
CREATE TABLE dragoman.worker (
  worker       text COLLATE "C" NOT NULL PRIMARY KEY,
  lease_until  bigint NOT NULL,
  layout       integer NOT NULL
);

CREATE TABLE dragoman.clock (
  latest  bigint NOT NULL,  -- the latest time that anyone noted: an earlier one means a clock set back
  probes  bigint NOT NULL   -- changes by those who only ask whether one can write
);
INSERT INTO dragoman.clock (latest, probes) VALUES (0, 0);

-- How many finished tasks each caller has. Unfinished ones are few, and are counted themselves. Each
-- connection counts in a shard, so that commits at the same time do not wait for each other.
CREATE TABLE dragoman.tally (
  agent      text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  state      text COLLATE "C" NOT NULL,
  shard      integer NOT NULL,
  n          bigint NOT NULL,
  PRIMARY KEY (agent, tenant, principal, state, shard)
) WITH (fillfactor = 50);

-- Webhooks. The log of a task is the outbox: every event after `sent` is on its way.
CREATE TABLE dragoman.hook (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- a part of the ids of deliveries
  task_id    text COLLATE "C" NOT NULL,
  hook_id    text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,
  principal  text COLLATE "C" NOT NULL,
  agent      text COLLATE "C" NOT NULL,
  body       bytea NOT NULL,              -- the webhook; its secrets are sealed before they come here
  host       text COLLATE "C" NOT NULL,
  sent       bigint NOT NULL,             -- everything up to this seq was delivered or given up
  due_at     bigint NOT NULL,             -- when the next one is to be tried; 0: nothing waits
  taken      bigint NOT NULL,             -- the seq that is being delivered now
  attempt    bigint NOT NULL,
  status     bigint NOT NULL,
  error      text NOT NULL,
  UNIQUE (task_id, hook_id)
) WITH (fillfactor = 80);
CREATE INDEX hook_due ON dragoman.hook (agent, due_at, n) WHERE due_at > 0;

CREATE TABLE dragoman.letter (
  n        bigint NOT NULL,
  seq      bigint NOT NULL,
  dead_at  bigint NOT NULL,               -- when it was given up; 0: it is tried again
  attempt  bigint NOT NULL,
  status   bigint NOT NULL,
  error    text NOT NULL,
  PRIMARY KEY (n, seq)
);
CREATE INDEX letter_dead ON dragoman.letter (dead_at) WHERE dead_at > 0;

-- Session tokens that agents gave out, as digests, and keys that are good once.
CREATE TABLE dragoman.session (
  key       bytea NOT NULL PRIMARY KEY,
  agent     text COLLATE "C" NOT NULL,
  who       text COLLATE "C" NOT NULL,
  until     bigint NOT NULL,
  revoked   boolean NOT NULL,
  revision  bigint NOT NULL UNIQUE,       -- grows with every change of any session
  body      bytea NOT NULL
);
CREATE INDEX session_until ON dragoman.session (until);
CREATE INDEX session_who ON dragoman.session (who, agent);

CREATE TABLE dragoman.said (
  key    bytea NOT NULL PRIMARY KEY,
  until  bigint NOT NULL
);
CREATE INDEX said_until ON dragoman.said (until);

-- Registered agents.
CREATE TABLE dragoman.registered (
  name        text COLLATE "C" NOT NULL PRIMARY KEY,
  source      text COLLATE "C" NOT NULL,
  owner       text COLLATE "C" NOT NULL,
  until       bigint NOT NULL,
  removed_at  bigint NOT NULL,
  revision    bigint NOT NULL UNIQUE,     -- grows with every change of any entry
  body        bytea NOT NULL
);
CREATE INDEX registered_until ON dragoman.registered (until) WHERE until > 0 AND removed_at = 0;
CREATE INDEX registered_owner ON dragoman.registered (owner, source) WHERE removed_at = 0;

-- Keys of agents that dial in. The secret half is in the body, sealed with the key of the server.
CREATE TABLE dragoman.link_key (
  access_key  text COLLATE "C" NOT NULL PRIMARY KEY,
  added_at    bigint NOT NULL,
  revoked_at  bigint NOT NULL,
  body        bytea NOT NULL
);

-- The status of links, as the processes that have them report it, for operators.
CREATE TABLE dragoman.link_status (
  side         text COLLATE "C" NOT NULL,
  agent_id     text COLLATE "C" NOT NULL,
  server       text COLLATE "C" NOT NULL,
  host         text COLLATE "C" NOT NULL,
  reported_at  bigint NOT NULL,           -- it is dropped a day later, unless it is renewed
  body         bytea NOT NULL,            -- the whole status
  PRIMARY KEY (side, agent_id, server, host)
);
