"""Finds the card of an agent, of any version, and caches it by its ETag.

Cards are at /.well-known/agent-card.json, before 0.3 at /.well-known/agent.json (a2a-wire §10.1).
An address that ends in .json is the address of a card, and if neither is found, the address itself
is tried. A card that is found at a later address is used only if there is still none at the earlier
ones, because the agent may have started in the meantime. A card that was fetched without
credentials is cached and revalidated by its ETag, which costs one small request and never returns
an outdated card.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.card import Card, CardSkill, Extension, Interface
from dragoman.core.dialect import Dialect
from dragoman.core.errors import (
    DragomanError,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    Unauthenticated,
    Unparseable,
)
from dragoman.core.extensions import SKILLS
from dragoman.core.model import Json
from dragoman.core.session import Introduction
from dragoman.dialects import jsonrpc
from dragoman.dialects.a2a import PYTHON_A2A
from dragoman.dialects.a2a.cards import documents
from dragoman.dialects.a2a.legacy import agno
from dragoman.dialects.refusals import explained
from dragoman.security.outbound.failures import is_web_page

from .addresses import mount_of
from .credentials import NONE, Credentials, Wallet, hide_secrets
from .retry import Pauses
from .transports.http import Address, Http, HttpReply, HttpRequest

WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
AGENTS = "/agents"
"""Where a server that hosts several agents lists them, and below which each of them is."""
MOST_SHOWN = 8
"""The number of these agents that an error message names."""
MOST_KEPT = 256
# Requests the form of 1.0 if a server has several: it is signed and lists every interface.
_HEADERS = {"accept": "application/json", "a2a-version": "1.0"}
_PYTHON_A2A = "google_a2a_compatible"
"""The capability by which servers of python-a2a are recognised."""
_ELSEWHERE = frozenset({400, 404, 405, 406, 410, 501})
"""Statuses after which the card may still be at another address."""
_NAME = re.compile(r"[a-z0-9-]{1,63}")


class CardVerdict(Protocol):
    """The result of checking a card."""

    @property
    def card(self) -> Card:
        """The part of the card that is trusted."""


class Trusts(Protocol):
    """Decides whether a card is trusted (`security.card_trust.Trust`)."""

    async def check(self, card: bytes, origin: str) -> CardVerdict:
        """Returns the trusted card, or raises a `DragomanError`."""


class FoundCard(Struct, frozen=True):
    """A card and its address."""

    card: Card
    url: str
    raw: bytes = b""
    declared: bool = True
    """Whether the agent published it; otherwise it is derived from the address."""


class _Kept(Struct, frozen=True):
    etag: str
    body: bytes


class Cache:
    """A cache of cards by address; the least recently used are dropped first."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def get(self, url: str) -> _Kept | None:
        """Returns the cached entry of this address, if any."""
        if url in self._kept:
            self._kept.move_to_end(url)
        return self._kept.get(url)

    def put(self, url: str, etag: str, body: bytes) -> None:
        """Caches a card, if it has an ETag to revalidate it."""
        if not etag:
            self._kept.pop(url, None)
            return
        self._kept[url] = _Kept(etag, body)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)


CACHE = Cache()
"""The cache of this process."""


class Finder:
    """Finds the card of one address."""

    def __init__(
        self, http: Http, wallet: Wallet, trust: Trusts | None = None, cache: Cache = CACHE
    ) -> None:
        self._http = http
        self._wallet = wallet
        self._trust = trust
        self._cache = cache

    async def find(self, address: str) -> FoundCard:
        """Returns the card, or raises the error that explains best why there is none."""
        failures: list[DragomanError] = []
        tried: list[str] = []
        for url in places(address):
            try:
                found = await self._at(url)
            except PeerRefused as exc:
                failures.append(exc)
                if exc.code not in _ELSEWHERE:
                    raise
            except PeerMisbehaved as exc:
                failures.append(exc)
            else:
                return await self._appeared(tried) or found
            tried.append(url)
        statuses = [exc for exc in failures if isinstance(exc, PeerMisbehaved)]
        why = statuses[0] if statuses else failures[0]
        if failures[0].code == 404 and (names := await self._agents(address)):
            raise PeerUnreachable(_several(address, names), agents=" ".join(names)) from why
        raise PeerUnreachable(f"There is no agent card at {address}: {why.message}") from why

    async def _at(self, url: str) -> FoundCard:
        body = await self.fetch(url)
        return FoundCard(await self.believed(body, self._http.address(url).origin), url, body)

    async def _appeared(self, tried: Iterable[str]) -> FoundCard | None:
        """Returns the card if it is now at one of the addresses that were tried in vain. An agent
        may start during the search, and what is at the later addresses describes it less well."""
        for url in tried:
            with suppress(PeerRefused, PeerMisbehaved):
                return await self._at(url)
        return None

    async def _agents(self, address: str) -> list[str]:
        """Returns the names of the agents at the address of a server that hosts several."""
        if _base(address).endswith(".json"):
            return []
        try:
            listed = _read_list(await self.fetch(_base(address) + AGENTS)).agents
        except (DragomanError, msgspec.DecodeError):
            return []
        # Others chose the names, and the message is for people: only what can be one is shown.
        return [each.name for each in listed if _NAME.fullmatch(each.name)]

    async def changed(self, found: FoundCard) -> bool:
        """Returns whether the card at the address of this one is another one now."""
        return await self.fetch(found.url) != found.raw

    async def manifest(self, url: str, dialect: Dialect) -> Introduction | None:
        """Returns the manifest of an agent in a dialect without cards, or None if it has none."""
        if dialect.manifest is None:
            return None
        try:
            body = await self.fetch(mount_of(url, dialect) + dialect.manifest.path)
            return dialect.manifest.read(body)
        except (PeerRefused, PeerMisbehaved, Unauthenticated, Forbidden):
            return None

    async def fetch(self, url: str) -> bytes:
        """Returns the document at this address, with credentials only if it needs them."""
        address = self._http.address(url)
        kept = self._cache.get(url)
        headers = {**_HEADERS, "if-none-match": kept.etag} if kept else _HEADERS
        reply = await self._get(address, headers)
        if reply.status == 304 and kept is not None:
            return kept.body
        if reply.status == 401 and self._wallet.allows(address.origin):
            challenge = reply.headers.get("www-authenticate", "")
            # The credentials have not been tried yet; only the request without them was refused.
            who = await self._wallet.ask(address.origin)
            reply = await self._get(address, _HEADERS, who)
            if reply.status == 401:
                who = await self._wallet.ask(address.origin, refused=challenge)
                reply = await self._get(address, _HEADERS, who)
            try:
                _check(reply, url)
            except DragomanError as exc:
                hide_secrets(exc, who.secrets)
                raise
            return reply.body
        _check(reply, url)
        self._cache.put(url, reply.headers.get("etag", ""), reply.body)
        return reply.body

    async def _get(
        self, address: Address, headers: dict[str, str], who: Credentials = NONE
    ) -> HttpReply:
        limits = self._http.limits
        request = HttpRequest("GET", address, address.path, headers, b"", who)
        pauses, until = Pauses(limits), monotonic() + limits.answer
        while True:
            try:
                return await self._http.ask(
                    request, seconds=limits.answer, max_size=limits.card_size
                )
            except PeerUnreachable as exc:
                # A broken connection is retried. An address where nothing listens is not, nor is a
                # server that does not respond within the time limit.
                if not exc.sent or pauses.count >= limits.retries or monotonic() >= until:
                    raise
                await pauses.wait(exc)

    async def believed(self, body: bytes, origin: str) -> Card:
        """Decodes a card, and returns it if it is trusted."""
        card = card_in(body)
        return card if self._trust is None else (await self._trust.check(body, origin)).card


def _check(reply: HttpReply, url: str) -> None:
    status = reply.status
    if status == 200:
        if is_web_page(reply.body):
            raise PeerMisbehaved(f"{url} is a web page, not an agent card")
        return
    if 300 <= status < 400:
        where = reply.headers.get("location", "")[:200]
        raise PeerRefused(f"{url} has moved to {where}: use that address", code=status)
    if status == 401:
        raise explained(
            Unauthenticated(f"The card at {url} is only for those it knows"), reply.body
        )
    if status == 403:
        raise explained(Forbidden(f"The card at {url} is not for us"), reply.body)
    raise explained(
        PeerRefused(f"{url} answered with HTTP status {status}", code=status), reply.body
    )


def _base(address: str) -> str:
    return address.partition("#")[0].partition("?")[0].rstrip("/")


def _several(address: str, names: Sequence[str]) -> str:
    """The message for an address that hosts several agents: which addresses there are instead."""
    base = _base(address) + AGENTS
    shown = ", ".join(f"{base}/{name}/" for name in names[:MOST_SHOWN])
    more = f", and others listed at {base}" if len(names) > MOST_SHOWN else ""
    return f"There are several agents at {address}; use the address of one of them: {shown}{more}"


def places(address: str) -> Iterable[str]:
    """Returns the addresses at which the card may be."""
    base, _, query = address.partition("#")[0].partition("?")
    if base.endswith(".json"):
        return (f"{base}?{query}" if query else base,)
    base = base.rstrip("/")
    return (*(base + path for path in WELL_KNOWN), f"{base or address}/")


def introduced_card(met: Introduction | None, url: str, interfaces: tuple[Interface, ...]) -> Card:
    """Builds the card of an agent that has none, from its introduction if there is one. Its tools
    become skills."""
    if met is None or met.card is None:
        return Card(name=url, description="", version="", interfaces=interfaces)
    schemas: dict[str, Json] = {
        tool.name: {"input": tool.parameters, "output": tool.returns or None} for tool in met.tools
    }
    others = tuple(each for each in met.card.extensions if each.uri != SKILLS)
    skills = Extension(uri=SKILLS, params={"schemas": schemas})
    return replace(
        met.card,
        interfaces=interfaces,
        extensions=(*others, skills) if schemas else others,
        skills=tuple(
            CardSkill(id=tool.name, name=tool.name, description=tool.description)
            for tool in met.tools
        ),
    )


class _Listed(Struct):
    name: str = ""


class _AgentList(Struct):
    """A page of `GET /agents`."""

    agents: list[_Listed]


_read_list = msgspec.json.Decoder(_AgentList).decode


class _Said(Struct, rename="camel"):
    """The members of a card that show its version."""

    protocol_version: object = None
    supported_interfaces: object = None
    capabilities: object = None


_read_said = msgspec.json.Decoder(_Said).decode


def card_in(body: bytes) -> Card:
    """Decodes a card of any version. Raises `PeerMisbehaved` if it is not a card."""
    try:
        jsonrpc.check(body)
    except Unparseable as exc:
        raise PeerMisbehaved(f"This is not an agent card: {exc.message}") from None
    card = documents.card_in(body)
    said = _read_said(body)
    if said.protocol_version is None and said.supported_interfaces is None:
        # Cards of 0.1, and of 0.2 before 0.2.5, do not name their version. Their methods have
        # different names, so the wrong one is refused without harm and the next is tried.
        old = tuple(
            Interface(url=each.url, binding=each.binding, version="0.1")
            for each in card.interfaces
            if each.binding == "JSONRPC"
        )
        card = replace(card, interfaces=(*card.interfaces, *old))
    if isinstance(said.capabilities, dict) and _PYTHON_A2A in said.capabilities:
        # Their cards say 0.3, but their servers support none of its methods.
        own = tuple(replace(each, version=PYTHON_A2A.dialect) for each in card.interfaces)
        card = replace(card, interfaces=own)
    return replace(card, interfaces=tuple(map(agno.interface_in, card.interfaces)))
