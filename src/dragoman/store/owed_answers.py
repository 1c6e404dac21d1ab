"""Finds the answers that phones or chat rooms have not received before a restart."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from .interface import AdminFilter, Row, Store
from .sessions import OWED

MOST_UNFINISHED = 100_000
"""The maximum number of unfinished tasks that are followed again."""
PAGE = 1_000
"""The number of ended tasks that are read at a time."""


class OwedAnswers:
    """The answers that an agent may owe to its callers in one dialect."""

    def __init__(
        self, store: Store, agent: str, dialect: str, is_sent: Callable[[str], Awaitable[bool]]
    ) -> None:
        """`agent` is the name of the agent in the store. `is_sent` returns whether the answer of a
        task was sent as a whole."""
        self._store, self._agent, self._dialect, self._is_sent = store, agent, dialect, is_sent

    async def rows(self, now: int) -> AsyncGenerator[Row, None]:
        """Yields the tasks that are unfinished, and then those that ended within the time for which
        answers are kept and were not sent, the latest first: callers may still wait for those."""
        # Nothing has ended in the future, so these are unfinished.
        for row in await self._find(now + OWED, None, MOST_UNFINISHED):
            yield row
        spans = [(now - OWED, now + 1)]
        while spans:
            since, before = spans.pop()
            found = await self._find(since, before, PAGE)
            middle = (since + before) // 2
            if len(found) == PAGE and middle > since:
                spans += ((since, middle), (middle, before))
                continue
            for row in found:
                if not await self._is_sent(row.task_id):
                    yield row

    async def _find(self, since: int, before: int | None, limit: int) -> list[Row]:
        which = AdminFilter(
            agent=self._agent, dialect=self._dialect, active_since=since, ended_before=before
        )
        return await self._store.find_in_all_scopes(which, limit)
