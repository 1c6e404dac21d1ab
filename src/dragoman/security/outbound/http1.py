"""HTTP/1.1 over one connection: one exchange after the other."""

from __future__ import annotations

from typing import NamedTuple

import h11
import httpcore2

from .socket_stream import SocketStream
from .target import Target

LARGEST_HEAD = 100 * 1024
"""The bytes that the head of a response may have."""


class OutgoingRequest(NamedTuple):
    """A request as it goes on the wire, and the seconds that it may take."""

    method: str
    target: Target
    path: str
    fields: list[tuple[bytes, bytes]]
    body: bytes
    connect: float | None
    idle: float | None


class Http1Connection:
    """A connection that carries one exchange at a time."""

    def __init__(self, stream: SocketStream, origin: str) -> None:
        self.stream = stream
        self.origin = origin
        self.unused_since = 0.0
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
        self._idle: float | None = None
        self._over = False

    async def begin(self, request: OutgoingRequest) -> tuple[int, dict[str, str]]:
        """Sends a request, and returns the status and the headers of the response."""
        state = self._state
        try:
            head = state.send(
                h11.Request(
                    method=request.method, target=request.path.encode(), headers=request.fields
                )
            )
            body = state.send(h11.Data(data=request.body)) if request.body else b""
            state.send(h11.EndOfMessage())
        except h11.LocalProtocolError as exc:
            raise httpcore2.LocalProtocolError(exc) from exc
        # A body that the other side does not want is no reason to wait: its answer may say why.
        self.stream.send((head or b"") + (body or b""))
        self._idle, self._over = request.idle, False
        while not isinstance(event := await self._event(), h11.Response):
            pass  # an interim response
        fields = {k.decode("latin-1"): v.decode("latin-1") for k, v in event.headers}
        return event.status_code, fields

    async def read(self) -> bytes:
        """Returns the next bytes of the body; nothing at its end."""
        data = b""
        while not self._over:
            event = self._next() if data else await self._event()
            if isinstance(event, h11.Data):
                data += event.data  # what has arrived is given together
            elif event is h11.NEED_DATA:
                break
            else:
                self._over = True
        return data

    def end(self) -> bool:
        """Ends the exchange, and returns whether the connection can carry another one."""
        state = self._state
        if state.our_state is not h11.DONE or state.their_state is not h11.DONE:
            return False
        state.start_next_cycle()
        return not state.trailing_data[0] and self.stream.is_fresh()

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._state.next_event()
        except h11.RemoteProtocolError as exc:
            raise httpcore2.RemoteProtocolError(exc) from exc

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._next()) is h11.NEED_DATA:
            data = await self.stream.read(timeout=self._idle)
            if not data and self._state.their_state is h11.SEND_RESPONSE:
                raise httpcore2.RemoteProtocolError(
                    "Server disconnected without sending a response."
                )
            self._state.receive_data(data)
        return event  # type: ignore[return-value]  # all that is left
