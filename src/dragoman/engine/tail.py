"""Follow a task's log: read, yield, wait for the bell, read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from ..bell import Bell
from ..lifecycle import ENDS_STREAM
from ..peer import Batch
from ..store.base import Scope, Store
from .run import Run

PAGE = 64
"""Events read from the store at once."""
IDLE = 4.0
"""Seconds of silence after which a reader is told that the stream is alive. The official Python
client gives up after five."""
POLL = 1.0
"""A lost ring costs this many seconds, never an event."""


async def follow(
    store: Store,
    bell: Bell,
    scope: Scope,
    task_id: str,
    after: int,
    find: Callable[[str], Run | None],
) -> AsyncGenerator[Batch, None]:
    """Every event behind `after`, then live ones, until one of them brings the task to rest."""
    quiet = 0.0
    run: Run | None = None
    news: asyncio.Future[None] | None = None
    try:
        while True:
            run = find(task_id) or run
            if run is not None and run.error is not None and not run.committed:
                raise run.error  # it never came into being
            entries = run.since(after) if run is not None else None
            if entries is None or (run is not None and run.closed and not entries):
                # Listen before reading, or an event slips between.
                news = bell.listen(task_id)
                page = await store.read(scope, task_id, after, PAGE)
                entries, row = page.entries, page.row
                complete = not entries or entries[-1].seq == row.last_seq
                over = complete and (row.final or (bool(entries) and _ends(row.resting, row.state)))
            else:
                over = run is not None and bool(entries) and _ends(run.resting, run.fold.state)
            if entries or over:
                after = entries[-1].seq if entries else after
                quiet = 0.0
                yield Batch(list(entries), over)
                if over:
                    return
            elif await _rung(news := news or bell.listen(task_id), _patience(run)):
                quiet = 0.0
            else:
                quiet += _patience(run)
                if quiet >= IDLE:
                    quiet = 0.0
                    yield Batch([], False)
            if news is not None:
                bell.hush(task_id, news)
                news = None
    finally:
        if news is not None:
            bell.hush(task_id, news)


def _patience(run: Run | None) -> float:
    """A run of this process always rings; for any other the store is asked now and then."""
    return POLL if run is None or run.closed else IDLE


def _ends(resting: bool, state: object) -> bool:
    return resting and state in ENDS_STREAM


async def _rung(news: asyncio.Future[None], seconds: float) -> bool:
    """Whether the bell rang in time. A bare timer: `asyncio.timeout` costs more than the wait."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, news.cancel)
    try:
        await news
    except asyncio.CancelledError:
        if news.cancelled() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
            return False
        raise
    finally:
        timer.cancel()
    return True
