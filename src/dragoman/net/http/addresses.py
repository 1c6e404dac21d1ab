"""Where the agent is reached: the interfaces on its card, and the addresses of other dialects.

The card lists core bindings only, since strict clients refuse a whole card for one interface they
do not know (DESIGN §3). Everything else stands under an extension of ours. Both are read from the
records of the dialects.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from ipaddress import ip_address
from urllib.parse import urlsplit

from dragoman import dialects
from dragoman.core.card import Extension, Interface
from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import ConfigError
from dragoman.core.extensions import DIALECTS
from dragoman.core.model import Json
from dragoman.observability.log import Log
from dragoman.settings import Server

GRPC = "GRPC"


def chosen(server: Server) -> tuple[tuple[str, str], ...]:
    """The bindings and versions that are served, in the order of the card.

    `ConfigError` for what does not exist. gRPC is among them when it is asked for, by
    `server.grpc` or by an entry of `server.interfaces`, and never when `server.grpc` is False.
    """
    known = [each.interface for each in dialects.DIALECTS.values() if each.interface is not None]
    named = [pair for each in server.interfaces for pair in _pairs(each, known)]
    if server.grpc and not any(binding == GRPC for binding, _ in named):
        named += _pairs(GRPC, known)
    return tuple(
        pair for pair in dict.fromkeys(named) if pair[0] != GRPC or server.grpc is not False
    )


def _pairs(said: str, known: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    # HTTP+JSON has no slash in it, whatever MIME types look like.
    named, slash, wanted = said.strip().partition("/")
    found = [
        (binding, version)
        for binding, version in known
        if binding == named.upper() and (not slash or version == wanted)
    ]
    if not found:
        bindings = dict.fromkeys(binding for binding, _ in known)
        versions = dict.fromkeys(version for _, version in known)
        raise ConfigError(
            f"server.interfaces: '{said}' is not {', '.join(bindings)}, "
            f"nor one of them with /{' or /'.join(versions)}."
        )
    yield from found


def served(wanted: Container[tuple[str, str]], roles: Container[str]) -> list[Dialect]:
    """The dialects that are served, where these interfaces are wanted and these roles are there."""
    found: dict[str, Dialect] = {}
    for name, each in dialects.DIALECTS.items():
        if each.along_with:
            there = each.along_with in found
        else:
            there = each.interface is None or each.interface in wanted
        if there and each.callee is not None and (not each.role or each.role in roles):
            found[name] = each
    return list(found.values())


def interfaces(
    base: str, elsewhere: Iterable[Interface], wanted: Iterable[tuple[str, str]]
) -> tuple[Interface, ...]:
    """The entries of the card of an agent that is reached at `base`, in the order wanted; those
    `elsewhere` have ports of their own. Where nobody knows `base`, only those can be named."""
    # Bindings may share an address (A2A 0.3 §5.6.2).
    offered = {
        each.interface: Interface(
            url=_address_of(each, base), binding=each.interface[0], version=each.interface[1]
        )
        for each in dialects.DIALECTS.values()
        if base and each.interface is not None and each.wire is Wire.HTTP
    }
    offered |= {(each.binding, each.version): each for each in elsewhere}
    return tuple(offered[pair] for pair in wanted if pair in offered)


def _address_of(dialect: Dialect, base: str) -> str:
    """The address on the card of a dialect that has an interface there. Clients of REST put paths
    such as /v1/card behind it, so it ends without a slash; others call it as it is."""
    return base if dialect.routes[0].path == "/" else base.rstrip("/")


def extension(base: str, found: Iterable[Dialect]) -> Extension:
    """The extension that names the dialects, of those served here, that are no interfaces."""
    addresses: list[Json] = [
        {
            "dialect": each.name,
            "binding": each.listed_as,
            "url": base if (path := each.routes[0].path) == "/" else base.rstrip("/") + path,
        }
        for each in found
        if base and each.listed_as
    ]
    return Extension(
        uri=DIALECTS,
        description="Addresses of dialects that have no interface on the card",
        params={"addresses": addresses},
    )


def warn_of_plain_http(public_url: str, log: Log) -> None:
    """Logs that what goes to this address can be read and changed on its way (A2A 0.3 §4.1)."""
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
