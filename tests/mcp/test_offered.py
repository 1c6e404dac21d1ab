"""Skills as MCP tools, over stdio and over HTTP, seen with the official client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import (
    CallToolResult,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from dragoman import Agent, connect
from dragoman.core.model import State
from dragoman.testing import served
from waiting import until

pytestmark = pytest.mark.slow
DESK = str(Path(__file__).parent / "desk.py")
Connect = Callable[..., Client]


@pytest.fixture(params=["stdio", "http"])
async def server(
    request: pytest.FixtureRequest, desk: Agent, stdio: Callable[..., Any]
) -> AsyncIterator[Any]:
    """Where a client finds the agent."""
    if request.param == "stdio":
        yield stdio(DESK, "--store", "memory:")
        return
    async with served(desk) as url:
        yield f"{url}/mcp"


def text(result: CallToolResult) -> str:
    return "\n".join(each.text for each in result.content if isinstance(each, TextContent))


async def test_every_skill_is_a_tool_with_its_schema(client: Connect, server: Any) -> None:
    async with client(server) as mcp:
        tools = {each.name: each for each in (await mcp.list_tools()).tools}
        assert list(tools)[:3] == ["greet", "say", "reply"]
        assert list(tools)[-1] == "answer_task"
        assert tools["greet"].description == "Greets someone.\nExamples: Ada"
        assert tools["greet"].input_schema["required"] == ["name"]
        assert tools["greet"].input_schema["properties"]["times"]["type"] == "integer"
        assert list(tools["say"].input_schema["properties"]) == ["message"]


async def test_a_tool_is_called(client: Connect, server: Any) -> None:
    async with client(server) as mcp:
        found = await mcp.call_tool("greet", {"name": "Ada", "times": 2})
        assert not found.is_error
        assert text(found) == "Hello, Ada! Hello, Ada! "
        assert text(await mcp.call_tool("say", {"message": "hi"})) == "hi"
        assert text(await mcp.call_tool("reply", {"message": "hi"})) == "re: hi"
        found = await mcp.call_tool("weigh", {"things": ["a", "b"]})
        assert found.structured_content == {"count": 2}
        assert text(found) == '{"count":2}'


async def test_files_are_embedded_or_linked(client: Connect, server: Any) -> None:
    async with client(server) as mcp:
        image, table, archive, link = (await mcp.call_tool("files", {"message": "x"})).content
        assert isinstance(image, ImageContent)
        assert base64.b64decode(image.data) == b"\x89PNG"
        assert isinstance(table, EmbeddedResource)
        assert table.resource.model_dump()["text"] == "a,b"
        assert isinstance(archive, EmbeddedResource)
        assert base64.b64decode(archive.resource.model_dump()["blob"]) == b"\x00\x01"
        assert archive.resource.uri.endswith("/all.zip")
        assert isinstance(link, ResourceLink)
        assert (link.uri, link.name) == ("https://example.com/report.pdf", "report.pdf")


async def test_a_task_that_does_not_complete_is_an_error_with_its_reason(
    client: Connect, server: Any
) -> None:
    async with client(server) as mcp:
        failed = await mcp.call_tool("fail", {"message": "x"})
        assert failed.is_error
        assert text(failed) == "The task failed: the printer is on fire"
        crashed = await mcp.call_tool("crash", {"message": "x"})
        assert crashed.is_error
        assert "secret" not in text(crashed)


async def test_bad_input_gets_a_clear_error(client: Connect, server: Any) -> None:
    async with client(server) as mcp:
        with pytest.raises(MCPError, match="There is no tool 'nobody'"):
            await mcp.call_tool("nobody", {})
        wrong = await mcp.call_tool("greet", {"name": 7})
        assert wrong.is_error
        assert "7 is not of type" in text(wrong)
        unknown = await mcp.call_tool("greet", {"name": "Ada", "extra": 1})
        assert unknown.is_error
        assert "extra" in text(unknown)
        missing = await mcp.call_tool("say", {})
        assert missing.is_error
        assert "message" in text(missing)
        no_task = await mcp.call_tool("answer_task", {"task_id": "none", "answer": "x"})
        assert no_task.is_error
        assert "task" in text(no_task)
        assert text(await mcp.call_tool("say", {"message": "still here"})) == "still here"


async def test_a_question_is_answered_by_elicitation_with_progress_before_and_after(
    client: Connect, server: Any, user: Callable[..., Any]
) -> None:
    person = user(ElicitResult(action="accept", content={"answer": "Rome"}))
    steps: list[tuple[float, float | None, str | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with client(server, person) as mcp:
        found = await mcp.call_tool("trip", {"message": "x"}, progress_callback=told)
        assert text(found) == "A trip to Rome"
    assert person.asked == ["Where to?"]
    assert steps[:2] == [(1.0, None, "Looking at the map"), (1.5, 2.0, None)]
    assert steps[-1][2] == "A trip to Rome"


async def test_progress_grows_and_never_exceeds_its_total(client: Connect, server: Any) -> None:
    steps: list[tuple[float, float | None]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total))

    async with client(server) as mcp:
        await mcp.call_tool("finish", {"message": "x"}, progress_callback=told)
    assert len(steps) >= 5
    assert (1.0, 1.0) in steps
    assert [each for each in steps if each[1] is not None and each[0] > each[1]] == []
    numbers = [progress for progress, _ in steps]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (ElicitResult(action="accept", content={"approved": True}), "booked"),
        (ElicitResult(action="accept", content={"approved": False}), "not booked"),
        (ElicitResult(action="decline"), "not booked"),
    ],
    ids=["yes", "no", "declined"],
)
async def test_an_approval_is_decided_by_elicitation(
    client: Connect, server: Any, user: Callable[..., Any], answer: ElicitResult, outcome: str
) -> None:
    person = user(answer)
    async with client(server, person) as mcp:
        assert text(await mcp.call_tool("book", {"message": "x"})) == outcome
    assert person.asked == ['Book it?\n{"price":300}']


async def test_a_user_who_declines_to_answer_cancels_the_task(
    client: Connect, server: Any, user: Callable[..., Any]
) -> None:
    async with client(server, user(ElicitResult(action="decline"))) as mcp:
        found = await mcp.call_tool("trip", {"message": "x"})
        assert found.is_error
        assert "declined" in text(found)


async def test_a_client_without_elicitation_answers_with_a_second_call(
    client: Connect, server: Any
) -> None:
    async with client(server) as mcp:
        asked = await mcp.call_tool("trip", {"message": "x"})
        assert not asked.is_error
        assert "Where to?" in text(asked)
        task = asked.structured_content["task_id"]
        assert f"`answer_task` with task_id={task!r}" in text(asked)
        answered = await mcp.call_tool("answer_task", {"task_id": task, "answer": "Oslo"})
        assert text(answered) == "A trip to Oslo"
        again = await mcp.call_tool("answer_task", {"task_id": task, "answer": "Bonn"})
        assert text(again) == "A trip to Oslo"
        asked = await mcp.call_tool("book", {"message": "x"})
        task = asked.structured_content["task_id"]
        assert asked.structured_content["kind"] == "approval"
        answered = await mcp.call_tool("answer_task", {"task_id": task, "answer": "yes"})
        assert text(answered) == "booked"


async def test_a_dismissed_question_can_be_answered_later(
    client: Connect, server: Any, user: Callable[..., Any]
) -> None:
    async with client(server, user(ElicitResult(action="cancel"))) as mcp:
        asked = await mcp.call_tool("trip", {"message": "x"})
        task = asked.structured_content["task_id"]
        answered = await mcp.call_tool("answer_task", {"task_id": task, "answer": "Oslo"})
        assert text(answered) == "A trip to Oslo"


async def test_credentials_are_never_asked_for_in_a_form(
    client: Connect, server: Any, user: Callable[..., Any]
) -> None:
    person = user()
    async with client(server, person) as mcp:
        asked = await mcp.call_tool("login", {"message": "x"})
        assert "Log in, please" in text(asked)
        assert "MCP must not carry credentials" in text(asked)
        task = asked.structured_content["task_id"]
        told = await mcp.call_tool("answer_task", {"task_id": task, "answer": "hunter2"})
        assert "MCP must not carry credentials" in text(told)
    assert person.asked == []


async def test_a_canceled_call_cancels_its_task(client: Connect, desk: Agent) -> None:
    started = asyncio.Event()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async with (
        served(desk) as url,
        connect(url, dialect="a2a-1.0") as agent,
        client(f"{url}/mcp") as mcp,
    ):
        call = asyncio.create_task(mcp.call_tool("slow", {"message": "x"}, progress_callback=told))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        async def canceled() -> bool:
            (task,) = (await agent.list()).tasks
            return task.state is State.CANCELED

        await until(canceled)
