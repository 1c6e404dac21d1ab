"""LangGraph: a graph as a skill, and a remote agent as a tool of a graph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from dragoman.agent import Turn
from dragoman.core.model import Json

from .remote_tool import Remote, RemoteTool
from .requirement import requires
from .results import TokenUsage, plain

with requires("langgraph"):
    from langchain_core.messages import AIMessage
    from langchain_core.tools import StructuredTool
    from langgraph.types import Command

PROMPTS = ("question", "prompt", "message", "text")
"""The keys of an interrupt's value under which graphs have what they ask."""


async def run_graph(
    turn: Turn,
    graph: Any,
    input: Any = None,
    *,
    config: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[object]:
    """Runs a compiled graph on the message of a turn, and yields what its models write.

    An `interrupt(...)` becomes a question to the caller, and the answer resumes the graph. Without
    a model that writes, the last state is yielded. `input` is the input of the graph, by default
    the text as a user's message. The thread of a graph with a checkpointer is the conversation,
    unless `config` names another; `options` are those of `graph.astream`.
    """
    known = dict(config or {})
    known["configurable"] = {"thread_id": turn.context_id, **known.get("configurable", {})}
    message = {"role": "user", "content": turn.text}
    given: Any = {"messages": [message]} if input is None else input
    start = known
    if graph.checkpointer:
        start = await _start_of(turn, graph, known)
    usage, wrote, state = TokenUsage(), False, None
    while True:
        interrupts: tuple[Any, ...] = ()
        events = graph.astream(
            given, start, stream_mode=["messages", "updates", "values"], **options
        )
        async for mode, item in events:
            if mode == "messages":
                chunk, _ = item
                if isinstance(chunk, AIMessage):  # chunks are messages too
                    if used := chunk.usage_metadata:
                        usage.add(used["input_tokens"], used["output_tokens"])
                    if text := str(chunk.text):
                        wrote = True
                        yield text
            elif mode == "updates":
                interrupts = item.get("__interrupt__", ()) or interrupts
            else:
                state = item
        if not interrupts:
            break
        given = Command(resume={each.id: await _answer(turn, each.value) for each in interrupts})
        start = known
    await usage.report(turn)
    if not wrote and state is not None:
        yield _result(state)


async def _start_of(turn: Turn, graph: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Returns the place in the thread at which this task begins, in every run of it: a run that
    starts again must not find what an earlier one has left there."""

    async def checkpoint() -> str:
        state = await graph.aget_state(config)
        return str(state.config["configurable"].get("checkpoint_id", ""))

    found = await turn.step("langgraph.start", checkpoint)
    if found:
        return {**config, "configurable": {**config["configurable"], "checkpoint_id": found}}
    if await checkpoint():
        await graph.checkpointer.adelete_thread(config["configurable"]["thread_id"])
    return config


async def _answer(turn: Turn, value: Any) -> Json:
    """Asks the caller what a graph wants to know. Data that is sent back is passed on as it is."""
    details: Json = None
    prompt = value if isinstance(value, str) else ""
    if isinstance(value, dict):
        details = value
        prompt = next((str(value[key]) for key in PROMPTS if value.get(key)), "")
    elif not prompt:
        details = {"value": plain(value)}
    answer = await turn.ask(prompt or "The graph needs an answer to go on.", details=details)
    return answer.data if answer.data is not None else str(answer)


def _result(state: Any) -> object:
    messages = state.get("messages") if isinstance(state, dict) else None
    return str(messages[-1].text) if messages else plain(state)


def as_tool(agent: Remote, *, name: str = "", description: str = "", skill: str = "") -> Any:
    """Returns a remote agent as a tool for LangChain and LangGraph."""
    tool = RemoteTool(agent, name=name, description=description, skill=skill)
    return StructuredTool.from_function(
        coroutine=tool.send,
        name=tool.name,
        description=tool.description,
        parse_docstring=False,
    )
