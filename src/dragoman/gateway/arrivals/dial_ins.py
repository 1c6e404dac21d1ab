"""Agents that come to the gateway by themselves: served while they are connected, and listed as
offline for a while after they have left.

Such an agent is linked to one process. The others that share its store learn of it from the
registry and serve it too. As long as another process has the link (`Agent.elsewhere`), they only
store its tasks, and that process runs them. When the link moves, the runs move: the process that
has lost it gives them back. An agent that nobody is linked to is served everywhere, with the error
that says so, or with tasks that wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.client.cards import card_in
from dragoman.core.card import Card
from dragoman.core.errors import DragomanError, Forbidden, PeerUnreachable
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.dialects.a2a.cards.documents import pure_1_0
from dragoman.dialects.lite import card as lite_card
from dragoman.engine.background_work import BackgroundWork
from dragoman.settings import UpstreamLimits
from dragoman.store.clock import wall_clock
from dragoman.store.registry import AgentHealth, RegistryEntry, Source

from ..agent_health import health_of, last_seen
from ..registry import OFFLINE_NAME, Mounts, Registry
from ..upstream_address import RETRY_AFTER
from ..upstream_agent import UpstreamAgent
from ..upstream_connections import ConnectedAgent
from ..upstream_pool import UpstreamPool

log = Logger("gateway")
SETTLED, LOOK = 10.0, 0.1
"""Seconds in which another process has to find out whether an agent of a claimed name answers, and
between two looks whether it has."""


class _Connection:
    """The connection of one agent, while it is online."""

    def __init__(self, agent_id: str, find: Callable[[], ConnectedAgent | None]) -> None:
        self._agent_id, self._find = agent_id, find

    @asynccontextmanager
    async def reach(
        self, address: str, options: Mapping[str, Any], *, renew: bool = False
    ) -> AsyncIterator[ConnectedAgent]:
        """Returns the agent. Raises `PeerUnreachable` while it is offline."""
        agent = self._find()
        if agent is None:
            raise PeerUnreachable(f"{self._agent_id} is offline", retry_after=str(RETRY_AFTER))
        yield agent

    def held(self, address: str, options: Mapping[str, Any]) -> None:
        """Returns None: whether the agent is online is asked for each call."""

    async def close(self) -> None:
        """Does nothing: whoever accepted the connection owns it."""


def dialed_in_pool(
    name: str, agent_id: str, scheme: str, find: Callable[[], ConnectedAgent | None]
) -> UpstreamPool:
    """Returns the pool of an agent that came by itself; `find` returns it while it is online. It
    has no address, so its name is its label in the journal and for operators."""
    connections = _Connection(agent_id, find)
    return UpstreamPool(name, {f"{scheme}://{name}": {}}, UpstreamLimits(), connections=connections)


Make = Callable[[str, str], UpstreamAgent]
"""Makes an agent of its name here, and of its owner without the prefix."""


class _DialIn:
    """One agent that came by itself."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.entry: RegistryEntry | None = None
        """What the registry knows of it."""
        self.lock = asyncio.Lock()
        """Held while the agent is mounted or removed."""
        self.agent: UpstreamAgent | None = None
        self.online = False
        """Whether it is linked to this process."""
        self.left_at = 0
        self.removal: asyncio.TimerHandle | None = None


class DialIns:
    """Serves agents as they come and go. Their names are kept in the registry."""

    def __init__(
        self,
        server: Mounts,
        agent_at: Callable[[str], Agent | None],
        registry: Registry | None,
        *,
        offline: float,
        source: Source = Source.LINK,
    ) -> None:
        """`agent_at` returns the agent of a name that is served. `offline` are the seconds for
        which an agent that has left is still served, and listed as offline. Without a registry,
        names belong to the agents that are served under them. `source` says how they come."""
        self._server, self._agent_at, self._registry = server, agent_at, registry
        self._offline, self._source = offline, source
        self._known: dict[str, _DialIn] = {}
        self.draining = False
        """Whether the server is about to stop."""
        self._work = BackgroundWork()
        self._prefix = ""
        self._make: Make = _stand_in
        self.answers: Callable[[str, str], Awaitable[bool]] = _nobody
        """Returns whether an agent that is linked here answers, although one at another place
        claims its name. One that does not has left."""

    def serve(self, prefix: str, make: Make) -> None:
        """Sets which agents are served: those whose owners begin with the prefix."""
        self._prefix, self._make = prefix, make

    async def check(self, name: str, owner: str, place: str = "") -> None:
        """Raises `Forbidden` if the name belongs to another agent. An agent whose link is exclusive
        says from which `place` it comes: then the name is also that of another agent if one of this
        name is linked to another process, and still answers there."""
        another = await self._belongs_to_another(name, owner)
        if another or (place and await self._answers_elsewhere(name, owner, place)):
            log.warning("An agent may not have the name of another", agent=name, owner=owner)
            raise Forbidden(
                f"The name {name} belongs to another agent of this gateway.", agent=name
            )

    async def _belongs_to_another(self, name: str, owner: str) -> bool:
        if self._registry is not None:
            return await self._registry.belongs_to_another(name, owner, self._source)
        known = self._known.get(name)
        return known.owner != owner if known is not None else self._agent_at(name) is not None

    async def _answers_elsewhere(self, name: str, owner: str, place: str) -> bool:
        """Has the process that is linked to an agent of this name find out whether it answers."""
        registry = self._registry
        entry = await registry.store.find(name) if registry is not None else None
        if registry is None or entry is None or not _is_held(entry, registry.worker()):
            return False
        if entry.holder not in await registry.alive():
            return False
        await registry.store.put(replace(entry, contested=place))
        until = asyncio.get_running_loop().time() + SETTLED
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK)
            now = await registry.store.find(name)
            if now is None or now.holder != entry.holder or now.health is not AgentHealth.UP:
                return False
            if not now.contested:
                return True
        return False  # nobody is there to say so

    async def _settle(self, name: str, known: _DialIn) -> None:
        """Finds out whether an agent whose name another one claims still answers."""
        entry, registry = known.entry, self._registry
        if entry is None or registry is None or not await self.answers(name, entry.contested):
            return
        current = await registry.store.find(name)
        if current is not None and current.contested and _is_of(current, registry.worker()):
            await registry.store.put(replace(current, contested=""))

    def arrived(self, name: str, owner: str) -> None:
        """Serves an agent, or again one that had left."""
        known = self._of(name, owner)
        known.online = True
        self._note_place(known)
        if known.removal is not None:
            known.removal.cancel()
        self._work.spawn(self._serve(name, known))

    def follow(self, entry: RegistryEntry) -> None:
        """Takes what is new about an agent, which may be linked to another process."""
        known = self._of(entry.name, entry.owner)
        known.entry = entry
        self._note_place(known)
        if entry.contested and known.online:
            self._work.spawn(self._settle(entry.name, known))
        self._work.spawn(self._follow(entry.name, known))

    def forget(self, name: str) -> None:
        """Serves an agent no more that was removed, unless it is linked here."""
        known = self._known.get(name)
        if known is not None and not known.online:
            self._work.spawn(self._remove(name, known))

    def _of(self, name: str, owner: str) -> _DialIn:
        known = self._known.get(name)
        if known is None or known.owner != owner:
            known = self._known[name] = _DialIn(owner)
        return known

    def _is_elsewhere(self, known: _DialIn) -> bool:
        """Returns whether another process has the link of an agent."""
        entry = known.entry
        if known.online or entry is None or self._registry is None:
            return False
        return _is_held(entry, self._registry.worker())

    def _note_place(self, known: _DialIn) -> None:
        if known.agent is not None:
            known.agent.elsewhere = self._is_elsewhere(known)

    def left(self, name: str) -> None:
        """Lists an agent as offline, and removes it after a while."""
        known = self._known.get(name)
        if known is None:
            return
        known.online, known.left_at = False, wall_clock()
        self._note_place(known)
        loop = asyncio.get_running_loop()
        known.removal = loop.call_later(
            self._offline, lambda: self._work.spawn(self._remove(name, known))
        )
        self._work.spawn(self._note_offline(name, known))

    def is_online(self, name: str) -> bool:
        """Returns whether nothing is known that keeps an agent from answering."""
        known = self._known.get(name)
        return known is None or known.online

    def about(self, name: str) -> dict[str, Json]:
        """Returns what a list without a registry tells of an agent that came by itself; nothing
        for others."""
        known = self._known.get(name)
        if known is None or known.agent is None:
            return {}
        health = health_of(known.agent).value if known.online else OFFLINE_NAME
        seen = last_seen(known.agent) if known.online else known.left_at
        return {"source": Source.LINK.value, "health": health, "lastSeen": seen}

    async def close(self) -> None:
        """Follows nobody any more. The agents stay until the server stops them."""
        for known in self._known.values():
            if known.removal is not None:
                known.removal.cancel()
        await self._work.cancel()

    async def _serve(self, name: str, known: _DialIn) -> None:
        """Serves an agent that is linked here."""
        async with known.lock:
            if not known.online:
                return
            try:
                await self._link(name, known)
                await self._mount(name, known)
                assert known.agent is not None  # noqa: S101  it is mounted
                await known.agent.check()
                if self._source is Source.LINK and known.agent.theirs is not None:
                    await self._link(name, known, pure_1_0(known.agent.theirs).decode())
            except DragomanError as exc:
                log.warning("An agent that came cannot be served", agent=name, why=exc)
                return
            self._server.reindex(name)

    async def _link(self, name: str, known: _DialIn, card: str = "") -> None:
        """Notes in the registry that the agent is linked here. Other processes learn its card from
        there."""
        if self._registry is None or (card and known.entry and known.entry.card == card):
            return
        known.entry = await self._registry.link(name, known.owner, self._source, card)

    async def _mount(self, name: str, known: _DialIn) -> None:
        if known.agent is None or self._agent_at(name) is not known.agent:
            known.agent = self._make(name, known.owner.removeprefix(self._prefix))
            known.agent.linked = True
            self._note_place(known)
            await self._server.add_agent(name, known.agent)

    async def _follow(self, name: str, known: _DialIn) -> None:
        """Serves an agent that is linked to another process, or to none."""
        async with known.lock:
            entry = known.entry
            if self._known.get(name) is not known or entry is None or self._registry is None:
                return
            try:
                if known.online:
                    if entry.health is not AgentHealth.UP:
                        await self._link(name, known)  # another process has noted that it left
                    return
                if known.agent is None and self._agent_at(name) is not None:
                    return  # another agent has the name here
                remembered = entry.source is Source.ROOM and not self._is_elsewhere(known)
                if known.agent is None and remembered:
                    return  # nobody is in its room now
                await self._mount(name, known)
                card = _card_in(entry)
                if card is not None and known.agent is not None:
                    known.agent.learn(card, known.agent.dialect, known.agent.pool.url)
            except DragomanError as exc:
                log.warning("An agent of another process cannot be served", agent=name, why=exc)
                return
            self._server.reindex(name)

    async def _note_offline(self, name: str, known: _DialIn) -> None:
        async with known.lock:
            if not known.online:
                log.info("An agent has left", agent=name)
                await self._unlink(name, known, offline=True)

    async def _remove(self, name: str, known: _DialIn) -> None:
        async with known.lock:
            if known.online or self._is_elsewhere(known):
                return
            if self._known.get(name) is known:
                del self._known[name]
            if known.agent is not None and self._agent_at(name) is known.agent:
                await self._server.remove_agent(name)
            await self._unlink(name, known, offline=False)

    async def _unlink(self, name: str, known: _DialIn, *, offline: bool) -> None:
        if self._registry is None:
            return
        try:
            await self._registry.unlink(name, known.owner, self._source, offline=offline)
        except DragomanError as exc:
            # While a server stops, a link may close later than the store. Others learn of it by
            # the lease of this process.
            note = log.debug if self.draining else log.warning
            note("It cannot be noted that an agent has left", agent=name, why=exc)


def _card_in(entry: RegistryEntry) -> Card | None:
    """Returns the card of an agent, as the process that has its link has noted it."""
    if not entry.card:
        return None
    if entry.source is Source.ROOM:
        return lite_card.card_in(msgspec.json.decode(entry.card, type=lite_card.LiteCard))
    return card_in(entry.card.encode())


def _stand_in(name: str, owner: str) -> UpstreamAgent:
    """Makes an agent that this process cannot be linked to: it has no such channel."""
    return UpstreamAgent(name, dialed_in_pool(name, name, "link", lambda: None))


def _is_held(entry: RegistryEntry, besides: str) -> bool:
    """Returns whether another worker than this one is linked to an agent."""
    return entry.health is AgentHealth.UP and entry.holder not in ("", besides)


def _is_of(entry: RegistryEntry, worker: str) -> bool:
    return entry.health is AgentHealth.UP and entry.holder == worker


async def _nobody(name: str, place: str) -> bool:
    return False
