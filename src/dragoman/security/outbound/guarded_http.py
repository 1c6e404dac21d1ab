"""The only HTTP client. It calls agents, and every address that comes from someone else: webhooks,
key sets, cards, files and authorization servers.

Theory. If a check and a connection each resolve a name, a hostile name server can give them two
different answers (DNS rebinding). So a URL is parsed once, its name is resolved once per
connection, *every* address that it resolves to is checked, and the connection goes to a checked
address, while TLS and the Host header use the name. Redirects are not followed, because their
target would need the same checks and the credentials were meant for the first host. Proxies from
the environment are not used, because a proxy would resolve the name again. The size and the time of
a response are limited. Private addresses are refused unless the operator allows them (DESIGN
§5.10).
"""

from __future__ import annotations

import asyncio
import importlib.util
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from dragoman.core.errors import BadParams

from .address_scopes import ALL_PORTS, Rules, TypedHost, Unreachable, checked, literal
from .failures import FAILURES, unreachable
from .resolver import Resolve, Resolver, system_resolver
from .target import OutgoingRequest, Target, parse

if TYPE_CHECKING:
    from .connection_pool import ConnectionPool, HttpResponse
    from .socket_stream import SocketStream

__all__ = [
    "ALL_PORTS",
    "GuardedHttp",
    "GuardedReply",
    "HttpStream",
    "Resolve",
    "Rules",
    "Target",
    "TypedHost",
    "Unreachable",
    "addresses",
    "parse",
    "read_up_to",
    "safe_field",
    "system_resolver",
]

CONNECTIONS = 100
HTTP2 = importlib.util.find_spec("h2") is not None
_ANYWHERE = Rules(allow_private=True, allow_loopback=True)

_FIELD = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class GuardedReply(Struct, frozen=True):
    """A response whose body is cut at the requested size."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


class HttpStream(NamedTuple):
    """A response whose body is still arriving."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]
    """Ends the exchange; the rest of the body, if any, is not read."""


async def addresses(
    host: str, port: int, guard: Rules | TypedHost, resolve: Resolve = system_resolver
) -> list[str]:
    """Returns the addresses of a host, if every one of them may be called."""
    # All, not any: the connection may go to any of them, and a name with one public and one private
    # address is the usual form of an attack.
    found = [host] if literal(host) is not None else await resolve(host, port)
    return guard.checked(found) if isinstance(guard, TypedHost) else checked(found, guard)


class GuardedHttp:
    """An HTTP client that connects to checked addresses only.

    Without `typed`, every address is treated as untrusted, and all share one connection pool. With
    `typed`, the host that a user typed may be in the network where it was found first (see
    `TypedHost`), and each origin has its own pool, because `tls` may present a client certificate
    to one origin and not to another.
    """

    def __init__(
        self,
        rules: Rules,
        resolve: Resolve | None = None,
        *,
        connections: int = CONNECTIONS,
        typed: TypedHost | None = None,
        tls: Callable[[str], ssl.SSLContext] | None = None,
        http2: bool = False,
        prior_knowledge: bool = False,
    ) -> None:
        self._rules, self._typed = rules, typed
        self._resolve = resolve if typed is not None else resolve or Resolver()
        self._connections = connections
        self._tls = tls
        self._http2 = http2 and HTTP2
        self._prior = prior_knowledge and HTTP2
        """Whether to use HTTP/2 without negotiation on connections without TLS (RFC 9113 §3.3)."""
        self._own_tls: ssl.SSLContext | None = None
        self._pools: dict[str, ConnectionPool] = {}

    @property
    def rules(self) -> Rules:
        """Returns the rules for addresses that others name."""
        return self._rules if self._typed is None else self._typed.others

    def target(self, url: str) -> Target:
        """Parses a URL. Raises `BadParams` if it may not be called."""
        if self._typed is not None:
            found = parse(url, _ANYWHERE)
            if self.is_typed(found):
                return found
        return parse(url, self.rules)

    def is_typed(self, target: Target) -> bool:
        """Returns whether this is the host that the user typed."""
        return self._typed is not None and target.host == self._typed.host

    async def addresses(self, target: Target) -> list[str]:
        """Returns the checked addresses of a host, for a transport with sockets of its own."""
        return await addresses(
            target.host, target.port, self._guard(target), self._resolve or system_resolver
        )

    async def check(self, url: str, seconds: float = 5.0) -> None:
        """Raises `BadParams` if this URL may not be called. A name that does not resolve now is
        accepted, because it may resolve later; every request checks it again."""
        target = self.target(url)
        if literal(target.host) is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self.addresses(target)
        except (TimeoutError, Unreachable):
            return

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        seconds: float = 15.0,
        max_size: int = 4096,
    ) -> GuardedReply:
        """Makes one request and returns the answer. Raises `BadParams` if it is not allowed, and
        `Unreachable` if there is no answer."""
        target = self.target(url)
        return await self.ask(
            method,
            target,
            headers=_safe(headers or {}),
            body=body,
            seconds=seconds,
            max_size=max_size,
        )

    async def ask(
        self,
        method: str,
        target: Target,
        *,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        connect: float | None = None,
        seconds: float,
        max_size: int,
    ) -> GuardedReply:
        """One exchange whose answer is read up to a size; `Unreachable` if there is none in
        time."""
        request = _request(method, target, path, headers, body, connect, seconds)
        try:
            async with asyncio.timeout(seconds):
                response = await self._pool(target).begin(request)
                try:
                    got, whole = await read_up_to(_Chunks(response), max_size)
                finally:
                    await response.close()
        except FAILURES as exc:  # a TimeoutError, too
            raise unreachable(exc) from exc
        return GuardedReply(response.status, response.headers, got, whole)

    async def begin(
        self,
        method: str,
        target: Target,
        *,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        connect: float | None = None,
        idle: float | None = None,
    ) -> HttpStream:
        """Begins an exchange whose answer is read as it comes; `Unreachable` if it breaks. Its
        caller has to close it.

        `connect` is the seconds that a connection may take, `idle` those of silence after that.
        """
        request = _request(method, target, path, headers, body, connect, idle)
        try:
            response = await self._pool(target).begin(request)
        except FAILURES as exc:
            raise unreachable(exc) from exc
        return HttpStream(response.status, response.headers, _Chunks(response), response.close)

    @asynccontextmanager
    async def open(self, method: str, target: Target, **more: Any) -> AsyncIterator[HttpStream]:
        """The same, closed at the end of the block."""
        stream = await self.begin(method, target, **more)
        try:
            yield stream
        finally:
            await stream.close()

    def _guard(self, target: Target) -> Rules | TypedHost:
        return self._typed if self._typed and self.is_typed(target) else self.rules

    def _pool(self, target: Target) -> ConnectionPool:
        apart = self._typed is not None or self._http2 or self._prior
        key = target.origin if apart else ""
        found = self._pools.get(key)
        if found is None:
            from .connection_pool import ConnectionPool  # most servers call nobody

            secure = target.scheme == "https"
            found = self._pools[key] = ConnectionPool(
                self._connect,
                connections=self._connections,
                http2=(self._http2 and secure) or self._prior,
                http1=secure or not self._prior,
            )
        return found

    async def _connect(self, target: Target, seconds: float | None) -> SocketStream:
        """Opens a connection to an address of the target that was checked."""
        from .socket_stream import connect_socket

        try:
            async with asyncio.timeout(seconds):
                found = await self.addresses(target)
        except TimeoutError:
            raise Unreachable("its name is not found in time") from None
        if target.scheme != "https":
            return await connect_socket(found, target.port, seconds=seconds)
        if self._tls is not None:
            tls = self._tls(target.origin)
        else:
            tls = self._own_tls = self._own_tls or _default_tls()
        tls.set_alpn_protocols(["h2", "http/1.1"] if self._http2 else ["http/1.1"])
        return await connect_socket(found, target.port, seconds=seconds, tls=tls, name=target.host)

    async def close(self) -> None:
        """Closes all connections."""
        pools = [*self._pools.values()]
        self._pools.clear()
        for pool in pools:
            await pool.close()


def _default_tls() -> ssl.SSLContext:
    import httpcore2  # slow to import

    return httpcore2.default_ssl_context()


def _request(
    method: str,
    target: Target,
    path: str,
    headers: Mapping[str, str] | None,
    body: bytes,
    connect: float | None,
    idle: float | None,
) -> OutgoingRequest:
    fields = [("host", target.authority), *(headers or {}).items()]
    if body or method == "POST":
        fields.append(("content-length", str(len(body))))
    return OutgoingRequest(method, target, path or target.path, fields, body, connect, idle)


class _Chunks:
    """The body of a response, as it comes."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._response.read()
        except FAILURES as exc:
            raise unreachable(exc) from exc
        if not chunk:
            raise StopAsyncIteration
        return chunk


async def read_up_to(chunks: AsyncIterator[bytes], max_size: int) -> tuple[bytes, bool]:
    """Returns at most `max_size` bytes of a body, and whether that was all of it."""
    got = bytearray()
    async for chunk in chunks:
        got += chunk
        if len(got) > max_size:
            return bytes(got[:max_size]), False
    return bytes(got), True


def safe_field(value: str) -> bool:
    """Returns whether a text is safe as a header value and cannot start another header."""
    return len(value) <= 4096 and _FIELD.fullmatch(value) is not None


def _safe(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not safe_field(value):
            raise BadParams(f"The header {name} cannot hold this value")
    return headers
