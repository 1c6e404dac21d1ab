"""What a server offers as MCP tools, and to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dragoman.core.card import Card
from dragoman.core.errors import NoExtendedCard
from dragoman.core.operations import GetExtendedCard
from dragoman.core.peer import Context
from dragoman.mcp import extra
from dragoman.mcp.http_service import HttpAgent, McpService
from dragoman.mcp.tools import OfferedAgent
from dragoman.net.server_context import ServerContext
from dragoman.settings import Settings

if TYPE_CHECKING:
    from .services import ServiceContext


def mcp_service(
    title: str,
    version: str,
    agents: Mapping[str, ServiceContext],
    server: ServerContext,
    settings: Settings,
) -> McpService | None:
    """Returns the service that offers these agents, or None if there is to be none."""
    if settings.server.mcp is None and not extra.installed():
        return None
    if settings.server.mcp is False:
        return None
    extra.require()
    meter = next(iter(agents.values())).access.meter  # which all of them share
    offered = {name: _offered(name, context) for name, context in agents.items()}
    return McpService(title, version, offered, server, meter)


def _offered(name: str, context: ServiceContext) -> HttpAgent:
    agent, access, server = context.agent, context.access, context.server

    async def card(caller: Context) -> Card:
        if caller.schemes and access.extended:
            try:
                return await server.peer.call(GetExtendedCard(), caller)
            except NoExtendedCard:
                pass
        return agent.card()

    return HttpAgent(
        offered=OfferedAgent(name=name, peer=server.peer, card=card),
        identify=access.identify,
        shows_card=access.shows_card,
    )
