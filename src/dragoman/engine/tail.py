"""Follows the log of a task: reads, yields, waits for the bell and reads again.

Theory. A reader holds only its position in the log. Nobody queues events for it, so a reader that
disconnects leaves nothing behind, and one that falls behind costs no memory. Each round takes the
events after the position from the live log of the run, if it is in this process and reaches back
far enough, and otherwise from the store. The bell only says "look again": a reader that misses it
looks again after `POLL` seconds anyway, so a lost ring costs a delay, never an event.
"""

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
"""The number of events that are read from the store at once."""
IDLE = 4.0
"""Seconds without an event after which a keep-alive is sent. The official Python client gives up
after five."""
POLL = 1.0
"""Seconds after which a reader of the store looks again even if the bell has not rung."""


class Place(Struct, frozen=True):
    """Where a stream begins: after an event, with a snapshot, or with a complete direct reply."""

    task_id: str
    after: int = 0
    """The seq after which the stream begins, if there is no `first`."""
    first: Stamped | Message | None = None
    """The snapshot that the stream begins with, or the direct reply that is the whole stream."""
    run: Run | None = None
    """The run of the task in this process, if it is known."""
    rests: bool = False
    """Whether the stream ends with `first`, because the task is finished or waits."""
    answer: str = ""
    """The id of a message that a waiting task has just received. `first` is the task before that
    message. The stream begins with the task after it, so that no reader takes the question that was
    answered for a new one."""

    @property
    def since(self) -> int:
        """The seq of the last event before the ones that follow."""
        return self.first.seq if isinstance(self.first, Stamped) else self.after


Idle = dict[asyncio.Future[bool], float]
"""The waiting readers, and the loop time until which each waits. Checking all of them periodically
is cheaper than one timer per reader."""


def send_on(idle: Idle, now: float) -> None:
    """Wakes the readers whose time is over."""
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
    """Yields every event after a place, then live events, until one of them ends the stream: the
    task is finished, or asks for input. An empty batch is a keep-alive."""
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
    # If a run was lost before this reader saw its question, only the store knows that the task
    # waits, and no further event may follow. On the other hand, a reader that joins a waiting task
    # must not end before the first new event. `told` tells the two apart: it records whether this
    # reader has seen an event.
    told = False
    while True:
        if run is None or run.writer.closed:
            run = find(task_id) or run
        if run is not None and run.writer.error is not None and not run.log.committed:
            raise run.writer.error  # the task was never created
        live = run if run is not None and not run.writer.closed else None
        news: asyncio.Future[bool] | None = None
        try:
            entries = run.log.since(after) if run is not None else None
            if entries is None or (live is None and not entries):
                # Listen before reading: an event that is committed between a read and a later
                # `listen` would ring a bell that nobody listens to.
                news = bell.listen(task_id)
                page = await store.read(scope, task_id, after, PAGE)
                entries, row = page.entries, page.row
                complete = not entries or entries[-1].seq == row.last_seq
                told = told or bool(entries)
                if not entries and after < row.last_seq:
                    # The retention of the log has ended; only the current task can be sent.
                    row, task = await store.load(scope, task_id)
                    at, stands = task.status.at, Snapshot(task=task)
                    entries = [Stamped(task_id, row.context_id, row.last_seq, at, stands)]
                over = complete and (row.final or (told and _ends(row.resting, row.state)))
            else:
                over = False
                if run is not None and entries:
                    over = _ends(run.resting, run.writer.fold.status.state)
            if entries or over:
                after = entries[-1].seq if entries else after
                quiet, told = 0.0, True
                if waiting is not None:
                    entries = _behind_answer(waiting, entries, place.answer)
                    if over and not entries and place.first is not None:
                        # No event follows the answer, so the current task is the whole stream.
                        stands = Snapshot(task=waiting.task())
                        entries = [replace(place.first, seq=after, event=stands)]
                    if entries:
                        waiting = None
                if entries or over:
                    yield Batch(entries, over, tap)
                if over:
                    return
                continue
            # A run in this process wakes its readers reliably. A run in another process may change
            # the store without ringing our bell, so such a reader waits only for `POLL` seconds.
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
    """Returns the task after its caller's answer and the events that follow; an empty list until
    the log contains the answer."""
    for number, entry in enumerate(entries, 1):
        task.add(entry)
        event = entry.event
        heard = event.heard if isinstance(event, StateChanged) else None
        # A task that no longer waits has moved on without the answer; it was canceled, for example.
        if task.state not in WAITING or (heard is not None and heard.message_id == answer):
            begin = replace(entry, event=Snapshot(task=task.task()))
            return [begin, *entries[number:]]
    return []


def _ends(resting: bool, state: State) -> bool:
    return resting and state in ENDS_STREAM


async def within(waiter: asyncio.Future[None], seconds: float) -> None:
    """Waits for a future, for at most this many seconds."""
    if not waiter.done():
        timer = asyncio.get_running_loop().call_later(seconds, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()


async def first_of(*waiters: asyncio.Future[Any], seconds: float) -> None:
    """Waits until one of the futures is done or the time is over."""
    await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
