"""One link of an agent: it dials a server, introduces the agent, and dials again when it broke."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import Protocol, cast
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.client.addresses import label_of, web_form
from dragoman.client.limits import ClientLimits
from dragoman.client.transports.http import Http
from dragoman.client.transports.websocket import open_websocket
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.log import Logger
from dragoman.core.session import Frame, Introduction, Ping
from dragoman.dialects.xiaoyi import XiaoYiCallee
from dragoman.dialects.xiaoyi.signing import handshake_headers
from dragoman.dialects.xiaoyi.wire import PATH
from dragoman.net.reconnect_policy import ReconnectPolicy

from .link_figures import LinkFigures
from .server_key import check_pin, pinned_context, unverified

log = Logger("xiaoyi")

PRIMARY = f"wss://hag.cloud.huawei.com{PATH}"
BACKUP = f"wss://116.63.174.231{PATH}"
"""The servers of the platform. The second one has no certificate for its address."""
HEARTBEAT = 20.0
PING, DEAD = 30.0, 90.0
"""The seconds between two pings, and those after which a server from which nothing arrives is gone.
Whatever arrives shows that it is there: the answer to a ping, a ping of its own, or a part of a
message that is long on its way."""
CONFIRMED = 90.0
"""The seconds in which a server must have read what was sent."""


class LinkLost(Exception):
    """The link broke."""


class LinkEnded(DragomanError):
    """The link is given up."""

    exit_code = 69


class LinkRefused(LinkEnded):
    """The server refuses the agent."""

    exit_code = 77


class SigningKeys(Struct, frozen=True):
    """The id of an agent on the platform, and the keys with which it signs."""

    agent_id: str
    access_key: str
    secret_key: str

    def __repr__(self) -> str:
        return f"SigningKeys({self.agent_id!r})"


class LinkServer:
    """A server to dial, and how it is verified."""

    def __init__(self, url: str, *, pin: str = "", verified: bool = True) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ConfigError(f"A server of XiaoYi is ws:// or wss://, not {url!r}.")
        if parts.path in ("", "/"):
            url = f"{parts.scheme}://{parts.netloc}{PATH}"
        by_number = parts.scheme == "wss" and _is_ip(parts.hostname)
        if by_number and pin:
            check_pin(pin)
        self.url, self.host, self.port = url, parts.hostname, parts.port or 443
        self.label = label_of(url)
        self._pin = pin if by_number else ""
        self.verified = verified

    async def tls(self) -> ssl.SSLContext | None:
        """The TLS context for this server; None for the usual verification."""
        if not self.verified:
            log.warning("The server is NOT verified: others may read and answer", server=self.label)
            return unverified()
        return await pinned_context(self.host, self.port, self._pin) if self._pin else None


def servers_for(
    urls: Iterable[str], pin: str = "", *, backup_without_tls_verification: bool = False
) -> list[LinkServer]:
    """The servers to dial: the given ones, else those of the platform. Its backup server is known
    by its IP address, so it is dialled only with its pin, or if the operator insists."""
    given = list(dict.fromkeys(urls))
    if not given:
        verifiable = bool(pin) or backup_without_tls_verification
        if not verifiable:
            log.info("The backup server is not dialled, since its key is not known", server=BACKUP)
        given = [PRIMARY, *([BACKUP] if verifiable else [])]
    skipped = backup_without_tls_verification and not pin
    host = urlsplit(BACKUP).hostname
    return [
        LinkServer(url, pin=pin, verified=not (skipped and urlsplit(url).hostname == host))
        for url in given
    ]


class DialledSocket(Protocol):
    """A WebSocket, as the `websockets` package has it."""

    heard_at: float

    async def send(self, message: str) -> None: ...

    async def recv(self) -> str | bytes: ...

    async def ping(self) -> Awaitable[float]: ...

    async def close(self) -> None: ...


class OutboundLink:
    """The connection to one server."""

    def __init__(
        self,
        server: LinkServer,
        keys: SigningKeys,
        hear: Callable[[OutboundLink, Frame], Awaitable[None]],
        on_change: Callable[[], None],
        *,
        policy: ReconnectPolicy | None = None,
        message_size: int = 4 * 1024 * 1024,
        heartbeat: float = HEARTBEAT,
        pings: tuple[float, float] = (PING, DEAD),
    ) -> None:
        self.server, self._keys, self._hear, self._on_change = server, keys, hear, on_change
        self._policy = policy or ReconnectPolicy()
        self._size, self._heartbeat = message_size, heartbeat
        self._ping, self._dead = pings
        self.callee = XiaoYiCallee(keys.agent_id)
        self._socket: DialledSocket | None = None
        self.figures = LinkFigures("agent", keys.agent_id, self.name)

    @property
    def name(self) -> str:
        """The address of the server, without secrets."""
        return self.server.label

    @property
    def is_open(self) -> bool:
        """Whether requests can come and answers can go."""
        return self._socket is not None

    async def run(self) -> None:
        """Dials, and dials again, until the server refuses the agent or the tries are used up;
        then raises `LinkEnded`."""
        loop = asyncio.get_running_loop()
        while True:
            began = 0.0
            try:
                socket = await self._dial()
                began = loop.time()
                await self._stay(socket)
            except LinkEnded as exc:
                self.figures.ended(exc.message)
                raise
            except (DragomanError, LinkLost, OSError, TimeoutError, ssl.SSLError) as exc:
                why = str(exc) or type(exc).__name__
            except Exception as exc:  # whatever one connection made of itself, there is another
                why = repr(exc)
                log.error("The link broke", exc, server=self.name)
            pause = self._policy.next_pause(loop.time() - began if began else 0.0)
            if pause is None:
                what = f"The link to {self.name} is given up after {self._policy.tries} tries"
                self.figures.ended(f"{what}: {why}")
                raise LinkEnded(f"{what}: {why}")
            self.figures.failed(why)
            log.info("The link is down", server=self.name, why=why, again=f"{pause:.1f}")
            await asyncio.sleep(pause)

    async def _dial(self) -> DialledSocket:
        web = web_form(f"xiaoyi+{self.server.url}")
        parts = urlsplit(web)
        http = Http(ClientLimits(), host=parts.hostname or "", scheme=parts.scheme)
        address = http.address(web)
        keys = self._keys
        tls = await self.server.tls()
        headers = handshake_headers(
            keys.access_key, keys.secret_key, keys.agent_id, time.time_ns() // 1_000_000
        )
        try:
            socket = await open_websocket(
                *(http, address, address.path, headers, self._size), watched=True, tls=tls
            )
        except DragomanError as exc:
            status = getattr(getattr(exc.__cause__, "response", None), "status_code", 0)
            if status == 401:
                raise LinkRefused(f"{self.name} does not accept the keys (401)") from exc
            if status == 403:
                what = f"{self.name} does not let these keys be {keys.agent_id} (403)"
                raise LinkRefused(what) from exc
            raise
        finally:
            await http.close()
        return cast(DialledSocket, socket)

    async def _stay(self, socket: DialledSocket) -> None:
        try:
            for frame in self.callee.send(Introduction(None, self._keys.agent_id)):
                await socket.send(frame.body.decode())
            self._socket = socket
            self.figures.opened()
            log.info("The link is open", server=self.name, agent=self._keys.agent_id)
            self._on_change()
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(self._beat()),
                    group.create_task(self._keep_alive(socket)),
                ]
                try:
                    while True:
                        said = await socket.recv()
                        body = said.encode() if isinstance(said, str) else said
                        await self._hear(self, Frame(body))
                finally:
                    for task in beside:
                        task.cancel()
        except* Exception as failures:
            raise LinkLost(str(failures.exceptions[0])) from failures
        finally:
            if self._socket is not None:
                self._socket = None
                self.figures.closed()
            self._on_change()
            await socket.close()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            await self.send(self.callee.send(Ping(None)))

    async def _keep_alive(self, socket: DialledSocket) -> None:
        """Pings the server, and raises `LinkLost` when nothing arrives from it any more."""
        loop = asyncio.get_running_loop()
        pinged = 0.0
        while True:
            now, silent = loop.time(), loop.time() - socket.heard_at
            if silent >= self._dead:
                raise LinkLost(f"The server was silent for {silent:.0f} seconds")
            if now >= pinged + self._ping:
                pinged = now
                asyncio.ensure_future(await socket.ping()).add_done_callback(self._measured)
            await asyncio.sleep(min(pinged + self._ping - now, self._dead - silent))

    def _measured(self, pong: asyncio.Future[float]) -> None:
        if not pong.cancelled() and pong.exception() is None:
            self.figures.latency = pong.result()

    async def send(self, frames: Iterable[Frame]) -> None:
        """Sends frames, or raises `LinkLost`."""
        for frame in frames:
            socket = self._socket
            if socket is None:
                raise LinkLost("The link is closed")
            try:
                await socket.send(frame.body.decode())
            except Exception as exc:  # the package's own: whatever it is, the link is gone
                raise LinkLost(str(exc)) from exc

    async def confirm(self) -> None:
        """Returns when the server has read all that was sent so far: the answer to a ping shows it,
        since frames arrive in order. Raises `LinkLost` if it has not."""
        socket = self._socket
        if socket is None:
            raise LinkLost("The link is closed")
        try:
            async with asyncio.timeout(CONFIRMED):
                self.figures.latency = await (await socket.ping())
        except Exception as exc:  # as above
            raise LinkLost(str(exc)) from exc


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
