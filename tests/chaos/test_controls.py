"""Histories in which one promise is broken: the checks of the chaos must notice each of them, or
that they find nothing means nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from msgspec.structs import replace

from chaos.load import (
    CANCELED,
    ChaosMemory,
    Read,
    check_cancels,
    check_hooks,
    check_reads,
    told_as,
)
from chaos.writers import create_roles, note_writers, read_writers
from crash.agent import agent
from crash.check import Kept, check_kept, check_told
from crash.client import Client, Event
from crash.load import Tale, counted
from crash.postgres_check import read_postgres
from dragoman import State
from dragoman import testing as ours
from dragoman.core.events import StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.store import open_store
from dragoman.store.postgres import write_statement
from dragoman.testing.stores import HandClock, StoreFixture
from dragoman.testing.stores.fixture import ALICE
from postgres import server_url, store_url
from webhooks.receiver import Heard

pytestmark = pytest.mark.slow  # starts PostgreSQL


class Told(Client):
    """A server that tells what is kept."""

    def __init__(self, kept: dict[str, Kept]) -> None:
        self.kept = kept

    async def call(self, method: str, params: Any, **headers: str) -> Any:
        return told(self.kept[params["id"]])

    async def stream(self, method: str, params: Any, **headers: str) -> AsyncGenerator[Event, None]:
        for event in events_of(self.kept[params["id"]]):
            yield event


def told(one: Kept) -> Any:
    return told_as(one.fold())


def events_of(one: Kept) -> list[Event]:
    return [(entry.seq, msgspec.json.encode({"result": {}})) for entry in one.entries]


class History:
    """What callers and receivers were told, what each replica said, and what is kept."""

    def __init__(self, kept: dict[str, Kept]) -> None:
        self.memory = memory = ChaosMemory()
        self.kept = kept
        self.calls: dict[str, list[Heard]] = {}
        by_state = {one.state: one for one in kept.values()}
        self.done, self.stopped = by_state[State.COMPLETED], by_state[State.CANCELED]
        for one in kept.values():
            memory.ack(told(one), "count")
        memory.expected[self.done.task_id] = counted(4)
        memory.cancels.add(self.stopped.task_id)
        memory.canceled[self.stopped.task_id] = [CANCELED] * 3
        self.tale = Tale(memory.faults)
        self.tale.task_id, self.tale.done = self.done.task_id, True
        for event in events_of(self.done):
            self.tale.hear(event)
        memory.tales.append(self.tale)
        for heard in (2, self.done.last_seq):
            memory.reads.append(Read(self.done.task_id, heard, told(self.done)))
        memory.hooks["h"] = self.done.task_id
        self.calls["/hook/h"] = [
            Heard("/hook/h", {"webhook-id": f"h.{entry.seq}"}, b"%d" % entry.seq)
            for entry in self.done.entries
        ]

    async def check(self) -> dict[str, int]:
        """What the checks find."""
        await check_told(self.memory, self.kept, Told(self.kept), 60)
        check_kept(self.memory, self.kept, None)
        check_cancels(self.memory)
        check_reads(self.memory, self.kept)
        check_hooks(
            self.memory, self.calls, {name: one.last_seq for name, one in self.kept.items()}
        )
        return dict(self.memory.faults.kinds)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    """A completed task and a canceled one, as a store has them."""
    url = store_url(tmp_path_factory.mktemp("history"))

    async def make() -> None:
        async with ours.Client(agent, store=open_store(url)) as client:
            await client.send("4 0.001", skill="count")
            stopped = await client.send("600 0.1", skill="count", wait=False)
            await client.cancel(stopped.id)

    asyncio.run(make())
    return read_postgres(url)


@pytest.fixture
def history(kept: dict[str, Kept]) -> History:
    return History(deepcopy(kept))


async def test_a_history_in_which_every_promise_is_kept_has_no_fault(history: History) -> None:
    assert await history.check() == {}


def lose_task(history: History) -> None:
    del history.kept[history.stopped.task_id]


def lose_event(history: History) -> None:
    del history.done.entries[2]


def end_twice(history: History) -> None:
    done = history.done
    done.last_seq += 1
    done.entries.append(replace(done.entries[-1], seq=done.last_seq))


def go_on_after_the_end(history: History) -> None:
    done = history.done
    done.last_seq += 1
    late = replace(done.entries[1], seq=done.last_seq)
    assert isinstance(late.event, StateChanged)
    done.entries.append(late)


def never_end(history: History) -> None:
    history.done.state, history.done.runnable = State.WORKING, True


def tell_another_event(history: History) -> None:
    history.tale.events[3] = (4, b"another")


def leave_an_event_out(history: History) -> None:
    history.tale.hear((history.done.last_seq + 2, events_of(history.done)[0][1]))


def change_what_has_ended(history: History) -> None:
    task = told(history.done)
    task["artifacts"] = []
    history.memory.seen(task)


def read_the_past(history: History) -> None:
    done = history.done
    fold = Fold(done.task_id, done.context_id)
    for entry in done.entries[:3]:
        fold.add(entry)
    history.memory.reads.append(Read(done.task_id, 3, told_as(fold.task())))  # that is no fault
    history.memory.reads.append(Read(done.task_id, 4, told_as(fold.task())))


def lose_a_webhook(history: History) -> None:
    history.calls["/hook/h"].pop()


def overtake_a_webhook(history: History) -> None:
    calls = history.calls["/hook/h"]
    calls[2], calls[3] = calls[3], calls[2]


def change_a_webhook(history: History) -> None:
    first = history.calls["/hook/h"][0]
    history.calls["/hook/h"].append(Heard(first.path, first.headers, b"another"))


def cancel_only_here(history: History) -> None:
    history.memory.canceled[history.stopped.task_id][1] = "TASK_STATE_WORKING"


def complete_what_was_canceled(history: History) -> None:
    history.memory.cancels.add(history.done.task_id)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lose_task, "acknowledged task lost"),
        (lose_event, "sequence gap"),
        (end_twice, "second terminal event"),
        (go_on_after_the_end, "event after a terminal one"),
        (never_end, "never came to rest"),
        (tell_another_event, "stream is not the log"),
        (leave_an_event_out, "stream out of place"),
        (change_what_has_ended, "an ended task changed"),
        (read_the_past, "a read of the past"),
        (lose_a_webhook, "a webhook was lost"),
        (overtake_a_webhook, "a webhook was overtaken"),
        (change_a_webhook, "a repeated webhook differs"),
        (cancel_only_here, "cancel is not true everywhere"),
        (complete_what_was_canceled, "ended otherwise"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
async def test_a_broken_promise_is_noticed(
    history: History, damage: Callable[[History], None], fault: str
) -> None:
    damage(history)
    assert fault in await history.check()


@pytest.fixture
async def database() -> Any:
    """A database of its own, for triggers that note the writers, and two roles in it."""
    name = "chaos_controls"
    server = await asyncpg.connect(server_url())
    await server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await server.execute(f"CREATE DATABASE {name}")
    dsn = server_url().replace("/postgres?", f"/{name}?")
    await create_roles(dsn, ["replica0", "replica1"])
    store = open_store(dsn)
    await store.open()
    await store.close()
    await note_writers(dsn)
    yield dsn
    await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await server.close()


WRITING = StateChanged(state=State.WORKING)


async def _fenced_write(dsn: str, folder: Path) -> Exception | None:
    """A replica writes a task that another one has taken from it, as if nothing had happened."""

    def as_role(role: str) -> Callable[[Path, HandClock], Awaitable[Any]]:
        async def make(_: Path, clock: HandClock) -> Any:
            return open_store(dsn.replace("//postgres@", f"//{role}@"), clock=clock)

        return make

    async with (
        StoreFixture(as_role("replica0"), folder) as one,
        StoreFixture(as_role("replica1"), folder, "w2") as two,
    ):
        row = await one.open_task("t1")
        await one.append(one.write(row.claim, WRITING))
        taken = await two.store.seize("w2", "t1", row.epoch)
        assert taken is not None
        try:
            await one.append(one.write(row.claim, WRITING))
        except Exception as error:
            return error
        assert (await two.store.row(ALICE, "t1")).worker == "w2"
        return None


async def test_a_writer_that_lost_its_task_leaves_no_trace(database: str, tmp_path: Path) -> None:
    assert await _fenced_write(database, tmp_path) is not None
    appends, stray = await read_writers(database)
    assert (appends, stray) == (1, [])


async def test_a_writer_without_a_fence_is_noticed(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence = " AND t.token = w.token AND w.token <> '' AND t.epoch = w.epoch"
    assert fence in write_statement._APPEND
    monkeypatch.setattr(write_statement, "_APPEND", write_statement._APPEND.replace(fence, ""))
    write_statement._text.cache_clear()
    try:
        assert await _fenced_write(database, tmp_path) is None
    finally:
        write_statement._text.cache_clear()
    _, stray = await read_writers(database)
    assert [(task_id, role, holder) for task_id, _, role, holder in stray] == [
        ("t1", "replica0", "replica1")
    ]
