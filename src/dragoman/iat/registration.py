"""Registers an agent with a host, and registers it again when the connection breaks.

Over a WebSocket the host calls us through the connection that we opened, so an agent behind a
firewall can be reached. Over HTTP it calls us at our own address, with HTTP/2.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.core.card import Interface
from dragoman.core.errors import ConfigError, DragomanError, PeerUnreachable, Unauthenticated
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.core.peer import Context
from dragoman.core.session import Frame, Introduction, Result, Signal
from dragoman.dialects.iat.caller import IatCaller
from dragoman.dialects.iat.signature import signed
from dragoman.dialects.iat.wire import answer_in
from dragoman.engine.task_ids import new_id, now_ms
from dragoman.net.websocket.peer import WebSocketPeer
from dragoman.net.websocket.socket import Socket
from dragoman.workspace import WISH

from .transports import host_transport, websocket

if TYPE_CHECKING:
    from .service import IatService

log = Logger("iat")

FIRST, MOST = 0.5, 30.0
"""The first and the longest pause in seconds before another attempt. It is doubled each time, with
jitter."""
HELD = 10.0
"""The seconds after which a connection counts as stable, so that the pauses start again."""
BEAT = 20.0
"""Seconds between two heartbeats, which also keep our session alive."""
ANSWER = 15.0
UNNAMED = "host"
"""The name of a host for which none is configured."""
_HOST = re.compile(r"(?:([^\s=/:?#]+)=)?((?:ws|http)s?://\S*)", re.IGNORECASE)


def pause(tries: int) -> float:
    """Returns the seconds to wait before the next attempt. They have full jitter, so that not all
    agents connect at once when a host comes back."""
    return random.uniform(FIRST / 2, min(MOST, FIRST * 2**tries))


class Registration:
    """Keeps an agent registered with a host, given as `URL` or `NAME=URL`."""

    def __init__(self, service: IatService, host: str, secret: str, base: str = "") -> None:
        found = _HOST.fullmatch(host)
        if found is None:
            raise ConfigError(f"A host is [NAME=]ws://, wss://, http:// or https://, not {host!r}.")
        self._service, self._url = service, found[2]
        self._secret, self._base = secret, base
        self._host = found[1] or (UNNAMED if secret else "")
        """The name of the host, for which alone our signatures are valid. The host itself must not
        tell us its name: it could name another agent, and use our signature there."""
        scheme = urlsplit(self._url).scheme
        self._socket = scheme in ("ws", "wss")
        self.registered = asyncio.Event()
        """Set while we are registered."""
        self.times = 0
        """The number of times that we have registered."""
        self.root = ""
        """The folder to which the host confines us, if its welcome names one."""

    async def run(self, beat: float = BEAT) -> None:
        """Registers and stays registered until it is canceled; registers again whenever the
        connection breaks."""
        tries = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await (self._over_socket(beat) if self._socket else self._over_http(beat))
            except Unauthenticated as exc:
                log.warning("The host refuses us", host=self._shown, name=self._host, why=exc)
            except (DragomanError, OSError, TimeoutError) as exc:
                log.info("The connection to the host was lost", host=self._shown, why=exc)
            except Exception as exc:  # whatever this connection failed with, another one follows
                log.error("The connection to the host was lost", exc, host=self._shown)
            finally:
                self.registered.clear()
            tries = 0 if loop.time() - began > HELD else tries + 1
            await asyncio.sleep(pause(tries))

    @property
    def _shown(self) -> str:
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or '-'}"

    def _known(self) -> None:
        self.times += 1
        self.registered.set()
        log.info("We are registered with the host", host=self._shown)

    async def _over_http(self, beat: float) -> None:
        endpoint = Interface(url=f"{self._base.rstrip('/')}/iat", binding="IAT", version="1")
        us = self._service.ourselves()
        assert us.card is not None  # noqa: S101  an agent of ours always has one
        us = replace(us, card=replace(us.card, interfaces=(endpoint,)))
        transport = host_transport(
            self._url, self._service.me, self._host, secret=self._secret, us=us
        )
        try:
            self.root = _root_in(await transport.introduce())
            self._known()
            while True:
                await asyncio.sleep(beat)
                async with asyncio.timeout(beat):
                    await transport.ping()  # registers us again if the host has forgotten us
        finally:
            await transport.close()

    async def _over_socket(self, beat: float) -> None:
        service = self._service
        caller = IatCaller(
            me=service.me, to=self._host, greeting="register", now=now_ms, new_id=new_id
        )
        hello = replace(service.ourselves(), id=new_id())
        frames = list(caller.send(hello))
        # The handshake proves that we have the secret: its headers sign the first frame.
        proof = signed(self._secret, frames[0].body, time.time()) if self._secret else {}
        size = service.settings.message_size
        duplex = service.duplex(caller)

        def know(answer: Frame) -> None:
            """Learns the token in the welcome, by which the host is authenticated from then on."""
            said = answer_in(answer.body)
            self.root = _root(said.payload)
            token = said.payload.get("session_token")
            if isinstance(token, str) and token:
                # The host answers under the name that we called, but makes its calls under the name
                # in its introduction.
                named = said.payload.get("agent_id")
                who = named if isinstance(named, str) and named else said.sender
                host = Context(principal=f"iat:{who}", schemes=("iat-host",))
                service.guard.sessions.adopt(token, who, host)
                duplex.callee.token = token

        async with websocket(self._url, size, proof) as (receive, send):
            scope: dict[str, Any] = {"type": "websocket", "headers": []}
            line = Socket(
                *(service.socket_driver(), "GET /iat/ws", scope, receive, send),
                duplex=duplex,
                on_first_answer=know,
            )
            assert line.peer is not None  # noqa: S101  this socket has both sides
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._stay(line.peer, str(hello.id), frames, beat))
                    await line.run()
                    raise PeerUnreachable("The host closed the connection")
            except ExceptionGroup as failures:
                raise _first(failures) from None
            finally:
                line.close()

    async def _stay(self, host: WebSocketPeer, id: str, hello: list[Frame], beat: float) -> None:
        await host.say_prepared(id, hello, ANSWER)
        self._known()
        while True:
            await asyncio.sleep(beat)
            # A host that has vanished does not always close the connection, so we treat silence for
            # the time of one heartbeat in the same way.
            await host.ping(beat)


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    """Returns the first error of a nested group: the failure of one task cancels all others."""
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


def _root_in(welcome: Signal | None) -> str:
    match welcome:
        case Introduction(workspace=root):
            return root
        case Result(value=dict() as said):
            return _root(said)
        case _:
            return ""


def _root(said: Mapping[str, Json]) -> str:
    root = said.get(WISH)
    return root if isinstance(root, str) else ""
