"""Google's ADK with a fake model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types
from pydantic import Field
from remote_desk import example, remote_desk, told

from dragoman import Agent, State, Turn
from dragoman.adapters.google_adk import as_sub_agent, run_agent
from dragoman.testing import Client


class Fake(BaseLlm):
    """Answers with the next of its texts or calls."""

    answers: list[Any]
    heard: list[Any] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.heard.append(llm_request)
        answer = self.answers.pop(0)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=9, candidates_token_count=3, total_token_count=12
        )
        if isinstance(answer, types.FunctionCall):
            parts = [types.Part(function_call=answer)]
        else:
            parts = [types.Part(text=answer)]
            if stream:
                for word in answer.split(" "):
                    piece = types.Content(role="model", parts=[types.Part(text=f"{word} ")])
                    yield LlmResponse(content=piece, partial=True)
        content = types.Content(role="model", parts=parts)
        yield LlmResponse(content=content, partial=False, usage_metadata=usage)


def agent_of(planner: LlmAgent) -> Agent:
    agent, runner = Agent("Planner"), InMemoryRunner(agent=planner, app_name="test")

    @agent.skill("run")
    async def run(turn: Turn):  # type: ignore[no-untyped-def]
        async for piece in run_agent(turn, runner):
            yield piece

    return agent


async def test_the_example_streams_reports_tokens_and_keeps_the_conversation() -> None:
    module = example("google_adk_agent")
    module.planner.model = model = Fake(model="fake", answers=["Three quiet days", "Again"])
    chunks, usage, task = await told(module.agent, "a trip")
    assert task.text == "Three quiet days "
    assert len(chunks) >= 3
    assert usage == {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12, "requests": 1}
    await told(module.agent, "another", context_id=task.context_id)
    said = [part.text for content in model.heard[-1].contents for part in content.parts]
    assert said == ["a trip", "Three quiet days", "another"]


async def test_a_tool_that_needs_confirmation_asks_the_caller() -> None:
    def book(hotel: str) -> str:
        """Books a hotel."""
        return f"{hotel} is booked"

    for decision, expected in ((True, "Ritz is booked"), (False, "reject")):
        call = types.FunctionCall(name="book", args={"hotel": "Ritz"}, id="1")
        model = Fake(model="fake", answers=[call, "Done."])
        tool = FunctionTool(book, require_confirmation=True)
        planner = LlmAgent(name="planner", model=model, tools=[tool])
        async with Client(agent_of(planner)) as client:
            task = await client.send("book it")
            assert task.state is State.INPUT_REQUIRED, task
            task = await client.send({"approved": decision}, task=task.id)
        assert task.state is State.COMPLETED, task
        assert "Done." in task.text, task
        assert expected in str(model.heard[-1].contents), model.heard[-1].contents


def texts(events: list[Event]) -> list[str]:
    parts = [p for e in events if e.content and not e.partial for p in e.content.parts or ()]
    return [part.text for part in parts if part.text]


async def talk(runner: InMemoryRunner, session: str, text: str) -> list[Event]:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    found = runner.run_async(user_id="u", session_id=session, new_message=content)
    return [event async for event in found]


async def test_an_agent_calls_a_remote_agent_as_a_tool() -> None:
    async with remote_desk() as remote:
        call = types.FunctionCall(name="travel_desk", args={"message": "Kyoto"}, id="1")
        model = Fake(model="fake", answers=[call, "Thanks."])
        assert await example("google_adk_tool").plan(remote.url, model) == "Thanks."
    declared = model.heard[0].config.tools[0].function_declarations[0]
    assert declared.name == "travel_desk"
    assert "Plans a trip" in declared.description
    assert "A trip to Kyoto" in str(model.heard[1].contents)


async def test_a_model_transfers_to_a_remote_agent_that_is_a_sub_agent() -> None:
    async with remote_desk() as remote:
        move = types.FunctionCall(
            name="transfer_to_agent", args={"agent_name": "travel_desk"}, id="1"
        )
        model = Fake(model="fake", answers=[move])
        found = await example("google_adk_tool").plan(remote.url, model, sub_agent=True)
        assert found == "A trip to Kyoto"
        model = Fake(model="fake", answers=[move])
        boss = LlmAgent(name="boss", model=model, sub_agents=[as_sub_agent(remote)])
        runner = InMemoryRunner(agent=boss, app_name="test")
        session = await runner.session_service.create_session(app_name="test", user_id="u")
        events = await talk(runner, session.id, "Kyoto")
        assert texts(events)[-1] == "A trip to Kyoto", events
        assert events[-1].author == "travel_desk"


async def test_what_the_user_says_next_answers_the_question_of_a_sub_agent() -> None:
    async with remote_desk() as remote:
        runner = InMemoryRunner(agent=as_sub_agent(remote), app_name="test")
        session = await runner.session_service.create_session(app_name="test", user_id="u")
        assert texts(await talk(runner, session.id, "trip")) == ["Which city?"]
        assert texts(await talk(runner, session.id, "Rome")) == ["A trip to Rome"]
        assert texts(await talk(runner, session.id, "Oslo")) == ["A trip to Oslo"]
