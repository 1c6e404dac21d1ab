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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpcore2
from msgspec import Struct

from dragoman.core.errors import BadParams

from .address_scopes import Rules, TypedHost, Unreachable, checked, literal
from .failures import FAILURES, unreachable
from .resolver import Resolve, Resolver, system_resolver
from .target import Target, parse

__all__ = [
    "GuardedHttp",
    "GuardedReply",
    "HttpStream",
    "Resolve",
    "Rules",
    "Target",
    "TypedHost",
    "Unreachable",
    "addresses",
    "guard",
    "parse",
    "read_up_to",
    "safe_field",
    "system_resolver",
]

CONNECTIONS = 100
HTTP2 = importlib.util.find_spec("h2") is not None
_ANYWHERE = Rules(allow_private=True, allow_loopback=True)
KEEP = 15.0
"""The seconds for which an unused connection is kept."""
NEXT_ADDRESS = 0.25
"""The seconds after which the next address of a host is tried beside the one before."""

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


async def addresses(
    host: str, port: int, guard: Rules | TypedHost, resolve: Resolve = system_resolver
) -> list[str]:
    """Returns the addresses of a host, if every one of them may be called."""
    # All, not any: the connection may go to any of them, and a name with one public and one private
    # address is the usual form of an attack.
    found = [host] if literal(host) is not None else await resolve(host, port)
    return guard.checked(found) if isinstance(guard, TypedHost) else checked(found, guard)


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only. The one place where this module opens a socket."""

    def __init__(self, guard: Rules | TypedHost, resolve: Resolve) -> None:
        self._guard = guard
        self._resolve = resolve
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  (the interface says so)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await addresses(host, port, self._guard, self._resolve)
        except TimeoutError:
            raise Unreachable("its name is not found in time") from None
        if len(found) == 1:
            return await self._sockets.connect_tcp(found[0], port, timeout)
        return await self._race(found, port, timeout)

    async def _race(
        self,
        found: list[str],
        port: int,
        timeout: float | None,  # noqa: ASYNC109  (of each attempt)
    ) -> httpcore2.AsyncNetworkStream:
        """Returns the first connection that succeeds. The next address is tried when one fails or
        is slow (RFC 8305): otherwise a machine with broken IPv6 would wait long for each
        connection."""
        trying: set[asyncio.Task[httpcore2.AsyncNetworkStream]] = set()
        failure: BaseException = Unreachable("no address")
        try:
            while found or trying:
                if found:
                    attempt = self._sockets.connect_tcp(found.pop(0), port, timeout)
                    trying.add(asyncio.ensure_future(attempt))
                done, _ = await asyncio.wait(
                    trying,
                    timeout=NEXT_ADDRESS if found else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    trying.discard(task)
                    error = task.exception()
                    if error is None:
                        return task.result()
                    failure = error
            raise failure
        finally:
            for task in trying:
                task.cancel()
            for stream in await asyncio.gather(*trying, return_exceptions=True):
                if isinstance(stream, httpcore2.AsyncNetworkStream):
                    await stream.aclose()

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (the interface says so)
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise Unreachable("not a web address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def guard(
    rules: Rules | TypedHost, resolve: Resolve | None = None
) -> httpcore2.AsyncNetworkBackend:
    """Returns a network backend for httpcore2 that connects to checked addresses only."""
    return _Backend(rules, resolve or system_resolver)


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
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

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
        given = _safe(headers or {})
        try:
            async with (
                asyncio.timeout(seconds),
                self.open(method, target, headers=given, body=body) as reply,
            ):
                got, whole = await read_up_to(reply.chunks, max_size)
        except TimeoutError:
            raise Unreachable("timeout") from None
        return GuardedReply(reply.status, reply.headers, got, whole)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        target: Target,
        *,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        connect: float | None = None,
        idle: float | None = None,
    ) -> AsyncIterator[HttpStream]:
        """One exchange whose answer is read as it comes; `Unreachable` if it breaks.

        `connect` is the seconds that a connection may take, `idle` those of silence after that.
        """
        fields = [(b"host", target.authority.encode())]
        fields += [(k.encode(), v.encode("latin-1", "replace")) for k, v in (headers or {}).items()]
        if body or method == "POST":
            fields.append((b"content-length", b"%d" % len(body)))
        url = httpcore2.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=(path or target.path).encode(),
        )
        times = {"connect": connect, "read": idle, "write": idle, "pool": connect}
        request = httpcore2.Request(
            method, url, headers=fields, content=body, extensions={"timeout": times}
        )
        try:
            response = await self._pool(target).handle_async_request(request)
        except FAILURES as exc:
            raise unreachable(exc) from exc
        try:
            answered = {
                k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers
            }
            yield HttpStream(response.status, answered, _chunks(response))
        finally:
            await response.aclose()

    def _guard(self, target: Target) -> Rules | TypedHost:
        return self._typed if self._typed and self.is_typed(target) else self.rules

    def _pool(self, target: Target) -> httpcore2.AsyncConnectionPool:
        key = target.origin if self._typed is not None else ""
        found = self._pools.get(key)
        if found is None:
            secure = target.scheme == "https"
            # Created here and not by httpx2, so that no proxy is read from the environment.
            found = self._pools[key] = httpcore2.AsyncConnectionPool(
                ssl_context=self._tls(target.origin) if self._tls and secure else None,
                max_connections=self._connections,
                max_keepalive_connections=min(self._connections, CONNECTIONS),
                keepalive_expiry=KEEP,
                http1=secure or not self._prior,
                http2=(self._http2 and secure) or self._prior,
                network_backend=guard(self._guard(target), self._resolve),
            )
        return found

    async def close(self) -> None:
        """Closes all connections."""
        pools = [*self._pools.values()]
        self._pools.clear()
        for pool in pools:
            await pool.aclose()


async def _chunks(response: httpcore2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_stream():
            yield chunk
    except FAILURES as exc:
        raise unreachable(exc) from exc


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
