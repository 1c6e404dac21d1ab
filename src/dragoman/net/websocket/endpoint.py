"""Serves the WebSockets at one path, from the handshake to the end of each."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress

from dragoman.core.errors import DragomanError
from dragoman.core.peer import ANYONE, Context
from dragoman.core.session import Frame
from dragoman.security.authentication import certificate_in
from dragoman.security.route_policy import Policy, refuse

from ..driver import Exchange
from ..http.asgi import Receive, Scope, Send, answer, headers_in
from ..server_context import OpenStream, ServerContext
from .connection import DONE, GOING, LATER, REFUSED, SocketConnection
from .socket import Socket, SocketDriver


class SocketEndpoint(ABC):
    """Serves the WebSockets at one path."""

    policy = Policy.CALLER

    def __init__(self, server: ServerContext, target: str, most: int) -> None:
        """`most` is the number of WebSockets that may be open."""
        self.server, self.target = server, target
        self._slots = server.opened.socket_slots(target, most)

    @abstractmethod
    async def _handshake(self, scope: Scope) -> Context | None:
        """Returns the context of the caller, or None if the handshake does not authenticate it."""

    @abstractmethod
    def _connection(
        self, scope: Scope, receive: Receive, send: Send, caller: Context | None
    ) -> SocketConnection:
        """Makes the connection of a caller."""

    @abstractmethod
    async def _refuse(self, scope: Scope, send: Send, error: DragomanError) -> None:
        """Refuses a handshake."""

    async def _turn_away(self, scope: Scope, send: Send) -> None:
        """Refuses a handshake for which there is no room now, or because the server stops."""
        await send({"type": "websocket.close", "code": LATER})

    @abstractmethod
    async def _answer_plain_request(self, scope: Scope, send: Send) -> None:
        """Answers a request without a handshake."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one WebSocket, from the handshake to its end."""
        if scope["type"] != "websocket":
            await self._answer_plain_request(scope, send)
            return
        await receive()
        server = self.server
        address = (scope.get("client") or ("",))[0]
        try:
            caller = await self._handshake(scope)
        except DragomanError as error:
            await self._refuse(scope, send, error)
            return
        slot = None
        if not server.draining:
            slot = self._slots.take(address, known=caller is not None)
        if slot is None:
            await self._turn_away(scope, send)
            return
        task = asyncio.current_task(server.loop)
        assert task is not None  # noqa: S101  an ASGI app always runs in a task
        stream = OpenStream(task, server)
        server.sockets.add(stream)
        server.streams.add(stream)
        socket = self._connection(scope, receive, send, caller)
        if caller is not None:
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


class WebSocketEndpoint(SocketEndpoint):
    """Serves the WebSockets of a dialect."""

    def __init__(self, driver: SocketDriver, target: str) -> None:
        super().__init__(driver.server, target, driver.limits.sockets)
        self.driver = driver

    def _connection(
        self, scope: Scope, receive: Receive, send: Send, caller: Context | None
    ) -> Socket:
        socket = Socket(self.driver, self.target, scope, receive, send)
        if caller is not None:
            socket.ctx = caller
        return socket

    async def _refuse(self, scope: Scope, send: Send, error: DragomanError) -> None:
        Exchange(self.driver, self.driver.callee()).fail(error)
        await send({"type": "websocket.close", "code": REFUSED})

    async def _handshake(self, scope: Scope) -> Context | None:
        """In a dialect whose frames authenticate, the context is anonymous."""
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
            admitting = exchange.admit(headers, self.target, certificate_in(scope))
            if admitting is not None:
                await admitting
            if driver.admission is not None:
                await driver.admission.admit(exchange.session, frame, certificate_in(scope))
        except DragomanError as error:
            await refuse(send, error, driver.server.refusal_headers(error))
            return
        upgrade = ((b"upgrade", b"websocket"), (b"connection", b"upgrade"))
        await answer(send, 426, b'{"error":"upgrade_required"}', extra=upgrade)
