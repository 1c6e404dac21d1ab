"""A gateway in front of an agent: everything that a task can do, whatever dialect is behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Message, State, Task, Turn, connect
from dragoman.client.agent import RemoteAgent
from dragoman.client.credentials import SharedSecret
from dragoman.core.events import ArtifactChunk, Noted, Stamped, StateChanged
from dragoman.core.extensions import PROGRESS, WORK
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Blob
from dragoman.testing.served import served
from gateway.behind import DIALECTS, SECRET, Gateway, gateway, section, settings, worker
from ports import own_port
from waiting import until


@asynccontextmanager
async def between(
    folder: Path, dialect: str, agent: Agent | None = None
) -> AsyncIterator[tuple[RemoteAgent, Gateway]]:
    """A caller of A2A 1.0, and the gateway between it and the agent."""
    grpc_port = own_port() if "grpc" in dialect else 0
    async with (
        served(agent or worker(), settings(folder, name="worker", grpc_port=grpc_port)) as url,
        gateway({"worker": section(folder, url, dialect, grpc_port)}, settings(folder)) as door,
        connect(door.at("worker"), extensions=[WORK]) as caller,
    ):
        yield caller, door


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_what_a_task_does_passes_through(tmp_path: Path, dialect: str) -> None:
    async with asyncio.timeout(240), between(tmp_path, dialect) as (caller, door):
        assert door.upstream("worker").dialect == dialect
        task = await caller.send("hi")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, "HI")
        chunks = [
            entry.event.artifact.text
            async for entry in caller.stream("4", skill="count")
            if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk)
        ]
        assert "".join(chunks) == "0 1 2 3 "
        blob = Blob(b"\x00\xffabc", filename="a.bin", media_type="application/x-a")
        task = await caller.send(blob, skill="file")
        assert isinstance(task, Task)
        assert task.state is State.COMPLETED, task.status
        (part,) = task.artifacts[0].parts
        assert isinstance(part, Blob)
        assert part.content == b"cba\xff\x00"
        task = await caller.send("go", skill="fail")
        assert isinstance(task, Task)
        assert task.state is State.FAILED
        assert task.status.message is not None
        assert task.status.message.text == "No paper left"
        assert (task.status.message.metadata or {}).get("reason") == "paper"
        task = await caller.send("go", skill="refuse")
        assert isinstance(task, Task)
        assert task.state in (State.REJECTED, State.FAILED)  # 0.1 has no word for it


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_questions_go_up_and_answers_down(tmp_path: Path, dialect: str) -> None:
    async with asyncio.timeout(240), between(tmp_path, dialect) as (caller, _):
        task = await caller.send("go", skill="trip")
        assert isinstance(task, Task)
        assert task.state is State.INPUT_REQUIRED
        assert task.status.message is not None
        assert task.status.message.text == "Which city?"
        task = await caller.answer(task, "Rome")
        assert task.state is State.INPUT_REQUIRED
        assert task.status.message is not None
        assert task.status.message.text == "How many days?"
        task = await caller.answer(task, "3")
        assert (task.state, task.text) == (State.COMPLETED, "3 days in Rome")
        task = await caller.send("go", skill="order")
        assert isinstance(task, Task)
        assert task.state is State.INPUT_REQUIRED
        task = await caller.answer(task, True)
        assert (task.state, task.text) == (State.COMPLETED, "bought")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_cancel_travels_down(tmp_path: Path, dialect: str) -> None:
    agent, canceled = worker(), asyncio.Event()

    @agent.skill("stopped")
    async def stopped(turn: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()

    async with asyncio.timeout(240), between(tmp_path, dialect, agent) as (caller, _):
        task = await caller.send("go", skill="stopped", wait=False)
        assert isinstance(task, Task)
        await until(lambda: _works(caller, task))
        task = await caller.cancel(task)
        assert task.state is State.CANCELED
        await canceled.wait()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_task_that_the_agent_cancels_is_canceled_with_a_reason(
    tmp_path: Path, dialect: str
) -> None:
    agent, begun = worker(), list[str]()

    @agent.skill("endless")
    async def endless(turn: Turn) -> None:
        begun.append(turn.task_id)
        await asyncio.Event().wait()

    async with asyncio.timeout(240), between(tmp_path, dialect, agent) as (caller, door):
        task = await caller.send("go", skill="endless", wait=False)
        assert isinstance(task, Task)
        await until(lambda: begun)
        await door.upstream("worker").cancel(begun[0])
        task = await until(lambda: _final(caller, task))
        assert task.state is State.CANCELED
        assert task.status.message is not None
        assert task.status.message.text.endswith("canceled the task")
        assert (task.status.message.metadata or {}).get("reason") == "agent_canceled"


async def _final(caller: RemoteAgent, task: Task) -> Task | None:
    task = await caller.get(task)
    return task if task.state in FINAL else None


async def _works(caller: RemoteAgent, task: Task) -> bool:
    return (await caller.get(task)).state is State.WORKING


async def test_words_thoughts_and_progress_come_through(tmp_path: Path) -> None:
    async with asyncio.timeout(120), between(tmp_path, "a2a-1.0") as (caller, _):
        entries = [entry async for entry in caller.stream("go", skill="work")]
        found = [entry.event for entry in entries if isinstance(entry, Stamped)]
        said = [each.message for each in found if isinstance(each, StateChanged) and each.message]
        assert [(each.text, each.metadata) for each in said] == [("looking", {"n": 1})]
        assert any(isinstance(each, Noted) for each in found)
        assert any(
            isinstance(each, StateChanged) and PROGRESS in (each.metadata or {}) for each in found
        )


async def test_a_direct_reply_stays_one_with_and_without_a_key(tmp_path: Path) -> None:
    import httpx2

    async with asyncio.timeout(120), between(tmp_path, "a2a-1.0") as (caller, door):
        message = {
            "messageId": "m1",
            "role": "ROLE_USER",
            "parts": [{"text": "hi"}],
            "metadata": {"skillId": "greet"},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        async with httpx2.AsyncClient(headers={"a2a-version": "1.0"}, timeout=60) as client:
            answer = (await client.post(door.at("worker"), json=body)).json()
        assert answer["result"]["message"]["parts"] == [{"text": "hello yourself"}]
        # Ours has a key, under which its task is stored before the agent is asked.
        reply = await caller.ask("hi", skill="greet")
        assert isinstance(reply, Message)
        assert reply.text == "hello yourself"
        assert not (await caller.list()).tasks


async def test_a_conversation_here_is_one_there_and_nobody_elses(tmp_path: Path) -> None:
    async with asyncio.timeout(120), between(tmp_path, "a2a-1.0") as (caller, _):
        first = await caller.send("one", skill="context")
        assert isinstance(first, Task)
        there = first.artifacts[0].parts[0].value  # type: ignore[union-attr]
        second = await caller.send(
            "two", skill="context", context_id=first.context_id, references=[first]
        )
        assert isinstance(second, Task)
        found = second.artifacts[0].parts[0].value  # type: ignore[union-attr]
        assert found["context"] == there["context"] != first.context_id
        assert found["said"][0] == "one"
        assert len(found["references"]) == 1
        assert found["references"] != [first.id]
        other = await caller.send("three", skill="context")
        assert isinstance(other, Task)
        assert other.artifacts[0].parts[0].value["context"] != there["context"]  # type: ignore[union-attr]


async def test_the_card_is_theirs_at_our_address(tmp_path: Path) -> None:
    async with asyncio.timeout(120), between(tmp_path, "a2a-1.0") as (caller, door):
        card = caller.card
        assert (card.name, card.description, card.version) == ("Worker", "Works.", "2.1.0")
        assert "echo" in {skill.id for skill in card.skills}
        assert next(skill.tags for skill in card.skills if skill.id == "echo") == ("loud",)
        assert all(each.url.startswith(door.url) for each in card.interfaces)


@pytest.mark.parametrize("dialect", ["a2a-1.0", "a2a-1.0-rest", "a2a-0.3", "iat"])
async def test_the_only_agent_is_at_its_name_as_well(tmp_path: Path, dialect: str) -> None:
    async with asyncio.timeout(120), between(tmp_path, "a2a-1.0") as (caller, door):
        address = f"{door.url}/agents/worker"
        options: dict[str, Any] = {"dialect": dialect}
        if dialect == "iat":
            options = {"auth": SharedSecret(SECRET, to="worker")}
            address = f"iat+{address}/iat"
        async with connect(address, **options) as named:
            assert named.card.name == "Worker"
            task = await named.send("hi")
        assert isinstance(task, Task)
        assert (task.state, task.text) == (State.COMPLETED, "HI")
        assert (await caller.send("hi")).text == "HI"


async def test_a_skill_that_is_not_there_is_refused_without_a_task(tmp_path: Path) -> None:
    from dragoman.core.errors import BadParams

    async with asyncio.timeout(120), between(tmp_path, "a2a-1.0") as (caller, _):
        with pytest.raises(BadParams, match="There is no skill"):
            await caller.send("hi", skill="nothing")
        assert not (await caller.list()).tasks
