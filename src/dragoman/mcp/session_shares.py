"""How many MCP sessions may be open: a share for each caller, and half of all for known callers.

The `mcp` package keeps the sessions and does not say when one ends. So a session counts from its
first answer until it is deleted, is not found any more, or was not used for as long as the package
lets it live.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import NamedTuple

from dragoman.core.errors import TooMany

MOST_SESSIONS = 1000
"""Sessions at a time; each has a task of its own. From 2026-07-28 on, MCP has no sessions."""
MOST_SESSIONS_OF_CALLER = 100
"""Sessions of one caller, or of all strangers at one address."""
IDLE_SECONDS = 1800.0
"""Seconds after which a session that nobody uses ends."""
LONGEST_RETRY_SECONDS = 60


class TooManySessions(TooMany):
    """A caller has opened its share of sessions."""


class SessionCaller(NamedTuple):
    """The holder of a session: a known caller, or the strangers at one address."""

    name: str
    stranger: bool


class _Session:
    def __init__(self, caller: SessionCaller, used_at: float) -> None:
        self.caller, self.used_at = caller, used_at
        self.requests = 0
        """The requests that are under way, such as a stream of events."""


class SessionShares:
    """Counts the sessions of callers."""

    def __init__(
        self,
        most: int = MOST_SESSIONS,
        most_of_caller: int = MOST_SESSIONS_OF_CALLER,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._most, self._most_of_caller = most, most_of_caller
        self._idle_seconds, self._clock = idle_seconds, clock
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        """By their ids; the one that was not used for longest comes first."""
        self._of_caller: Counter[SessionCaller] = Counter()
        """How many sessions each caller has, or is about to open."""
        self._taken = self._of_strangers = 0

    def open(self, caller: SessionCaller) -> SessionCaller:
        """Takes a place for a session that the caller is about to open. Raises `TooManySessions` if
        it has its share."""
        self._drop_idle()
        has_share = self._of_caller[caller] >= self._most_of_caller
        crowded = caller.stranger and self._of_strangers >= self._most // 2
        if has_share or crowded or self._taken >= self._most:
            raise TooManySessions(
                "Too many MCP sessions are open; close some, or try again later.",
                retry_after=str(self._retry_seconds()),
            )
        self._of_caller[caller] += 1
        self._taken += 1
        self._of_strangers += caller.stranger
        return caller

    def opened(self, caller: SessionCaller, session: str) -> None:
        """Notes the id of the session that the caller has opened; empty if there is none."""
        if session:
            self._sessions[session] = _Session(caller, self._clock())
        else:
            self._give_back(caller)

    def begin(self, session: str, caller: SessionCaller) -> None:
        """Notes that a request of a session has begun."""
        found = self._of(session, caller)
        if found is not None:
            found.requests += 1

    def end(self, session: str, caller: SessionCaller, *, gone: bool = False) -> None:
        """Notes that a request of a session has ended, or that the session itself is `gone`."""
        found = self._of(session, caller)
        if found is None:
            return
        if gone:
            del self._sessions[session]
            self._give_back(found.caller)
            return
        found.requests -= 1
        self._touch(session, found)

    def _of(self, session: str, caller: SessionCaller) -> _Session | None:
        """Returns a session of this caller. Nobody else can use it, so nobody else can end it."""
        found = self._sessions.get(session)
        return found if found is not None and found.caller == caller else None

    def _touch(self, session: str, found: _Session) -> None:
        found.used_at = self._clock()
        self._sessions.move_to_end(session)

    def _drop_idle(self) -> None:
        oldest = self._clock() - self._idle_seconds
        while self._sessions:
            session, found = next(iter(self._sessions.items()))
            if found.used_at > oldest:
                return
            if found.requests:
                self._touch(session, found)
            else:
                del self._sessions[session]
                self._give_back(found.caller)

    def _give_back(self, caller: SessionCaller) -> None:
        self._of_caller[caller] -= 1
        if self._of_caller[caller] <= 0:
            del self._of_caller[caller]
        self._taken -= 1
        self._of_strangers -= caller.stranger

    def _retry_seconds(self) -> int:
        """Returns when a place may be free: when the session ends that was not used for longest."""
        first = next(iter(self._sessions.values()), None)
        if first is None:
            return 1
        left = first.used_at + self._idle_seconds - self._clock()
        return min(max(1, ceil(left)), LONGEST_RETRY_SECONDS)
