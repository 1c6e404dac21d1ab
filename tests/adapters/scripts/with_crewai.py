"""CrewAI with a fake model."""

from __future__ import annotations

import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
os.environ |= {"CREWAI_TRACING_ENABLED": "false", "OPENAI_API_KEY": "none"}

from crewai import Agent as Member
from crewai import BaseLLM, Crew, Task
from pydantic import BaseModel, Field
from remote_desk import example, remote_desk, told

from dragoman import Agent, Turn
from dragoman.adapters.crewai import as_tool, run_crew


class Fake(BaseLLM):
    """Answers with the next of its texts."""

    answers: list[str]
    heard: list[Any] = Field(default_factory=list)

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        self.heard.append(messages)
        self._track_token_usage_internal({"prompt_tokens": 9, "completion_tokens": 3})
        return self.answers.pop(0)


def crew_of(model: Fake, **about: Any) -> Crew:
    member = Member(role="Planner", goal="Plan", backstory="Old.", llm=model)
    task = Task(description="Do: {message}", expected_output="A plan", agent=member, **about)
    return Crew(agents=[member], tasks=[task])


def agent_of(crew: Crew) -> Agent:
    agent = Agent("Crew")

    @agent.skill("run")
    async def run(turn: Turn):  # type: ignore[no-untyped-def]
        async for piece in run_crew(turn, crew):
            yield piece

    return agent


async def test_the_example_runs_and_reports_tokens() -> None:
    module = example("crewai_agent")
    model = Fake(model="fake", answers=["Three quiet days."])
    module.planner.llm = model
    _, usage, task = await told(module.agent, "a trip")
    assert task.text == "Three quiet days.", task
    assert "Plan this: a trip" in str(model.heard[0])
    assert usage["input_tokens"] == 9
    assert usage["output_tokens"] == 3


async def test_a_crew_that_streams_sends_chunks() -> None:
    class Streaming(Fake):
        def call(self, messages: Any, *_: Any, from_task: Any = None, **about: Any) -> str:
            agent = about.get("from_agent")
            for word in ("Three ", "quiet ", "days."):
                self._emit_stream_chunk_event(word, from_task=from_task, from_agent=agent)
            return "Three quiet days."

    crew = crew_of(Streaming(model="fake", answers=[]))
    crew.stream = True
    chunks, _, task = await told(agent_of(crew), "a trip")
    assert chunks[:3] == ["Three ", "quiet ", "days."], chunks
    assert task.text == "Three quiet days.", task


class Trip(BaseModel):
    city: str


async def test_a_structured_output_is_data() -> None:
    crew = crew_of(Fake(model="fake", answers=['{"city": "Rome"}']), output_pydantic=Trip)
    _, _, task = await told(agent_of(crew), "a trip")
    assert task.artifacts[0].parts[0].value == {"city": "Rome"}, task


async def test_a_crew_calls_a_remote_agent_as_a_tool() -> None:
    async with remote_desk() as remote:
        tool = as_tool(remote)
        assert tool.name == "travel_desk"
        act = 'Thought: ask\nAction: travel_desk\nAction Input: {"message": "Kyoto", "task": ""}'
        done = "Thought: I now know the final answer\nFinal Answer: thanks"
        model = Fake(model="fake", answers=[act, done])
        assert await example("crewai_tool").plan(remote.url, model) == "thanks"
        assert "A trip to Kyoto" in str(model.heard[-1])
        assert await tool.arun(message="Rome") == "A trip to Rome"
