"""The HTTP client of the transports: one exchange or one stream at a time, within limits.

The host that the user typed may be anywhere, on this machine too, but must stay in the network in
which it was found first. All other URLs come from a card or an artifact, which another party wrote:
they must lead to a public address, or to this machine if the user typed that. `GuardedHttp`
enforces both rules; this module adds the limits and credentials of one client and turns failures
into `PeerError`s. Certificates are always verified, redirects are never followed, and no proxy is
used.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, TypedDict
from urllib.parse import urlencode

from msgspec import Struct

from dragoman.core.errors import ConfigError, PeerMisbehaved, PeerUnreachable
from dragoman.security.outbound.failures import explained, was_sent
from dragoman.security.outbound.guarded_http import (
    ALL_PORTS,
    GuardedHttp,
    Resolve,
    Rules,
    Target,
    TypedHost,
    read_up_to,
)
from dragoman.security.outbound.guarded_http import HttpStream as HttpStream
from dragoman.security.outbound.guarded_http import Unreachable as Unreachable

from ..credentials import Certificate, Credentials
from ..limits import ClientLimits

TRY = 2.0
"""The seconds for which one of several addresses of a name is tried."""


class Address(NamedTuple):
    """A parsed URL that may be called."""

    target: Target
    origin: str
    trusted: bool

    @property
    def path(self) -> str:
        """Returns the path with the query."""
        return self.target.path


class HttpRequest(NamedTuple):
    """A request with its credentials."""

    verb: str
    address: Address
    path: str
    """The path with the query, which may differ from those of the address."""
    headers: Mapping[str, str]
    body: bytes
    who: Credentials
    http2: bool = False
    """Whether HTTP/2 is used without negotiation, since plain TCP has none (RFC 9113 §3.3)."""


class _Details(TypedDict):
    path: str
    headers: Mapping[str, str]
    body: bytes
    connect: float


class HttpReply(Struct, frozen=True, gc=False):
    """A response whose body was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """The connections of one client."""

    def __init__(
        self,
        limits: ClientLimits,
        *,
        host: str,
        scheme: str = "https",
        allow_private: bool = False,
        by_stranger: bool = False,
        ca: str = "",
        certificate: Callable[[str], Certificate | None] = lambda origin: None,
        resolve: Resolve | None = None,
    ) -> None:
        self.limits = limits
        self.scheme = scheme
        """The scheme of the address that the user typed."""
        rules = Rules(allow_private=allow_private, ports=ALL_PORTS)
        self._ca = ca
        self._certificate = certificate
        self._tls: dict[str, ssl.SSLContext] = {}
        typed = TypedHost(host.lower(), rules, by_stranger=by_stranger)
        self._guarded, self._http2 = (
            GuardedHttp(
                rules,
                resolve,
                connections=limits.connections,
                typed=typed,
                tls=self.tls_for,
                http2=True,
                prior_knowledge=prior,
            )
            for prior in (False, True)
        )

    @property
    def rules(self) -> Rules:
        """Returns the rules for addresses that the other side names."""
        return self._guarded.rules

    async def addresses(self, address: Address) -> list[str]:
        """Returns the checked addresses of a host, for a transport that opens its own sockets."""
        return await self._guarded.addresses(address.target)

    async def reachable(self, address: Address) -> str:
        """Returns one checked address of a host that accepts connections, for a transport that
        takes a single address. Raises `PeerUnreachable` if none is found in time."""
        port = address.target.port
        try:
            async with asyncio.timeout(self.limits.connect):
                found = await self.addresses(address)
                while len(found) > 1 and not await _listens(found[0], port):
                    found.pop(0)
        except (TimeoutError, Unreachable) as exc:
            why = str(exc) or "it did not answer in time"
            raise PeerUnreachable(f"{address.origin} cannot be reached: {why}") from None
        return found[0]

    def address(self, url: str) -> Address:
        """Parses a URL. Raises `BadParams` if it may not be called at all."""
        found = self._guarded.target(url.partition("#")[0])
        return Address(found, found.origin, self._guarded.is_typed(found))

    def tls(self, certificate: Certificate | None) -> ssl.SSLContext:
        """Returns a TLS context that verifies the server, against our own CA if there is one."""
        try:
            context = ssl.create_default_context(cafile=self._ca or None)
            if certificate is not None:
                context.load_cert_chain(certificate.cert, certificate.key or None)
        except (OSError, ssl.SSLError) as exc:
            why = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or "not PEM"
            raise ConfigError(f"The CA or the client certificate cannot be used: {why}") from None
        return context

    def tls_for(self, origin: str) -> ssl.SSLContext:
        """Returns the TLS context for an origin, which holds our certificate for it."""
        found = self._tls.get(origin)
        if found is None:
            found = self._tls[origin] = self.tls(self._certificate(origin))
        return found

    async def ask(self, request: HttpRequest, *, seconds: float, max_size: int) -> HttpReply:
        """Makes one request and reads its response. Raises `PeerUnreachable` if there is none in
        time."""
        http, method, target, more = self._prepared(request)
        try:
            found = await http.ask(method, target, **more, seconds=seconds, max_size=max_size)
        except Unreachable as exc:
            raise not_reached(exc, request.address) from None
        return HttpReply(found.status, found.headers, _whole(found.body, found.whole, max_size))

    def begin(self, request: HttpRequest, *, idle: float) -> Awaitable[HttpStream]:
        """Opens a response that is read as it arrives. `Unreachable` ends it after `idle` seconds
        of silence. Its caller has to close it."""
        http, method, target, more = self._prepared(request)
        return http.begin(method, target, **more, idle=idle)

    @asynccontextmanager
    async def stream(self, request: HttpRequest, *, idle: float) -> AsyncIterator[HttpStream]:
        """The same, closed at the end of the block; failures are `PeerUnreachable`."""
        try:
            stream = await self.begin(request, idle=idle)
            try:
                yield stream
            finally:
                await stream.close()
        except Unreachable as exc:
            raise not_reached(exc, request.address) from None

    def _prepared(self, request: HttpRequest) -> tuple[GuardedHttp, str, Target, _Details]:
        verb, address, path, headers, body, who, http2 = request
        if who.query:
            path += ("&" if "?" in path else "?") + urlencode(who.query)
        if who.headers:
            headers = {**headers, **who.headers}
        more = _Details(path=path, headers=headers, body=body, connect=self.limits.connect)
        return self._http2 if http2 else self._guarded, verb, address.target, more

    async def close(self) -> None:
        """Closes all connections."""
        await self._guarded.close()
        await self._http2.close()


async def _listens(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), TRY)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def read_all(stream: HttpStream, max_size: int) -> bytes:
    """Reads a body to its end. Raises `PeerMisbehaved` if it is larger than `max_size`."""
    return _whole(*await read_up_to(stream.chunks, max_size), max_size)


def _whole(body: bytes, whole: bool, max_size: int) -> bytes:
    if not whole:
        raise PeerMisbehaved(f"The answer is larger than {max_size} bytes")
    return body


def not_reached(exc: Exception, address: Address) -> PeerUnreachable:
    """Translates a failure of the connection into our error."""
    return PeerUnreachable(explained(exc, address.origin), sent=was_sent(exc))
