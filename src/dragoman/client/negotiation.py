"""Chooses among an agent's interfaces: the newest version that we support, in the card's order.

1.0 §8.3 and 0.3 §5.6.3: the card lists interfaces in the agent's order of preference. Newer
versions come first (as in every SDK), `prefer` moves the user's choices to the front, and `dialect`
leaves only one. If credentials are required, interfaces that may not receive them come last.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dragoman.core.card import Card, Interface
from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import BadParams, ConfigError, DragomanError, Unsupported
from dragoman.dialects import DIALECTS

from .credentials import Wallet
from .transports.http import Http
from .transports.http_transport import HttpTransport
from .transports.transport import Destination, Transport

_HAS_GRPC = importlib.util.find_spec("grpc") is not None
Choice = tuple[Interface, Dialect]


def spoken(interface: Interface) -> Dialect | None:
    """Returns the dialect of this interface, if we support it."""
    for dialect in DIALECTS.values():
        if interface.binding.upper() == dialect.binding and interface.version in dialect.versions:
            return dialect
    return None


def choices(
    card: Card, dialect: str = "", prefer: Sequence[str] = (), most: int = 16
) -> list[Choice]:
    """Returns the usable interfaces of this agent, the best first, without duplicates."""
    found = [(interface, how) for interface in card.interfaces[:most] if (how := spoken(interface))]
    if dialect:
        check_known(dialect)
        fitting = [(interface, how) for interface, how in found if fits(how, dialect)]
        found = fitting or _forced(card, dialect)
    if not _HAS_GRPC:
        found = [(interface, how) for interface, how in found if how.wire is not Wire.GRPC]
    return sorted_by(found, prefer)


def sorted_by(found: Iterable[Choice], prefer: Sequence[str]) -> list[Choice]:
    """Sorts by the user's preference, then by version, the newest first."""
    for word in prefer:
        check_known(word)

    def place(choice: Choice) -> tuple[int, str]:
        _, how = choice
        liked = [number for number, word in enumerate(prefer) if fits(how, word)]
        newest = how.versions[0] if how.versions else ""
        return (liked[0] if liked else len(prefer), _reversed(newest))

    return sorted(found, key=place)


def _forced(card: Card, dialect: str) -> list[Choice]:
    """Returns a version that the card does not list, if it lists another version of the same
    binding and the user has named it explicitly."""
    how = DIALECTS.get(dialect)
    if how is None:
        return []
    same = [each for each in card.interfaces if each.binding.upper() == how.binding]
    return [(replace(each, version=how.versions[0]), how) for each in same[:1]]


def _reversed(version: str) -> str:
    """Returns a sort key that puts newer versions first."""
    return "".join(chr(0x7F - ord(char)) for char in version)


def fits(how: Dialect, word: str) -> bool:
    """Returns whether a name, a binding or a version matches this dialect."""
    return word in (how.name, how.binding, *how.versions) or word.upper() == how.binding


def check_known(word: str) -> None:
    """Raises `ConfigError` if the word is not a dialect, a binding or a version."""
    if not any(fits(how, word) for how in DIALECTS.values()):
        raise ConfigError(f"There is no dialect {word!r}. Dialects are: {', '.join(DIALECTS)}")


def transports(
    found: Iterable[Choice], card: Card, http: Http, wallet: Wallet, ca: str
) -> list[Transport]:
    """Returns a transport for each interface that may be called."""
    usable: list[Transport] = []
    refused: DragomanError | None = None
    for interface, how in found:
        try:
            usable.append(transport(interface, how, http, wallet, ca))
        except BadParams as exc:  # an address that may not be called is skipped
            refused = refused or exc
    if not usable:
        if refused is not None:
            raise refused
        offered = ", ".join(f"{i.binding} {i.version}" for i in card.interfaces) or "nothing"
        raise Unsupported(f"The agent offers {offered}, and none of that fits")
    if card.security:
        usable.sort(key=lambda each: not wallet.allows(each.origin))
    return usable


def transport(
    interface: Interface,
    how: Dialect,
    http: Http,
    wallet: Wallet,
    ca: str,
    paths: Sequence[str] = (),
) -> Transport:
    """Returns the transport for one interface; `paths` are the paths to try."""
    to = Destination(http, interface, how, wallet, paths)
    match how.wire:
        case Wire.HTTP:
            return HttpTransport(to)
        case Wire.WEBSOCKET:
            from .transports.websocket import WebSocketTransport

            return WebSocketTransport(to)
        case Wire.GRPC:
            return _grpc(to, ca)
        case Wire.CHAT:
            raise BadParams("An agent in a chat room is called at an address like lite+matrix://")


def _grpc(to: Destination, ca: str) -> Transport:
    try:
        from .transports.grpc import GrpcTransport
    except ModuleNotFoundError as exc:
        if exc.name not in ("grpc", "google", "google.protobuf"):
            raise
        raise ConfigError("gRPC needs an extra: pip install 'dragoman[grpc]'") from exc
    return GrpcTransport(to, ca)
