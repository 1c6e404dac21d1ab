"""The engines of the agents that a server has, over the store that its settings name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dragoman.agent import Agent
from dragoman.backend import Backend
from dragoman.security.server_secret import folder_of, secret_for
from dragoman.settings import Settings
from dragoman.workspace import granted, keep_apart

from .services import ServedPeer

if TYPE_CHECKING:
    from dragoman.store import Store


def engines_for(
    agents: Mapping[str, Agent], settings: Settings
) -> tuple[dict[str, ServedPeer], Store | None]:
    """The engine of each agent, and the store that they share, which the server opens and closes.
    The only agent of a server has its store to itself."""
    if len(agents) == 1:
        return {name: engine_for(each, settings, name) for name, each in agents.items()}, None
    from dragoman.store import open_store

    store = open_store(settings.server.store)
    return {name: engine_for(each, settings, name, store) for name, each in agents.items()}, store


def engine_for(
    agent: Agent, settings: Settings, name: str = "", store: Store | None = None
) -> ServedPeer:
    """The engine of an agent, and who calls webhooks for it; of a backend's tasks the store holds
    only what its author does not keep. `store` is one that others open and close; None: that of
    the settings, which is its own."""
    from dragoman.store import open_store

    opens = store is None
    if store is None:
        store = open_store(settings.server.store)
    if isinstance(agent, Backend):
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

    from .remote_agents import RemoteAgents

    server, push = settings.server, settings.push
    pushes = push.enabled and agent.push
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
        secret=secret,
        sender=WebhookSender(egress, SecretBox(secret), push.timeout) if pushes else None,
        push=push,
        retention=settings.retention.values(),
        outside=RemoteAgents(agent, allow_private=server.allow_private, environ=os.environ),
        audit=audit_of(server.store),
        workspace=space,
    )
