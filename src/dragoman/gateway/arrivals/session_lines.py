"""The line of messages in front of each session of an agent.

Most agents that dial in work on one message of a session at a time: a newer one takes the place of
the older one, which they never answer. So the next message is sent when the one before was
answered, and until then it has not been announced as sent: after a restart it waits again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from dragoman.agent.answers import Canceled
from dragoman.core.errors import TooMany

MAX_WAITING_MESSAGES = 100
"""The messages that may wait in the line of one session."""
CLEARED = "cleared"
"""The reason of a task that was canceled because its conversation was cleared."""


class SessionLines:
    """The places in the lines of all sessions of one agent."""

    def __init__(self, open_tasks: int) -> None:
        """`open_tasks` is the number of messages of one session that may be unanswered."""
        self._open_tasks = open_tasks
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def is_free(self, session: str) -> bool:
        """Returns whether a message would not have to wait."""
        return self._taken[session] < self._open_tasks and session not in self._waiting

    def enter(self, session: str) -> None:
        """Takes a place for a message that was sent already."""
        self._taken[session] += 1

    async def wait(self, session: str) -> None:
        """Takes a place, in the order in which they are asked for. Raises `TooMany` if the line is
        full, and `Canceled` if the session is cleared meanwhile."""
        if self.is_free(session):
            self.enter(session)
            return
        line = self._waiting.setdefault(session, deque())
        if len(line) >= MAX_WAITING_MESSAGES:
            raise TooMany("Too many messages of this conversation wait for their answers.")
        place = asyncio.get_running_loop().create_future()
        line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave(session)
            else:
                self._drop(session, place)
            raise

    def leave(self, session: str) -> None:
        """Gives a place to the next in line, or back."""
        line = self._waiting.get(session)
        if line and self._taken[session] <= self._open_tasks:
            place = line[0]
            self._drop(session, place)
            place.set_result(None)
            return
        self._taken[session] -= 1
        if self._taken[session] <= 0:
            del self._taken[session]

    def clear(self, session: str) -> None:
        """Sends everybody away who waits in the line of a session."""
        for place in self._waiting.pop(session, ()):
            place.set_exception(Canceled("The conversation was cleared", reason=CLEARED))

    def _drop(self, session: str, place: asyncio.Future[None]) -> None:
        line = self._waiting.get(session)
        if line is not None and place in line:
            line.remove(place)
            if not line:
                del self._waiting[session]
