"""Finds the queued tasks of a SQLite file that are claimed next."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from ..limits.run_limits import FairTurns, Lane, RunLimits, Running, Turn, after
from . import statements as sql


class SqliteQueue:
    """The queued tasks of all agents. Every method runs in the transaction of its caller."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._turns = FairTurns()

    def pick(self, agent: str, limit: int, limits: RunLimits, now: int) -> list[str]:
        """Returns the tasks that a worker claims."""

        def heads(lane: Lane, most: int) -> Sequence[Turn]:
            return self._db.execute(sql.HEADS, (agent, *lane, now, most)).fetchall()

        running = Running.of(agent, self._db.execute(sql.RUNNING)) if limits else None
        return self._turns.pick(
            agent, lambda start: self._lanes(agent, start), heads, limit, limits, running
        )

    def _lanes(self, agent: str, start: Lane) -> Iterator[Lane]:
        """Yields the lanes from a place on."""
        while found := self._db.execute(sql.NEXT_LANE, (agent, *start)).fetchone():
            yield found
            start = after(found)
