"""Follow a task's log: read, yield, wait for the bell, read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman.bell import Bell
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import ENDS_STREAM, WAITING, Fold
from dragoman.core.model import Message, State
from dragoman.core.peer import Batch, Tap
from dragoman.store.interface import Scope, Store

from .runs.run import Run

PAGE = 64
"""Events read from the store at once."""
IDLE = 4.0
"""Seconds of silence after which a reader is told that the stream is alive. The official Python
client gives up after five."""
POLL = 1.0
"""A lost ring costs this many seconds, never an event."""


class Place(Struct, frozen=True):
    """Where a stream begins: behind an event, or with a snapshot, or with all there is to say."""

    task_id: str
    after: int = 0
    first: Stamped | Message | None = None
    run: Run | None = None
    rests: bool = False
    """Nothing follows what it begins with, unless somebody does something."""
    answer: str = ""
    """The id of a message that a waiting task was just sent. `first` is the task before that; the
    stream begins with the task as the message has left it, so that nobody reads the question
    that was answered as a new one."""

    @property
    def since(self) -> int:
        """The last event before what follows."""
        return self.first.seq if isinstance(self.first, Stamped) else self.after


Idle = dict[asyncio.Future[bool], float]
"""Readers that wait, and until when (loop time). A look at all of them now and then is cheaper than
a timer for each."""


def send_on(idle: Idle, now: float) -> None:
    """Lets those go who waited long enough."""
    for news, until in list(idle.items()):
        if until <= now and not news.done():
            news.set_result(False)


async def follow(
    store: Store,
    bell: Bell,
    idle: Idle,
    scope: Scope,
    begin: Callable[[], Awaitable[Place]],
    find: Callable[[str], Run | None],
) -> AsyncGenerator[Batch, None]:
    """Every event behind a place, then live ones, until one of them brings the task to rest."""
    place = await begin()
    task_id, after, run = place.task_id, place.after, place.run
    if isinstance(place.first, Message):
        yield Batch([place.first], True)
        return
    waiting: Fold | None = None
    if place.first is not None:
        after = place.first.seq
        if place.answer and isinstance(place.first.event, Snapshot):
            waiting = Fold.of(place.first.event.task, after)
        else:
            yield Batch([place.first], place.rests)
            if place.rests:
                return
    now = asyncio.get_running_loop().time
    quiet = 0.0
    tap = Tap()
    # A run that was lost before this reader heard its question cannot say that it rests. The store
    # can, but then nothing may be left to tell.
    told = False
    while True:
        if run is None or run.writer.closed:
            run = find(task_id) or run
        if run is not None and run.writer.error is not None and not run.log.committed:
            raise run.writer.error  # it never came into being
        live = run if run is not None and not run.writer.closed else None
        news: asyncio.Future[bool] | None = None
        try:
            entries = run.log.since(after) if run is not None else None
            if entries is None or (live is None and not entries):
                # Listen before reading, or an event slips between.
                news = bell.listen(task_id)
                page = await store.read(scope, task_id, after, PAGE)
                entries, row = page.entries, page.row
                complete = not entries or entries[-1].seq == row.last_seq
                told = told or bool(entries)
                if not entries and after < row.last_seq:
                    # Its log was dropped: what is left to tell is how the task stands.
                    row, task = await store.load(scope, task_id)
                    at, stands = task.status.at, Snapshot(task=task)
                    entries = [Stamped(task_id, row.context_id, row.last_seq, at, stands)]
                over = complete and (row.final or (told and _ends(row.resting, row.state)))
            else:
                over = (
                    run is not None and bool(entries) and _ends(run.resting, run.writer.fold.state)
                )
            if entries or over:
                after = entries[-1].seq if entries else after
                quiet, told = 0.0, True
                if waiting is not None:
                    entries = _behind_answer(waiting, entries, place.answer)
                    if over and not entries and place.first is not None:
                        # Nothing follows: the task as it stands is all there is to tell.
                        stands = Snapshot(task=waiting.task())
                        entries = [replace(place.first, seq=after, event=stands)]
                    if entries:
                        waiting = None
                if entries or over:
                    yield Batch(entries, over, tap)
                if over:
                    return
                continue
            # A run of this process always tells; for any other the store is asked again.
            tap.after = after
            if news is None:
                news = live.log.listen(tap) if live is not None else bell.listen(task_id)
            patience = POLL if live is None else IDLE
            idle[news] = now() + patience
            heard = await news
            after = tap.after
            if heard:
                quiet = 0.0
            else:
                quiet += patience
                if quiet >= IDLE:
                    quiet = 0.0
                    yield Batch([], False)
        finally:
            if news is not None:
                idle.pop(news, None)
                bell.hush(task_id, news)
                if live is not None:
                    live.log.hush(news)


def _behind_answer(task: Fold, entries: Sequence[Stamped], answer: str) -> list[Stamped]:
    """The task as its caller's answer leaves it, and what follows; nothing before it is heard."""
    for number, entry in enumerate(entries, 1):
        task.add(entry)
        event = entry.event
        heard = event.heard if isinstance(event, StateChanged) else None
        # A task that waits no longer has moved on without the answer: it was canceled, say.
        if task.state not in WAITING or (heard is not None and heard.message_id == answer):
            begin = replace(entry, event=Snapshot(task=task.task()))
            return [begin, *entries[number:]]
    return []


def _ends(resting: bool, state: State) -> bool:
    return resting and state in ENDS_STREAM


async def within(waiter: asyncio.Future[None], seconds: float) -> None:
    """Waits for something that happens, but not longer."""
    if not waiter.done():
        timer = asyncio.get_running_loop().call_later(seconds, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()


async def first_of(*waiters: asyncio.Future[Any], seconds: float) -> None:
    """Waits for whichever comes first."""
    await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
