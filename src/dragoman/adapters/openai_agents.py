"""OpenAI Agents SDK: an agent of it as a skill, and a remote agent as one of its tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from dragoman.agent import Turn
from dragoman.core.model import Json

from .remote_tool import Remote, RemoteTool
from .requirement import requires
from .results import TokenUsage, plain

with requires("openai-agents"):
    from agents import Runner, function_tool


async def run_agent(
    turn: Turn, agent: Any, input: Any = None, **options: Any
) -> AsyncIterator[object]:
    """Runs an agent of the SDK on the message of a turn, and yields what its model writes, or its
    output if that is no text.

    Tools with `needs_approval` ask the caller for it. `options` are those of
    `Runner.run_streamed`, such as `session` and `context`.
    """
    given: Any = turn.text if input is None else input
    streams = agent.output_type in (None, str)
    wrote = False
    while True:
        result = Runner.run_streamed(agent, given, **options)
        try:
            async for event in result.stream_events():
                raw = event.data if event.type == "raw_response_event" else None
                if streams and raw is not None and raw.type == "response.output_text.delta":
                    wrote = True
                    yield raw.delta
        finally:
            if not result.is_complete:  # the task was canceled
                result.cancel()
        if not result.interruptions:
            break
        given = result.to_state()
        for item in result.interruptions:
            details = {"arguments": _arguments(item.raw_item)}
            if await turn.approve(f"May I call {item.tool_name}?", details=details):
                given.approve(item)
            else:
                given.reject(item)
    used, usage = result.context_wrapper.usage, TokenUsage()
    usage.add(used.input_tokens, used.output_tokens, used.requests)
    await usage.report(turn)
    if not wrote or not isinstance(result.final_output, str):
        yield plain(result.final_output)


def _arguments(call: Any) -> Json:
    found = call.get("arguments") if isinstance(call, dict) else getattr(call, "arguments", None)
    try:
        arguments: Json = json.loads(found or "{}")
        return arguments
    except ValueError:
        return str(found)


def as_tool(agent: Remote, *, name: str = "", description: str = "", skill: str = "") -> Any:
    """Returns a remote agent as a tool for the OpenAI Agents SDK."""
    tool = RemoteTool(agent, name=name, description=description, skill=skill)
    return function_tool(
        tool.send,
        name_override=tool.name,
        description_override=tool.description,
    )
