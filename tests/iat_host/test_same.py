"""One sub-agent, three ways to it: an IAT host, an A2A client, and an IAT host over A2A."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from dragoman import Message, Role, State, connect
from dragoman.agent.tools import TOOLS, WORK
from dragoman.agent.values import parts_of
from dragoman.events import ArtifactChunk, Noted
from dragoman.ops import SendMessage
from dragoman.peer import Context
from dragoman.testing.served import served
from iat_host.scenes import engine_host, settings, story, team, worker


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


async def test_an_iat_host_and_an_a2a_client_see_the_same(tmp_path: Path) -> None:
    host = engine_host()
    async with team(tmp_path, host, {"worker": worker()}):
        seen, task = await story(host, "f.txt", True)
    by_host = [_told(entry.event) for entry in seen]
    by_client: list[object] = []
    async with (
        served(worker(), settings(tmp_path, "worker")) as url,
        connect(url, extensions=(WORK,)) as agent,
    ):
        metadata = {TOOLS: msgspec.to_builtins(host.offered())}
        task_id, ctx = "", Context(extensions=(WORK,))
        for said in ("f.txt", {"result": 5}, {"approved": True}):
            message = Message(
                message_id=uuid4().hex, role=Role.USER, parts=parts_of(said), task_id=task_id
            )
            op = SendMessage(message=message, metadata=None if task_id else metadata)
            async for batch in agent.stream(op, ctx):
                for entry in batch.entries:
                    by_client.append(_told(entry.event))  # type: ignore[union-attr]
                    task_id = entry.task_id
        assert (await agent.get(task_id)).text == task.text == "f.txt has 5 bytes, deleted"
    assert [each for each in by_client if each] == [each for each in by_host if each]


def _told(event: object) -> object:
    match event:
        case Noted(kind=kind, body=body):
            return (kind, body)
        case ArtifactChunk(artifact=artifact):
            return artifact.text
        case _:
            return None
