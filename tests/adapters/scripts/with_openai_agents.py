"""The OpenAI Agents SDK with a fake model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent as Planner
from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import BaseModel
from remote_desk import example, remote_desk, told

from dragoman import Agent, State, Turn
from dragoman.adapters.openai_agents import as_tool, run_agent
from dragoman.testing import Client

set_tracing_disabled(True)


class Fake(Model):
    """Answers with the next of its texts or calls."""

    def __init__(self, *answers: str | ResponseFunctionToolCall) -> None:
        self.answers = list(answers)
        self.heard: list[Any] = []

    def _next(self, input: Any) -> Any:
        self.heard.append(input)
        answer = self.answers.pop(0)
        if not isinstance(answer, str):
            return answer
        text = ResponseOutputText(text=answer, type="output_text", annotations=[], logprobs=[])
        return ResponseOutputMessage(
            id="m", type="message", role="assistant", content=[text], status="completed"
        )

    async def get_response(
        self, system_instructions: Any, input: Any, *_: Any, **__: Any
    ) -> ModelResponse:
        output = [self._next(input)]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    async def stream_response(  # type: ignore[override]
        self, system_instructions: Any, input: Any, *_: Any, **__: Any
    ) -> AsyncIterator[Any]:
        item = self._next(input)
        if isinstance(item, ResponseOutputMessage):
            for word in item.content[0].text.split(" "):  # type: ignore[union-attr]
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=f"{word} ",
                    content_index=0,
                    item_id="m",
                    output_index=0,
                    sequence_number=0,
                    logprobs=[],
                )
        usage = ResponseUsage(
            input_tokens=10,
            output_tokens=4,
            total_tokens=14,
            input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        response = Response(
            id="r",
            created_at=0,
            model="fake",
            object="response",
            output=[item],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
            usage=usage,
        )
        yield ResponseCompletedEvent(
            type="response.completed", response=response, sequence_number=1
        )


def call(name: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=arguments, call_id="1", id="c"
    )


def agent_of(planner: Any, **options: Any) -> Agent:
    agent = Agent("Planner")

    @agent.skill("run")
    async def run(turn: Turn):  # type: ignore[no-untyped-def]
        async for piece in run_agent(turn, planner, **options):
            yield piece

    return agent


async def test_text_is_streamed_and_tokens_are_reported() -> None:
    planner = Planner(name="Planner", model=Fake("Three quiet days"))
    chunks, usage, task = await told(agent_of(planner), "a trip")
    assert task.text == "Three quiet days "
    assert len(chunks) >= 3
    assert usage == {"input_tokens": 10, "output_tokens": 4, "total_tokens": 14, "requests": 1}


async def test_the_example_asks_for_approval_and_keeps_the_conversation() -> None:
    module = example("openai_agents_agent")
    for decision, expected in ((True, "Ritz is booked"), (False, "not approved")):
        model = Fake(call("book", '{"hotel": "Ritz"}'), "Done.", "You said: book it")
        module.planner.model = model
        async with Client(module.agent) as client:
            task = await client.send("book it")
            assert task.state is State.INPUT_REQUIRED, task
            assert task.status.message is not None
            assert task.status.message.text.startswith("May I call book?")
            task = await client.send({"approved": decision}, task=task.id)
            assert (task.state, task.text) == (State.COMPLETED, "Done. "), task
            assert expected in str(model.heard[1]), model.heard[1]


class Trip(BaseModel):
    city: str


async def test_a_structured_output_is_data() -> None:
    planner = Planner(name="Planner", model=Fake('{"city": "Rome"}'), output_type=Trip)
    _, _, task = await told(agent_of(planner), "a trip")
    assert task.artifacts[0].parts[0].value == {"city": "Rome"}, task


async def test_an_agent_calls_a_remote_agent_as_a_tool() -> None:
    async with remote_desk() as remote:
        tool = as_tool(remote)
        assert (tool.name, tool.params_json_schema["required"]) == (
            "travel_desk",
            ["message", "task"],  # the SDK's strict schemas require every parameter
        )
        model = Fake(call("travel_desk", '{"message": "Kyoto", "task": ""}'), "Thanks.")
        assert await example("openai_agents_tool").plan(remote.url, model) == "Thanks."
    assert "A trip to Kyoto" in str(model.heard[1])
