"""Tools of the caller: which it offers, and whether what goes in and comes out is as they say."""

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
from dragoman.core.model import Json
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Context

WORK = "urn:dragoman:work:1"
"""Extension: thoughts, logs, progress, tools and approvals of a run."""
PROGRESS = f"{WORK}/progress"
"""In the metadata of an event that says how far the work is."""
DETACHED = f"{WORK}/detached"
"""In the metadata of the event behind which a blocking send does not wait any longer."""
TOOLS = f"{WORK}/tools"
"""Under which a caller of A2A offers its tools, in the metadata of a request."""


def offered(op: SendMessage, ctx: Context) -> tuple[Tool, ...]:
    """The tools a caller offers with a send: its dialect's, or under our extension."""
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


def chosen(tools: Iterable[Tool], name: str, arguments: Json) -> Tool:
    """The tool of that name; `Unsupported` without it, `AgentMisbehaved` for wrong arguments."""
    by_name = {tool.name: tool for tool in tools}
    tool = by_name.get(name)
    if tool is None:
        known = ", ".join(by_name) or "none"
        raise Unsupported(f"The caller offers no tool `{name}` (offered: {known})")
    if problem := json_schema.wrong(tool.parameters, arguments):
        raise AgentMisbehaved(f"The arguments of tool `{name}` break its schema: {problem}")
    return tool


def result_of(tool: Tool, value: Json) -> Json:
    """What a tool gave: `{"result": ...}`, or the value itself; `{"error": ...}` is raised."""
    if isinstance(value, dict) and len(value) == 1:
        if "error" in value:
            raise PeerRefused(f"Tool `{tool.name}` failed: {_words(value['error'])}")
        value = value.get("result", value)
    if problem := json_schema.wrong(tool.returns, value):
        raise PeerMisbehaved(f"The result of tool `{tool.name}` breaks its schema: {problem}")
    return value


def _words(error: Json) -> str:
    said = error.get("message", error) if isinstance(error, dict) else error
    return str(said)[: json_schema.MOST_CHARS]
