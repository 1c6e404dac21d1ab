"""CrewAI: a crew as a skill, and a remote agent as a tool of its agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dragoman.agent import Turn

from .remote_tool import Remote, RemoteTool
from .requirement import requires
from .results import TokenUsage, plain

with requires("crewai"):
    from crewai.tools import BaseTool
    from pydantic import BaseModel, Field


async def run_crew(
    turn: Turn, crew: Any, inputs: Mapping[str, Any] | None = None
) -> AsyncIterator[object]:
    """Runs a crew for the message of a turn, and yields its result; a crew with `stream=True`
    yields what its models write.

    Its tasks find the text as `{message}`, and what else stands in `inputs`. Each run has a copy of
    the crew, since a crew keeps what it did.
    """
    own = crew.copy()
    own.stream = crew.stream
    found = await own.kickoff_async(inputs={"message": turn.text, **(inputs or {})})
    wrote = False
    if crew.stream:
        async for chunk in found:
            if chunk.content and chunk.chunk_type.value == "text":
                wrote = True
                yield chunk.content
        found = found.result
    usage = TokenUsage()
    used = found.token_usage
    usage.add(used.prompt_tokens, used.completion_tokens, used.successful_requests)
    await usage.report(turn)
    if not wrote or found.pydantic is not None:
        yield plain(found.pydantic) if found.pydantic is not None else found.raw


def as_tool(agent: Remote, *, name: str = "", description: str = "", skill: str = "") -> Any:
    """Returns a remote agent as a tool for CrewAI. Call it where the agent was connected: crews run
    in threads, and their calls come back to that event loop."""
    tool = RemoteTool(agent, name=name, description=description, skill=skill)
    return _CrewTool(tool, asyncio.get_running_loop())


class _Arguments(BaseModel):
    message: str = Field(description="What to tell the agent.")
    task: str = Field(
        "", description="Only to answer a question of the agent: the id of the task that asked it."
    )


class _CrewTool(BaseTool):  # type: ignore[misc]  # CrewAI is not installed where types are checked
    _tool: Any
    _loop: Any

    def __init__(self, tool: RemoteTool, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=tool.name, description=tool.description, args_schema=_Arguments)
        self._tool, self._loop = tool, loop

    def _run(self, message: str, task: str = "") -> str:
        sent = asyncio.run_coroutine_threadsafe(self._tool.send(message, task), self._loop)
        return str(sent.result())

    async def _arun(self, message: str, task: str = "") -> str:
        if asyncio.get_running_loop() is self._loop:
            return str(await self._tool.send(message, task))
        return await asyncio.to_thread(self._run, message, task)
