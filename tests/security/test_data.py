"""What is kept about someone can be given out, and goes without a trace."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cli.run import dragoman as run
from dragoman import Agent, Turn
from dragoman.core.errors import StoreError, TaskNotFound
from dragoman.core.events import Opened
from dragoman.core.model import Blob, Data, Hook, Message, Role, State, Task, Text
from dragoman.core.operations import GetTask, SendMessage
from dragoman.core.peer import Context
from dragoman.engine import Engine
from dragoman.files import FileDoor
from dragoman.settings import EngineSettings, Retention, Settings
from dragoman.store import open_store
from dragoman.store.interface import AdminFilter, Scope, Store
from dragoman.testing.stores import HandClock, StoreFixture
from engine.harness import until
from waiting import turns

CANARY = "canary-0815-of-alice"
ALICE = Context(principal="alice", tenant="acme", tenants=("acme",))
BOB = Context(principal="bob", tenant="acme", tenants=("acme",))

agent = Agent("Clerk", description="Files things.")


@agent.skill("file")
async def file(turn: Turn) -> object:
    if turn.text.startswith("ask"):
        return await turn.ask(f"What of {turn.text}?")
    if turn.text.startswith("approve"):
        return await turn.approve(f"{turn.text}?")
    return [turn.text, {"kept": turn.text}, turn.text.encode()]


@pytest.fixture(params=["memory:", "sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/t.db", "file": f"file:{tmp_path}/store"}.get(
        request.param, request.param
    )


async def send(engine: Engine, ctx: Context, text: str, **about: str) -> Task:
    message = Message(message_id="m", role=Role.USER, parts=(Text(text=text),), **about)
    found = await engine.call(SendMessage(message=message), ctx)
    assert isinstance(found, Task)
    return found


async def filled(engine: Engine, store: Store) -> tuple[Task, Task, Task]:
    done = await send(engine, ALICE, f"{CANARY} 1", context_id="c1")
    waits = await send(engine, ALICE, f"ask {CANARY} 2")
    other = await send(engine, BOB, "bob's own", context_id="c1")
    hook = Hook(hook_id="h", task_id=waits.id, url=f"https://x.example/{CANARY}", token=CANARY)
    await store.set_hook(Scope("acme", "alice", agent.name), hook)
    return done, waits, other


def traces(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if CANARY.encode() in path.read_bytes()]


async def test_a_principal_is_erased_and_nobody_else(url: str, tmp_path: Path) -> None:
    store = open_store(url)
    engine = Engine(agent, store)
    await engine.start()
    try:
        done, waits, other = await filled(engine, store)
        if url != "memory:":
            assert traces(tmp_path)
        rows = await store.find_in_all_scopes(AdminFilter(principal="alice"), 10)
        assert [row.task_id for row in rows] == [done.id, waits.id]
        assert [
            row.task_id for row in await store.find_in_all_scopes(AdminFilter(context_id="c1"), 10)
        ] == [
            done.id,
            other.id,
        ]
        assert (
            await store.find_in_all_scopes(AdminFilter(principal="alice", tenant="globex"), 10)
            == []
        )
        assert len(await store.find_in_all_scopes(AdminFilter(), 2)) == 2
        assert await store.erase([row.task_id for row in rows]) == 2
        assert await store.erase([row.task_id for row in rows]) == 0
        for task in (done, waits):
            with pytest.raises(TaskNotFound):
                await store.row(Scope("acme", "alice", agent.name), task.id)
        assert (await engine.call(GetTask(task_id=other.id), BOB)).state is State.COMPLETED
        assert await store.outbox(dead=False, limit=10) == []
        assert (await store.count_by_state("Clerk")).get("completed") == 1
        assert (await send(engine, ALICE, "new")).state is State.COMPLETED
    finally:
        await engine.stop(0)
    if url != "memory:":
        assert traces(tmp_path) == []


async def test_the_run_of_an_erased_task_ends(url: str) -> None:
    going, over = asyncio.Event(), asyncio.Event()
    busy = Agent("Busy", description="Works.")

    @busy.skill("work")
    async def work(turn: Turn) -> None:
        going.set()
        try:
            while True:
                await turn.say("more")
                await turns(2)
        finally:
            over.set()

    store = open_store(url)
    engine = Engine(busy, store)
    await engine.start()
    try:
        message = Message(message_id="m", role=Role.USER, parts=(Text(text="go"),))
        task = await engine.call(SendMessage(message=message, wait=False), ALICE)
        assert isinstance(task, Task)
        await going.wait()
        assert await store.erase([task.id]) == 1
        async with asyncio.timeout(60):
            await over.wait()
        with pytest.raises(TaskNotFound):
            await store.row(Scope("acme", "alice", busy.name), task.id)
    finally:
        await engine.stop(0)


async def test_retention_of_a_tenant(url: str) -> None:
    now = [1_000_000_000]
    store = open_store(url, clock=lambda: now[0])
    rules = [Retention(tenant="acme", keep_tasks=60), Retention(agent="Other", keep_tasks=1)]
    engine = Engine(agent, store, EngineSettings(), clock=lambda: now[0], retention=rules)
    await engine.start()
    try:
        short = await send(engine, ALICE, "one")
        waits = await send(engine, ALICE, "ask two")
        long = await send(engine, Context(principal="carol"), "three")
        now[0] += 61_000
        await engine._maintenance._sweep()
        left = {row.task_id for row in await store.find_in_all_scopes(AdminFilter(), 10)}
        assert left == {waits.id, long.id}
        assert short.id not in left
    finally:
        await engine.stop(0)


@pytest.mark.slow  # takes two seconds
async def test_retention_keeps_its_own_time(url: str) -> None:
    """Tasks that go after a second are not there for an hour."""
    rules = [Retention(tenant="acme", keep_tasks=1)]
    engine = Engine(agent, open_store(url), EngineSettings(), retention=rules)
    await engine.start()
    try:
        short = await send(engine, ALICE, "one")
        other = await send(engine, Context(principal="carol"), "two")

        async def gone() -> bool:
            left = {row.task_id for row in await engine.store.find_in_all_scopes(AdminFilter(), 10)}
            return left == {other.id}

        assert (await engine.call(GetTask(task_id=short.id), ALICE)).state is State.COMPLETED
        await until(gone, 60)
    finally:
        await engine.stop(0)


@pytest.mark.slow  # starts processes
async def test_the_command_erases_the_files_that_a_task_offered(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    known = Settings()
    door = FileDoor(replace(known, server=replace(known.server, store=url)), "http://test")
    store = open_store(url)
    engine = Engine(agent, store)
    await engine.start()
    mine = await send(engine, ALICE, "one")
    theirs = await send(engine, Context(principal="carol"), "two")
    for task in (mine, theirs):
        await door.offer(Blob(task.id.encode()), task_id=task.id)
    await engine.stop(0)
    run("data", "erase", "--principal", "alice", "--store", url, "--yes", cwd=tmp_path)
    (left,) = door.stored.folder.glob("*/*")
    assert theirs.id.encode() in left.read_bytes()


@pytest.mark.slow  # starts processes
async def test_the_command_gives_out_and_erases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    store = open_store(url)
    engine = Engine(agent, store)
    await engine.start()
    await filled(engine, store)
    await engine.stop(0)
    given = run("data", "export", "--principal", "alice", "--store", url, cwd=tmp_path)
    told = [json.loads(line) for line in given.stdout.splitlines()]
    assert [each["principal"] for each in told] == ["alice", "alice"]
    assert told[1]["webhooks"][0]["token"] == "****"
    assert all(each["log"] and each["task"]["history"] for each in told)
    refused = run("data", "erase", "--principal", "alice", "--store", url, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    erased = run("data", "erase", "--principal", "alice", "--store", url, "--yes", cwd=tmp_path)
    assert "Erased 2 tasks" in erased.stdout
    assert run("data", "export", "--principal", "alice", "--store", url, cwd=tmp_path).stdout == ""
    assert run("data", "erase", "--store", url, "--yes", cwd=tmp_path).returncode == 2
    assert traces(tmp_path) == []


@pytest.mark.slow  # starts processes
async def test_what_a_reader_keeps_in_the_file_is_said(tmp_path: Path) -> None:
    """A process that reads keeps what was deleted in the file, as SQLite's snapshots do."""
    url = f"sqlite:///{tmp_path}/t.db"
    store = open_store(url)
    engine = Engine(agent, store)
    await engine.start()
    await filled(engine, store)
    await engine.stop(0)
    erase = ("data", "erase", "--tenant", "acme", "--store", url, "--yes")
    with closing(sqlite3.connect(tmp_path / "t.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        kept = run(*erase, "--wait", "1", cwd=tmp_path)
        assert kept.returncode != 0, kept.stdout
        assert "Waiting up to 1 s" in kept.stderr
        assert "3 tasks were deleted, but their content is still in the file" in kept.stderr
        assert "Traceback" not in kept.stderr
        assert "Erased" not in kept.stdout
        assert traces(tmp_path)
    done = run(*erase, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert traces(tmp_path) == []


@pytest.mark.slow  # starts processes
async def test_a_tenant_is_given_out_and_erased(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    store = open_store(url)
    engine = Engine(agent, store)
    await engine.start()
    await filled(engine, store)
    await send(engine, Context(principal="alice", tenant="globex"), "of another tenant")
    await engine.stop(0)

    def given(tenant: str) -> list[str]:
        told = run("data", "export", "--tenant", tenant, "--store", url, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        return [json.loads(line)["principal"] for line in told.stdout.splitlines()]

    assert given("acme") == ["alice", "alice", "bob"]
    erased = run("data", "erase", "--tenant", "acme", "--store", url, "--yes", cwd=tmp_path)
    assert "Erased 3 tasks" in erased.stdout
    assert (given("acme"), given("globex")) == ([], ["alice"])


@pytest.mark.slow  # starts processes
async def test_the_operator_commands_tell_agents_apart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    store = open_store(url)
    await store.open()
    for name in ("alpha", "beta"):
        engine = Engine(agent, store, name=name, opens_store=False)
        await engine.start()
        await send(engine, ALICE, f"hello {name}")
        asked = await send(engine, ALICE, f"approve {name}")
        assert asked.state is State.INPUT_REQUIRED
        done = await send(engine, ALICE, f"hello {name} again")
        # A webhook of a finished task is told its end once; nobody here calls it.
        hook = Hook(hook_id="h", task_id=done.id, url="https://x.example/")
        await store.set_hook(Scope("acme", "alice", name), hook)
        await engine.stop(0)
    await store.close()

    def lines(*words: str) -> list[Any]:
        told = run(*words, "--store", url, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        return [json.loads(line) for line in told.stdout.splitlines()]

    for words, count in (
        (("data", "export"), 3),
        (("outbox", "list", "--json"), 1),
        (("approvals", "list", "--json"), 1),
    ):
        for name in ("alpha", "beta"):
            told = lines(*words, "--agent", name)
            assert [each["agent"] for each in told] == [name] * count, words
        assert lines(*words, "--agent", "gamma") == []
    erased = run("data", "erase", "--agent", "alpha", "--yes", "--store", url, cwd=tmp_path)
    assert "Erased 3 tasks" in erased.stdout
    assert lines("data", "export", "--agent", "alpha") == []
    assert len(lines("data", "export", "--principal", "alice")) == 3


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("place", ["sqlite:///{}/t.db", "file:{}/store"])
async def test_whatever_depth_is_stored_can_be_given_out(tmp_path: Path, place: str) -> None:
    url = place.format(tmp_path)

    async def make(folder: Path, clock: HandClock) -> Store:
        return open_store(url, clock=clock)

    async def opened(fixture: StoreFixture, name: str, depth: int) -> bool:
        value: object = depth
        for _ in range(depth):
            value = [value]
        draft = fixture.draft(name)
        message = Message(message_id="m", role=Role.USER, parts=(Data(value=value),))
        first = replace(draft.entries[0], event=Opened(message=message))
        try:
            await fixture.create(replace(draft, entries=(first, draft.entries[1])))
        except StoreError:  # deeper than can be written
            return False
        return True

    async with StoreFixture(make, tmp_path) as fixture:
        names = [n for n in range(60, 1100, 10) if await opened(fixture, f"t{n:04}", n)]
    assert len(names) > 80
    # Further down the stack, and inside of something else.
    given = run("data", "export", "--principal", "alice", "--store", url, cwd=tmp_path)
    assert given.returncode == 0, given.stderr
    lines = given.stdout.splitlines()
    assert len(lines) == len(names)
    assert all("[" * (60 + 10 * n) in line for n, line in enumerate(lines))
