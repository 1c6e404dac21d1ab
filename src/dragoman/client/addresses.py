"""Parses addresses: `https://...`, or with a dialect as a prefix, such as `iat+wss://...`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from urllib.parse import urlsplit

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import ConfigError
from dragoman.dialects import DIALECTS
from dragoman.net.chat import CHAT_SCHEMES, is_chat_address

from .credentials import origin_of

WEB = ("https", "http")
_WIRES = {
    "http": (Wire.HTTP, "http"),
    "https": (Wire.HTTP, "https"),
    "ws": (Wire.WEBSOCKET, "http"),
    "wss": (Wire.WEBSOCKET, "https"),
    "grpc": (Wire.GRPC, "http"),
    "grpcs": (Wire.GRPC, "https"),
}
"""The schemes after the `+`, each with its wire and the corresponding web scheme."""
_ROOM = "http://room.invalid"
"""Stands for the web address of a room, which has none. The name never resolves (RFC 6761)."""


def schemes() -> list[str]:
    """Returns the schemes that an address may have."""
    named = [
        f"{scheme}+{name}"
        for scheme in dict.fromkeys(each.scheme for each in DIALECTS.values() if each.scheme)
        for name, (wire, _) in _WIRES.items()
        if _named(scheme, wire)
    ]
    return [*WEB, *named, *(f"lite+{each}" for each in CHAT_SCHEMES)]


def web_form(address: str) -> str:
    """Returns the corresponding http(s) address, which defines the origin."""
    if is_chat_address(address):
        return _ROOM
    scheme, _, rest = address.partition("://")
    name, plus, wire = scheme.partition("+")
    if plus and wire in _WIRES and _named(name, _WIRES[wire][0]):
        return f"{_WIRES[wire][1]}://{rest}"
    return address


def dialects_of(address: str) -> list[Dialect]:
    """Returns the dialects that an address names, the best first; none if the card decides."""
    scheme, colon, _ = address.partition("://")
    name, _, wire = scheme.partition("+")
    if is_chat_address(address) and (found := _named(name, Wire.CHAT)):
        return found
    if not colon or (scheme not in WEB and wire not in _WIRES):
        raise ConfigError(f"An address begins with {', '.join(schemes())}: {address!r}")
    if scheme in WEB:
        return []
    found = _named(name, _WIRES[wire][0])
    if not found:
        raise ConfigError(f"An address begins with {', '.join(schemes())}: {address!r}")
    return found


def _named(scheme: str, wire: Wire) -> list[Dialect]:
    return [each for each in DIALECTS.values() if each.scheme == scheme and each.wire is wire]


def origins_of(address: str, others: Iterable[str] = ()) -> list[str]:
    """Returns the origin of an address and of others; those without a scheme have that of the
    address.

    For localhost, its loopback addresses are included, because cards name either.
    """
    url = web_form(address)
    scheme = url.partition("://")[0]
    own, *more = (
        origin_of(web_form(each) if "://" in each else f"{scheme}://{each}")
        for each in (url, *others)
    )
    name, _, port = own.rpartition(":")
    if name == f"{scheme}://localhost":
        more += (f"{scheme}://{each}:{port}" for each in ("127.0.0.1", "[::1]"))
    return [own, *dict.fromkeys(more)]


def paths_at(url: str, dialect: Dialect, *, mount: bool = False) -> list[str]:
    """Returns the addresses at which a dialect may be served. A web address with a path is used as
    it is, unless it is known that an agent is mounted there. In a dialect with introductions the
    first of them finds the path out: the given one, or those of the dialect beneath it."""
    path = urlsplit(url).path.rstrip("/")
    if path.endswith(dialect.paths):
        return []
    beneath = [path + each for each in dialect.paths]
    if mount:
        return beneath
    if dialect.conversation is not None and dialect.wire is Wire.HTTP:
        return [urlsplit(url).path or "/", *beneath]
    return [] if path else beneath


def mount_of(url: str, dialect: Dialect) -> str:
    """Returns the web address of the agent, without the path of the dialect."""
    base = url.partition("?")[0].rstrip("/")
    found = next((path for path in dialect.paths if path != "/" and base.endswith(path)), "")
    return base.removesuffix(found)


def label_of(url: str) -> str:
    """Returns an address without its credentials and its query. A hash tells addresses apart that
    differ in those only."""
    scheme, _, rest = url.partition("://")
    place, mark, query = rest.partition("#")[0].partition("?")
    host, slash, path = place.partition("/")
    who, at, host = host.rpartition("@")
    label = f"{scheme}://{host}{slash}{path}".rstrip("/")
    if not (mark or at):
        return label
    return f"{label}?{hashlib.sha256(f'{who}@{query}'.encode()).hexdigest()[:8]}"
