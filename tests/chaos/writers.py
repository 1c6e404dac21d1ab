"""Which replica writes which task, noted by the database itself, past our own code.

Every replica has a role of its own in PostgreSQL. A trigger compares the role that continues the
log of a task with the role that has enlisted the worker that holds the task at that moment. If they
differ, a writer that had lost its claim has changed something.
"""

from __future__ import annotations

from typing import Any

import asyncpg

_INSTALL = """
CREATE TABLE IF NOT EXISTS public.enlisted (worker text PRIMARY KEY, role text NOT NULL);
CREATE TABLE IF NOT EXISTS public.stray_write (
  task_id text, seq bigint, role text, holder text, at timestamptz DEFAULT now());
CREATE SEQUENCE IF NOT EXISTS public.appends;

CREATE OR REPLACE FUNCTION public.note_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.enlisted VALUES (NEW.worker, session_user)
  ON CONFLICT (worker) DO UPDATE SET role = excluded.role;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER note_worker BEFORE INSERT ON dragoman.worker
FOR EACH ROW EXECUTE FUNCTION public.note_worker();

CREATE OR REPLACE FUNCTION public.note_writer() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE holder text;
BEGIN
  PERFORM nextval('public.appends');
  SELECT role INTO holder FROM public.enlisted WHERE worker = OLD.worker;
  IF holder IS DISTINCT FROM session_user THEN
    INSERT INTO public.stray_write (task_id, seq, role, holder)
    VALUES (NEW.task_id, NEW.last_seq, session_user, coalesce(holder, 'nobody'));
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER note_writer BEFORE UPDATE ON dragoman.task
FOR EACH ROW WHEN (NEW.last_seq <> OLD.last_seq) EXECUTE FUNCTION public.note_writer();
"""


async def create_roles(dsn: str, names: list[str]) -> None:
    """Makes a role for each replica."""
    db = await asyncpg.connect(dsn)
    for name in names:
        if not await db.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", name):
            await db.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
    await db.close()


async def note_writers(dsn: str) -> None:
    """Begins to note. The tables of the store are there already, its workers are not."""
    db = await asyncpg.connect(dsn)
    await db.execute(_INSTALL)
    await db.close()


async def read_writers(dsn: str) -> tuple[int, list[Any]]:
    """Returns the number of noted writes, and those of a writer that did not hold the task."""
    db = await asyncpg.connect(dsn)
    appends = int(await db.fetchval("SELECT last_value FROM public.appends"))
    stray = await db.fetch("SELECT task_id, seq, role, holder FROM public.stray_write")
    await db.close()
    return appends, [tuple(one) for one in stray]
