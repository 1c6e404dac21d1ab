"""Pydantic AI: an agent of it as a skill, and a remote agent as one of its tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from dragoman.agent import Turn

from .remote_tool import Remote, RemoteTool
from .requirement import requires
from .results import TokenUsage, plain

with requires("pydantic-ai-slim"):
    from pydantic_ai import (
        AgentRunResultEvent,
        DeferredToolRequests,
        DeferredToolResults,
        PartDeltaEvent,
        PartStartEvent,
        TextPart,
        TextPartDelta,
        Tool,
        ToolDenied,
    )


async def run_agent(
    turn: Turn, agent: Any, prompt: Any = None, **options: Any
) -> AsyncIterator[object]:
    """Runs an agent of Pydantic AI on the message of a turn, and yields what its model writes, or
    its output if that is no text.

    Tools that require approval ask the caller for it; the `output_type` of the agent then has to
    include `DeferredToolRequests`. `options` are those of `agent.run`, such as `deps` and
    `message_history`.
    """
    given: Any = turn.text if prompt is None else prompt
    texts = options.get("output_type", agent.output_type)
    streams = texts is str or (isinstance(texts, list | tuple) and str in texts)
    usage, wrote = TokenUsage(), False
    while True:
        result: Any = None
        async with agent.run_stream_events(given, **options) as events:
            async for event in events:
                text = ""
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    text = event.part.content
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    text = event.delta.content_delta
                elif isinstance(event, AgentRunResultEvent):
                    result = event.result
                if text and streams:
                    wrote = True
                    yield text
        used = result.usage
        usage.add(used.input_tokens, used.output_tokens, used.requests)
        if not isinstance(result.output, DeferredToolRequests):
            break
        given = None
        options["message_history"] = result.all_messages()
        options["deferred_tool_results"] = await _decided(turn, result.output)
    await usage.report(turn)
    if not wrote or not isinstance(result.output, str):
        yield plain(result.output)


async def _decided(turn: Turn, requests: Any) -> Any:
    """Asks the caller about every tool that needs approval."""
    if requests.calls:
        names = ", ".join(call.tool_name for call in requests.calls)
        raise turn.fail(f"Nobody here runs these tools: {names}")
    found = DeferredToolResults()
    for call in requests.approvals:
        allowed = await turn.approve(
            f"May I call {call.tool_name}?", details={"arguments": call.args_as_dict()}
        )
        found.approvals[call.tool_call_id] = (
            True if allowed else ToolDenied("The caller did not approve this.")
        )
    return found


def as_tool(agent: Remote, *, name: str = "", description: str = "", skill: str = "") -> Any:
    """Returns a remote agent as a tool for Pydantic AI."""
    tool = RemoteTool(agent, name=name, description=description, skill=skill)
    return Tool(tool.send, name=tool.name, description=tool.description, takes_ctx=False)
