"""Skills that call the tools of MCP servers: each call is recorded like a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from dragoman.core.card import Tool
from dragoman.core.model import AnyPart, File, Json, Text, files_in

from .parts import json_of
from .remote_calls import TurnAccess, name_of
from .steps import run_step

MCP = "mcp"
"""The kind of record that a call leaves in the journal."""


class McpResult(Struct, frozen=True, omit_defaults=True):
    """The result of a tool."""

    parts: tuple[AnyPart, ...] = ()
    """Its content: text, files and links."""
    data: Json = None
    """Its structured content, or None if it has none."""

    @property
    def text(self) -> str:
        """Returns all text of the content, joined by line ends."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def files(self) -> tuple[File, ...]:
        """Returns the files of the content."""
        return files_in(self.parts)


class McpCalls(Protocol):
    """Calls the tools of the MCP servers that the settings name."""

    async def tools(self, server: str) -> tuple[Tool, ...]:
        """Returns the tools of a server."""

    async def call(
        self, server: str, tool: str, arguments: Mapping[str, Json], key: str
    ) -> McpResult:
        """Calls a tool. `key` is the same if the call is made again after a crash."""


class McpClient:
    """An MCP server, as `turn.mcp(name)` returns it: its calls are part of this task."""

    def __init__(self, access: TurnAccess, server: str, calls: McpCalls) -> None:
        self._access, self._server, self._calls = access, server, calls

    async def tools(self) -> tuple[Tool, ...]:
        """Returns the tools of the server, with their schemas. The call is not recorded."""
        return await self._calls.tools(self._server)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Json] | None = None,
        /,
        *,
        key: str = "",
        **more: Json,
    ) -> McpResult:
        """Calls a tool and returns its result, which is recorded: a run that starts again after a
        crash gets the same result, and the tool is not called again.

        A crash while the tool works may call it again. A tool that reports an error raises
        `PeerRefused`; a server that is down, or does not answer in time, raises `PeerUnreachable`.
        """
        given = {**(arguments or {}), **more}
        name = f"{self._server}.{tool}"
        said = json_of(given, f"The arguments of the tool `{name}`").decode()
        record = self._access.record_name(MCP, key or name_of(name, said))
        run = self._access.run

        async def ask() -> McpResult:
            return await self._calls.call(self._server, tool, given, f"{run.task_id}:{record}")

        result: McpResult = await run_step(run, record, name, ask)
        return result
