"""`connect(address)`: reads the card, chooses how to speak, and gives the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.core.card import Card, Interface
from dragoman.core.dialect import Dialect
from dragoman.core.errors import ConfigError, DragomanError, PeerUnreachable
from dragoman.core.extensions import DIALECTS as OTHER_DIALECTS
from dragoman.dialects import DIALECTS

from .agent import RemoteAgent
from .cards import Finder, FoundCard, Trusts
from .credentials import Auth, Certificate, Wallet, auth_of, origin_of
from .failover import FailoverPeer
from .files import Files
from .limits import ClientLimits
from .negotiation import choices, line, lines
from .transports.http import Http
from .transports.transport import Transport

GRPC = {"a2a+grpc": "http", "a2a+grpcs": "https"}
"""Addresses that are gRPC services and have no card to find."""


def web_form(address: str) -> str:
    """The address as one of the web, which origins are."""
    scheme, _, rest = address.partition("://")
    return f"{GRPC[scheme]}://{rest}" if scheme in GRPC else address


def origins_of(address: str, others: Iterable[str] = ()) -> list[str]:
    """The origin of an address, and of others; whichever has no scheme has that of the address.

    Where localhost was typed, the addresses it stands for belong to it: cards name either.
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


@asynccontextmanager
async def connect(
    address: str,
    *,
    card: Card | bytes | Path | None = None,
    dialect: str | None = None,
    prefer: Sequence[str] = (),
    auth: Auth | str | Mapping[str, str] | None = None,
    origins: Sequence[str] = (),
    trust: Trusts | None = None,
    extensions: Sequence[str] = (),
    allow_private: bool = False,
    ca: str | Path = "",
    certificate: Certificate | tuple[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  (of each call, not of this one)
    limits: ClientLimits | None = None,
) -> AsyncIterator[RemoteAgent]:
    """An agent, ready to be talked to.

    `address` is where it lives (`https://agent.example.com`), its card (`.../card.json`), or a
    gRPC service (`a2a+grpc://host:port`, with TLS `a2a+grpcs://`); `card` if you have it already.

    How to speak is read from the card, the newest version first. `dialect` leaves only one (a name
    such as `a2a-0.3-rest`, a binding, or a version), `prefer` lists what to try first.

    `auth` is a bearer token, headers, or an `Auth`. It is told to the origin of `address` and to
    those in `origins`, to nobody else. `trust` decides whether a card is believed. `extensions`
    are activated in every call, such as `urn:dragoman:work:1`. Addresses that the card names are
    only called if they are public, or `allow_private` is set, or on the same host; if `address` is
    on this machine, they may be on it too. A host that was typed must stay where it was found
    first: its name may not lead to a nearer network later (DNS rebinding).

    Server certificates are always verified, by the system's authorities or by `ca` alone;
    `certificate` is ours. `timeout` is for answers nobody works for; `limits` has all the others.
    """
    limits = limits or ClientLimits()
    if timeout is not None:
        limits = replace(limits, answer=timeout)
    scheme, colon, _ = address.partition("://")
    if not colon:
        raise ConfigError(f"An address begins with https://, http:// or a2a+grpc://: {address!r}")
    url = web_form(address)
    own = Certificate(*certificate) if isinstance(certificate, tuple) else certificate
    typed = urlsplit(url)
    wallet = Wallet(auth_of(auth), origins_of(address, origins), own)
    http = Http(
        limits,
        host=(typed.hostname or "").removesuffix("."),
        scheme=typed.scheme,
        allow_private=allow_private,
        ca=str(ca),
        certificate=wallet.certificate,
    )
    remote: FailoverPeer | None = None
    try:
        if scheme in GRPC:
            found = _grpc_service(url)
            prefer = prefer or ("GRPC",)
        else:
            found = await _card(address, card, dialect or "", Finder(http, wallet, trust))
        wallet.card = found.card
        ways = _lines(found, address, dialect or "", prefer, http, wallet, str(ca), limits)
        remote = FailoverPeer(ways, found.card, limits)
        yield RemoteAgent(remote, Files(http, wallet), found.url, extensions)
    finally:
        if remote is not None:
            await remote.close()
        await http.close()


async def _card(
    address: str, given: Card | bytes | Path | None, dialect: str, finder: Finder
) -> FoundCard:
    if isinstance(given, Card):
        return FoundCard(given, address)
    if given is not None:
        body = given if isinstance(given, bytes) else await asyncio.to_thread(given.read_bytes)
        return FoundCard(await finder.believed(body, origin_of(address)), address)
    how = DIALECTS.get(dialect)
    found: FoundCard | None = None
    try:
        found = await finder.find(address)
    except PeerUnreachable:
        if how is None:
            raise
    if how is not None and how.path and (found is None or not _elsewhere(found.card, dialect)):
        found = await _own_card(address, how.path, finder) or found
    if found is None:
        # A caller that names a dialect needs no card; the oldest servers may have none.
        assert how is not None  # noqa: S101  else there was an error
        version = how.versions[0] if how.versions else ""
        interface = Interface(url=address, binding=how.binding, version=version)
        return FoundCard(_unknown(address, (interface,)), address)
    return found


async def _own_card(address: str, path: str, finder: Finder) -> FoundCard | None:
    """The card that a dialect has at a place of its own, if the server has such a place."""
    base = address.partition("?")[0].rstrip("/")
    if base.endswith((path, ".json")):
        return None
    try:
        return await finder.find(base + path)
    except DragomanError:
        return None


def _spoken_at(found: FoundCard, address: str, how: Dialect) -> str:
    """Where a dialect is spoken for which cards have no word."""
    base = address.partition("?")[0].rstrip("/")
    if base.endswith(how.path):
        return address
    if listed := _elsewhere(found.card, how.name):
        return listed
    if base.endswith(".json") or found.url.startswith(f"{base}{how.path}/"):
        named = (each.url for each in found.card.interfaces if each.binding in ("JSONRPC", ""))
        return next(named, address)
    return address


def _elsewhere(card: Card, dialect: str) -> str:
    """The address of a dialect for which cards have no word, from our own extension."""
    for extension in card.extensions:
        if extension.uri == OTHER_DIALECTS:
            listed = (extension.params or {}).get("addresses")
            for each in listed if isinstance(listed, list) else ():
                if isinstance(each, dict) and each.get("dialect") == dialect:
                    return str(each.get("url", ""))
    return ""


def _unknown(name: str, interfaces: tuple[Interface, ...]) -> Card:
    return Card(name=name, description="", version="", interfaces=interfaces)


def _grpc_service(url: str) -> FoundCard:
    interfaces = tuple(
        Interface(url=url, binding="GRPC", version=version) for version in ("1.0", "0.3")
    )
    return FoundCard(_unknown(url, interfaces), url)


def _lines(
    found: FoundCard,
    address: str,
    dialect: str,
    prefer: Sequence[str],
    http: Http,
    wallet: Wallet,
    ca: str,
    limits: ClientLimits,
) -> list[Transport]:
    if dialect in DIALECTS and not DIALECTS[dialect].versions:
        how = DIALECTS[dialect]
        interface = Interface(url=_spoken_at(found, address, how), binding="", version="")
        return [line(interface, how, http, wallet, ca)]
    ways = choices(found.card, dialect, prefer, limits.interfaces)
    return lines(ways, found.card, http, wallet, ca)
