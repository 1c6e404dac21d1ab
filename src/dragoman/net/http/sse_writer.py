"""Writes the body of a streamed response: batches as server-sent events.

If the server accepts data without waiting, live events go from the run to the socket directly
(`Tap`), without waking the task of the exchange for each event.
"""

from __future__ import annotations

from asyncio import iscoroutine
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Protocol

from dragoman.core.events import Stamped
from dragoman.core.model import Message
from dragoman.core.peer import Batch, Tap
from dragoman.core.session import End, Fault, Frame, Id, Signal, Update
from dragoman.dialects.sse import KEEP_ALIVE, event
from dragoman.observability.metrics import Metrics

from .asgi import Send


class Speaker(Protocol):
    """The encoding half of a session."""

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Encodes a signal."""


class SseWriter:
    """Writes the events of one stream."""

    __slots__ = ("_at_once", "_id", "_metrics", "_pending", "_send", "_session", "_tap", "started")

    def __init__(self, session: Speaker, id: Id, send: Send, metrics: Metrics) -> None:
        self._session, self._id = session, id
        self._send, self._metrics = send, metrics
        self._at_once: type | None = None
        """The type of the awaitable that `send` returns if there is nothing to wait for, with a
        server that has such a type."""
        self._pending: Awaitable[None] | None = None
        """The write of live events that the server has not accepted yet."""
        self._tap: Tap | None = None
        self.started = False

    async def start(self, head: dict[str, Any]) -> None:
        """Sends the head of the response."""
        self.started = True
        sent = self._send(head)
        if not iscoroutine(sent):  # `send` has begun at the call, and the head never has to wait
            self._at_once = type(sent)
        await sent

    async def write(self, batch: Batch) -> None:
        """Sends the events of a batch in one write."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            await pending
        data = self._said(batch.entries)
        if batch.last:
            data += _events(self._session.send(End(self._id)))
        sent = self._body(data if data or batch.last else KEEP_ALIVE, more=not batch.last)
        if type(sent) is not self._at_once:
            await sent
        elif batch.tap is not None:
            self._tap = batch.tap
            self._tap.sink = self._pour

    def _pour(self, entries: Sequence[Stamped]) -> None:
        sent = self._body(self._said(entries), more=True)
        if type(sent) is not self._at_once:
            self.close()
            self._pending = sent

    def _said(self, entries: Sequence[Stamped | Message]) -> bytes:
        self._metrics.events += len(entries)
        send, id = self._session.send, self._id
        if len(entries) > 1:
            return _events([frame for entry in entries for frame in send(Update(id, entry))])
        data = b""  # the usual case, in which chunks come one by one
        for entry in entries:
            for frame in send(Update(id, entry)):
                data += event(frame.body, frame.mark, frame.name)
        return data

    def _body(self, data: bytes, *, more: bool) -> Awaitable[None]:
        return self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def end(self, fault: Fault | None = None) -> None:
        """Ends a stream that did not end with its task."""
        data = _events(self._session.send(fault)) if fault is not None else b""
        await self._body(data, more=False)

    def close(self) -> None:
        """Stops live events from being written directly."""
        if self._tap is not None:
            self._tap.sink = None
            self._tap = None


def _events(frames: Iterable[Frame]) -> bytes:
    return b"".join([event(frame.body, frame.mark, frame.name) for frame in frames])
