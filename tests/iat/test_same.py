"""One sub-agent, three ways to it: an IAT host, an A2A client, and an IAT host over A2A."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from dragoman import Message, Role, State, Text, connect
from dragoman.agent.parts import parts_of
from dragoman.core.events import AnyEvent, ArtifactChunk, Asked, Noted, Stamped, StateChanged
from dragoman.core.extensions import TOOLS, WORK
from dragoman.core.operations import GetTask, SendMessage
from dragoman.core.peer import Batch, Context
from dragoman.core.questions import first_data
from dragoman.iat import Host
from dragoman.iat.host import OPERATOR
from dragoman.testing.served import served
from iat.team import WAYS, engine_host, settings, story, team, worker


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-0.3"])
async def test_a_host_executes_an_agent_over_a2a(tmp_path: Path, dialect: str) -> None:
    host = engine_host()
    async with (
        served(host, settings(tmp_path, "engine")),
        served(worker(), settings(tmp_path, "worker")) as url,
        connect(url, dialect=dialect, extensions=(WORK,)) as agent,
    ):
        host.add("worker", agent, agent.card)
        seen, task = await story(host, "e.txt", True)
        assert task.state is State.COMPLETED, task.status
        assert task.text == "e.txt has 5 bytes, deleted"
        assert [e.event.body for e in seen if isinstance(e.event, Noted)] == [
            {"text": "How large is it?"},
            {"level": "debug", "message": "measured", "size": 5},
            {"tokens": 7},
        ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("decision", "end"), [(True, "deleted"), (False, "kept")])
async def test_an_iat_host_and_an_a2a_client_see_the_same(
    tmp_path: Path, way: str, decision: bool, end: str
) -> None:
    """Thoughts, logs, chunks, the approval and the result in the same order, and the tool calls."""
    by_host: list[object] = []
    run: list[object] = []
    host = Host("engine")

    @host.tool
    def size(path: str) -> int:
        run.append(("tool", "size", {"path": path}))
        return len(path)

    async with team(tmp_path, host, {"worker": worker()}, way):
        async for entry in _entries(host.execute("f.txt")):
            by_host.append(told := _told(entry.event))
            if isinstance(told, tuple) and told[0] == "approval":
                await host.answer(entry.task_id, told[-1], {"approved": decision})
            task_id = entry.task_id
        assert host.peer is not None
        by_host.append((await host.peer.call(GetTask(task_id=task_id), OPERATOR)).text)

    by_client: list[object] = []
    answers: dict[str, object] = {"tool": {"result": 5}, "approval": {"approved": decision}}
    async with (
        served(worker(), settings(tmp_path, "worker")) as url,
        connect(url, dialect="a2a-1.0", extensions=(WORK,)) as agent,
    ):
        metadata = {TOOLS: msgspec.to_builtins(host.offered())}
        task_id, ctx, said = "", Context(extensions=(WORK,)), ("f.txt",)
        while said:
            message = Message(
                message_id=uuid4().hex, role=Role.USER, parts=parts_of(said[0]), task_id=task_id
            )
            op = SendMessage(message=message, metadata=None if task_id else metadata)
            said = ()
            async for entry in _entries(agent.stream(op, ctx)):
                by_client.append(told := _told(entry.event))
                if isinstance(told, tuple) and told[0] in answers:
                    said = (answers[str(told[0])],)
                task_id = entry.task_id
        by_client.append((await agent.get(task_id)).text)

    # A host answers tool calls itself, so they stand in no stream of its own.
    seen = _named(by_client)
    asked = [each for each in seen if isinstance(each, tuple) and each[0] == "tool"]
    assert asked == run == [("tool", "size", {"path": "f.txt"})]
    assert [each for each in seen if each not in asked] == _named(by_host)
    kinds = [each[0] for each in _named(by_host) if isinstance(each, tuple)]
    assert kinds == ["thought", "log", "approval", "usage"]
    assert by_host[-1] == f"f.txt has 5 bytes, {end}"


async def _entries(steps: AsyncGenerator[Batch, None]) -> AsyncIterator[Stamped]:
    async for batch in steps:
        for entry in batch.entries:
            assert isinstance(entry, Stamped)
            yield entry


def _told(event: AnyEvent) -> object:
    """What a person would call the same: kind, words and details. Last is the question's name,
    which differs."""
    match event:
        case Noted(kind=kind, body=body):
            return (str(kind), body)
        case ArtifactChunk(artifact=artifact) if artifact.text:
            return artifact.text
        case Asked(kind=kind, message=message, body=body, question=question):
            return (str(kind), message.text, _inner(body), question)
        case StateChanged(state=State.INPUT_REQUIRED, message=Message() as message):
            about = first_data(message.parts)
            assert isinstance(about, dict)
            words = message.parts[0].text if isinstance(message.parts[0], Text) else ""
            return (about["kind"], words, about.get("details"), about["question"])
        case _:
            return None


def _inner(body: object) -> object:
    """The details of the sub-agent's approval, without what our own host puts around them."""
    if isinstance(body, dict) and body.keys() == {"agent", "details"}:
        return body["details"]
    return body


def _named(seen: list[object]) -> list[object]:
    """Without the names of questions, and without what is nothing to see."""
    return [each[:3] if isinstance(each, tuple) else each for each in seen if each is not None]
