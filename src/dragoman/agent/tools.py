"""The tools that a caller offers, and the checks of their arguments and results."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dragoman.core import json_schema
from dragoman.core.card import Tool
from dragoman.core.errors import (
    AgentMisbehaved,
    BadParams,
    PeerMisbehaved,
    PeerRefused,
    Unsupported,
)
from dragoman.core.extensions import TOOLS, WORK
from dragoman.core.model import Json
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Context


def read_tools(op: SendMessage, ctx: Context) -> tuple[Tool, ...]:
    """Returns the tools that a caller offers with a send, in its dialect's way or under our
    extension."""
    if ctx.tools:
        return tuple(each if isinstance(each, Tool) else Tool(name=each) for each in ctx.tools)
    if WORK not in ctx.extensions or not op.metadata or TOOLS not in op.metadata:
        return ()
    try:
        found = msgspec.convert(op.metadata[TOOLS], tuple[Tool, ...])
    except msgspec.ValidationError as exc:
        raise BadParams(str(exc), field=f"metadata.{TOOLS}") from None
    for tool in found:
        json_schema.check(tool.parameters)
        json_schema.check(tool.returns)
    return found


def find_tool(tools: Iterable[Tool], name: str, arguments: Json) -> Tool:
    """Returns the tool of that name. Raises `Unsupported` if there is none, and `AgentMisbehaved`
    if the arguments are wrong."""
    by_name = {tool.name: tool for tool in tools}
    tool = by_name.get(name)
    if tool is None:
        known = ", ".join(by_name) or "none"
        raise Unsupported(f"The caller offers no tool `{name}` (offered: {known})")
    if problem := json_schema.wrong(tool.parameters, arguments):
        raise AgentMisbehaved(f"The arguments of tool `{name}` break its schema: {problem}")
    return tool


def result_of(tool: Tool, value: Json) -> Json:
    """Returns the result of a tool: what `{"result": ...}` holds, or the value itself. `{"error":
    ...}` is raised."""
    if isinstance(value, dict) and len(value) == 1:
        if "error" in value:
            raise PeerRefused(f"Tool `{tool.name}` failed: {_words(value['error'])}")
        value = value.get("result", value)
    if problem := json_schema.wrong(tool.returns, value):
        raise PeerMisbehaved(f"The result of tool `{tool.name}` breaks its schema: {problem}")
    return value


def _words(error: Json) -> str:
    words = error.get("message", error) if isinstance(error, dict) else error
    return str(words)[: json_schema.MOST_CHARS]
