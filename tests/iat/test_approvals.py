"""Approvals fail closed: one task, one action, one decision, in time, by whom it may concern."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from cli.run import dragoman
from dragoman import Agent, Message, Role, State, Task, Text, Turn
from dragoman.core.errors import Conflict, StoreUnavailable, TaskFinished, TaskNotFound
from dragoman.core.operations import GetTask, Resolve, SendMessage
from dragoman.core.peer import Context
from dragoman.engine import Engine
from dragoman.store import open_store
from dragoman.store.approvals import Audit, audit_of, decide, name_of, open_approvals
from dragoman.store.interface import Input, Scope
from dragoman.testing import Client
from engine.harness import Clock, EngineHarness
from iat.team import engine_host, team, worker
from waiting import until

ANN, EVE = Context(principal="ann", dialect="iat"), Context(principal="eve", dialect="iat")


def shop(seen: list[str]) -> Agent:
    """Acts once it may."""
    agent = Agent("Shop")

    @agent.skill("order")
    async def order(turn: Turn) -> str:
        what = seen[0] if seen and seen[0].startswith("swap:") else turn.text
        if not await turn.approve("Order?", details={"what": what}, expires=60):
            return "left"
        seen.append(f"ordered {what}")
        return "ordered"

    return agent


async def waiting(client: Client) -> tuple[str, str]:
    """A task that waits, and its question."""
    task = await client.send("tea")
    assert task.state is State.INPUT_REQUIRED
    (one,) = await open_approvals(client.engine.store)
    assert one.task_id == task.id
    assert one.details == {"what": "tea"}
    return task.id, one.question


async def ended(engine: Engine, task_id: str, ctx: Context) -> str:
    """The text of a task at its end."""

    async def over() -> Task | None:
        task = await engine.call(GetTask(task_id=task_id), ctx)
        return None if task.state in (State.INPUT_REQUIRED, State.WORKING) else task

    return str((await until(over)).text)


YES = {"approved": True}


async def test_forged_by_somebody_else() -> None:
    async with EngineHarness("memory:").client(shop([]), context=ANN) as client:
        task_id, question = await waiting(client)
        with pytest.raises(TaskNotFound):
            await client.engine.call(Resolve(task_id=task_id, question=question, value=YES), EVE)
        assert len(await open_approvals(client.engine.store)) == 1


async def test_for_another_question_or_none() -> None:
    async with EngineHarness("memory:").client(shop([]), context=ANN) as client:
        task_id, question = await waiting(client)
        for wrong in ("", "approval:Order?", question + "x", "input:Order?"):
            with pytest.raises(Conflict):
                await client.engine.call(Resolve(task_id=task_id, question=wrong, value=YES), ANN)


async def test_replayed_and_duplicate() -> None:
    acts: list[str] = []
    async with EngineHarness("memory:").client(shop(acts), context=ANN) as client:
        task_id, question = await waiting(client)
        op = Resolve(task_id=task_id, question=question, value=YES)
        told = await asyncio.gather(
            *(client.engine.call(op, ANN) for _ in range(5)), return_exceptions=True
        )
        assert sum(not isinstance(each, Exception) for each in told) == 1
        assert all(isinstance(e, Conflict | TaskFinished) for e in told if isinstance(e, Exception))
        assert await ended(client.engine, task_id, ANN) == "ordered"
        with pytest.raises((Conflict, TaskFinished)):
            await client.engine.call(op, ANN)
        # The yes to one task is none to the next, even in the same words.
        second, _ = await waiting(client)
        with pytest.raises((Conflict, TaskFinished)):
            await client.engine.call(op, ANN)
        assert second != task_id
        assert acts == ["ordered tea"]


@pytest.mark.parametrize("url", ["memory:", "sqlite", "file"])
async def test_a_late_yes_is_refused_and_silence_is_a_no(url: str, tmp_path: Path) -> None:
    place = {"sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file://{tmp_path}/s"}.get(url, url)
    server = EngineHarness(place)
    acts: list[str] = []
    async with server.client(shop(acts), context=ANN) as client:
        task_id, question = await waiting(client)
        server.clock.skip(61)
        said = Input(message=(await client.engine.call(GetTask(task_id=task_id), ANN)).history[0])
        # Before the keeper has looked: straight at the store.
        with pytest.raises(Conflict, match="expired"):
            await client.engine.store.add_input(Scope("", "ann", "Shop"), task_id, said, question)
        assert await ended(client.engine, task_id, ANN) == "left"
        assert acts == []


async def test_a_yes_is_for_these_details_alone() -> None:
    """The code comes back with something else: the old yes does not count for it."""
    server = EngineHarness("memory:")
    seen: list[str] = []
    client = server.client(shop(seen), context=ANN)
    await client.engine.start()
    task_id, question = await waiting(client)
    store = client.engine.store
    await server.crash(client)
    row = await store.row(Scope("", "ann", "Shop"), task_id)
    said = Input(message=(await store.load(row.scope, task_id))[1].history[0], value=YES, by="ann")
    await store.add_input(row.scope, task_id, said, question)
    seen.append("swap: a yacht")
    server.clock.skip(60)
    new = server.client(client.engine.agent, context=ANN)
    await new.engine.start()
    await server.later(new, 31)
    open_now = await until(lambda: open_approvals(store))
    assert [each.details for each in open_now] == [{"what": "swap: a yacht"}]
    assert open_now[0].question != question
    assert seen == ["swap: a yacht"]
    await new.engine.stop(0)


async def test_decisions_stand_in_the_audit_log_each_once(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "log")
    engine = Engine(shop([]), open_store("memory:"), audit=audit, clock=Clock())
    await engine.start()
    try:
        for value in (True, False, "perhaps"):
            message = (await _send(engine)).id
            (one,) = await open_approvals(engine.store)
            op = Resolve(task_id=message, question=one.question, value=value)
            await engine.call(op, ANN)
            if isinstance(value, bool):
                await ended(engine, message, ANN)
    finally:
        await engine.stop(0)
    told = list(audit.read())
    assert [each.verdict for each in told] == ["approved", "denied", "unclear"]
    assert {each.by for each in told} == {"ann (iat)"}
    assert all(each.id == name_of(each.task_id, each.question) for each in told)
    assert stat.S_IMODE(os.stat(tmp_path / "log").st_mode) == 0o600
    with (tmp_path / "log").open("ab") as log:  # a power cut, and a line that came twice
        log.write(b'{"half\n' + (tmp_path / "log").read_bytes().splitlines()[0])
    assert len(list(audit.read())) == 3


async def test_without_its_audit_log_nothing_is_approved(tmp_path: Path) -> None:
    seen: list[str] = []
    audit = Audit(tmp_path / "log")
    (tmp_path / "log").mkdir()  # cannot be written, not even by root
    engine = Engine(shop(seen), open_store("memory:"), audit=audit, clock=Clock())
    await engine.start()
    try:
        task = await _send(engine)
        (one,) = await open_approvals(engine.store)
        yes = Message(message_id="y", role=Role.USER, parts=(Text("yes"),), task_id=task.id)
        for op in (
            Resolve(task_id=task.id, question=one.question, value=True),
            SendMessage(message=yes),
            SendMessage(message=yes),
        ):
            with pytest.raises(StoreUnavailable, match="audit"):
                await engine.call(op, ANN)
            assert await open_approvals(engine.store) == [one], "it still waits for its answer"
        # Those who cannot see the task learn nothing.
        with pytest.raises(TaskNotFound):
            await engine.call(SendMessage(message=yes), EVE)
        assert seen == []
        (tmp_path / "log").rmdir()
        await engine.call(SendMessage(message=yes), ANN)
        assert await ended(engine, task.id, ANN) == "ordered"
        assert [each.verdict for each in audit.read()] == ["approved"]
    finally:
        await engine.stop(0)


async def test_an_approval_that_cannot_be_recorded_is_not_swallowed(tmp_path: Path) -> None:
    """The operator's answer comes past the engine, so nobody could refuse it."""
    seen: list[str] = []
    audit = Audit(tmp_path / "log")
    (tmp_path / "log").mkdir()
    store = open_store(f"sqlite:///{tmp_path}/s.db")
    engine = Engine(shop(seen), store, audit=audit)
    await engine.start()
    try:
        task = await _send(engine)
        (one,) = await open_approvals(store)
        await decide(store, one.id, approved=True, by="operator test")
        run = engine.runner.runs[task.id]
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await engine.runner.bring(run, 1)
        assert seen == []
        assert (await engine.call(GetTask(task_id=task.id), ANN)).state is State.INPUT_REQUIRED
        (tmp_path / "log").rmdir()
        await engine.runner.bring(run, 1)
        assert await ended(engine, task.id, ANN) == "ordered"
        assert [each.by for each in audit.read()] == ["operator test"]
    finally:
        await engine.stop(0)


def test_a_torn_line_does_not_take_the_next_one_along(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "log")
    audit.record("t1", "q", True, "ann", 1)
    with (tmp_path / "log").open("ab") as log:  # the disk was full
        log.write(b'{"at":"2026-')
    audit.record("t2", "q", False, "ann", 1)
    assert [each.task_id for each in audit.read()] == ["t1", "t2"]


async def _send(engine: Engine) -> Task:
    message = Message(message_id="m", role=Role.USER, parts=(Text("tea"),))
    task = await engine.call(SendMessage(message=message), ANN)
    assert isinstance(task, Task)
    return task


@pytest.mark.slow  # starts processes
async def test_the_operator_lists_and_decides_while_the_server_runs(tmp_path: Path) -> None:
    """The host's approvals, from the command line, over a restart of the host."""
    store = f"sqlite:///{tmp_path}/engine.db"

    async def command(*args: str) -> str:
        ran = await asyncio.to_thread(dragoman, "approvals", *args, "--store", store, cwd=tmp_path)
        return ran.stdout + ran.stderr

    host = engine_host()
    async with team(tmp_path, host, {"worker": worker()}, memory=False):
        running = [asyncio.create_task(host.run("a.txt")) for _ in range(2)]

        async def both() -> list[str]:
            found = open_store(store)
            await found.open()
            names = [one.id for one in await open_approvals(found)]
            await found.close()
            return names if len(names) == 2 else []

        names = await until(both)
        listed = await command("list")
        assert all(name in listed for name in names)
        assert "Delete it?" in listed
        assert "a.txt" in listed
        assert "approved" in await command("approve", names[0])
        assert "no open approval" in await command("approve", names[0])
        assert "denied" in await command("deny", names[1])
        texts = sorted(task.text for task in await asyncio.gather(*running))
        assert texts == ["a.txt has 5 bytes, deleted", "a.txt has 5 bytes, kept"]
        assert "Nothing waits" in await command("list")
        told = await command("log")
        assert told.count("by operator") == 2
        assert [each.verdict for each in audit_of(store).read()] == ["approved", "denied"]


async def test_an_open_approval_outlives_the_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    first = Client(shop([]), store=open_store(url), context=ANN)
    await first.engine.start()
    task_id, _ = await waiting(first)
    await first.engine.stop(0)
    store = open_store(url)
    await store.open()
    (one,) = await open_approvals(store)
    await decide(store, one.id[:6], approved=True, by="operator test")
    assert await open_approvals(store) == []
    await store.close()
    acts: list[str] = []
    second = Client(shop(acts), store=open_store(url), context=ANN)
    await second.engine.start()
    assert await ended(second.engine, task_id, ANN) == "ordered"
    assert acts == ["ordered tea"]
    await second.engine.stop(0)
