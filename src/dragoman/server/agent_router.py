"""Routes calls to the agents of a server, which may be added and removed while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dragoman.agent import Agent
from dragoman.core.errors import ConfigError
from dragoman.net.http.mount_point import AGENTS, MountPoint
from dragoman.net.http.router import Router
from dragoman.observability.log import Log
from dragoman.settings import Settings

from .agent_list import AgentList
from .agent_mount import AgentMount, Shared
from .agent_names import Naming, check_naming, checked
from .engines import EnginePool, replace_agent
from .registry.agent_index import AgentIndex
from .services.factories import GRACE, ServedPeer

if TYPE_CHECKING:
    from .registry.registration import RegistrationEndpoints


class AgentRouter(Router):
    """A router that mounts agents. `App` is one."""

    settings: Settings
    log: Log
    base: str
    several: bool
    """Whether the agents are served at `/agents/{name}`, even if there is only one."""
    ready: bool
    mounts: dict[str, AgentMount]
    """The agents by their names; the only one of a server may have none."""
    index: AgentIndex
    """The index of the listed agents by the content of their cards."""
    listed: AgentList | None
    """The list of the agents, on a server for several; beside the only agent of a server, that of
    the agents that dialled in."""
    _shared: Shared
    _pool: EnginePool | None
    _check: Callable[[Agent], None] | None
    _naming: dict[str, Naming]
    """The hosts and tenants of the agents that have any."""
    _leaving: dict[str, asyncio.Task[None]]
    """The agents that were removed but have not stopped yet."""
    _registration: RegistrationEndpoints | None

    async def add_agent(
        self,
        name: str,
        agent: Agent,
        peer: ServedPeer | None = None,
        *,
        naming: Naming | None = None,
        guest: bool = False,
    ) -> None:
        """Serves one more agent at `/agents/{name}`, at once and beside all others. `peer` runs its
        tasks; by default it is an engine over the store of the server. `naming` holds its host and
        its tenant; by default they come from the settings. Raises `ConfigError` if the name is
        taken or not valid, or if the agent cannot be served. A `guest` is served beside the only
        agent of a server."""
        self._may_change(name, guest=guest)
        while name in self._leaving:  # an agent of this name is still returning its tasks
            await asyncio.wait({self._leaving[name]})
        if name in self.mounts:
            raise ConfigError(f"There is an agent at /agents/{name} already.")
        mount = self._checked(name, agent, peer, naming)
        self.mounts[name] = mount  # reserves the name
        if self.ready:
            try:
                await mount.start()
            except BaseException:
                del self.mounts[name]
                raise
        self._publish(mount)
        self.log.info("An agent was added", agent=name)

    async def replace_agent(
        self,
        name: str,
        agent: Agent,
        peer: ServedPeer | None = None,
        *,
        naming: Naming | None = None,
    ) -> None:
        """Serves another agent in place of the one at `/agents/{name}`. New calls reach the new
        agent. Running tasks and their streams continue if both agents have the same engine."""
        self._may_change(name)
        before = self.mounts.get(name)
        if before is None:
            await self.add_agent(name, agent, peer, naming=naming)
            return
        stays = peer is None and replace_agent(before.peer, agent, self.settings)
        try:
            mount = self._checked(name, agent, before.peer if stays else peer, naming)
            if self.ready:
                await mount.start(peer=not stays)
        except BaseException:
            if stays:
                replace_agent(before.peer, before.agent, self.settings)
            raise
        mount.succeed(before)
        self._withdraw(before)
        self._publish(mount)
        self.log.info("An agent was replaced", agent=name)
        await before.stop(GRACE)

    async def remove_agent(self, name: str, grace: float = GRACE, *, guest: bool = False) -> None:
        """Removes an agent: no new call reaches it from now on. Its runs have `grace` seconds to
        end, in which its streams are still served. Then they are returned to the store, where a
        later agent of this name finds them. Raises `LookupError` if there is no such agent."""
        self._may_change(name, guest=guest)
        mount = self.mounts.pop(name, None)
        if mount is None:
            raise LookupError(f"There is no agent at /agents/{name}.")
        self._withdraw(mount)
        self.log.info("An agent was removed", agent=name)
        leaving = asyncio.get_running_loop().create_task(mount.stop(grace))
        self._leaving[name] = leaving
        leaving.add_done_callback(lambda _: self._leaving.pop(name, None))
        await asyncio.shield(leaving)

    def _may_change(self, name: str, *, guest: bool = False) -> None:
        if not self.several and not guest:
            raise ConfigError(
                f"There is no place for '{name}': this server has one agent, at its root. Make it "
                "one for several: create_app({}, several=True)."
            )
        checked(name)

    def _checked(
        self, name: str, agent: Agent, peer: ServedPeer | None, naming: Naming | None
    ) -> AgentMount:
        """Returns the mount of an agent that may be served here."""
        if self._check is not None:
            self._check(agent)
        if peer is None:
            if self._pool is None:
                raise ConfigError(f"'{name}' needs a peer: this server has no engines to share.")
            peer = self._pool.engine(agent, name)
        mount = self._made(name, agent, peer, naming)
        mount.check_card()
        return mount

    def _publish(self, mount: AgentMount) -> None:
        """Starts to route calls to an agent."""
        host, tenant = mount.naming.host, mount.naming.tenant
        if host:
            self._shared.hosts.add(host)
        if self.listed is not None and mount.mount_point.path:
            mount.add_page(self.listed.entry_of(mount.name))
            if self._registration is not None:
                unregister = self._registration.unregister
                mount.routes["/"] = {**mount.routes["/"], "DELETE": unregister}
            mount.on_card_change = partial(self.reindex, mount.name)
            self.mount(mount.name, mount.router, host, tenant)
            self.mounts[mount.name] = mount
            self.reindex(mount.name)
            for service in self._shared.services:
                service.add_agent(mount.name, mount.server, host, tenant)
        elif mount.name:
            self.mount(mount.name, mount.router)  # beside the root, where the only agent is

    def reindex(self, name: str) -> None:
        """Updates the index after the card or the tags of an agent have changed."""
        mount = self.mounts.get(name)
        if mount is not None and self.listed is not None:
            tags = self.listed.about(name).get("tags")
            known = [each for each in tags if isinstance(each, str)] if tags else ()
            self.index.put(name, mount.agent.card(()), known)

    def _withdraw(self, mount: AgentMount) -> None:
        """Stops routing calls to an agent."""
        if mount.naming.host:
            self._shared.hosts.remove(mount.naming.host)
        if self._naming.get(mount.name) is mount.naming:
            del self._naming[mount.name]
        self.index.remove(mount.name)
        self.unmount(mount.name)
        for service in self._shared.services:
            service.remove_agent(mount.name)

    def _made(
        self, name: str, agent: Agent, peer: ServedPeer, naming: Naming | None = None
    ) -> AgentMount:
        if naming is None:
            said = self.settings.agents.get(name)
            naming = Naming(said.host, said.tenant) if said is not None else Naming()
        others = {other: its for other, its in self._naming.items() if other != name}
        check_naming(name, naming, others, self.mounts)
        if naming != Naming():
            self._naming[name] = naming
        # The only agent of a server is made first, and is at the root; its guests are not.
        below = self.several or bool(self.mounts)
        mount_point = MountPoint(self.base, f"{AGENTS}/{name}" if below else "")
        mount = AgentMount(name, agent, peer, mount_point, self._shared, naming)
        mount.server.has_agent = self.mounts.__contains__
        return mount
