"""Finds the answers that phones have not received before a restart."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dragoman.store.interface import AdminFilter, Row, Store
from dragoman.store.sessions import OWED, SentMarks

MOST_UNFINISHED = 100_000
"""The maximum number of unfinished tasks that are followed again."""
PAGE = 1_000
"""The number of ended tasks that are read at a time."""


class OwedAnswers:
    """The answers that an agent may owe to phones."""

    def __init__(self, store: Store, agent: str, dialect: str, marks: SentMarks) -> None:
        """`agent` is the name of the agent in the store."""
        self._store, self._agent, self._dialect, self._marks = store, agent, dialect, marks

    async def rows(self, now: int) -> AsyncGenerator[Row, None]:
        """Yields the tasks that are unfinished, and then those that ended within the time for which
        answers are kept and were not sent, the latest first: phones may still wait for those."""
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
                if not await self._marks.has("sent", row.task_id, ""):
                    yield row

    async def _find(self, since: int, before: int | None, limit: int) -> list[Row]:
        which = AdminFilter(
            agent=self._agent, dialect=self._dialect, active_since=since, ended_before=before
        )
        return await self._store.find_in_all_scopes(which, limit)
