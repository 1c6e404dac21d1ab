"""Which of an agent's interfaces to use: the newest version we speak, in the card's order.

1.0 §8.3 and 0.3 §5.6.3: the card lists interfaces as the agent prefers them. Newer versions come
first (what every SDK does), `prefer` moves what the user likes to the front, and `dialect` leaves
only what was named. Interfaces that would get no credentials come last if some are needed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from dragoman.core.card import Card, Interface
from dragoman.core.dialect import Dialect
from dragoman.core.errors import BadParams, ConfigError, DragomanError, Unsupported
from dragoman.dialects import DIALECTS

from .credentials import Wallet
from .transports.http import Http
from .transports.transport import HttpTransport, Transport

_ORDER = list(DIALECTS)
_HAS_GRPC = importlib.util.find_spec("grpc") is not None


def spoken(interface: Interface) -> Dialect | None:
    """How to speak at this interface, if we can."""
    for dialect in DIALECTS.values():
        if interface.binding.upper() == dialect.binding and interface.version in dialect.versions:
            return dialect
    return None


def choices(
    card: Card, dialect: str = "", prefer: Sequence[str] = (), most: int = 16
) -> list[tuple[Interface, Dialect]]:
    """The ways to this agent, the best first; none twice."""
    for word in filter(None, (dialect, *prefer)):
        _known(word)
    found = [(interface, how) for interface in card.interfaces[:most] if (how := spoken(interface))]
    if dialect:
        fitting = [(interface, how) for interface, how in found if _fits(how, dialect)]
        found = fitting or _forced(card, dialect)
    if not _HAS_GRPC:
        found = [(interface, how) for interface, how in found if how.binding != "GRPC"]

    def place(way: tuple[Interface, Dialect]) -> tuple[int, str]:
        _, how = way
        liked = [number for number, word in enumerate(prefer) if _fits(how, word)]
        newest = how.versions[0] if how.versions else ""
        return (liked[0] if liked else len(prefer), _reversed(newest))

    return sorted(found, key=place)


def _forced(card: Card, dialect: str) -> list[tuple[Interface, Dialect]]:
    """A version that the card does not list, where it lists another one over the same binding:
    whoever names it knows better."""
    how = DIALECTS.get(dialect)
    if how is None:
        return []
    same = [each for each in card.interfaces if each.binding.upper() == how.binding]
    return [(replace(each, version=how.versions[0]), how) for each in same[:1]]


def _reversed(version: str) -> str:
    """Sorts newer versions first."""
    return "".join(chr(0x7F - ord(char)) for char in version)


def _fits(how: Dialect, word: str) -> bool:
    return word in (how.name, how.binding, *how.versions) or word.upper() == how.binding


def _known(word: str) -> None:
    words = {
        *DIALECTS,
        *(dialect.binding for dialect in DIALECTS.values()),
        *(version for dialect in DIALECTS.values() for version in dialect.versions),
    }
    if word not in words and word.upper() not in words:
        listed = ", ".join(_ORDER)
        raise ConfigError(f"There is no dialect {word!r}. Dialects are: {listed}")


def lines(
    ways: Iterable[tuple[Interface, Dialect]], card: Card, http: Http, wallet: Wallet, ca: str
) -> list[Transport]:
    """A line for each way that may be called."""
    found: list[Transport] = []
    refused: DragomanError | None = None
    for interface, how in ways:
        try:
            found.append(line(interface, how, http, wallet, ca))
        except BadParams as exc:  # an address that may not be called is as good as none
            refused = refused or exc
    if not found:
        if refused is not None:
            raise refused
        offered = ", ".join(f"{i.binding} {i.version}" for i in card.interfaces) or "nothing"
        raise Unsupported(f"The agent offers {offered}, and none of that fits")
    if card.security:
        found.sort(key=lambda each: not wallet.allows(each.origin))
    return found


def line(interface: Interface, how: Dialect, http: Http, wallet: Wallet, ca: str) -> Transport:
    """The line for one interface."""
    if how.binding != "GRPC":
        return HttpTransport(http, interface, how, wallet)
    try:
        from .transports.grpc import GrpcTransport
    except ModuleNotFoundError as exc:
        if exc.name not in ("grpc", "google", "google.protobuf"):
            raise
        raise ConfigError("gRPC needs an extra: pip install 'dragoman[grpc]'") from exc
    return GrpcTransport(http, interface, how, wallet, ca)
