"""An MCP server of the official package, with tools that do all that a skill may meet.

`tools_server.py LOG` speaks over stdio, `tools_server.py LOG PORT` over HTTP. Each call of a tool
is a line in LOG.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("Tools")
LOG = Path(sys.argv[1])


def note(line: str) -> None:
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    note("add")
    return a + b


@server.tool()
def env(name: str) -> str:
    """Tells a variable of the process."""
    return os.environ.get(name, "-")


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("no such row")


@server.tool()
def picture() -> Image:
    """Returns an image."""
    return Image(data=b"\x89PNG", format="png")


@server.tool()
async def slow() -> str:
    """Works until it is canceled."""
    note("slow began")
    try:
        await anyio.sleep_forever()
    finally:
        note("slow ended")
    return "unreachable"


@server.tool()
def die() -> str:
    """Ends the process."""
    note("die")
    os._exit(3)


@server.tool()
def flood(size: int) -> str:
    """Returns a long text."""
    return "x" * size


@server.tool()
def key(context: Context[Any, Any]) -> str:
    """Tells the idempotency key of the call."""
    note("key")
    return str((context.request_context.meta or {}).get("dragoman/idempotencyKey"))


if __name__ == "__main__":
    note("start")
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
