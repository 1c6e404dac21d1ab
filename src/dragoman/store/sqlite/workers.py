"""Who works on the tasks of a SQLite file, and what the clock did meanwhile."""

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
    """A worker begins."""
    db.execute("INSERT OR REPLACE INTO worker (worker) VALUES (?)", (worker,))


def enlisted(db: sqlite3.Connection, worker: str) -> bool:
    """Whether a worker began, and neither ended nor was found dead."""
    return db.execute(_ENLISTED, (worker,)).fetchone() is not None


def known(db: sqlite3.Connection) -> list[str]:
    """All of them."""
    return [name for (name,) in db.execute("SELECT worker FROM worker")]


def dismiss(db: sqlite3.Connection, workers: Iterable[str]) -> None:
    """These ended, or are dead."""
    db.executemany("DELETE FROM worker WHERE worker = ?", [(name,) for name in workers])


def look_back(db: sqlite3.Connection, now: int, hold: int) -> bool:
    """Notes the time of day. If the clock was set back, so is all that waits for its time, which
    would wait longer for it; whether that was so. Webhooks that are taken may have been taken
    since: they stay so for `hold` milliseconds, if that is as long as they were to stay."""
    (latest,) = db.execute("SELECT latest FROM clock").fetchone()
    db.execute("UPDATE clock SET latest = ?", (now,))
    if latest <= now:
        return False
    db.execute(_LATER, (latest - now, now))
    db.execute(_LATER_HOOKS, (latest - now, now, hold))
    return True


def probe(db: sqlite3.Connection) -> None:
    """Changes something, and nothing that matters."""
    db.execute("UPDATE clock SET probes = probes + 1")
