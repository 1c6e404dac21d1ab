"""Something that we depend on and that may be away: one line when it goes, and one when it is back.

A database that is away for a minute fails hundreds of attempts. An operator who reads the log wants
to know what is away, since when, and whether it is back, and each of these once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from .log import Logger

REMINDER_SECONDS = 60.0
"""The log says again that something is away after so many seconds."""


class Outage:
    """Whether something is away. It may be used by several threads."""

    def __init__(self, subject: str, clock: Callable[[], int], log: Logger) -> None:
        """`subject` is what may be away, as a sentence begins with it; `clock` returns
        milliseconds since the epoch."""
        self.subject = subject
        self._clock, self._log = clock, log
        self._lock = threading.Lock()
        self._began: int | None = None
        self._reminded = 0
        self._problem = ""

    @property
    def lasts(self) -> bool:
        """Whether it is away now."""
        return self._began is not None

    def __str__(self) -> str:
        """Returns the sentence for an operator, or nothing if all is well."""
        began = self._began
        if began is None:
            return ""
        return f"{self.subject} {self._problem} since {_moment(began, self._clock())}"

    def begin(self, problem: str, why: object) -> None:
        """Notes that there is a problem, such as "is not reachable". Only the first attempt that
        fails is logged, and from time to time one that says since when."""
        now = self._clock()
        with self._lock:
            first = self._began is None
            if not first and now - self._reminded < REMINDER_SECONDS * 1000:
                return
            self._reminded = now
            if first:
                self._began, self._problem = now, problem
        self._log.error(f"{self.subject} {problem}" if first else str(self), why=why)

    def end(self, problem: str = "") -> None:
        """Notes that it works again; if a problem is named, only if that was the problem."""
        if self._began is None:
            return
        with self._lock:
            began = self._began
            if began is None or (problem and problem != self._problem):
                return
            self._began = None
        self._log.info(f"{self.subject} is back", seconds=f"{(self._clock() - began) / 1000:.1f}")


def _moment(then: int, now: int) -> str:
    """Returns a time for a sentence: 14:03 UTC, with the date if that was another day."""
    moment, today = (datetime.fromtimestamp(each / 1000, UTC) for each in (then, now))
    return moment.strftime("%H:%M UTC" if moment.date() == today.date() else "%Y-%m-%d %H:%M UTC")
