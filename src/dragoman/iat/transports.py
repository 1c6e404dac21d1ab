"""The client's transports as hosts use them to reach agents, and agents to reach their host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from dragoman.client.addresses import paths_at, web_form
from dragoman.client.credentials import SharedSecret, Wallet
from dragoman.client.limits import ClientLimits
from dragoman.client.transports.http import Http
from dragoman.client.transports.http_transport import HttpTransport
from dragoman.client.transports.transport import Destination
from dragoman.client.transports.websocket import halves, open_websocket
from dragoman.core.card import Card, Interface
from dragoman.core.session import Introduction
from dragoman.dialects import DIALECTS
from dragoman.net.http.asgi import Receive, Send

IAT, IAT_WEBSOCKET = DIALECTS["iat"], DIALECTS["iat-ws"]


def http_transport(
    url: str,
    me: str,
    to: str = "",
    *,
    secret: str = "",
    typed: bool = False,
    allow_private: bool = False,
    introduces: Introduction | None = None,
    joins: bool = False,
) -> HttpTransport:
    """Returns the transport to one agent or host in IAT. Messages are signed for the name `to`, or
    not at all without one. An address that the operator `typed` may be in any network."""
    destination = Destination(
        _http(url, typed=typed, allow_private=allow_private),
        Interface(url=url, binding=IAT.binding, version=""),
        IAT,
        Wallet(SharedSecret(secret, to=to, me=me), [url]),
        paths_at(url, IAT),
    )
    return HttpTransport(
        destination,
        introduces=introduces or Introduction(None, me, Card(name=me, description="", version="")),
        joins=joins,
        owns_http=True,
    )


@asynccontextmanager
async def websocket(
    url: str, max_size: int, headers: Mapping[str, str]
) -> AsyncIterator[tuple[Receive, Send]]:
    """Opens a WebSocket to the address of a host that the operator typed, and yields its `receive`
    and `send` as in ASGI."""
    web = web_form(f"{IAT_WEBSOCKET.scheme}+{url}")
    http = _http(web, typed=True)
    address = http.address(web)
    path = next(iter(paths_at(web, IAT_WEBSOCKET)), address.path)
    socket = await open_websocket(http, address, path, headers, max_size)
    try:
        yield halves(socket)
    finally:
        await socket.close()


def _http(url: str, *, typed: bool, allow_private: bool = False) -> Http:
    parts = urlsplit(url)
    host = (parts.hostname or "") if typed else ""
    return Http(ClientLimits(), host=host, scheme=parts.scheme, allow_private=allow_private)
