"""The one guarded client for addresses that others gave us: webhooks, key sets, cards, files.

Theory. A check and a connection that resolve a name twice can be told two different things. So a
URL is parsed once, its name is resolved once per connection, *every* address it has is checked, and
the connection goes to a checked address, while TLS and the Host header keep the name. Redirects are
answers like any other, proxies from the environment are not used, and an answer has a size and a
time. What is private stays private unless the operator says otherwise (DESIGN §5.10).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from urllib.parse import urlsplit

import httpcore2
from msgspec import Struct

from dragoman.core.errors import BadParams, DragomanError

from .address_scopes import Rules, TypedHost, Unreachable, checked, literal, refusal
from .resolver import Resolve, Resolver, system_resolver

__all__ = [
    "GuardedHttp",
    "GuardedReply",
    "Resolve",
    "Rules",
    "Target",
    "TypedHost",
    "Unreachable",
    "addresses",
    "guard",
    "parse",
    "safe_field",
    "system_resolver",
]

LONGEST_URL = 2048
PORTS = {"http": 80, "https": 443}
CONNECTIONS = 100
KEEP = 15.0
"""Seconds an unused connection is kept."""
NEXT_ADDRESS = 0.25
"""Seconds before the next address of a host is tried beside the one before."""

_URL = re.compile(r"[!#-;=?-\[\]_a-z~%]+", re.ASCII)  # RFC 3986: what may stand in a URL at all
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_FIELD = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


class Target(Struct, frozen=True):
    """A URL, taken apart once."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """As the Host header says it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class GuardedReply(Struct, frozen=True):
    """What came back, cut at the size that was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


def parse(url: str, rules: Rules) -> Target:
    """The URL's parts; `BadParams` for anything that is not a plain web address we may call."""
    if len(url) > LONGEST_URL:
        raise refusal(f"The url is longer than {LONGEST_URL} characters")
    if not _URL.fullmatch(url.lower()):
        raise refusal("The url holds characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refusal("The url is not valid") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise refusal("The url must begin with http:// or https://")
    if "@" in parts.netloc:
        raise refusal("The url must not hold a user name or password")
    host = _host(parts.netloc, parts.hostname or "")
    port = PORTS[scheme] if port is None else port
    if not rules.allow_private and port not in rules.ports:
        raise refusal(f"Port {port} is not open for calls from here (--allow-private opens all)")
    if rules.hosts and not any(_covers(pattern, host) for pattern in rules.hosts):
        raise refusal("This host is not on the list of hosts that may be called")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.startswith("/"):
        raise refusal("The url is not valid")
    target = Target(scheme, host, port, path)
    if literal(host) is not None:
        checked([host], rules)
    return target


def _host(netloc: str, host: str) -> str:
    host = host.lower()
    if netloc.startswith("["):
        if "%" in netloc or not isinstance(literal(host), IPv6Address):
            raise refusal("The url has no valid host")
        return host
    host = host.removesuffix(".")
    if not host or len(host) > 253 or not _NAME.fullmatch(host):
        raise refusal("The url has no valid host")
    # What ends in a number is an IPv4 address or nothing: 0x7f.1 and 2130706433 are 127.0.0.1 to
    # some resolvers, so only the plain form is taken.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and literal(host) is None:
        raise refusal("The url has no valid host")
    return host


def _covers(pattern: str, host: str) -> bool:
    pattern = pattern.lower()
    return host.endswith(pattern) if pattern.startswith(".") else host == pattern


async def addresses(
    host: str, port: int, guard: Rules | TypedHost, resolve: Resolve = system_resolver
) -> list[str]:
    """The addresses of a host, if every one of them may be called."""
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
        """The first connection that stands. The next address is tried when one fails or is slow
        (RFC 8305): a machine whose IPv6 leads nowhere would wait long for each connection."""
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
    """Sockets that lead to checked addresses only, for a pool of someone else's."""
    return _Backend(rules, resolve or system_resolver)


class GuardedHttp:
    """Calls addresses that others gave us."""

    def __init__(
        self, rules: Rules, resolve: Resolve | None = None, *, connections: int = CONNECTIONS
    ) -> None:
        self.rules = rules
        self._resolve = resolve or Resolver()
        self._connections = connections
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def check(self, url: str, seconds: float = 5.0) -> None:
        """`BadParams` if this URL may not be called. A name that has no address now may get one
        later: that is no reason to refuse it."""
        target = parse(url, self.rules)
        if literal(target.host) is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                checked(await self._resolve(target.host, target.port), self.rules)
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
        """One exchange; `BadParams` if it is not allowed, `Unreachable` if there is no answer."""
        target = parse(url, self.rules)
        given = {"host": target.authority, "content-length": str(len(body))}
        given.update(_safe(headers or {}))
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(method, target, given, body, max_size)
        except TimeoutError:
            raise Unreachable("timeout") from None
        except (Unreachable, DragomanError):
            raise
        except httpcore2.TimeoutException as exc:
            raise Unreachable("timeout") from exc
        except httpcore2.ConnectError as exc:
            raise Unreachable("no connection") from exc
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as exc:
            raise Unreachable("broken connection") from exc

    async def _exchange(
        self, method: str, target: Target, headers: Mapping[str, str], body: bytes, max_size: int
    ) -> GuardedReply:
        if self._pool is None:
            # Built here and not by httpx2: this pool asks no environment for a proxy.
            backend = guard(self.rules, self._resolve)
            self._pool = httpcore2.AsyncConnectionPool(
                max_connections=self._connections, keepalive_expiry=KEEP, network_backend=backend
            )
        url = httpcore2.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=target.path.encode(),
        )
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        got, whole = bytearray(), True
        async with self._pool.stream(method, url, headers=fields, content=body) as response:
            async for chunk in response.aiter_stream():
                got += chunk[: max_size - len(got)]
                if len(got) >= max_size:
                    whole = False
                    break
        answered = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        return GuardedReply(response.status, answered, bytes(got), whole)

    async def close(self) -> None:
        """Ends the connections that were kept."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()


def safe_field(value: str) -> bool:
    """Whether a text may stand in a header: nothing in it can begin another one."""
    return len(value) <= 4096 and _FIELD.fullmatch(value) is not None


def _safe(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not safe_field(value):
            raise BadParams(f"The header {name} cannot hold this value")
    return headers
