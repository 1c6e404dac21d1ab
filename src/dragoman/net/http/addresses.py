"""The addresses of an agent: the interfaces on its card, and the URLs of other dialects.

The card lists core bindings only, since strict clients refuse a whole card for one interface they
do not know. All others are listed in an extension of ours. Both come from the records of the
dialects.
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
REST_1_0 = "HTTP+JSON", "1.0"


def chosen(server: Server) -> tuple[tuple[str, str], ...]:
    """Returns the bindings and versions that are served, in the order of the card.

    Raises `ConfigError` for one that does not exist. gRPC is among them if `server.grpc` or an
    entry of `server.interfaces` enables it, and never if `server.grpc` is False.
    """
    known = [each.interface for each in dialects.DIALECTS.values() if each.interface is not None]
    named = [pair for each in server.interfaces for pair in _pairs(each, known)]
    if server.grpc and not any(binding == GRPC for binding, _ in named):
        named += _pairs(GRPC, known)
    return tuple(
        pair for pair in dict.fromkeys(named) if pair[0] != GRPC or server.grpc is not False
    )


def _pairs(said: str, known: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    # No binding contains a slash ("HTTP+JSON" does not), so the slash separates the version.
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
    """Returns the dialects to serve, given the wanted interfaces and the roles of the services."""
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
    """Returns the interfaces for the card of the agent at `base`, in the wanted order. Those
    `elsewhere` have their own ports. If `base` is not known, there are only those."""
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
    """Returns the URL of a dialect's interface on the card. Clients of REST append paths such as
    /v1/card to it, so it ends without a slash; other clients call it as it is."""
    return base if dialect.routes[0].path == "/" else base.rstrip("/")


def extension(base: str, found: Iterable[Dialect]) -> Extension:
    """Returns the extension with the addresses of the served dialects that are no interfaces."""
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
    """Logs a warning if traffic to this address can be read and changed on its way
    (A2A 0.3 §4.1)."""
    parts = urlsplit(public_url)
    host = parts.hostname or ""
    try:
        near = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        near = False
    if parts.scheme == "http" and not near:
        log.warning("public_url has no TLS", url=public_url, why="others can read and change it")


def web_url(said: str, scheme: str) -> str:
    """Returns a gRPC address as a URL. Cards also have the form host:port (a2a-wire §10.3), which
    says nothing about TLS: the scheme of the address that the user typed decides then."""
    known, mark, rest = said.partition("://")
    if not mark:
        return f"{scheme}://{said}"
    return f"{'http' if known in ('http', 'grpc') else 'https'}://{rest}"
