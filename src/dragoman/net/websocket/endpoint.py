"""Serves WebSockets in any dialect: one frame per message, in both directions, many calls at once.

In a dialect with both sides, a caller and a callee session share the WebSocket: the answers to our
calls go to the caller session, everything else to the callee session. In a dialect whose frames
authenticate their sender, each frame is authenticated. Tasks outlive the WebSocket.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from msgspec import Struct

from dragoman.core.errors import DragomanError, TooLarge, TooMany
from dragoman.core.peer import ANYONE, Context
from dragoman.core.session import Call, Duplex, End, Fault, Frame, Result, Signal, Update
from dragoman.security.authentication import certificate_in
from dragoman.security.rate_limits import TokenBucket
from dragoman.security.route_policy import Policy, refuse

from ..driver import Driver, Exchange
from ..http.asgi import Receive, Scope, Send, answer, headers_in
from ..http.connections import METER, SocketMeter
from ..server_context import OpenStream
from .peer import WebSocketPeer
from .reader import WebSocketReader
from .writer import WebSocketWriter

DONE, GOING, REFUSED, TOO_BIG, TOO_MUCH, LATER = 1000, 1001, 1008, 1009, 1008, 1013
"""The close codes (RFC 6455 §7.4.1)."""
FRAMING = 65_536
"""The bytes beside a message that may arrive before it is complete: frame headers, pings."""


class SocketLimits(Struct, frozen=True, kw_only=True):
    """The limits of the WebSockets at one path."""

    sockets: int = 1_000
    """The number of open WebSockets."""
    calls: int = 64
    """The number of running calls on one WebSocket."""
    messages_per_second: int = 50
    message_size: int = 1024 * 1024
    idle: float = 120.0
    """The seconds for which a WebSocket may be silent."""


@dataclass(slots=True, eq=False)
class SocketDriver(Driver):
    """Runs the conversations over the WebSockets at one path."""

    duplex: Callable[[], Duplex] | None = None
    """Creates both sessions of a new WebSocket; without it we cannot call the other side."""
    limits: SocketLimits = field(default_factory=SocketLimits)


class WebSocketEndpoint:
    """Serves the WebSockets at one path."""

    policy = Policy.CALLER

    def __init__(self, driver: SocketDriver, target: str) -> None:
        self.driver, self.target = driver, target
        self._slots = driver.server.opened.socket_slots(target, driver.limits.sockets)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one WebSocket, from the handshake to its end."""
        if scope["type"] != "websocket":
            await self._answer_plain_request(scope, send)
            return
        await receive()
        driver, server = self.driver, self.driver.server
        address = (scope.get("client") or ("",))[0]
        try:
            caller = await self._handshake(scope)
        except DragomanError as error:
            Exchange(driver, driver.callee()).fail(error)
            await send({"type": "websocket.close", "code": REFUSED})
            return
        slot = None
        if not server.draining:
            slot = self._slots.take(address, known=caller is not None)
        if slot is None:
            await send({"type": "websocket.close", "code": LATER})
            return
        task = asyncio.current_task(server.loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        stream = OpenStream(task, server)
        server.sockets.add(stream)
        server.streams.add(stream)
        socket = Socket(driver, self.target, scope, receive, send)
        if caller is not None:
            socket.ctx = caller
            socket.recognize()
        else:
            socket.on_recognized = slot.recognize
        code = DONE
        try:
            await send({"type": "websocket.accept"})
            code = await socket.run()
        except asyncio.CancelledError:
            if stream.why != "stopping":
                raise
            task.uncancel()
            code = GOING
        finally:
            if socket.exceeded:
                slot.bar()
            server.sockets.discard(stream)
            server.streams.discard(stream)
            slot.release()
            socket.close()
        with suppress(Exception):  # it may be closed already
            await send({"type": "websocket.close", "code": code})

    async def _handshake(self, scope: Scope) -> Context | None:
        """Returns the context of the caller, or None if the handshake does not authenticate it. In
        a dialect whose frames authenticate, the context is anonymous."""
        headers, certificate = headers_in(scope["headers"]), certificate_in(scope)
        admission = self.driver.admission
        if admission is not None:
            known = await admission.recognizes(headers, self.target, certificate)
            return ANYONE if known else None
        admitted = self.driver.server.admit(headers, self.target, certificate)
        return admitted if isinstance(admitted, Context) else await admitted

    async def _answer_plain_request(self, scope: Scope, send: Send) -> None:
        """Answers a request without a handshake: it says what is missing if the caller is
        authenticated, and refuses it otherwise."""
        driver, headers = self.driver, headers_in(scope["headers"])
        frame = Frame(b"", self.target, headers)
        exchange = Exchange(driver, driver.callee())
        try:
            await exchange.admit(headers, self.target, certificate_in(scope))
            if driver.admission is not None:
                await driver.admission.admit(exchange.session, frame, certificate_in(scope))
        except DragomanError as error:
            await refuse(send, error, driver.server.refusal_headers(error))
            return
        upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
        await answer(send, 426, b'{"error":"upgrade_required"}', extra=upgrade)


class Socket:
    """One open WebSocket, whichever side opened it."""

    def __init__(
        self,
        driver: SocketDriver,
        target: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        duplex: Duplex | None = None,
        on_first_answer: Callable[[Frame], None] | None = None,
    ) -> None:
        """`on_first_answer` is for a WebSocket that we opened. It is called with the first answer,
        which is accepted unauthenticated, since it holds the token for all that follow."""
        server, limits = driver.server, driver.limits
        self._driver, self._server, self._limits = driver, server, limits
        self._target = target
        self._headers = headers_in(scope["headers"])
        self._certificate = certificate_in(scope)
        self._reader = WebSocketReader(receive, server.loop)
        self._writer = WebSocketWriter(send, server.deadlines, server.limits.stall, self._cut)
        self._duplex = duplex or (driver.duplex() if driver.duplex is not None else None)
        self.callee = self._duplex.callee if self._duplex is not None else driver.callee()
        self.peer: WebSocketPeer | None = None
        """The peer that calls the other side."""
        if self._duplex is not None:
            # Ids that are globally unique, so that answers to our calls can be recognised.
            names = f"{self._duplex.name}-{secrets.token_hex(8)}-"
            self.peer = WebSocketPeer(self._duplex.caller, self._say, names)
        self.ctx = ANYONE
        """The context of the caller, if the handshake authenticates it."""
        self.on_recognized: Callable[[], None] | None = None
        """A function that is called once, when the WebSocket is authenticated or closed."""
        self._on_first_answer = on_first_answer
        self._reading: asyncio.Task[Any] | None = None
        self._is_cut = self.exceeded = False
        """Whether nothing can be written any more; whether the other side sent too much."""
        self._tasks: set[asyncio.Task[None]] = set()
        rate = limits.messages_per_second
        self._bucket = TokenBucket(rate, rate, server.loop.time())
        """The messages that may arrive now. As many as a second allows may arrive at once."""
        self._meter: SocketMeter | None = scope.get(METER)
        if self._meter is not None:
            self._meter.limit, self._meter.on_excess = server.limits.hello_size, self._exceed
        idle = limits.idle if on_first_answer is not None else server.limits.hello_time
        self._deadline = server.loop.time() + idle
        """The time by which the next valid frame must arrive. Invalid ones do not count."""

    def recognize(self) -> None:
        """Gives the WebSocket its full limits, since its caller has been authenticated."""
        if self.on_recognized is not None:
            self.on_recognized()
            self.on_recognized = None
        self._deadline = self._server.loop.time() + self._limits.idle
        if self._meter is not None:
            self._meter.limit = self._limits.message_size + FRAMING

    def close(self) -> None:
        """Stops reading and calling over the WebSocket."""
        self.recognize()
        if self.peer is not None:
            self.peer.lost()
        self._reader.close()
        self._writer.close()

    async def run(self) -> int:
        """Runs until the other side leaves or breaks a rule, and returns the close code."""
        server, loop = self._server, self._server.loop
        reading = self._reading = asyncio.current_task(loop)
        assert reading is not None  # noqa: S101  an ASGI app always runs in a task
        writing = loop.create_task(self._writer.run())
        try:
            return await self._read(reading)
        except asyncio.CancelledError:
            if not (server.deadlines.late(reading) or self._is_cut):
                raise
            reading.uncancel()
            return GOING
        finally:
            server.deadlines.waits.pop(reading, None)
            self._reading = None
            self._reader.close()
            # The agent's tasks go on; only their readers end with the WebSocket.
            for task in (writing, *self._tasks):
                task.cancel()
            await asyncio.wait((writing, *self._tasks))

    async def _read(self, reading: asyncio.Task[Any]) -> int:
        size, deadlines = self._limits.message_size, self._server.deadlines
        while True:
            deadlines.watch(reading, self._deadline)
            message = await self._reader.next()
            del deadlines.waits[reading]
            if message["type"] == "websocket.disconnect":
                return DONE
            if self._meter is not None:
                self._meter.heard += 1
            body = _body(message)
            if len(body) > size:
                return await self._end_with(TooLarge(limit=str(size)), TOO_BIG)
            # The next message is not read before this one is handled. Calls run in their own tasks,
            # but an answer that we cannot write, or pass to a slow reader of ours, stops the
            # reading. So the other side has to wait and nothing accumulates here.
            if not await self._take(Frame(body, self._target, self._headers)):
                return await self._end_with(TooMany("Too many messages; be slower."), TOO_MUCH)

    def _cut(self) -> None:
        """Stops reading, since nothing can be written any more."""
        self._is_cut = True
        if self._reading is not None:
            self._reading.cancel()

    def _exceed(self) -> None:
        self.exceeded = True
        self._cut()

    def _may_talk(self) -> bool:
        return not self._bucket.take(self._server.loop.time())

    async def _take(self, frame: Frame) -> bool:
        """Handles one message. Returns false if there were too many of them."""
        exchange = Exchange(self._driver, self.callee)
        exchange.ctx = self.ctx
        try:
            if self._duplex is not None:
                side = self._duplex.whose(frame)
                if side is None:
                    return self._may_talk()
                if side is self._duplex.caller:
                    await self._hear(frame)
                    return True  # answers to our calls are not rate limited
            signal = await exchange.receive(frame, self._certificate)
            self.recognize()
            if not self._may_talk():
                return False
            if isinstance(signal, Call):
                self._start(exchange, signal)
            else:
                await self._tell(Result(signal.id, await exchange.ask(signal, self.peer)))
            return True
        except Exception as exc:  # the driver's border: a frame that fails is logged and answered
            if exchange.caller is not None:
                self.recognize()
            elif exchange.id is None:
                self._identify(exchange, frame)
            await self._tell(exchange.fail(exc))
            return self._may_talk()

    async def _hear(self, frame: Frame) -> None:
        """Passes an answer to our call on, if its sender is authenticated."""
        assert self.peer is not None  # noqa: S101  only a side that asks is answered
        if self._on_first_answer is not None:
            self._on_first_answer(frame)
            self._on_first_answer = None
        elif self._driver.admission is not None:
            await self._driver.admission.admit(self.callee, frame, self._certificate)
        self.recognize()
        await self.peer.hear(frame)

    def _identify(self, exchange: Exchange, frame: Frame) -> None:
        """Has the callee read the form and the id for the answer to a frame that was refused before
        the callee saw it."""
        with suppress(Exception):
            exchange.identify(frame)

    def _start(self, exchange: Exchange, call: Call) -> None:
        if len(self._tasks) >= self._limits.calls:
            raise TooMany("Too many calls are open.")
        task = self._server.loop.create_task(self._work(exchange, call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, exchange: Exchange, call: Call) -> None:
        began = perf_counter()
        try:
            if call.stream:
                async with aclosing(exchange.steps(call)) as steps:
                    async for batch in steps:
                        self._server.metrics.events += len(batch.entries)
                        for entry in batch.entries:
                            await self._tell(Update(call.id, entry))
                await self._tell(End(call.id))
            else:
                value = await exchange.ask(call)
                if not call.silent:
                    await self._tell(Result(call.id, value))
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            fault = exchange.fail(exc)
            if not call.silent:
                await self._tell(fault)
        exchange.count(began)

    async def _end_with(self, error: DragomanError, code: int) -> int:
        exchange = Exchange(self._driver, self.callee)
        self._identify(exchange, Frame(b""))  # the refusal answers no particular frame
        await self._tell(Fault(None, exchange.fail(error).error))
        await self._writer.room()
        return code

    async def _tell(self, signal: Signal) -> None:
        for frame in self.callee.send(signal):
            if frame.body:
                self._writer.put(frame.body)
        if self._writer.full:
            await self._writer.room()

    async def _say(self, body: bytes) -> None:
        self._writer.put(body)
        if self._writer.full:
            await self._writer.room()


def _body(message: dict[str, Any]) -> bytes:
    text = message.get("text")
    return text.encode() if text is not None else message.get("bytes") or b""
