"""Creates the engines of a server's agents, over the store that the settings name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from dragoman.agent import Agent
from dragoman.security.server_secret import caller_name, folder_of, secret_for
from dragoman.settings import Settings
from dragoman.workspace import granted, keep_apart

from .bells import bell_for
from .remote_agents import RemoteAgents
from .services.factories import ServedPeer

if TYPE_CHECKING:
    from dragoman.mcp.servers import McpServers
    from dragoman.store import Store


class EnginePool:
    """Creates engines that share a store, which the server opens and closes. In the store, they are
    one worker."""

    def __init__(self, settings: Settings, store: Store | None = None) -> None:
        """`store` is that of another engine, which opens and closes it; then each engine is a
        worker of its own."""
        from dragoman.engine.maintenance import Maintenance
        from dragoman.store import open_store
        from dragoman.store.clock import wall_clock

        self._settings = settings
        self.store = store if store is not None else open_store(settings.server.store)
        self.maintenance: Maintenance | None = None
        if store is None:
            retention = settings.retention.values()
            self.maintenance = Maintenance(
                self.store, settings.limits, wall_clock, retention, bell_for(settings)
            )
        self.mcp = mcp_servers(settings)

    @property
    def worker(self) -> str:
        """What the process is in the store, as long as an engine runs."""
        return self.maintenance.worker.id if self.maintenance is not None else ""

    def engine(self, agent: Agent, name: str) -> ServedPeer:
        """Returns the engine of an agent. It is not started yet."""
        return engine_for(agent, self._settings, name, self)


def mcp_servers(settings: Settings) -> McpServers | None:
    """Returns the MCP servers that skills may call, or None if the settings name none. All agents
    of a process share them."""
    if not settings.mcp:
        return None
    from dragoman.mcp.servers import McpServers

    return McpServers(settings.mcp)


def engines_for(
    agents: Mapping[str, Agent], settings: Settings, *, several: bool | None = None
) -> tuple[dict[str, ServedPeer], EnginePool | None]:
    """Returns the engine of each agent, and the pool that they share. The only agent of a server
    does not share its store, unless the server is made for `several` agents."""
    if not (len(agents) != 1 if several is None else several):
        return {name: engine_for(each, settings, name) for name, each in agents.items()}, None
    pool = EnginePool(settings)
    return {name: pool.engine(each, name) for name, each in agents.items()}, pool


def engine_for(
    agent: Agent, settings: Settings, name: str = "", pool: EnginePool | None = None
) -> ServedPeer:
    """Returns the engine of an agent, which also calls its webhooks. For an agent with a backend,
    the store holds only what the backend does not keep itself. Without the `pool` of a server, the
    engine has a store of its own."""
    from dragoman.store import open_store

    opens = pool is None
    store = open_store(settings.server.store) if pool is None else pool.store
    if agent.is_backend:
        from dragoman.backend import Backend

        assert isinstance(agent, Backend)  # noqa: S101  no other agent says so
        return agent.peer(
            push=settings.push.enabled,
            store=store,
            keep=settings.limits.keep_tasks,
            name=name,
            opens_store=opens,
        )
    from dragoman.engine import Engine
    from dragoman.net.webhooks import WebhookSender
    from dragoman.security.outbound.guarded_http import GuardedHttp, Rules
    from dragoman.security.secret_box import SecretBox
    from dragoman.store.approvals import audit_of

    server, push = settings.server, settings.push
    pushes = _pushes(agent, settings)
    space = granted(settings.workspace, agent.workspace)
    keep_apart(space, folder_of(server.store))
    secret = secret_for(server.store, os.environ)
    rules = Rules(allow_private=server.allow_private, hosts=push.allow, ports=push.ports)
    egress = GuardedHttp(rules, connections=push.parallel)
    return Engine(
        agent,
        store,
        settings.limits,
        name=name,
        opens_store=opens,
        maintenance=None if pool is None else pool.maintenance,
        secret=secret,
        sender=WebhookSender(egress, SecretBox(secret), push.timeout) if pushes else None,
        push=push,
        retention=settings.retention.values(),
        outside=_outside(agent, settings, mcp_servers(settings) if pool is None else pool.mcp),
        audit=audit_of(server.store),
        workspace=space,
        bell=bell_for(settings) if pool is None else None,
    )


def replace_agent(peer: ServedPeer, agent: Agent, settings: Settings) -> bool:
    """Replaces the code of an agent in its engine, without interrupting a task or a stream. Returns
    False if this peer cannot do that, so that the new agent needs a peer of its own."""
    from dragoman.engine import Engine

    if not isinstance(peer, Engine) or agent.is_backend:
        return False
    before = peer.agent
    if agent.hooks or before.hooks or agent.workspace != before.workspace:
        return False
    if _pushes(agent, settings) != _pushes(before, settings):
        return False
    outside = peer.runner.outside
    mcp = outside.servers if isinstance(outside, RemoteAgents) else None
    peer.replace_agent(agent, _outside(agent, settings, mcp))
    return True


def _pushes(agent: Agent, settings: Settings) -> bool:
    return settings.push.enabled and agent.push


def _outside(agent: Agent, settings: Settings, mcp: McpServers | None) -> RemoteAgents:
    server = settings.server
    return RemoteAgents(
        agent,
        allow_private=server.allow_private,
        environ=os.environ,
        mcp=mcp,
        name=partial(caller_name, server.store, os.environ, agent.name),
    )
