"""`connect(address)` reads the card, chooses a dialect, and returns the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman import spans
from dragoman.core.card import Card, Interface
from dragoman.core.dialect import Dialect, Wire
from dragoman.core.errors import (
    CallError,
    ConfigError,
    DragomanError,
    PeerError,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    Unauthenticated,
)
from dragoman.core.extensions import DIALECTS as OTHER_DIALECTS
from dragoman.core.operations import GetExtendedCard
from dragoman.core.peer import ANYONE
from dragoman.dialects import DIALECTS
from dragoman.dialects.a2a.cards import documents

from .addresses import dialects_of, origins_of, paths_at, web_form
from .agent import RemoteAgent
from .cards import Cache, Finder, FoundCard, Trusts, introduced_card
from .credentials import Auth, Certificate, Wallet, auth_of, origin_of
from .failover import FailoverPeer, TracedPeer
from .files import Files
from .limits import ClientLimits
from .negotiation import choices, fits, sorted_by, transport, transports
from .transports.http import Http
from .transports.transport import Destination, Transport


@asynccontextmanager
async def connect(
    address: str,
    *,
    card: Card | bytes | Path | str | None = None,
    dialect: str | None = None,
    prefer: Sequence[str] = (),
    auth: Auth | str | Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    me: str = "",
    origins: Sequence[str] = (),
    trust: Trusts | None = None,
    extensions: Sequence[str] = (),
    allow_private: bool = False,
    by_stranger: bool = False,
    ca: str | Path = "",
    certificate: Certificate | tuple[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109  (of each call, not of this one)
    limits: ClientLimits | None = None,
) -> AsyncIterator[RemoteAgent]:
    """Connects to an agent.

    `address` is the address of the agent (`https://agent.example.com`) or of its card
    (`.../card.json`); `card` is a card that you already have, or its address as a string. An
    address with a dialect needs no card: `a2a+grpc://host:port` (with TLS `a2a+grpcs://`), where
    the agent is asked for its extended card, `iat+http://`, `iat+https://`, `iat+ws://`,
    `iat+wss://`. With `xiaoyi+ws://BIND:PORT/AGENT_ID` we listen until the agent of this id dials
    in, whose keys are in `DRAGOMAN_XIAOYI_AK` and `DRAGOMAN_XIAOYI_SK`. With
    `lite+matrix://USER@HOMESERVER/ROOM?agent=NAME` we join a chat room and call the agent of this
    name there, or the first that introduces itself; so with `lite+irc://`, `lite+telegram://`,
    `lite+discord://` and `lite+loopback://`.

    The dialect is chosen from the card, the newest version first. `dialect` allows only one (a name
    such as `a2a-0.3-rest`, a binding, or a version), and `prefer` lists those to try first.

    `auth` is a bearer token, headers, or an `Auth` such as `SharedSecret`. Credentials are sent to
    the origin of `address` and to those in `origins` only. So are `headers`, which go along with
    every request. `me` is our name in dialects in which callers introduce themselves (IAT), where
    tasks may belong to a name; by default it is a random one. `trust` decides whether a card is
    trusted. `extensions` are activated in every call, such as `urn:dragoman:work:1`. Addresses on
    the card are called only if they are public or on the same host, or if `allow_private` is set;
    if `address` is on this machine, they may be on it too. The host of `address` must stay in the
    network where it was found first: its name may not resolve to a nearer network later (DNS
    rebinding). An address that was given `by_stranger` must be public, unless `allow_private` is
    set.

    Server certificates are always verified, by the system's authorities or by `ca` alone;
    `certificate` is the client certificate. `timeout` limits calls that do not wait for a task;
    `limits` has all other limits.
    """
    limits = limits or ClientLimits()
    if timeout is not None:
        limits = replace(limits, answer=timeout)
    named = dialects_of(address)
    url = web_form(address)
    own = Certificate(*certificate) if isinstance(certificate, tuple) else certificate
    typed = urlsplit(url)
    wallet = Wallet(auth_of(auth, headers), origins_of(address, origins), own, me)
    http = Http(
        limits,
        host=(typed.hostname or "").removesuffix("."),
        scheme=typed.scheme,
        allow_private=allow_private,
        by_stranger=by_stranger,
        ca=str(ca),
        certificate=wallet.certificate,
    )
    search = _Search(http, wallet, Finder(http, wallet, trust), str(ca))
    remote: FailoverPeer | None = None
    try:
        if named and named[0].wire is Wire.CHAT:
            found, ways = await search.by_chat(address, named[0])
        elif named and named[0].listens:
            found, ways = await search.by_listening(url, named[0])
        elif named:
            found, ways = await search.by_scheme(url, named, card, dialect or "", prefer)
        else:
            found, ways = await search.by_card(address, card, dialect or "", prefer)
        if spans.tracer is None:
            remote = FailoverPeer(ways, found.card, limits, declared=found.declared)
        else:
            remote = TracedPeer(ways, found.card, limits, declared=found.declared)
            remote.tracer = spans.tracer
        changed = partial(search.changed, found, remote) if found.raw else None
        yield RemoteAgent(remote, Files(http, wallet), found.url, extensions, changed)
    finally:
        if remote is not None:
            await remote.close()
        await http.close()


Given = Card | bytes | Path | str | None
CARD_RPC_TIMEOUT_SECONDS = 5.0
"""How long a gRPC server may take to show its card. Calls need none."""


class _Search:
    """Finds the agent at an address, and the transports to it."""

    def __init__(self, http: Http, wallet: Wallet, finder: Finder, ca: str) -> None:
        self._http, self._wallet, self._finder, self._ca = http, wallet, finder, ca
        self._by_scheme: list[Transport] = []
        """The transports to an agent whose address names its dialect."""

    async def changed(self, found: FoundCard, remote: FailoverPeer) -> bool:
        """Asks the agent for a sign of life, and returns whether its card is another one now."""
        if not self._by_scheme:
            return await self._finder.changed(found)
        if found.url == self._by_scheme[0].interface.url:
            return await _read_over_grpc(self._by_scheme) != found.raw
        await remote.ping()
        try:
            return await self._finder.changed(found)
        except PeerError:
            return False  # the server of the card is away, and not the agent

    async def by_card(
        self, address: str, given: Given, dialect: str, prefer: Sequence[str]
    ) -> tuple[FoundCard, list[Transport]]:
        """Returns the agent at an ordinary address, from its card."""
        how = DIALECTS.get(dialect)
        if how is None or how.versions:
            found = await self._card(address, given, how)
            self._wallet.card = found.card
            usable = choices(found.card, dialect, prefer, self._http.limits.interfaces)
            ways = transports(usable, found.card, self._http, self._wallet, self._ca)
            typed = origin_of(address)
            for way in ways:
                way.source = address.partition("?")[0] if way.origin != typed else ""
            return found, ways
        # Cards cannot list this dialect as an interface.
        found = await self._card(address, given, how)
        self._wallet.card = found.card
        url = _spoken_at(found, address, how)
        interface = Interface(url=url, binding=how.binding, version="")
        paths = paths_at(url, how) if how.manifest is not None else ()
        return found, [transport(interface, how, self._http, self._wallet, self._ca, paths)]

    async def by_scheme(
        self, url: str, named: Sequence[Dialect], given: Given, dialect: str, prefer: Sequence[str]
    ) -> tuple[FoundCard, list[Transport]]:
        """Returns the agent at an address that names its dialect."""
        fitting = [how for how in named if not dialect or fits(how, dialect)]
        if not fitting:
            spoken = ", ".join(how.name for how in named)
            raise ConfigError(f"At this address {spoken} is spoken, and not {dialect}")
        how = fitting[0]
        met = None if given is not None else await self._finder.manifest(url, how)
        paths = paths_at(url, how, mount=met is not None)
        ways = [
            transport(interface, each, self._http, self._wallet, self._ca, paths)
            for interface, each in sorted_by(
                ((_interface(url, each), each) for each in fitting), prefer
            )
        ]
        self._by_scheme = ways
        interfaces = tuple(way.interface for way in ways)
        try:
            if given is not None:
                found = await self._given(url, given)
            elif how.wire is Wire.GRPC:
                found = await self._shown_over_grpc(url, ways)
            else:
                if met is None and how.conversation is not None:
                    with suppress(Unauthenticated):  # the first call will raise the error
                        met = await ways[0].meet()
                card = introduced_card(met, url, interfaces)
                found = FoundCard(card, url, declared=met is not None)
        except BaseException:
            for way in ways:
                await way.close()
            raise
        if found.card.interfaces != interfaces:
            # The address was given: what else the card names is not called.
            found = replace(found, card=replace(found.card, interfaces=interfaces))
        self._wallet.card = found.card
        return found, ways

    async def by_listening(self, url: str, how: Dialect) -> tuple[FoundCard, list[Transport]]:
        """Returns the agent that dials us at this address."""
        from dragoman.xiaoyi.server.listener import listen

        to = Destination(self._http, _interface(url, how), how, self._wallet)
        found, way = await listen(url, to)
        return found, [way]

    async def by_chat(self, address: str, how: Dialect) -> tuple[FoundCard, list[Transport]]:
        """Returns the agent that is met in the room at this address."""
        from dragoman.lite.connect import enter

        to = Destination(self._http, _interface(web_form(address), how), how, self._wallet)
        found, way = await enter(address, to)
        return found, [way]

    async def _shown_over_grpc(self, url: str, ways: Sequence[Transport]) -> FoundCard:
        body = b""
        with suppress(PeerUnreachable, TimeoutError):  # the first call tells what is wrong
            body = await _read_over_grpc(ways)
        if body:
            return FoundCard(await self._finder.believed(body, origin_of(url)), url, body)
        interfaces = tuple(way.interface for way in ways)
        return FoundCard(introduced_card(None, url, interfaces), url, declared=False)

    async def _given(self, address: str, given: Card | bytes | Path | str) -> FoundCard:
        if isinstance(given, Card):
            return FoundCard(given, address)
        if isinstance(given, str):
            return await self._finder.find(given)
        body = given if isinstance(given, bytes) else await asyncio.to_thread(given.read_bytes)
        return FoundCard(await self._finder.believed(body, origin_of(address)), address)

    async def _card(self, address: str, given: Given, how: Dialect | None) -> FoundCard:
        if given is not None:
            return await self._given(address, given)
        found: FoundCard | None = None
        try:
            found = await self._finder.find(address)
        except PeerUnreachable:
            if how is None:
                raise
        if how is not None and how.path and (found is None or not _listed(found.card, how.name)):
            found = await self._own_card(address, how.path) or found
        if found is None:
            # A caller that names a dialect needs no card; the oldest servers may have none.
            assert how is not None  # noqa: S101  else there was an error
            met = await self._finder.manifest(address, how)
            return FoundCard(introduced_card(met, address, (_interface(address, how),)), address)
        return found

    async def _own_card(self, address: str, path: str) -> FoundCard | None:
        """Returns the card of a dialect with its own card address, if the server has one."""
        base = address.partition("?")[0].rstrip("/")
        if base.endswith((path, ".json")):
            return None
        try:
            return await self._finder.find(base + path)
        except DragomanError:
            return None


async def _read_over_grpc(ways: Sequence[Transport]) -> bytes:
    """Returns the card that a gRPC server shows, or nothing. In 1.0 it is the extended one, which
    few have; 0.3 has one rpc for any card."""
    for way in ways:
        with suppress(CallError, PeerRefused, PeerMisbehaved):  # it has none for us in this version
            async with asyncio.timeout(CARD_RPC_TIMEOUT_SECONDS):
                return documents.pure_1_0(await way.call(GetExtendedCard(), ANYONE))
    return b""


def _interface(url: str, how: Dialect) -> Interface:
    return Interface(url=url, binding=how.binding, version=next(iter(how.versions), ""))


def _spoken_at(found: FoundCard, address: str, how: Dialect) -> str:
    """Returns the address of a dialect that cards cannot list as an interface."""
    base, listed = address.partition("?")[0].rstrip("/"), _listed(found.card, how.name)
    # An agent may be mounted at a path that only looks like that of the dialect. Its card then
    # lists the dialect beneath that path; otherwise the address that was given is the dialect's.
    if how.path and base.endswith(how.path) and not listed.startswith(f"{base}/"):
        return address
    if listed:
        return listed
    if base.endswith(".json") or (how.path and found.url.startswith(f"{base}{how.path}/")):
        named = (each.url for each in found.card.interfaces if each.binding in ("JSONRPC", ""))
        return next(named, address)
    return address


def _listed(card: Card, dialect: str) -> str:
    """Returns the address of a dialect from `urn:dragoman:dialects:1`."""
    for extension in card.extensions:
        if extension.uri == OTHER_DIALECTS:
            listed = (extension.params or {}).get("addresses")
            for each in listed if isinstance(listed, list) else ():
                if isinstance(each, dict) and each.get("dialect") == dialect:
                    return str(each.get("url", ""))
    return ""


async def read_document(
    url: str,
    *,
    auth: Auth | None = None,
    ca: str | Path = "",
    allow_private: bool = False,
    timeout: float = 30.0,  # noqa: ASYNC109  (of the request)
) -> bytes:
    """Returns a document of a server that is no card, such as its status. The credentials of `auth`
    are sent only if the server asks for them. Raises a `DragomanError` if there is none."""
    typed = urlsplit(url)
    wallet = Wallet(auth, (origin_of(url),), None)
    http = Http(
        ClientLimits(answer=timeout, card_size=ClientLimits().answer_size),
        host=(typed.hostname or "").removesuffix("."),
        scheme=typed.scheme,
        allow_private=allow_private,
        ca=str(ca),
        certificate=wallet.certificate,
    )
    try:
        return await Finder(http, wallet, cache=Cache()).fetch(url)
    finally:
        await http.close()
