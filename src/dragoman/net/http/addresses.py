"""Where the agent is reached: the interfaces on its card, and the addresses of other dialects.

The card lists core bindings only, since strict clients refuse a whole card for one interface they
do not know (DESIGN §3). Everything else stands under an extension of ours.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from dragoman.core.card import Extension, Interface
from dragoman.core.errors import ConfigError
from dragoman.core.extensions import DIALECTS
from dragoman.core.model import Json
from dragoman.observability.log import Log
from dragoman.settings import Server

VERSIONS = ("1.0", "0.3")
# Clients put paths such as /v1/card behind the address, so it ends without a slash. Bindings may
# share one (A2A 0.3 §5.6.2).
HTTP = ("JSONRPC", "HTTP+JSON")
GRPC = "GRPC"
BINDINGS = (*HTTP, GRPC)

OTHERS = (
    ("a2a-0.1", "JSONRPC", "", "/a2a-go"),  # served wherever a2a-go is
    ("a2a-go", "JSONRPC", "/a2a-go", "/a2a-go"),
    ("iat", "HTTP+SSE", "/iat", "/iat"),
    ("iat", "WEBSOCKET", "/iat/ws", "/iat/ws"),
)
"""Dialects that no interface of the card can name: dialect, binding, path, and the route that is
there when it is served."""


def chosen(server: Server) -> tuple[tuple[str, str], ...]:
    """The bindings and versions that are served, in the order of the card.

    `ConfigError` for what does not exist. gRPC is among them when it is asked for, by
    `server.grpc` or by an entry of `server.interfaces`, and never when `server.grpc` is False.
    """
    named = [pair for each in server.interfaces for pair in _pairs(each)]
    if server.grpc and not any(binding == GRPC for binding, _ in named):
        named += _pairs(GRPC)
    return tuple(
        pair for pair in dict.fromkeys(named) if pair[0] != GRPC or server.grpc is not False
    )


def _pairs(said: str) -> Iterator[tuple[str, str]]:
    # HTTP+JSON has no slash in it, whatever MIME types look like.
    binding, slash, version = said.strip().partition("/")
    if binding.upper() not in BINDINGS or (slash and version not in VERSIONS):
        raise ConfigError(
            f"server.interfaces: '{said}' is not {', '.join(BINDINGS)}, "
            f"nor one of them with /{' or /'.join(VERSIONS)}."
        )
    for each in [version] if slash else VERSIONS:
        yield binding.upper(), each


def interfaces(
    base: str, grpc: Iterable[Interface], wanted: Iterable[tuple[str, str]]
) -> tuple[Interface, ...]:
    """The entries of the card of an agent that is reached at `base`, in the order wanted. Where
    nobody knows that, over gRPC on all addresses, only gRPC's own can be named."""
    offered = {
        (binding, version): Interface(url=base, binding=binding, version=version)
        for binding in HTTP
        for version in VERSIONS
        if base
    }
    offered |= {(each.binding, each.version): each for each in grpc}
    return tuple(offered[pair] for pair in wanted if pair in offered)


def elsewhere(base: str, routes: Container[str]) -> Extension:
    """The extension that names the other dialects which are served here."""
    found: list[Json] = [
        {"dialect": dialect, "binding": binding, "url": f"{base}{path}"}
        for dialect, binding, path, route in OTHERS
        if base and route in routes
    ]
    return Extension(
        uri=DIALECTS,
        description="Addresses of dialects that have no interface on the card",
        params={"addresses": found},
    )


def warn_of_plain_http(public_url: str, log: Log) -> None:
    """Says that what goes to this address can be read and changed on its way (A2A 0.3 §4.1)."""
    parts = urlsplit(public_url)
    host = parts.hostname or ""
    try:
        near = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        near = False
    if parts.scheme == "http" and not near:
        log.warning("public_url_without_tls", url=public_url, why="others can read and change it")


def web_url(said: str, scheme: str) -> str:
    """gRPC addresses stand on cards as URLs and as bare host:port (a2a-wire §10.3), which say
    nothing of TLS: then it is as at the address that was typed."""
    known, mark, rest = said.partition("://")
    if not mark:
        return f"{scheme}://{said}"
    return f"{'http' if known in ('http', 'grpc') else 'https'}://{rest}"
