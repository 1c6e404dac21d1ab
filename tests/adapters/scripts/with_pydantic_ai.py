"""Pydantic AI with its own fake models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent as Planner
from pydantic_ai import DeferredToolRequests, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from remote_desk import desk_url, example, told

from dragoman import Agent, State, Turn
from dragoman.adapters.pydantic_ai import run_agent
from dragoman.testing import Client


def agent_of(planner: Any, **options: Any) -> Agent:
    agent = Agent("Planner")

    @agent.skill("run")
    async def run(turn: Turn):  # type: ignore[no-untyped-def]
        async for piece in run_agent(turn, planner, **options):
            yield piece

    return agent


async def test_the_example_streams_and_reports_tokens() -> None:
    chunks, usage, task = await told(example("pydantic_ai_agent").agent, "a trip")
    assert task.text == "Three quiet days."
    assert len(chunks) > 1
    assert usage["input_tokens"] > 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


class Trip(BaseModel):
    city: str
    days: int


async def test_a_structured_output_is_data() -> None:
    planner = Planner(TestModel(custom_output_args={"city": "Rome", "days": 3}), output_type=Trip)
    _, _, task = await told(agent_of(planner), "a trip")
    assert task.artifacts[0].parts[0].value == {"city": "Rome", "days": 3}


async def test_a_tool_that_needs_approval_asks_the_caller() -> None:
    for decision, expected in ((True, "Ritz is booked"), (False, "did not approve")):
        planner = Planner(
            FunctionModel(stream_function=booking), output_type=[str, DeferredToolRequests]
        )

        @planner.tool_plain(requires_approval=True)
        def book(hotel: str) -> str:
            return f"{hotel} is booked"

        async with Client(agent_of(planner)) as client:
            task = await client.send("book it")
            assert task.state is State.INPUT_REQUIRED, task
            assert task.status.message is not None
            assert task.status.message.text.startswith("May I call book?")
            task = await client.send({"approved": decision}, task=task.id)
        assert task.state is State.COMPLETED, task
        assert expected in task.text, task


async def booking(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    """Books, and then says what came of it."""
    from pydantic_ai.models.function import DeltaToolCall

    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        yield {0: DeltaToolCall(name="book", json_args='{"hotel": "Ritz"}', tool_call_id="1")}
    else:
        yield str(last.content)


async def test_an_agent_calls_a_remote_agent_as_a_tool() -> None:
    def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(str(last.content))])
        (tool,) = info.function_tools
        assert tool.name == "travel_desk"
        assert "Plans a trip" in (tool.description or "")
        assert tool.parameters_json_schema["required"] == ["message"]
        return ModelResponse(parts=[ToolCallPart("travel_desk", {"message": "Kyoto"})])

    async with desk_url() as url:
        found = await example("pydantic_ai_tool").plan(url, FunctionModel(ask))
    assert found == "A trip to Kyoto"
