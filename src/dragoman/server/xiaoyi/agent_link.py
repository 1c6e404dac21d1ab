"""The link of an agent to XiaoYi, from `[agents.NAME.xiaoyi]`, and an agent that has nothing but a
link."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError
from dragoman.net.service import Service
from dragoman.security.verifiers import read_secret
from dragoman.settings import HostedAgent, LinkSettings, Settings

if TYPE_CHECKING:
    from dragoman.agent import Agent
    from dragoman.store import Store

    from ..app import App
    from ..services.factories import ServedPeer, ServiceContext

ACCESS_KEY, SECRET_KEY = "DRAGOMAN_XIAOYI_AK", "DRAGOMAN_XIAOYI_SK"
"""The environment variables for the keys, if the settings name no others."""


def link_service(context: ServiceContext) -> Service | None:
    """Returns the links of an agent, or None if its section configures none."""
    sections = context.settings.agents
    only = next(iter(sections), "") if len(sections) == 1 else ""
    section = sections.get(context.name or only)
    if section is None or section.xiaoyi is None:
        return None
    from dragoman.engine import Engine
    from dragoman.store.clock import wall_clock
    from dragoman.store.memory.sessions import MemorySessions
    from dragoman.xiaoyi.agent_links import AgentLinks
    from dragoman.xiaoyi.media import MediaReceiver
    from dragoman.xiaoyi.outbound_link import SigningKeys, servers_for

    link, where = section.xiaoyi, f"[agents.{context.name or only}.xiaoyi]"
    if not link.agent_id:
        raise ConfigError(f"{where} needs an agent_id.")
    keys = SigningKeys(
        link.agent_id,
        read_secret(link.access_key or Secret(env=ACCESS_KEY), f"{where} access_key"),
        read_secret(link.secret_key or Secret(env=SECRET_KEY), f"{where} secret_key"),
    )
    engine, media = context.engine, None
    # An agent elsewhere cannot open files on this machine, so it gets the links; a backend keeps
    # its tasks itself, and its files too.
    if isinstance(engine, Engine):
        if link.media != "lazy" and not section.url:
            private = context.settings.server.allow_private
            media = MediaReceiver(context.files, link, allow_private=private)
        engine.receive_with(media.receive if media is not None else None)
    return AgentLinks(
        context.server.peer,
        keys,
        servers_for(
            link.servers,
            link.pin,
            backup_without_tls_verification=link.backup_without_tls_verification,
        ),
        engine.store.sessions if isinstance(engine, Engine) else MemorySessions(wall_clock),
        wall_clock,
        store=engine.store if isinstance(engine, Engine) else None,
        reports=_store_of(engine),
        kept_as=engine.name if isinstance(engine, Engine) else "",
        scopes=link.scopes,
        meter=context.access.meter,
        message_size=link.message_size,
        # Phones reach a public address only, and not the one that a server has on its machine.
        files=context.files if context.settings.server.public_url else None,
        media=media,
    )


def _store_of(engine: ServedPeer) -> Callable[[], Awaitable[Store]] | None:
    """Returns what returns the store of an agent, while the agent is served."""
    from dragoman.backend.peer import BackendPeer
    from dragoman.engine import Engine

    if isinstance(engine, BackendPeer):
        return engine.open_store
    if not isinstance(engine, Engine):
        return None
    store = engine.store

    async def found() -> Store:
        return store

    return found


def run_link(agent: Agent, settings: Settings, link: LinkSettings) -> None:
    """Runs an agent that is reached only over its link, until it is told to stop. No port is
    opened. Raises `LinkEnded` when no link is left."""
    from ..portless import run_without_port

    run_without_port(agent, replace(settings, agents={"link": HostedAgent(xiaoyi=link)}), _ends)


def _ends(app: App) -> tuple[asyncio.Future[Any], dict[str, str]]:
    from dragoman.xiaoyi.agent_links import AgentLinks

    links = app.service(AgentLinks)
    assert links.ended is not None  # noqa: S101  it has started
    return links.ended, {"servers": ",".join(links.links)}
