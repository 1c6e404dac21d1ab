"""A task at another agent that a task of ours has opened.

Theory. The remote task is recorded in the journal of our own task as soon as its first event shows
its id. A run that starts again finds that record and follows the task instead of opening a second
one. If the process dies before the record is written, the message is sent again with the same
idempotency key, so that a server that stores keys opens no second task. The engine also reads the
record when our task is canceled, even in another process, and cancels the remote task as well
(`agent.remote_calls.unfinished`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import msgspec

from dragoman.agent.remote_calls import MOST_HOPS, SENDING, SENT, StartedCall, TurnAccess
from dragoman.core.errors import DragomanError, Unsupported
from dragoman.core.events import Stamped
from dragoman.core.model import Json, Message
from dragoman.core.peer import Context

Entry = Stamped | Message
Stop = Callable[[StartedCall], Awaitable[None]]


class EntryStream(Protocol):
    """The events of a task, from a client or an async generator."""

    def __aiter__(self) -> AsyncIterator[Entry]: ...

    async def __anext__(self) -> Entry: ...

    async def aclose(self) -> None: ...


class RemoteTask:
    """The task at another agent that one recorded call creates or continues."""

    def __init__(
        self,
        access: TurnAccess,
        record: str,
        stop: Stop,
        address: str = "",
        options: Mapping[str, Json] | None = None,
    ) -> None:
        """`options` are those of the connection; they are recorded, so they contain no secret."""
        self._run = access.run
        self._record = f"{SENT}:{record}"
        self._sending = f"{SENDING}:{record}"
        self.address, self._options = address, dict(options or {})
        self._stop = stop
        self._started: StartedCall | None = None
        mark = hashlib.sha256(record.encode()).hexdigest()[:24]
        self.key = f"{self._run.task_id}.{mark}"
        """The idempotency key and message id, the same in every run of our task."""

    @property
    def id(self) -> str:
        """The id of the task at the other agent; empty until it is known."""
        if self._started is None:
            raw = self._run.recorded(self._record)
            if raw is None:
                return ""
            self._started = msgspec.json.decode(raw, type=StartedCall)
        return self._started.task_id

    @property
    def recorded_address(self) -> str:
        """The address at which the task is, or to which the message may have been sent; empty if
        that is not known."""
        if self.id and self._started is not None:
            return self._started.address
        return self._announced() or ""

    @property
    def announced(self) -> bool:
        """Whether this run or an earlier one was about to send the message."""
        return self._announced() is not None

    async def announce(self) -> None:
        """Records that the message is about to be sent to the address."""
        if self._announced() != self.address:
            key = self._sending_key(self._announcements)
            await self._run.record(key, msgspec.json.encode(self.address))

    def _announced(self) -> str | None:
        """Returns the address to which the message was about to be sent last. A message that could
        not be sent to one address is announced again for the next."""
        address: str | None = None
        self._announcements = 0
        while (raw := self._run.recorded(self._sending_key(self._announcements))) is not None:
            address = msgspec.json.decode(raw, type=str)
            self._announcements += 1
        return address

    def _sending_key(self, number: int) -> str:
        return f"{self._sending}#{number}" if number else self._sending

    async def started(self, task_id: str) -> None:
        """Records the id of the task, once."""
        if self.id:
            return
        self._started = StartedCall(self.address, task_id, self._options)
        await self._run.record(self._record, msgspec.json.encode(self._started))
        if (self._run.over or self._run.cancelled) and not self._run.leaving:
            # Our task ended while this call was in flight, so nobody waits for it.
            self._run.spawn(self._stop_now())

    async def follow(self, events: EntryStream) -> AsyncGenerator[Entry, None]:
        """Yields the events of a stream. The first event contains the id of the new task, so it is
        awaited even if the caller gives up: that task has to be canceled."""
        first = asyncio.ensure_future(_next(events))
        try:
            entry = await asyncio.shield(first)
        except asyncio.CancelledError:
            if self._run.leaving:
                first.cancel()
            else:
                self._run.spawn(self._stop_after(first, events))
            raise
        try:
            while entry is not None:
                if isinstance(entry, Stamped):
                    await self.started(entry.task_id)
                yield entry
                entry = await _next(events)
        finally:
            await events.aclose()

    @asynccontextmanager
    async def stopped_with_us(self) -> AsyncIterator[None]:
        """Cancels the remote task if the skill abandons the call. A call whose run moves to another
        process continues, and for a canceled task the engine does it."""
        try:
            yield
        except asyncio.CancelledError:
            if self.id and not self._run.leaving and not self._run.cancelled:
                self._run.spawn(self._stop_now())
            raise

    async def _stop_after(
        self,
        first: asyncio.Future[Entry | None],
        events: EntryStream,
    ) -> None:
        with suppress(DragomanError):  # no task was created
            entry = await first
            if isinstance(entry, Stamped):
                await self.started(entry.task_id)
                await self._stop_now()
        await events.aclose()

    async def _stop_now(self) -> None:
        if self._started is not None:
            await self._stop(self._started)


async def _next(events: EntryStream) -> Entry | None:
    return await anext(aiter(events), None)


def context_for(access: TurnAccess) -> Context:
    """Returns the context of calls to a remote agent: one hop more, the same trace, and the time
    that our own run has left. Raises `Unsupported` if agents call each other in a loop."""
    run = access.run
    if run.opened.hops >= MOST_HOPS:
        raise Unsupported(f"More than {MOST_HOPS} agents call each other in a row")
    return Context(
        trace=run.opened.trace or _trace(run.task_id),
        hops=run.opened.hops + 1,
        deadline=run.seconds_left,
    )


def _trace(task_id: str) -> str:
    """Returns a trace that begins with this task and is the same in every run (W3C traceparent)."""
    digest = hashlib.sha256(task_id.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-00"
