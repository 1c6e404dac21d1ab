"""The registry of a server: serves the agents that were registered in its store, as they come,
change and go.

The API, the command line and other processes change the registry in the store. Every server that
shares the store reads what is new, several times a second, and mounts what it finds. An agent
whose lease has ended stays for a while and is listed as offline; then it is removed.

An agent that came by itself is linked to one process, which its entry names (`holder`). The other
processes serve it too: they store its tasks, and the process with the link runs them. If a process
has ended, the next one that looks notes that its agents are offline.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.core.log import Logger
from dragoman.core.model import Json
from dragoman.store.clock import Clock, wall_clock
from dragoman.store.registry import AgentHealth, RegistryEntry, RegistryStore, Source, owns

from .agent_health import health_of, last_seen

log = Logger("registry")

LOOK = 0.3
"""Seconds between two looks for what has changed in the store."""
SWEEP = 5.0
"""Seconds between two looks for leases that have ended."""
OFFLINE = 3600.0
"""Seconds for which an agent whose lease has ended is still listed."""
OFFLINE_NAME = "offline"
"""The health of an agent whose lease has ended."""
LINK_OWNER = "xiaoyi/"
"""Begins the owner of the name of an agent that has dialled in over a XiaoYi link."""
AGAIN = 5.0
"""Seconds before another attempt to serve an agent that could not be served."""

Factory = Callable[[RegistryEntry], Agent | Awaitable[Agent]]
"""Makes an agent of its entry."""


_CAME = (Source.LINK, Source.ROOM)
"""The sources of agents that came by themselves, so that others know whether they are online."""
_MOUNTED_ELSEWHERE = (Source.FILE, *_CAME)
"""The sources of agents that the registry knows, and that others mount."""
_OF_LAST_START = (Source.FILE, Source.LINK)
"""The sources of agents that are not remembered after a restart."""


class Arrivals(Protocol):
    """What serves the agents that came by themselves in one way: `DialIns`."""

    def follow(self, entry: RegistryEntry) -> None:
        """Takes what is new about an agent, which may be linked to another process."""

    def forget(self, name: str) -> None:
        """Serves an agent no more that was removed, unless it is linked here."""


class Mounted(Protocol):
    """An agent that is served."""

    @property
    def agent(self) -> Agent:
        """The agent."""


class Mounts(Protocol):
    """The server, as far as the registry needs it: `dragoman.server.app.App`."""

    @property
    def mounts(self) -> Mapping[str, Mounted]:
        """The agents that are served, by their names."""

    async def add_agent(self, name: str, agent: Agent) -> None:
        """Serves one more agent."""

    async def replace_agent(self, name: str, agent: Agent) -> None:
        """Serves another agent of a name."""

    async def remove_agent(self, name: str) -> None:
        """Serves an agent no more."""

    def reindex(self, name: str) -> None:
        """Takes into account what has changed about an agent."""


class Registry:
    """Keeps the agents of a server as the registry has them."""

    def __init__(
        self,
        store: RegistryStore,
        server: Mounts,
        make: Factory,
        *,
        clock: Clock = wall_clock,
        offline: float = OFFLINE,
        worker: Callable[[], str] = lambda: "",
        workers: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        """`worker` is what this process is in the store, and `workers` are all that are alive."""
        self.store = store
        self.worker, self._workers = worker, workers
        self.arrivals: dict[str, Callable[[], Arrivals]] = {}
        """What serves the agents that came by themselves, by what their owners begin with."""
        self.entries: dict[str, RegistryEntry] = {}
        """What is registered, as far as it has been read."""
        self._server, self._make, self._clock = server, make, clock
        self._offline_ms = int(offline * 1000)
        self._seen = 0
        self._served: dict[str, RegistryEntry] = {}
        """The entries of the agents that were mounted here."""
        self._links: set[str] = set()
        """The names of agents that came by themselves, which others may take."""
        self._failed: dict[str, float] = {}
        """When to try again to serve an agent."""
        self._noted: dict[str, AgentHealth] = {}
        """What was recorded of the health of agents, by this server."""
        self._looking = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None
        self._swept = 0.0

    async def start(self, files: Mapping[str, tuple[str, ...]]) -> None:
        """Takes over the agents of the settings (`files`, with their addresses), whose names come
        first, and serves what is registered beside them."""
        known = {each.name: each for each in await self.store.all()}
        for name, addresses in files.items():
            mine = RegistryEntry(name=name, source=Source.FILE, addresses=addresses)
            before = known.pop(name, None)
            if before is None or (before.source, before.addresses) != (Source.FILE, addresses):
                await self.store.put(mine)
        alive = await self.alive()
        for entry in known.values():
            if entry.source in _OF_LAST_START and entry.holder not in alive:
                await self.store.remove(entry.name, entry.source, entry.owner)
            elif entry.source is Source.ROOM and entry.holder not in alive:
                await self._note_ended(entry)
        await self.look()
        self._loop = asyncio.get_running_loop().create_task(self._run())

    async def claim(self, name: str, addresses: tuple[str, ...]) -> None:
        """Notes that a name is that of an agent of the settings from now on, which the caller
        serves in place of one that was registered."""
        async with self._looking:
            entry = RegistryEntry(name=name, source=Source.FILE, addresses=addresses)
            await self.store.put(entry)
            self._served.pop(name, None)
            self._failed.pop(name, None)
            self._links.discard(name)

    async def release(self, name: str) -> None:
        """Notes that the settings have no agent of this name any more."""
        await self.store.remove(name, Source.FILE, "")

    async def belongs_to_another(self, name: str, owner: str, source: Source) -> bool:
        """Returns whether an agent that came by itself, with this owner, cannot have the name."""
        entry = await self.store.find(name)
        taken = entry is not None and not entry.removed_at
        return taken and not owns(entry, source, owner)

    async def link(self, name: str, owner: str, source: Source, card: str = "") -> RegistryEntry:
        """Notes that an agent of this name has come by itself; the caller serves it. Raises
        `Conflict` if the name is another's."""
        known = await self.store.find(name)
        if known is None or not owns(known, source, owner):
            known = RegistryEntry(name=name, source=source, owner=owner)
        entry = replace(
            known,
            health=AgentHealth.UP,
            until=0,
            seen_at=self._clock(),
            holder=self.worker(),
            contested="",
            card=card or known.card,
        )
        async with self._looking:
            kept = self.entries[name] = await self.store.put(entry)
            self._links.add(name)
        return kept

    async def unlink(
        self, name: str, owner: str, source: Source, *, offline: bool = False, holder: str = ""
    ) -> None:
        """Notes that an agent that came by itself is `offline`, or gone, unless it is linked to
        another process by now than to this one, or to the `holder`."""
        entry = await self.store.find(name)
        if not owns(entry, source, owner):
            return
        assert entry is not None  # noqa: S101  it is owned
        if entry.holder != (holder or self.worker()) and entry.health is AgentHealth.UP:
            return
        if offline:
            now = self._clock()
            # What was met in a room is remembered.
            until = 0 if source is Source.ROOM else now
            left = replace(entry, health=AgentHealth.DOWN, until=until, seen_at=now)
            self.entries[name] = await self.store.put(left)
            return
        self._links.discard(name)
        await self.store.remove(name, source, owner)

    async def stop(self) -> None:
        """Follows the registry no more. The agents stay until the server stops them."""
        if self._loop is not None:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
            except DragomanError as exc:
                log.warning("The registry could not be read", reason=exc.reason, why=exc)
            except Exception as exc:  # one bad entry must not stop all others
                log.error("The registry crashed", exc)

    async def look(self) -> None:
        """Serves what has changed since the last look."""
        async with self._looking:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._swept + SWEEP:
                self._swept = loop.time()
                for name in await self.store.drop_expired(self._clock() - self._offline_ms):
                    log.info("The lease of an agent ended long ago", agent=name)
                await self._note_health()
                await self._note_ended_holders()
            for entry in await self.store.news(self._seen):
                self._seen = entry.revision
                await self._take(entry)
            for name, when in list(self._failed.items()):
                if when <= loop.time() and name in self.entries:
                    await self._serve(self.entries[name])

    async def _take(self, entry: RegistryEntry) -> None:
        name = entry.name
        if entry.removed_at:
            self.entries.pop(name, None)
            self._failed.pop(name, None)
            self._noted.pop(name, None)
            if entry.source in _CAME:
                self._links.discard(name)
                self._arrivals_of(entry).forget(name)
            if self._served.pop(name, None) is not None:
                # Its runs have a grace; others must not wait for it.
                leaving = asyncio.get_running_loop().create_task(self._remove(name))
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
            return
        self.entries[name] = entry
        if entry.source in _CAME:
            self._links.add(name)
            self._arrivals_of(entry).follow(entry)
        if entry.source in _MOUNTED_ELSEWHERE:
            self._server.reindex(name)
            return
        before = self._served.get(name)
        if before is not None and _same(before, entry):
            self._served[name] = entry
            if before.tags != entry.tags:
                self._server.reindex(name)
            return
        await self._serve(entry)

    async def _serve(self, entry: RegistryEntry) -> None:
        name = entry.name
        self._failed.pop(name, None)
        try:
            made = self._make(entry)
            agent = await made if inspect.isawaitable(made) else made
            if name in self._served or name in self._links:
                self._links.discard(name)
                await self._server.replace_agent(name, agent)
            elif name in self._server.mounts:
                raise ConfigError(f"An agent of the settings is at /agents/{name} already.")
            else:
                await self._server.add_agent(name, agent)
        except (DragomanError, OSError) as exc:
            log.warning("A registered agent cannot be served", agent=name, why=exc)
            self._failed[name] = asyncio.get_running_loop().time() + AGAIN
            return
        self._served[name] = entry
        self._server.reindex(name)

    async def _remove(self, name: str) -> None:
        with suppress(LookupError):
            await self._server.remove_agent(name)

    def _arrivals_of(self, entry: RegistryEntry) -> Arrivals:
        """Returns what serves an agent that came by itself."""
        known = (each for each in self.arrivals if entry.owner.startswith(each))
        return self.arrivals[max(known, key=len)]()

    # What is known of an agent.

    async def alive(self) -> Collection[str]:
        """Returns the workers that are alive; ours is, even if it runs nothing yet."""
        others = await self._workers() if self._workers is not None else ()
        return {*others, self.worker()}

    async def _note_ended_holders(self) -> None:
        """Notes that agents are offline whose process has ended."""
        linked = [
            each
            for each in self.entries.values()
            if each.source in _CAME and each.holder and each.health is AgentHealth.UP
        ]
        alive = await self.alive() if linked else ()
        for each in linked:
            if each.holder not in alive:
                log.warning("The process of an agent has ended", agent=each.name)
                await self._note_ended(each)

    async def _note_ended(self, entry: RegistryEntry) -> None:
        name, owner, source = entry.name, entry.owner, entry.source
        await self.unlink(name, owner, source, offline=True, holder=entry.holder)

    def is_online(self, name: str) -> bool:
        """Returns whether nothing is known that keeps an agent from answering."""
        entry, mount = self.entries.get(name), self._server.mounts.get(name)
        if entry is None:
            return True
        health = entry.health
        if mount is not None and entry.source not in _CAME:
            health = health_of(mount.agent)  # the record may be that of another time
        return health is not AgentHealth.DOWN and not entry.is_expired(self._clock())

    async def _note_health(self) -> None:
        """Records how the agents are that are served here, where that has changed. Of agents that
        came by themselves others know it."""
        for name, entry in list(self.entries.items()):
            mount = self._server.mounts.get(name)
            if mount is None or entry.source in _CAME:
                continue
            health = health_of(mount.agent)
            if health in (AgentHealth.UNKNOWN, self._noted.get(name)):
                continue
            # Another server of the same store may see it differently; each says so once.
            self._noted[name] = health
            if entry.health is not health:
                seen = last_seen(mount.agent)
                await self.store.note(name, health, self._clock() if seen is None else seen)

    def about(self, name: str) -> dict[str, Json]:
        """Returns what the lists tell of an agent beside its card, and how it is now."""
        entry, mount = self.entries.get(name), self._server.mounts.get(name)
        known: dict[str, Json] = {"source": Source.FILE.value}
        if entry is not None:
            known = told(entry, self._clock())
        if mount is None or known.get("health") == OFFLINE_NAME:
            return known
        seen: dict[str, Json] = {"lastSeen": at} if (at := last_seen(mount.agent)) else {}
        return {**known, **seen, "health": health_of(mount.agent).value}


def told(entry: RegistryEntry, now: int) -> dict[str, Json]:
    """Returns an entry as callers see it. Its addresses are for operators."""
    found: dict[str, Json] = {
        "source": entry.source.value,
        "health": OFFLINE_NAME if entry.is_expired(now) else entry.health.value,
        "lastSeen": entry.seen_at,
        "addedAt": entry.added_at,
    }
    if entry.tags:
        found["tags"] = list(entry.tags)
    if entry.until:
        found["leaseUntil"] = entry.until
    return found


def _same(before: RegistryEntry, after: RegistryEntry) -> bool:
    """Returns whether two entries are of the same agent at the same place."""
    return (before.owner, before.addresses, before.card) == (
        after.owner,
        after.addresses,
        after.card,
    )
