"""Google ADK: an agent of it as a skill, and a remote agent as one of its tools or sub-agents."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from dragoman.agent import Turn
from dragoman.client import RemoteAgent
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Message

from .remote_tool import Remote, RemoteTool
from .requirement import requires
from .results import TokenUsage

with requires("google-adk"):
    from google.adk.agents import BaseAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.events import Event, EventActions
    from google.adk.tools import FunctionTool
    from google.genai import types

CONFIRMATION = "adk_request_confirmation"
PROMPTS = ("message", "prompt", "question", "hint")


async def run_agent(turn: Turn, runner: Any, **options: Any) -> AsyncIterator[object]:
    """Runs the agent of an ADK runner on the message of a turn, and yields what its model writes.

    The session is the conversation of the turn, and its user the caller. Tool confirmations and
    other long-running calls become questions. `options` are those of `runner.run_async`.
    """
    user = turn.caller.principal
    about = {"app_name": runner.app_name, "user_id": user, "session_id": turn.context_id}
    if await runner.session_service.get_session(**about) is None:
        await runner.session_service.create_session(**about)
    options.setdefault("run_config", RunConfig(streaming_mode=StreamingMode.SSE))
    message, usage = types.Content(role="user", parts=[types.Part(text=turn.text)]), TokenUsage()
    while True:
        asked: list[Any] = []
        partial = False
        async for event in runner.run_async(
            user_id=user, session_id=turn.context_id, new_message=message, **options
        ):
            if event.error_message:
                raise turn.fail(event.error_message)
            waits = event.long_running_tool_ids or ()
            asked += [call for call in event.get_function_calls() if call.id in waits]
            # A whole text follows the pieces in which it came.
            if event.partial or not partial:
                for text in _texts(event.content):
                    yield text
            partial = bool(event.partial)
            if (used := event.usage_metadata) and not event.partial:
                usage.add(used.prompt_token_count, used.candidates_token_count)
        if not asked:
            break
        answers = [await _answer(turn, call) for call in asked]
        message = types.Content(role="user", parts=answers)
    await usage.report(turn)


def _texts(content: Any) -> list[str]:
    parts = content.parts or () if content is not None else ()
    return [part.text for part in parts if part.text and not part.thought]


async def _answer(turn: Turn, call: Any) -> Any:
    arguments = dict(call.args or {})
    prompt = next((str(arguments[key]) for key in PROMPTS if arguments.get(key)), "")
    if call.name == CONFIRMATION:
        tool = (arguments.get("originalFunctionCall") or {}).get("name", "a tool")
        hint = (arguments.get("toolConfirmation") or {}).get("hint", "")
        confirmed = await turn.approve(hint or f"May I call {tool}?", details=arguments)
        response: dict[str, Any] = {"confirmed": confirmed}
    else:
        answer = await turn.ask(prompt or f"{call.name} needs an answer.", details=arguments)
        response = {"result": answer.data if answer.data is not None else str(answer)}
    told = types.FunctionResponse(id=call.id, name=call.name, response=response)
    return types.Part(function_response=told)


def as_tool(agent: Remote, *, name: str = "", description: str = "", skill: str = "") -> Any:
    """Returns a remote agent as a tool for ADK."""
    tool = RemoteTool(agent, name=name, description=description, skill=skill)

    async def send(message: str, task: str = "") -> str:
        return await tool.send(message, task)

    # ADK reads both from the function.
    send.__name__, send.__doc__ = tool.name, f"{tool.description}\n\n{tool.send.__doc__}"
    return FunctionTool(send)


def as_sub_agent(agent: RemoteAgent, *, name: str = "", description: str = "") -> Any:
    """Returns a remote agent as a sub-agent for ADK, to which an `LlmAgent` transfers by its
    description. What the user says next answers an open question of it."""
    card = agent.card
    own = name or re.sub(r"\W+", "_", card.name).strip("_").lower()
    return _SubAgent(own, description or card.description, agent)


class _SubAgent(BaseAgent):  # type: ignore[misc]  # ADK is not installed where types are checked
    _remote: Any

    def __init__(self, name: str, description: str, remote: RemoteAgent) -> None:
        super().__init__(name=name, description=description)
        self._remote = remote

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Any, None]:
        key = f"dragoman:{self.name}"
        known = ctx.session.state.get(key) or {}
        text = "\n".join(_texts(ctx.user_content))
        events = self._remote.stream(text, **known)
        written: list[str] = []
        async for entry in events:
            if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk):
                piece = entry.event.artifact.text
                if not entry.event.append:
                    written.clear()
                written.append(piece)
                yield self._said(ctx, piece, partial=True)
        end = events.reply or events.task
        state: dict[str, str] = {}
        said = "".join(written)
        if isinstance(end, Message):
            said = end.text
        elif end is not None:
            state = {"context_id": end.context_id}
            if end.state not in FINAL:
                state["task"] = end.id
            if end.status.message is not None and (not said or "task" in state):
                said = end.status.message.text
        yield self._said(ctx, said, actions=EventActions(state_delta={key: state}))

    def _said(self, ctx: Any, text: str, **about: Any) -> Any:
        content = types.Content(role="model", parts=[types.Part(text=text)])
        return Event(author=self.name, invocation_id=ctx.invocation_id, content=content, **about)
