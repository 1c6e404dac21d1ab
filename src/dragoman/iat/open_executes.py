"""The executes that sub-agents work on, and what they post about them.

Theory. Over HTTP a sub-agent may answer an `execute` with a stream, with one response, or with a
mere acknowledgement (R01). Whatever else it has to say it posts to its host, as messages of its own
whose parent is the `execute`: thoughts, chunks, the `done`, and the requests `call_tool` and
`require_approval`. Such a request blocks until it is answered (R05): the answer is the response to
its POST. Here both sources of events become one stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import suppress

from dragoman.core.errors import (
    BadParams,
    DragomanError,
    Forbidden,
    PeerUnreachable,
    TooMany,
)
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Json, Message
from dragoman.core.operations import Resolve
from dragoman.core.peer import Batch, Begun
from dragoman.core.session import Frame, steps
from dragoman.dialects.iat.caller import IatCaller
from dragoman.dialects.iat.events import THEIRS, Payload
from dragoman.dialects.iat.requests import resolve_out
from dragoman.dialects.iat.wire import Envelope, Kind

MAX_WAITING_BATCHES = 64
"""What a sub-agent may post before its reader has read it; then its posts wait."""
MAX_OPEN_REQUESTS = 64
"""The requests of one execute that may wait for their answers."""


class OpenExecute:
    """One execute, from the moment in which it is sent to its end."""

    def __init__(self, id: str, session: IatCaller) -> None:
        self.id = id
        self._session = session
        self._events: asyncio.Queue[Batch | Exception] = asyncio.Queue(MAX_WAITING_BATCHES)
        self._answers: dict[str, asyncio.Future[Payload]] = {}
        """The answers to its requests, by their ids. A request that is posted again, because its
        connection broke, gets the same answer."""
        self._posts = False

    def check_sender(self, who: str) -> None:
        """Raises `Forbidden` if this is not the agent that the execute was sent to."""
        if who != self._session.state.to:
            raise Forbidden("`from` is not the agent that this execute was sent to.")

    async def post(self, frame: Frame, envelope: Envelope) -> Json:
        """Takes an event that the sub-agent has posted. Returns the answer to a request."""
        self._posts = True
        is_request = envelope.kind is Kind.REQUEST
        if is_request and envelope.id in self._answers:
            return await asyncio.shield(self._answers[envelope.id])
        if len(self._answers) >= MAX_OPEN_REQUESTS:
            raise TooMany("Too many requests of this execute wait for their answers.")
        entries, last, error = steps(self._session.receive(frame))
        if is_request:
            self._answers[envelope.id] = asyncio.get_running_loop().create_future()
        await self._events.put(error or Batch(entries, last))
        return await asyncio.shield(self._answers[envelope.id]) if is_request else None

    def answer(self, op: Resolve) -> bool:
        """Answers a request that was posted. Returns whether it was one."""
        request, payload = resolve_out(op)
        waiting = self._answers.get(request)
        if waiting is None:
            return False
        if not waiting.done():
            waiting.set_result({key: value for key, value in payload.items() if key != "detail"})
        return True

    async def batches(self, answer: Awaitable[Begun]) -> AsyncGenerator[Batch, None]:
        """Yields the events that the sub-agent answers the execute with, and those that it posts,
        as they arrive."""
        reading = asyncio.get_running_loop().create_task(self._read(answer))
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, Exception):
                    raise event
                over = event.last or _is_end(event.entries)
                yield Batch(event.entries, over)
                if over:
                    return
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, DragomanError):
                await reading

    async def _read(self, answer: Awaitable[Begun]) -> None:
        try:
            batch, rest = await answer
            try:
                while batch is not None:
                    # An acknowledgement is a whole answer, but not the end of the execute.
                    await self._events.put(Batch(batch.entries, last=False))
                    batch = await anext(rest, None)
            finally:
                await rest.aclose()
            if not (self._session.acknowledged or self._posts):
                await self._events.put(Batch([], last=True))
        except Exception as exc:  # the reader of the events gets it, whatever it is
            await self._events.put(exc)

    def close(self, error: DragomanError) -> None:
        """Ends the execute: whoever waits here gets this error."""
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # its POST may have gone away long ago
        with suppress(asyncio.QueueFull):
            self._events.put_nowait(error)


class OpenExecutes:
    """The open executes of one server, by the ids of their envelopes."""

    def __init__(self) -> None:
        self._open: dict[str, OpenExecute] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._open

    def open(self, id: str, session: IatCaller) -> OpenExecute:
        """Returns a new execute. `close` ends it."""
        found = self._open[id] = OpenExecute(id, session)
        return found

    def find(self, id: str) -> OpenExecute:
        """Returns the execute of this id. Raises `BadParams` if it is not open."""
        if id not in self._open:
            raise BadParams("There is no open execute of this id", field="header.parent_id")
        return self._open[id]

    def answer(self, op: Resolve) -> bool:
        """Answers a request that a sub-agent has posted. Returns whether it was one."""
        return op.question.startswith(THEIRS) and any(
            each.answer(op) for each in self._open.values()
        )

    def close(self, execute: OpenExecute, error: DragomanError | None = None) -> None:
        """Ends an execute. Its sub-agent gets no more answers."""
        if self._open.pop(execute.id, None) is not None:
            execute.close(error or BadParams("The execute has ended", field="header.parent_id"))

    def close_all(self) -> None:
        """Ends all executes, because the server stops."""
        for each in tuple(self._open.values()):
            self.close(each, PeerUnreachable("The host stops; try again later"))


def _is_end(entries: Sequence[Stamped | Message]) -> bool:
    last = entries[-1] if entries else None
    if not isinstance(last, Stamped):
        return last is not None
    match last.event:
        case StateChanged(state=state):
            return state in FINAL
        case Snapshot(task=task):
            return task.state in FINAL
    return False
