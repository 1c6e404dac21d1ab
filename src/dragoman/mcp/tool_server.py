"""An MCP server whose tools are the skills of agents."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)
from msgspec.structs import replace

from dragoman.core.errors import DragomanError, TaskNotFound
from dragoman.core.log import Logger
from dragoman.core.peer import Context

from .content import refusal
from .tool_call import ToolCall, ToolResult
from .tools import ANSWER, ANSWERS, BETWEEN, OfferedAgent, SkillTool, check, prefix_of, tools_of

log = Logger("mcp")

DIALECT = "mcp"
Request = ServerRequestContext[Any, Any]
Callers = Callable[[Request], Mapping[str, Context]]
"""Returns the caller of a request as each agent knows it, by the agents' names. An agent that does
not let the caller in is missing."""


class ToolServer:
    """Lists the skills of agents as tools, and calls them."""

    def __init__(
        self,
        title: str,
        version: str,
        agents: Mapping[str, OfferedAgent],
        callers: Callers,
        *,
        several: bool,
        instructions: str = "",
    ) -> None:
        """`agents` are looked up at every request, so they may come and go. Where there may be
        `several`, the names of tools and tasks begin with the name of their agent."""
        self._agents, self._several = agents, several
        self._callers = callers
        self._calls: set[ToolCall] = set()
        self._detached = False
        self.server: Server[Any] = Server(
            title,
            version=version,
            instructions=instructions or None,
            on_list_tools=self._list,
            on_call_tool=self._call,
            # No argument of ours is repeated in a header. Without this, every call would list all
            # tools to find that out.
            get_tool_input_schema=lambda tool: None,
        )
        self.server.middleware.clear()  # traces of its own, which nobody reads here

    def detach(self) -> None:
        """From now on, tasks go on when their calls are dropped: the server stops, and its next
        run continues them."""
        self._detached = True
        for call in self._calls:
            call.detached = True

    async def _list(
        self, request: Request, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        callers = self._callers(request)
        found: dict[str, SkillTool] = {}
        for name in callers:
            found |= await self._tools(name, callers)
        tools = [
            Tool(
                name=name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.schema,
            )
            for name, tool in found.items()
        ]
        tools.append(
            Tool(
                name=ANSWER,
                title="Answer a task",
                description="Answers the question of a task that is not finished, and returns "
                "the result of the task.",
                input_schema=ANSWERS,
            )
        )
        return ListToolsResult(tools=tools)

    async def _tools(self, name: str, callers: Mapping[str, Context]) -> dict[str, SkillTool]:
        """Returns the tools of one agent, by their names. No other agent has tools of these names:
        those of several begin with the name of their agent, in which there is no underscore."""
        agent = self._agents.get(name)
        if agent is None or name not in callers:  # it was removed a moment ago
            return {}
        try:
            card = await agent.card(callers[name])
        except DragomanError as exc:  # the others are there all the same
            log.warning("An agent is not offered", agent=name, why=exc.message)
            return {}
        return tools_of(name if self._several else "", card)

    async def _call(self, request: Request, params: CallToolRequestParams) -> ToolResult:
        try:
            return await self._called(request, params)
        except DragomanError as exc:
            return refusal(exc.message)
        except MCPError:
            raise
        except Exception as exc:  # the border: whatever went wrong is logged, and only its id told
            crash = secrets.token_hex(6)
            log.error("A tool call crashed", exc, error=crash, tool=params.name)
            return refusal(f"Internal error {crash}.")

    async def _called(self, request: Request, params: CallToolRequestParams) -> ToolResult:
        callers, arguments = self._callers(request), params.arguments or {}
        if params.name == ANSWER:
            check(ANSWERS, arguments)
            agent, task_id = self._named(arguments["task_id"])
            if agent.name not in callers:
                raise TaskNotFound()
            with self._open(request, agent, callers[agent.name]) as call:
                return await call.answer(task_id, arguments["answer"])
        name = self._agent_of(params.name, callers)
        tool = (await self._tools(name, callers)).get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"There is no tool {params.name!r}; see tools/list.")
        message = tool.message(arguments)
        with self._open(request, self._agents[name], callers[name]) as call:
            if params.request_state is not None:
                return await call.resume(params.request_state, params.input_responses)
            return await call.send(message)

    def _agent_of(self, tool: str, callers: Mapping[str, Context]) -> str:
        """Returns the name of the only agent that may have this tool."""
        if not self._several:
            return next(iter(callers), "")
        prefix = tool.partition(BETWEEN)[0]
        return next((name for name in callers if prefix_of(name) == prefix), "")

    def _named(self, reference: str) -> tuple[OfferedAgent, str]:
        """Returns the agent and the id of a task that a client was told."""
        if not self._several:
            return next(iter(self._agents.values())), reference
        name, _, task_id = reference.partition("/")
        if name not in self._agents:
            raise TaskNotFound()
        return self._agents[name], task_id

    @contextmanager
    def _open(
        self, request: Request, agent: OfferedAgent, ctx: Context
    ) -> Generator[ToolCall, None, None]:
        prefix = f"{agent.name}/" if self._several else ""
        call = ToolCall(request, agent.peer, replace(ctx, dialect=DIALECT), prefix)
        call.detached = self._detached
        self._calls.add(call)
        try:
            yield call
        finally:
            self._calls.discard(call)
