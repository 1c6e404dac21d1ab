"""The way from an engine to other agents: the client, loaded when a skill first asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dragoman.agent import Agent
from dragoman.agent.remote_calls import AgentClient, StartedCall, TurnAccess

if TYPE_CHECKING:
    from dragoman.client.connection_cache import ConnectionCache


class RemoteAgents:
    """Calls other agents on behalf of a turn; implements `agent.remote_calls.Outside`. The HTTP
    client is loaded at the first call, so a server that makes none never loads it."""

    def __init__(
        self,
        agent: Agent | None = None,
        *,
        allow_private: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._agent = agent
        self._allow_private = allow_private
        self._environ = environ

    @cached_property
    def _board(self) -> ConnectionCache:
        from dragoman.client.connection_cache import ConnectionCache

        return ConnectionCache(allow_private=self._allow_private, environ=self._environ)

    def agent(self, seat: TurnAccess, address: str, options: Mapping[str, Any]) -> AgentClient:
        """Another agent, bound to a task."""
        return self._board.agent(seat, address, options)

    async def stop(self, sent: StartedCall) -> None:
        """Cancels a task elsewhere; fine if it is over."""
        if self._agent is None or not await self._agent.stop_remote(sent):
            await self._board.stop(sent)

    async def close(self) -> None:
        """Ends all connections."""
        if "_board" in self.__dict__:
            await self._board.close()
            del self._board
