"""The clock of the database, which all processes and machines share.

Their own clocks may differ and may be set. A lease is therefore measured by the database alone, and
every time that the store itself makes (when a task or a delivery is due) is the time that the
database told last, plus what has passed since by the steady clock of this machine.
"""

from __future__ import annotations

from ..clock import Clock, SystemClock, steady_of
from .pool import Database

_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class DatabaseClock:
    """Returns milliseconds since the epoch. A clock that is moved by hand, as in a test, takes the
    place of the database's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steady = steady_of(clock)
        self._by_hand = not isinstance(clock, SystemClock)
        self._told = clock()
        self._since = self._steady()

    def __call__(self) -> int:
        """Returns the time of day."""
        return self._clock() if self._by_hand else self._told + self._steady() - self._since

    def from_ours(self, millis: int) -> int:
        """Returns a time by the clock of this process as a time by the clock of the database."""
        return millis if self._by_hand else millis + self() - self._clock()

    async def ask(self, db: Database) -> int:
        """Asks the database for the time by which leases are measured."""
        if self._by_hand:
            return self._steady()
        self._told = int(await db.fetchval(_NOW))
        self._since = self._steady()
        return self._told
