"""The agents that a server offers as MCP tools, and the callers that may use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from dragoman.core.card import Card
from dragoman.core.errors import NoExtendedCard
from dragoman.core.operations import GetExtendedCard
from dragoman.core.peer import Context
from dragoman.mcp import extra
from dragoman.mcp.http_service import HttpAgent, McpService
from dragoman.net.server_context import ServerContext
from dragoman.security.rate_limits import Meter
from dragoman.settings import Settings

if TYPE_CHECKING:
    from .factories import ServiceContext


class OfferedAgents(Mapping[str, HttpAgent]):
    """The offered agents, which are exactly those of the current contexts."""

    def __init__(self, contexts: Callable[[], Mapping[str, ServiceContext]]) -> None:
        self._contexts = contexts
        self._made: dict[str, tuple[ServiceContext, HttpAgent]] = {}

    def __getitem__(self, name: str) -> HttpAgent:
        context = self._contexts()[name]
        made = self._made.get(name)
        if made is None or made[0] is not context:  # the agent is new, or it was replaced
            made = self._made[name] = context, _offered(name, context)
        return made[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contexts())

    def __len__(self) -> int:
        return len(self._contexts())


def mcp_service(
    title: str,
    version: str,
    agents: Callable[[], Mapping[str, ServiceContext]],
    server: ServerContext,
    settings: Settings,
    meter: Meter,
    *,
    several: bool,
) -> McpService | None:
    """Returns the service that offers these agents, or None if the settings disable it. The agents
    of a server for `several` may be added and removed."""
    if settings.server.mcp is None and not extra.installed():
        return None
    if settings.server.mcp is False:
        return None
    extra.require()
    return McpService(title, version, OfferedAgents(agents), server, meter, several=several)


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
        name=name,
        peer=server.peer,
        card=card,
        identify=access.identify,
        kind=access.identifies_as,
        shows_card=access.shows_card,
    )
