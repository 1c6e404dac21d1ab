"""The calls from an engine to other agents and to MCP servers, loaded at the first call of a
skill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dragoman.agent import Agent
from dragoman.agent.mcp_calls import McpClient
from dragoman.agent.remote_calls import AgentClient, Relaying, StartedCall, TurnAccess
from dragoman.agent.run_api import RunApi
from dragoman.core.errors import Unsupported

if TYPE_CHECKING:
    from dragoman.client.connection_cache import ConnectionCache
    from dragoman.core.peer import Context
    from dragoman.mcp.servers import McpServers


class RemoteAgents:
    """Calls other agents on behalf of a turn; implements `agent.remote_calls.Outside`. The HTTP
    client is loaded at the first call, so a server that makes none never loads it."""

    def __init__(
        self,
        agent: Agent | None = None,
        *,
        allow_private: bool = False,
        environ: Mapping[str, str] | None = None,
        mcp: McpServers | None = None,
        name: Callable[[], str] | None = None,
    ) -> None:
        """`name` returns our name for agents to which callers introduce themselves."""
        self._agent = agent
        self.servers = mcp
        """The MCP servers of the settings, which other agents may share."""
        self._allow_private, self._environ, self._name = allow_private, environ, name

    @cached_property
    def _board(self) -> ConnectionCache:
        from dragoman.client.connection_cache import ConnectionCache

        return ConnectionCache(
            allow_private=self._allow_private, environ=self._environ, name=self._name
        )

    def agent(self, seat: TurnAccess, address: str, options: Mapping[str, Any]) -> AgentClient:
        """Returns a client of another agent, bound to a task."""
        return self._board.agent(seat, address, options)

    def mcp(self, seat: TurnAccess, server: str) -> McpClient:
        """Returns a client of an MCP server in the settings, bound to a task."""
        if self.servers is None or server not in self.servers:
            known = ", ".join(self.servers or ()) or "none"
            raise Unsupported(
                f"There is no MCP server `{server}` in the settings: add [mcp.{server}] "
                f"(known: {known})"
            )
        self.servers.users.add(self)
        return McpClient(seat, server, self.servers)

    async def stop(self, sent: StartedCall, caller: Context) -> None:
        """Cancels a remote task. It is no error if the task is already finished."""
        if self._agent is None or not await self._agent.stop_remote(sent, caller):
            await self._board.stop(sent)

    async def stop_unrecorded(self, run: RunApi) -> None:
        """Cancels the task elsewhere of a run that did not learn its id."""
        if isinstance(self._agent, Relaying):
            await self._agent.stop_unrecorded(run)

    async def close(self) -> None:
        """Closes all connections."""
        if self.servers is not None:
            await self.servers.leave(self)
        if "_board" in self.__dict__:
            await self._board.close()
            del self._board
