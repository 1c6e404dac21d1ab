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
    from dragoman.observability.log import Log
    from dragoman.store import Store

    from ..services import ServedPeer, ServiceContext

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
    engine = context.engine
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
        message_size=link.message_size,
        # Phones reach a public address only, and not the one that a server has on its machine.
        files=context.files if context.settings.server.public_url else None,
        # An agent elsewhere cannot open files on this machine, so it gets the links.
        media=None
        if link.media == "lazy" or section.url
        else MediaReceiver(
            context.files,
            link,
            allow_private=context.settings.server.allow_private,
        ),
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
    from dragoman.observability.log import set_up

    from ..serve import run_loop

    settings = replace(settings, agents={"link": HostedAgent(xiaoyi=link)})
    log = set_up(settings.server.log_level)
    try:
        run_loop(_linked(agent, settings, log))
    finally:
        log.close()


async def _linked(agent: Agent, settings: Settings, log: Log) -> None:
    from dragoman.xiaoyi.agent_links import AgentLinks

    from ..app import App
    from ..engines import engines_for
    from ..serve import stop_signals

    agents = {"": agent}
    peers, pool = engines_for(agents, settings)
    app = App(agents, peers, settings, log, pool=pool)
    stopping = stop_signals(log)
    await app.start()
    links = app.service(AgentLinks)
    assert links.ended is not None  # noqa: S101  it has started
    log.info("started", agent=agent.name, servers=",".join(links.links))
    try:
        first: set[asyncio.Future[Any]] = {stopping, links.ended}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if links.ended.done():
            raise links.ended.result()
    finally:
        await app.stop()
