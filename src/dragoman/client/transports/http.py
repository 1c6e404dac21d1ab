"""HTTP as the client needs it: one exchange, or one stream, within limits.

The host that the user typed may lie anywhere, on this machine too, but must stay where it was found
first. All other addresses come from a card or an artifact: they must be public, or on this machine
if that is what the user typed. Every socket goes to the address that was checked (`net.egress`).
Certificates are always verified, redirects are never followed, and no proxy is looked for.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlencode

import httpcore2
from msgspec import Struct

from dragoman.core.errors import ConfigError, PeerMisbehaved, PeerUnreachable
from dragoman.security.outbound import guarded_http
from dragoman.security.outbound.failures import NOT_SENT, explained
from dragoman.security.outbound.guarded_http import Resolve, Rules, Target, TypedHost

from ..credentials import Certificate, Credentials
from ..limits import ClientLimits

_BROKEN = (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, OSError)
_FAILURES = (*_BROKEN, guarded_http.Unreachable)
_ANYWHERE = Rules(allow_private=True, allow_loopback=True)
ALL_PORTS = tuple(range(1, 65536))
MOST_IDLE = 100
"""Unused connections that are kept."""
_HTTP2 = importlib.util.find_spec("h2") is not None


class Address(NamedTuple):
    """A URL, taken apart once."""

    target: Target
    origin: str
    trusted: bool

    @property
    def path(self) -> str:
        """Path and query."""
        return self.target.path


class HttpReply(Struct, frozen=True, gc=False):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpStream(NamedTuple):
    """An answer that is still coming."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Http:
    """The connections of one client."""

    def __init__(
        self,
        limits: ClientLimits,
        *,
        host: str,
        scheme: str = "https",
        allow_private: bool = False,
        ca: str = "",
        certificate: Callable[[str], Certificate | None] = lambda origin: None,
        prior_knowledge: bool = False,
        resolve: Resolve | None = None,
    ) -> None:
        self.limits = limits
        self.scheme = scheme
        """Of the address that was typed."""
        rules = Rules(allow_private=allow_private, ports=ALL_PORTS)
        self._typed = TypedHost(host.lower(), rules)
        self._resolve = resolve
        self._ca = ca
        self._certificate = certificate
        self._prior = prior_knowledge and _HTTP2
        """Whether to speak HTTP/2 at once where no TLS could have said so (RFC 9113 §3.3)."""
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    @property
    def rules(self) -> Rules:
        """For addresses that others name."""
        return self._typed.others

    async def addresses(self, address: Address) -> list[str]:
        """The checked addresses of a host, for a transport with sockets of its own."""
        target = address.target
        resolve = self._resolve or guarded_http.system_resolver
        return await guarded_http.addresses(
            target.host, target.port, self._typed if address.trusted else self.rules, resolve
        )

    def address(self, url: str) -> Address:
        """The URL, if it may be called at all."""
        found = guarded_http.parse(url.partition("#")[0], _ANYWHERE)
        trusted = found.host == self._typed.host
        if not trusted:
            guarded_http.parse(url.partition("#")[0], self.rules)
        host = f"[{found.host}]" if ":" in found.host else found.host
        return Address(found, f"{found.scheme}://{host}:{found.port}", trusted)

    def tls(self, certificate: Certificate | None) -> ssl.SSLContext:
        """Verifies the server, always; by our own CA if there is one."""
        try:
            context = ssl.create_default_context(cafile=self._ca or None)
            if certificate is not None:
                context.load_cert_chain(certificate.cert, certificate.key or None)
        except (OSError, ssl.SSLError) as exc:
            why = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or "not PEM"
            raise ConfigError(f"The CA or the client certificate cannot be used: {why}") from None
        return context

    def _pool(self, address: Address) -> httpcore2.AsyncConnectionPool:
        found = self._pools.get(address.origin)
        if found is None:
            secure = address.target.scheme == "https"
            found = self._pools[address.origin] = httpcore2.AsyncConnectionPool(
                ssl_context=self.tls(self._certificate(address.origin)) if secure else None,
                max_connections=self.limits.connections,
                max_keepalive_connections=min(self.limits.connections, MOST_IDLE),
                keepalive_expiry=guarded_http.KEEP,
                http1=secure or not self._prior,
                http2=(_HTTP2 and secure) or self._prior,
                network_backend=guarded_http.guard(
                    self._typed if address.trusted else self.rules, self._resolve
                ),
            )
        return found

    def _request(
        self,
        verb: str,
        address: Address,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        who: Credentials,
        read: float,
    ) -> httpcore2.Request:
        target = address.target
        if who.query:
            path += ("&" if "?" in path else "?") + urlencode(who.query)
        fields = [(b"host", target.authority.encode())]
        fields += [(k.encode(), v.encode("latin-1", "replace")) for k, v in headers.items()]
        fields += [(k.encode(), v.encode()) for k, v in who.headers.items()]
        if body or verb == "POST":
            fields.append((b"content-length", b"%d" % len(body)))
        url = httpcore2.URL(
            scheme=target.scheme.encode(),
            host=target.host.encode(),
            port=target.port,
            target=path.encode(),
        )
        connect = self.limits.connect
        times = {"connect": connect, "read": read, "write": read, "pool": connect}
        return httpcore2.Request(
            verb, url, headers=fields, content=body, extensions={"timeout": times}
        )

    async def ask(
        self,
        verb: str,
        address: Address,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        who: Credentials,
        *,
        seconds: float,
        max_size: int,
    ) -> HttpReply:
        """One exchange; `PeerUnreachable` if there is no answer in time."""
        request = self._request(verb, address, path, headers, body, who, seconds)
        try:
            async with asyncio.timeout(seconds):
                response = await self._pool(address).handle_async_request(request)
                try:
                    got = await _all(response, max_size)
                finally:
                    await response.aclose()
        except _FAILURES as exc:
            raise _told(exc, address) from exc
        return HttpReply(response.status, _headers(response), got)

    @asynccontextmanager
    async def stream(
        self,
        verb: str,
        address: Address,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        who: Credentials,
        *,
        idle: float,
    ) -> AsyncIterator[HttpStream]:
        """An answer as it comes. Silence longer than `idle` breaks it."""
        request = self._request(verb, address, path, headers, body, who, idle)
        try:
            response = await self._pool(address).handle_async_request(request)
        except _FAILURES as exc:
            raise _told(exc, address) from exc
        try:
            yield HttpStream(response.status, _headers(response), _chunks(response, address))
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Ends all connections."""
        pools = [*self._pools.values()]
        self._pools.clear()
        for pool in pools:
            await pool.aclose()


async def _all(response: httpcore2.Response, max_size: int) -> bytes:
    got: list[bytes] = []
    have = 0
    async for chunk in response.aiter_stream():
        have += len(chunk)
        if have > max_size:
            raise PeerMisbehaved(f"The answer is larger than {max_size} bytes")
        got.append(chunk)
    return b"".join(got)


async def _chunks(response: httpcore2.Response, address: Address) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_stream():
            yield chunk
    except _FAILURES as exc:
        raise _told(exc, address) from exc


async def read_all(stream: HttpStream, max_size: int) -> bytes:
    """The rest of an answer that turned out to be no stream."""
    got = bytearray()
    async for chunk in stream.chunks:
        got += chunk
        if len(got) > max_size:
            raise PeerMisbehaved(f"The answer is larger than {max_size} bytes")
    return bytes(got)


def _headers(response: httpcore2.Response) -> Mapping[str, str]:
    return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}


def _told(exc: Exception, address: Address) -> PeerUnreachable:
    """What went wrong on the way, as our error. The only border to httpcore2's."""
    if isinstance(exc, guarded_http.Unreachable):
        return PeerUnreachable(f"{address.origin} cannot be reached: {exc}")
    return PeerUnreachable(explained(exc, address.origin), sent=not isinstance(exc, NOT_SENT))
