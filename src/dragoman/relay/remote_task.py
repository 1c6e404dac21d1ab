"""A task at another agent that a task of ours has opened.

Theory. The remote task is recorded in the journal of our own task as soon as its first event shows
its id, unless the task has ended by then. A run that starts again finds that record and follows the
task instead of opening a second one. If the process dies before the record is written, the message
is sent again with the same idempotency key, so that a server that stores keys opens no second task.
The engine also reads the record when our task is canceled, even in another process, and cancels the
remote task as well (`agent.remote_calls.unfinished`).

Between the moment in which the message may have been sent and that in which the id is known, a
cancel has no address yet. Our task therefore does not end before the first answer has come, or
before the agent lists a task with our message. If the process dies meanwhile, the next run looks
for that task (`stop_unrecorded`). It never sends the message again for that, since the agent would
execute it.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import msgspec

from dragoman.agent.remote_calls import MOST_HOPS, SENT, StartedCall, TurnAccess
from dragoman.core.card import Tool
from dragoman.core.errors import DragomanError, PeerMisbehaved, Unsupported
from dragoman.core.events import Stamped
from dragoman.core.ids import is_id
from dragoman.core.model import Json, Message, Task
from dragoman.core.peer import Context

Entry = Stamped | Message
A = TypeVar("A", bound=Sequence[Entry] | Entry | Task | None)
FIRST_LOOK, LONGEST_LOOK = 0.25, 30.0
"""Seconds between two looks for a task whose id is not known."""
_is_hex = re.compile("[0-9a-f]{32}").fullmatch
LOOKS = 6
"""How often the agent is asked for a task that it does not list, when nothing else will come."""
MAX_REMOTE_ID_LENGTH = 1024
"""Characters of an id that another agent gives its task or conversation."""
MAX_KEY_TASK_ID_LENGTH = 64
"""Characters of the id of our task that are part of a key as they are."""


class Closable(Protocol):
    """A stream that can be closed before its end."""

    async def aclose(self) -> None: ...


class EntryStream(Closable, Protocol):
    """The events of a task, from a client or an async generator."""

    def __aiter__(self) -> AsyncIterator[Entry]: ...

    async def __anext__(self) -> Entry: ...


class RemoteTask:
    """The task at another agent that one recorded call creates or continues."""

    in_doubt = False
    """Whether the message may have been sent, by this run or by an earlier one that said so before;
    an earlier one that could repeat it did not have to."""
    _awaited = False
    """Whether the first answer is awaited although our task does not want it any more."""

    def __init__(
        self,
        access: TurnAccess,
        record: str,
        address: str = "",
        options: Mapping[str, Json] | None = None,
    ) -> None:
        """`options` are those of the connection; they are recorded, so they contain no secret."""
        self._run = run = access.run
        self._record = f"{SENT}:{record}"
        self.address, self._options = address, dict(options) if options else {}
        self.key = f"{_short_id(run.task_id)}.{_mark(record)}"
        """The idempotency key and message id, the same in every run of our task."""
        self._started: StartedCall | None = None
        self.id = ""
        """The id of the task at the other agent; empty until it is known."""
        # The journal of a first run is empty, and nothing else records the task during a run.
        raw = run.recorded(self._record) if run.resumed else None
        if raw is not None:
            self._started = msgspec.json.decode(raw, type=StartedCall)
            self.id = self._started.task_id

    async def started(self, task_id: str, context_id: str = "", *, unwanted: bool = False) -> None:
        """Records the id of the task, once. A task that is not wanted any more is canceled."""
        if self.id:
            return
        call = self._start(task_id, context_id, unwanted=unwanted)
        await self._run.record(self._record, msgspec.json.encode(call))

    def found(self, task_id: str, context_id: str, *, over: bool) -> None:
        """Records the id of the task, once, with the next commit. Nobody will have to follow or
        cancel a task that is `over`, but later messages may refer to it."""
        if self.id:
            return
        if over:
            _check_ids(task_id, context_id)
            self._started = call = StartedCall(
                self.address, task_id, context_id, self._options, over=True
            )
            self.id = task_id
        else:
            call = self._start(task_id, context_id, unwanted=False)
        self._run.note(self._record, msgspec.json.encode(call), soon=not over)

    def _start(self, task_id: str, context_id: str, *, unwanted: bool) -> StartedCall:
        _check_ids(task_id, context_id)
        self._started = call = StartedCall(self.address, task_id, context_id, self._options)
        self.id = task_id
        run = self._run
        if unwanted or ((run.over or run.cancelled) and not run.leaving):
            # First, because the record may be refused: our task may have ended in the meantime.
            run.stop_call(call)
        return call

    async def follow(self, events: EntryStream) -> AsyncGenerator[Entry, None]:
        """Yields the events of a stream. The first one contains the id of the new task."""
        entry = await self.first(_next(events), events)
        try:
            while entry is not None:
                if isinstance(entry, Stamped):
                    await self.started(entry.task_id, entry.context_id)
                yield entry
                entry = await _next(events)
        finally:
            await events.aclose()

    async def first(self, answer: Coroutine[Any, Any, A], events: Closable | None = None) -> A:
        """Returns the first answer to the message, of these events. It contains the id of the new
        task, so it is awaited even if our caller gives up: that task has to be canceled."""
        first = asyncio.ensure_future(answer)
        try:
            return await asyncio.shield(first)
        except asyncio.CancelledError:
            if self._run.leaving:
                first.cancel()
            else:
                self._awaited = True
                self._run.before_end(self._stop_after(first, events))
            raise

    @asynccontextmanager
    async def stopped_with_us(self) -> AsyncIterator[None]:
        """Cancels the remote task if the skill abandons the call."""
        try:
            yield
        except asyncio.CancelledError:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Cancels the remote task, because the skill abandons the call. A call whose run moves to
        another process continues, and for a canceled task whose id is recorded the engine does
        it."""
        run = self._run
        if self._started is not None and not run.leaving and not run.cancelled:
            run.stop_call(self._started)
        elif not (self.id or self._awaited or run.leaving) and (self.in_doubt or run.resumed):
            run.before_end(self.stop_unrecorded())

    async def _stop_after(self, first: asyncio.Future[A], events: Closable | None) -> None:
        """Cancels the remote task when its id is known: by the first answer, or because the agent
        lists the task before it answers."""
        looking = asyncio.ensure_future(self.stop_unrecorded(first))
        try:
            await asyncio.wait((first, looking), return_when=asyncio.FIRST_COMPLETED)
            if self.id:
                return
            task_id = _id_in(await first)
            if task_id:
                await self.started(task_id, unwanted=True)
        except DragomanError:
            await looking  # the message may have arrived all the same
        finally:
            looking.cancel()
            first.cancel()
            if events is not None:
                with suppress(DragomanError, asyncio.CancelledError):
                    await asyncio.wait((first,))
                    await events.aclose()

    async def find(self) -> str:
        """Returns the id of the task that our message opened, as the agent lists it; empty if it
        does not so far. Raises `Unsupported` if it cannot tell."""
        raise Unsupported("This agent does not list its tasks")

    async def stop_unrecorded(self, until: asyncio.Future[A] | None = None) -> None:
        """Cancels the task of a message that may have been sent, if the agent lists it. It is asked
        several times, and for longer while `until` is not done, because a message may arrive
        late."""
        pause, looks = FIRST_LOOK, 0
        while not self.id:
            if until is not None:
                await asyncio.wait((until,), timeout=pause)
            try:
                if found := await self.find():
                    await self.started(found, unwanted=True)
                    return
                looks += 1
            except (DragomanError, TimeoutError) as exc:
                if isinstance(exc, DragomanError) and not exc.retry:
                    return  # it cannot tell
            if looks == LOOKS and (until is None or until.done()):
                return
            if until is None or until.done():
                await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK)


async def _next(events: EntryStream) -> Entry | None:
    return await anext(aiter(events), None)


def _id_in(answer: Sequence[Entry] | Entry | Task | None) -> str:
    """Returns the id of the task that an answer is about; empty if it is about none."""
    if isinstance(answer, Task):
        return answer.id
    entries = answer if isinstance(answer, Sequence) else (answer,)
    return next((each.task_id for each in entries if isinstance(each, Stamped)), "")


def _check_ids(task_id: str, context_id: str) -> None:
    """Raises `PeerMisbehaved` for ids that cannot be stored with our task and repeated with every
    call about it."""
    for each in (task_id, context_id):
        if each and not is_id(each, MAX_REMOTE_ID_LENGTH):
            raise PeerMisbehaved(
                f"The agent gave its task an id of more than {MAX_REMOTE_ID_LENGTH} characters, or "
                "one with control characters"
            )


def _short_id(task_id: str) -> str:
    """Returns the id of our task, or its digest if it is long: where callers name tasks (A2A 0.1),
    it contains the key of the caller, which contains the id of the caller's task, and so on."""
    if len(task_id) <= MAX_KEY_TASK_ID_LENGTH:
        return task_id
    return hashlib.sha256(task_id.encode()).hexdigest()[:32]


@lru_cache(maxsize=256)
def _mark(record: str) -> str:
    return hashlib.sha256(record.encode()).hexdigest()[:24]


def context_for(
    access: TurnAccess, *, extensions: tuple[str, ...] = (), tools: tuple[Tool | str, ...] = ()
) -> Context:
    """Returns the context of calls to a remote agent: one hop more, the same trace, and the time
    that our own run has left. Raises `Unsupported` if agents call each other in a loop."""
    run = access.run
    opened = run.opened
    if opened.hops >= MOST_HOPS:
        raise Unsupported(f"More than {MOST_HOPS} agents call each other in a row")
    return Context(
        extensions=extensions,
        tools=tools,
        deadline=run.seconds_left,
        trace=opened.trace or _trace(run.task_id),
        hops=opened.hops + 1,
    )


def _trace(task_id: str) -> str:
    """Returns a trace that begins with this task and is the same in every run (W3C traceparent). It
    has the digits of the task's id, if that is one of ours."""
    digits = task_id.replace("-", "")
    if not _is_hex(digits):
        digits = hashlib.sha256(task_id.encode()).hexdigest()[:32]
    return f"00-{digits}-{digits[16:]}-00"
