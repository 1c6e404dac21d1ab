"""Tasks that their callers name: found by the name, each caller's own, in every process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dragoman import Agent, Turn
from dragoman.core.errors import BadParams, Conflict, Forbidden, TaskFinished, TaskNotFound
from dragoman.core.model import Message, Role, State, Task, Text
from dragoman.core.operations import CancelTask, GetTask, ListTasks, SendMessage, Watch
from dragoman.core.peer import Context
from dragoman.core.task_names import LONGEST, called, fit, name_of, task_id_of
from dragoman.engine import Engine
from dragoman.engine.task_ids import new_id
from dragoman.security.authorization import AuthorizingPeer
from dragoman.security.rate_limits import Meter
from dragoman.settings import Rates
from dragoman.store import open_store

ANN, BOB = Context(principal="ann"), Context(principal="bob")
ELSEWHERE = Context(tenant="t", principal="ann")

agent = Agent("Desk", description="Answers.")


@agent.skill("echo", default=True, may_reply=True)
async def echo(turn: Turn) -> object:
    return await turn.reply(turn.text.upper()) if turn.text == "reply" else turn.text.upper()


@agent.skill("trip")
async def trip(turn: Turn) -> str:
    return f"A trip to {await turn.ask('Which city?')}"


@asynccontextmanager
async def running(store: str = "memory:") -> AsyncIterator[Engine]:
    engine = Engine(agent, open_store(store))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop(1)


def saying(name: str, text: str, skill: str = "", **more: str) -> SendMessage:
    message = Message(message_id="", role=Role.USER, parts=(Text(text),), **more)
    return SendMessage(
        message=message, open_as=name, metadata={"skillId": skill} if skill else None
    )


async def send(engine: Engine, op: SendMessage, ctx: Context = ANN) -> Task:
    task = await engine.call(op, ctx)
    assert isinstance(task, Task)
    return task


AWKWARD = ("t-1", "a~b", "t-1~0123456789abcdef", "../../etc/passwd", "名字", "a b", "x" * LONGEST)


@pytest.mark.parametrize("name", AWKWARD)
def test_a_name_can_be_read_from_the_id(name: str) -> None:
    assert fit(name)
    assert name_of(task_id_of(name, "", "ann")) == name
    assert called(task_id_of(name, "", "ann")) == name


def test_ids_of_ours_are_no_names() -> None:
    assert name_of(new_id()) == ""
    assert name_of("") == name_of("~0123456789abcdef") == name_of("x~0123456789abcdeg") == ""


def test_each_owner_has_other_ids() -> None:
    owners = [
        ("", "ann"),
        ("", "bob"),
        ("desk", "", "ann"),
        ("t", "ann"),
        ("tann", ""),
        ("", "t', 'ann"),
    ]
    assert len({task_id_of("t-1", *owner) for owner in owners}) == len(owners)


@pytest.mark.parametrize("name", ["", "x" * (LONGEST + 1), "a\nb", "a\0", "\ud800"])
def test_what_is_no_name(name: str) -> None:
    assert not fit(name)


@pytest.mark.parametrize("name", AWKWARD)
async def test_a_task_is_found_by_its_name(name: str, tmp_path: Path) -> None:
    for store in ("memory:", f"sqlite:///{tmp_path}/tasks.db", f"file://{tmp_path}/tasks"):
        async with running(store) as engine:
            made = await send(engine, saying(name, "hi"))
            found = await engine.call(GetTask(task_id=name), ANN)
            assert made.text == found.text == "HI"
            assert name_of(found.id) == name
            assert found.context_id.isascii()
            assert name_of(found.context_id) == ""  # its name is not that of its context
            assert (await engine.call(GetTask(task_id=found.id), ANN)).text == "HI"
            assert found.history[0].message_id  # 0.1's messages come without one


async def test_the_same_name_continues_the_task() -> None:
    async with running() as engine:
        asked = await send(engine, saying("t-1", "plan", "trip"))
        assert asked.state is State.INPUT_REQUIRED
        done = await send(engine, saying("t-1", "Rome"))
        assert (done.id, done.text) == (asked.id, "A trip to Rome")
        with pytest.raises(TaskFinished):
            await send(engine, saying("t-1", "again"))


async def test_a_named_task_outlives_its_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"
    async with running(store) as engine:
        await send(engine, saying("t-1", "plan", "trip"))
    async with running(store) as engine:
        assert (await engine.call(GetTask(task_id="t-1"), ANN)).state is State.INPUT_REQUIRED
        assert (await send(engine, saying("t-1", "Rome"))).text == "A trip to Rome"


async def test_another_callers_name_is_as_good_as_none() -> None:
    async with running() as engine:
        await send(engine, saying("t-1", "plan", "trip"))
        for other in (BOB, ELSEWHERE):
            heard = []
            for name in ("t-1", "t-2"):
                for op in (GetTask(task_id=name), CancelTask(task_id=name)):
                    with pytest.raises(TaskNotFound) as caught:
                        await engine.call(op, other)
                    heard.append((caught.value.message, caught.value.public.get("task_id")))
                with pytest.raises(TaskNotFound):
                    await anext(engine.stream(Watch(task_id=name), other))
            # Nothing but the name they asked for, and never the id it would have.
            assert [name for _, name in heard] == ["t-1", "t-1", "t-2", "t-2"]
            assert len({message for message, _ in heard}) == 1
            mine = await send(engine, saying("t-1", "mine"), other)
            assert mine.text == "MINE"
            assert (await engine.call(ListTasks(), other)).total == 1
        assert (await engine.call(GetTask(task_id="t-1"), ANN)).state is State.INPUT_REQUIRED


async def test_the_id_of_anothers_task_is_only_a_name() -> None:
    async with running() as engine:
        theirs = await send(engine, saying("t-1", "plan", "trip"))
        mine = await send(engine, saying(theirs.id, "hi"), BOB)
        assert mine.id != theirs.id
        assert (await engine.call(GetTask(task_id="t-1"), ANN)).state is State.INPUT_REQUIRED


@pytest.mark.parametrize("kind", ["memory:", "sqlite:///{}/tasks.db", "file://{}/tasks"])
async def test_those_who_open_one_name_at_once_open_one_task(kind: str, tmp_path: Path) -> None:
    async with running(kind.format(tmp_path)) as engine:
        sends = (engine.call(saying("t-1", "plan", "trip"), ANN) for _ in range(5))
        found = await asyncio.gather(*sends, return_exceptions=True)
        # Whoever is late is told so, or answers the question of the one that was opened.
        assert any(isinstance(task, Task) for task in found)
        assert all(isinstance(other, Task | Conflict | TaskFinished) for other in found), found
        assert (await engine.call(ListTasks(), ANN)).total == 1


async def test_a_name_goes_with_its_context() -> None:
    async with running() as engine:
        await send(engine, saying("t-1", "plan", "trip", context_id="c-1"))
        with pytest.raises(BadParams):
            await send(engine, saying("t-1", "Rome", context_id="c-2"))


async def test_a_direct_reply_completes_a_named_task() -> None:
    async with running() as engine:
        task = await send(engine, saying("t-1", "reply"))
        assert task.state is State.COMPLETED
        assert task.status.message is not None
        assert task.status.message.text == "REPLY"


async def test_a_named_task_keeps_the_scopes_of_its_skill() -> None:
    """A send by name is judged by the skill of the task it goes to, not by that of a new one."""
    booking = Agent("Booking", description="Books.")

    @booking.skill("free", default=True)
    async def free(turn: Turn) -> str:
        return "free"

    @booking.skill("book", scopes=("book",))
    async def book(turn: Turn) -> str:
        return f"Booked {await turn.ask('What?')}"

    engine = Engine(booking, open_store("memory:"))
    guarded = AuthorizingPeer(booking, engine, Meter(Rates()))
    may = Context(principal="ann", scopes=("book",))
    await engine.start()
    try:
        asked = await guarded.call(saying("t-1", "go", "book"), may)
        assert isinstance(asked, Task)
        with pytest.raises(Forbidden):
            await guarded.call(saying("t-1", "the suite"), ANN)
        opened = await guarded.call(saying("t-2", "hi"), ANN)
        done = await guarded.call(saying("t-1", "a room"), may)
        assert isinstance(opened, Task)
        assert isinstance(done, Task)
        assert (opened.text, done.text) == ("free", "Booked a room")
    finally:
        await engine.stop(1)
