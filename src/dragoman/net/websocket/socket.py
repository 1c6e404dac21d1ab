"""A WebSocket in any dialect: one frame per message, in both directions, many calls at once.

In a dialect with both sides, a caller and a callee session share the WebSocket: the answers to our
calls go to the caller session, everything else to the callee session. In a dialect whose frames
authenticate their sender, each frame is authenticated. Tasks outlive the WebSocket.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from time import perf_counter
from uuid import uuid4

from dragoman.core.errors import DragomanError, TooMany
from dragoman.core.peer import ANYONE
from dragoman.core.session import Call, Duplex, End, Fault, Frame, Result, Signal, Update

from ..driver import Driver, Exchange
from ..http.asgi import Receive, Scope, Send
from .connection import SocketConnection, SocketLimits
from .peer import WebSocketPeer


@dataclass(slots=True, eq=False)
class SocketDriver(Driver):
    """Runs the conversations over the WebSockets at one path."""

    duplex: Callable[[], Duplex] | None = None
    """Creates both sessions of a new WebSocket; without it we cannot call the other side."""
    limits: SocketLimits = field(default_factory=SocketLimits)


class Socket(SocketConnection):
    """One open WebSocket of a dialect, whichever side opened it."""

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
        super().__init__(
            *(driver.server, driver.limits, target, scope, receive, send),
            patient=on_first_answer is not None,
        )
        self._driver = driver
        self._duplex = duplex or (driver.duplex() if driver.duplex is not None else None)
        self.callee = self._duplex.callee if self._duplex is not None else driver.callee()
        self.peer: WebSocketPeer | None = None
        """The peer that calls the other side."""
        if self._duplex is not None:
            # Ids that are globally unique, so that answers to our calls can be recognised.
            self.peer = WebSocketPeer(
                self._duplex.caller,
                lambda frame: self.say(frame.body),
                new_id=lambda: str(uuid4()),
            )
        self.ctx = ANYONE
        """The context of the caller, if the handshake authenticates it."""
        self._on_first_answer = on_first_answer

    def close(self) -> None:
        """Stops reading and calling over the WebSocket."""
        if self.peer is not None:
            self.peer.lost()
        super().close()

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
