"""IAT over a WebSocket: one envelope per text frame, both directions, many calls at once.

Every frame is authenticated by itself. A caller and a callee session share the channel: what
answers a call of ours goes to the caller, all else to the callee. Tasks outlive the socket; who
comes back says `watch` with the cursor in the metadata.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from msgspec.structs import replace

from dragoman.core.errors import DragomanError, Malformed, TooLarge, TooMany, Unauthenticated
from dragoman.core.model import Json
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Context
from dragoman.core.session import Call, Fault, Frame, Introduction, Ping, Result, Signal, Update
from dragoman.dialects.iat.callee import NOTHING, IatCallee
from dragoman.dialects.iat.caller import IatCaller
from dragoman.dialects.iat.wire import Envelope, Kind, envelope_in
from dragoman.security.authentication import certificate_in
from dragoman.security.iat import HEADER, JOINING, SIGNATURE, IatSession
from dragoman.security.rate_limits import TokenBucket
from dragoman.security.route_policy import refuse

from ..http.asgi import Receive, Scope, Send, answer, headers_in
from ..http.connections import METER, SocketMeter
from ..http.exchange import Exchange, OpenStream
from ..websocket.peer import WebSocketPeer
from ..websocket.reader import WebSocketReader
from ..websocket.writer import WebSocketWriter
from .endpoint_context import IatContext
from .question_stream import stream_until_final

TARGET = "GET /iat/ws"
GOING, REFUSED, TOO_BIG, TOO_MUCH, LATER = 1001, 1008, 1009, 1008, 1013
"""Codes of closing (RFC 6455 §7.4.1)."""
CREDENTIALS, JOIN = ("authorization", HEADER), "register"
FRAMING = 65_536
"""Bytes beside a message that may come before it is seen whole: heads of frames, pings."""


class IatSocket(Exchange):
    """Serves the WebSockets at one address."""

    def __init__(self, desk: IatContext) -> None:
        super().__init__(desk.server, desk.session, TARGET)
        self._desk = desk
        self._strangers: Counter[str] = Counter()
        """Sockets that have not said who they are, by address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One socket, from the handshake to its end."""
        if scope["type"] != "websocket":
            await self._plain(scope, send)
            return
        await receive()
        desk = self._desk
        address = (scope.get("client") or ("",))[0]
        try:
            known = await self._knows(headers_in(scope["headers"]), certificate_in(scope))
        except DragomanError as error:
            self.failed(error, "-")
            await send({"type": "websocket.close", "code": REFUSED})
            return
        if desk.stopping or self._full(address, known=known):
            await send({"type": "websocket.close", "code": LATER})
            return
        task = asyncio.current_task(self.server.loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        stream = OpenStream(task)
        desk.sockets.add(stream)
        self.server.streams.add(stream)
        line = SocketLine(self, desk, scope, receive, send)
        if known:
            line.recognize()
        else:
            line.stranger = address
            self._strangers[address] += 1
        code = 1000
        try:
            await send({"type": "websocket.accept"})
            code = await line.run()
        except asyncio.CancelledError:
            if stream.why != "stopping":
                raise
            task.uncancel()
            code = GOING
        finally:
            desk.sockets.discard(stream)
            self.server.streams.discard(stream)
            line.recognize()
            line.peer.lost()
        with suppress(Exception):  # it may be closed already, and nobody is left to be told
            await send({"type": "websocket.close", "code": code})

    async def _knows(self, headers: Mapping[str, str], certificate: str) -> bool:
        """Whether the handshake says who comes. What it says must be right; who says nothing there
        says it in the first frame, as a signature does."""
        if SIGNATURE in headers or not any(name in headers for name in CREDENTIALS):
            return False
        guard, nobody = self._desk.guard, Envelope(kind=Kind.REQUEST)
        try:
            await guard.who(nobody, headers, TARGET, certificate, b"")
        except Unauthenticated:
            joining = replace(nobody, action=JOIN)  # which the shared secret is good for
            await guard.who(joining, headers, TARGET, certificate, b"")
        return True

    def _full(self, address: str, *, known: bool) -> bool:
        """Whether there is no place for another socket. Half of them are for those we know, and
        one address has a tenth of the rest."""
        most = self._desk.settings.sockets
        if known or not most:
            return len(self._desk.sockets) >= most
        strangers = self._strangers
        share = bool(address) and strangers[address] >= max(1, most // 10)
        return share or strangers.total() >= max(1, most // 2) or len(self._desk.sockets) >= most

    def recognized(self, address: str) -> None:
        """A socket from this address said who it is, or is closed."""
        self._strangers[address] -= 1
        if self._strangers[address] <= 0:
            del self._strangers[address]

    async def _plain(self, scope: Scope, send: Send) -> None:
        """Who asks without a handshake hears what is missing, if it may come in at all."""
        headers = headers_in(scope["headers"])
        nobody = Envelope(kind=Kind.REQUEST)
        try:
            await self._desk.guard.who(nobody, headers, TARGET, certificate_in(scope), b"")
        except DragomanError as error:
            await refuse(send, error, self.server.refusal_headers(error))
            return
        upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
        await answer(send, 426, b'{"error":"upgrade_required"}', extra=upgrade)

    def failed(self, exc: Exception, method: str) -> DragomanError:
        """The error to tell."""
        return self._error(exc, method, "iat")


class SocketLine:
    """One open socket."""

    def __init__(
        self,
        door: IatSocket,
        desk: IatContext,
        scope: Scope,
        receive: Receive,
        send: Send,
        caller: IatCaller | None = None,
        welcomed: Callable[[Envelope], None] | None = None,
    ) -> None:
        self._door, self._desk, self._floor = door, desk, desk.server
        self._headers = headers_in(scope["headers"])
        self._certificate = certificate_in(scope)
        self._incoming = WebSocketReader(receive, self._floor.loop)
        self.callee: IatCallee = desk.session()
        # Names that nobody else has: so what comes back to us is known.
        names = f"{desk.me}-{secrets.token_hex(8)}-"
        self.peer = WebSocketPeer(caller or IatCaller(me=desk.me), self._say, names)
        self._welcomed = welcomed
        """Where we dialed: told of the first answer, which has the token of all that follows."""
        server = self._floor
        self._outgoing = WebSocketWriter(send, server.deadlines, server.limits.stall, self._cut)
        self._reader: asyncio.Task[Any] | None = None
        self._is_cut = False
        self._tasks: set[asyncio.Task[None]] = set()
        rate = desk.settings.messages_per_second
        self._bucket = TokenBucket(rate, rate, self._floor.loop.time())
        """A second's worth of messages may come at once."""
        self.stranger: str | None = None
        """The address, as long as nobody on it said who it is."""
        self._meter: SocketMeter | None = scope.get(METER)
        if self._meter is not None:
            self._meter.limit, self._meter.on_excess = server.limits.hello_size, self._cut
        idle = desk.settings.idle if welcomed is not None else server.limits.hello_time
        self._deadline = server.loop.time() + idle
        """When the next good frame must be here: a bad one is no sign of life."""

    def recognize(self) -> None:
        """Somebody we know is on this socket: from now on it has its full limits."""
        if self.stranger is not None:
            self._door.recognized(self.stranger)
            self.stranger = None
        settings = self._desk.settings
        self._deadline = self._floor.loop.time() + settings.idle
        if self._meter is not None:
            self._meter.limit = settings.message_size + FRAMING

    async def run(self) -> int:
        """Until the other side leaves or breaks a rule; the code to close with."""
        server, loop = self._floor, self._floor.loop
        reader = self._reader = asyncio.current_task(loop)
        assert reader is not None  # noqa: S101  an ASGI app always runs in a task
        writer = loop.create_task(self._outgoing.run())
        try:
            return await self._read(reader)
        except asyncio.CancelledError:
            if not (server.deadlines.late(reader) or self._is_cut):
                raise
            reader.uncancel()
            return GOING
        finally:
            server.deadlines.waits.pop(reader, None)
            self._reader = None
            self._incoming.close()
            # The tasks themselves go on; only their readers end with the socket.
            for task in (writer, *self._tasks):
                task.cancel()
            await asyncio.wait((writer, *self._tasks))

    async def _read(self, reader: asyncio.Task[Any]) -> int:
        settings, deadlines = self._desk.settings, self._floor.deadlines
        while True:
            deadlines.watch(reader, self._deadline)
            message = await self._incoming.next()
            del deadlines.waits[reader]
            if message["type"] == "websocket.disconnect":
                return 1000
            if self._meter is not None:
                self._meter.heard += 1
            body = _body(message)
            if len(body) > settings.message_size:
                return await self._refused(TooLarge(limit=str(settings.message_size)), TOO_BIG)
            if not await self._heard(body):
                return await self._refused(TooMany("Too many messages; be slower."), TOO_MUCH)

    def _cut(self) -> None:
        """Nothing can be said any more, so there is no use in listening."""
        self._is_cut = True
        if self._reader is not None:
            self._reader.cancel()

    def _may_talk(self) -> bool:
        return not self._bucket.take(self._floor.loop.time())

    async def _heard(self, body: bytes) -> bool:
        """Takes one message; false if there were too many of them."""
        try:
            said = envelope_in(body)
        except Malformed as error:
            await self._refuse(error)
            return self._may_talk()
        try:
            return await self._taken(said, body)
        except Exception as exc:  # the driver's border: no frame ends the socket, or goes unlogged
            await self._tell(Fault(said.id, self._door.failed(exc, said.action[:40] or "-")))
            return self._may_talk()

    async def _taken(self, said: Envelope, body: bytes) -> bool:
        callee = self.callee
        if self.peer.caller.echoed(said):
            return self._may_talk()
        if self._welcomed is not None and self.peer.caller.expects(said):
            self._welcomed(said)
            self._welcomed = None
            await self.peer.hear(said)
            self.recognize()
            return True
        try:
            # Every frame shows who sends it: what the handshake showed only opens a session.
            headers = self._headers if said.action in JOINING else NOTHING
            found = await self._desk.guard.who(said, headers, TARGET, self._certificate, body)
        except DragomanError as error:
            callee.take(said, stream=True)  # for the form and the id to answer with
            await self._tell(Fault(said.id, self._door.failed(error, "-")))
            return self._may_talk()
        self.recognize()
        if self.peer.caller.expects(said):
            await self.peer.hear(said)  # what we asked for may come as fast as it is read
            return True
        if not self._may_talk():
            return False
        # Who does not wait (R01) is told the task's name at once, all others every step.
        for signal in callee.take(said, stream=said.payload.get("wait") is not False):
            await self._signal(signal, found)
        return True

    async def _signal(self, signal: Signal, found: IatSession) -> None:
        desk = self._desk
        match signal:
            case Fault(error=error):
                self._door.failed(error, "-")
                await self._tell(signal)
            case Introduction():
                welcome = desk.welcome(signal, found, self.peer)
                if signal.card is not None:
                    self.peer.caller.to = signal.who
                    self.peer.caller.token = self.callee.token = welcome["session_token"]
                await self._answer(signal.id, welcome)
            case Ping():
                await self._answer(signal.id, desk.alive(self.callee, self._headers))
            case Call():
                if len(self._tasks) >= desk.settings.calls:
                    await self._tell(Fault(signal.id, TooMany("Too many calls are open.")))
                    return
                ctx = desk.context(self.callee, found)
                task = self._floor.loop.create_task(self._work(signal, ctx))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _work(self, call: Call, ctx: Context) -> None:
        peer, method = self._floor.peer, type(call.op).__name__
        try:
            if call.stream:
                steps = stream_until_final(peer, call.op, ctx)  # type: ignore[arg-type]  # only these stream
                async with aclosing(steps):
                    async for batch in steps:
                        self._floor.metrics.events += len(batch.entries)
                        for entry in batch.entries:
                            await self._tell(Update(call.id, entry))
                return
            op = call.op
            if call.silent and isinstance(op, SendMessage):
                op = replace(op, wait=False)
            value: Json = await peer.call(op, ctx)
            if not call.silent:
                await self._answer(call.id, value)
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            error = self._door.failed(exc, method)
            if not call.silent:
                await self._tell(Fault(call.id, error))

    async def _answer(self, id: Any, value: Json) -> None:
        if id is not None:
            await self._tell(Result(id, value))

    async def _refuse(self, error: DragomanError) -> None:
        self._door.failed(error, "-")
        self.callee.receive(Frame(b""))  # nobody is known to answer to
        await self._tell(Fault(None, error))

    async def _refused(self, error: DragomanError, code: int) -> int:
        await self._refuse(error)
        await self._outgoing.room()
        return code

    async def _tell(self, signal: Signal) -> None:
        for frame in self.callee.send(signal):
            if frame.body:
                self._outgoing.put(frame.body)
        if self._outgoing.full:
            await self._outgoing.room()

    async def _say(self, body: bytes) -> None:
        self._outgoing.put(body)
        if self._outgoing.full:
            await self._outgoing.room()


def _body(message: dict[str, Any]) -> bytes:
    text = message.get("text")
    return text.encode() if text is not None else message.get("bytes") or b""
