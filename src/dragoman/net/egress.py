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
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

import httpcore2
from msgspec import Struct

from ..errors import BadParams, DragomanError
from .resolver import Resolve, Resolver
from .resolver import Unreachable as Unreachable
from .resolver import system_resolver as system_resolver

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
LONGEST_URL = 2048
PORTS = {"http": 80, "https": 443}
OPEN_PORTS = (80, 443, 8080, 8443)
"""Where web servers listen. Others only by setting, or when private addresses are allowed: mail
servers and databases have been talked to through webhooks before."""
CONNECTIONS = 100
KEEP = 15.0
"""Seconds an unused connection is kept."""

_URL = re.compile(r"[!#-;=?-\[\]_a-z~%]+", re.ASCII)  # RFC 3986: what may stand in a URL at all
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)")
_FIELD = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


PRIVATE = _networks(
    *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
    *("::1/128", "fc00::/7"),
)
"""What `allow_private` opens. Link-local stays shut: cloud metadata lives there."""

NEVER = _networks(
    *("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    "168.63.129.16/32",  # a cloud's own services, under a public address
    *("::/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32"),
    *("2002::/16", "3fff::/20", "5f00::/16", "fe80::/10", "fec0::/10", "ff00::/8"),
    *("::/96", "::ffff:0:0:0/96"),  # IPv4 in disguise, beside the mapped ones
)
"""What no setting opens."""


class Rules(Struct, frozen=True, kw_only=True):
    """Where we may go."""

    allow_private: bool = False
    hosts: tuple[str, ...] = ()
    """If any are given, only these: a name, or `.example.com` for all names under it."""
    ports: tuple[int, ...] = OPEN_PORTS


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


class Reply(Struct, frozen=True):
    """What came back, cut at the size that was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    whole: bool


def may_call(address: Address, rules: Rules) -> bool:
    """Whether a connection may go to this address."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped is not None:
        address = mapped
    if any(address in network for network in PRIVATE):
        return rules.allow_private
    if any(address in network for network in NEVER):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def parse(url: str, rules: Rules) -> Target:
    """The URL's parts; `BadParams` for anything that is not a plain web address we may call."""
    if len(url) > LONGEST_URL:
        raise _bad(f"The url is longer than {LONGEST_URL} characters")
    if not _URL.fullmatch(url.lower()):
        raise _bad("The url holds characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _bad("The url is not valid") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise _bad("The url must begin with http:// or https://")
    if "@" in parts.netloc:
        raise _bad("The url must not hold a user name or password")
    host = _host(parts.netloc, parts.hostname or "")
    port = PORTS[scheme] if port is None else port
    if not rules.allow_private and port not in rules.ports:
        raise _bad(f"Port {port} is not open for calls from here (--allow-private opens all)")
    if rules.hosts and not any(_covers(pattern, host) for pattern in rules.hosts):
        raise _bad("This host is not on the list of hosts that may be called")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.startswith("/"):
        raise _bad("The url is not valid")
    target = Target(scheme, host, port, path)
    if _literal(host) is not None:
        _checked([host], rules)
    return target


def _host(netloc: str, host: str) -> str:
    host = host.lower()
    if netloc.startswith("["):
        if "%" in netloc or not isinstance(_literal(host), IPv6Address):
            raise _bad("The url has no valid host")
        return host
    host = host.removesuffix(".")
    if not host or len(host) > 253 or not _NAME.fullmatch(host):
        raise _bad("The url has no valid host")
    # What ends in a number is an IPv4 address or nothing: 0x7f.1 and 2130706433 are 127.0.0.1 to
    # some resolvers, so only the plain form is taken.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and _literal(host) is None:
        raise _bad("The url has no valid host")
    return host


def _covers(pattern: str, host: str) -> bool:
    pattern = pattern.lower()
    return host.endswith(pattern) if pattern.startswith(".") else host == pattern


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _checked(addresses: Iterable[str], rules: Rules) -> list[str]:
    """The addresses, if every one of them may be called."""
    found = list(addresses)
    for text in found:
        address = _literal(text.partition("%")[0])
        if address is None or "%" in text or not may_call(address, rules):
            raise _bad("The url leads to an address that may not be called")
    if not found:
        raise Unreachable("no address")
    return found


def _bad(message: str) -> BadParams:
    return BadParams(message, field="url")


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only. The one place where this module opens a socket."""

    def __init__(self, rules: Rules, resolve: Resolve) -> None:
        self._rules = rules
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
        literal = _literal(host) is not None
        addresses = [host] if literal else await self._resolve(host, port)
        failure: Exception = Unreachable("no address")
        for address in _checked(addresses, self._rules):
            try:
                return await self._sockets.connect_tcp(address, port, timeout)
            except httpcore2.ConnectError as exc:
                failure = exc
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109  (the interface says so)
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise Unreachable("not a web address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def guard(rules: Rules, resolve: Resolve = system_resolver) -> httpcore2.AsyncNetworkBackend:
    """Sockets that lead to checked addresses only, for a pool of someone else's."""
    return _Backend(rules, resolve)


class Egress:
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
        if _literal(target.host) is not None:
            return
        try:
            async with asyncio.timeout(seconds):
                _checked(await self._resolve(target.host, target.port), self.rules)
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
    ) -> Reply:
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
    ) -> Reply:
        if self._pool is None:
            # Built here and not by httpx2: this pool asks no environment for a proxy.
            backend = _Backend(self.rules, self._resolve)
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
        return Reply(response.status, answered, bytes(got), whole)

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
