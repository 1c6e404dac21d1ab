"""The workers of a SQLite file, and the latest time of day that it has recorded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

_ENLISTED = "SELECT 1 FROM worker WHERE worker = ?"
_LATER = """
UPDATE task SET run_at = run_at - ?1 WHERE runnable = 1 AND run_at > ?2"""
_LATER_HOOKS = """
UPDATE hook SET due_at =
  max(due_at - ?1, CASE taken WHEN 0 THEN 1 ELSE min(due_at, ?2 + ?3) END)
WHERE due_at > 0 AND due_at > ?2"""


def enlist(db: sqlite3.Connection, worker: str) -> None:
    """Adds a worker."""
    db.execute("INSERT OR REPLACE INTO worker (worker) VALUES (?)", (worker,))


def is_enlisted(db: sqlite3.Connection, worker: str) -> bool:
    """Returns whether a worker was added, and has neither ended nor been declared dead."""
    return db.execute(_ENLISTED, (worker,)).fetchone() is not None


def list_workers(db: sqlite3.Connection) -> list[str]:
    """Returns the names of all workers."""
    return [name for (name,) in db.execute("SELECT worker FROM worker")]


def dismiss(db: sqlite3.Connection, workers: Iterable[str]) -> None:
    """Removes workers that have ended or are dead."""
    db.executemany("DELETE FROM worker WHERE worker = ?", [(name,) for name in workers])


def note_time(db: sqlite3.Connection, now: int, hold: int) -> bool:
    """Notes the time of day. If the clock was set back since the last note, this moves everything
    back that waits for a time of day, and returns True: it would otherwise wait longer.

    A delivery may have been taken since the clock was set. It stays hidden for up to `hold`
    milliseconds from now, or a second worker would take it while the first one calls."""
    (latest,) = db.execute("SELECT latest FROM clock").fetchone()
    db.execute("UPDATE clock SET latest = ?", (now,))
    if latest <= now:
        return False
    db.execute(_LATER, (latest - now, now))
    db.execute(_LATER_HOOKS, (latest - now, now, hold))
    return True


def probe(db: sqlite3.Connection) -> None:
    """Makes a write without effect."""
    db.execute("UPDATE clock SET probes = probes + 1")
