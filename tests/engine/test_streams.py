"""Following a task: many readers, late and slow ones, cursors, readers that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from dragoman import Agent, Message, State, Turn
from dragoman.core.errors import BadParams, TaskFinished, TaskNotFound, Unsupported
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.lifecycle import Fold
from dragoman.core.operations import SendMessage, Watch
from dragoman.core.peer import ANYONE, Batch
from dragoman.engine import tail
from dragoman.engine.runs import live_log
from dragoman.testing import Client
from engine.harness import (
    EngineHarness,
    background,
    checked,
    gathered,
    log_of,
    read_by,
    story,
    until,
)
from waiting import turns


class Counter:
    """An agent that counts, one number each time it is let go on."""

    def __init__(self, upto: int) -> None:
        self.agent = Agent("Counter")
        self._turns = asyncio.Semaphore(0)
        self._upto = upto

        @self.agent.skill("count")
        async def count(turn: Turn) -> AsyncGenerator[str, None]:
            for number in range(1, upto + 1):
                await self._turns.acquire()
                yield f"{number} "

    def go_on(self, times: int = 1) -> None:
        for _ in range(times):
            self._turns.release()


async def test_a_stream_is_the_log(harness: EngineHarness) -> None:
    counter = Counter(5)
    counter.go_on(5)
    async with harness.client(counter.agent) as client:
        events = await gathered(client.stream("go"))
        assert events == await checked(client, events[0].task_id)
        assert [event.seq for event in events] == list(range(1, 9))


class Pouring:
    """A reader with a sink, which notes how each event came and breaks when told to."""

    def __init__(self, breaks_at: int = 0) -> None:
        self.poured: list[int] = []
        self.woken_for: list[int] = []
        self.events: list[Stamped] = []
        self._breaks_at = breaks_at

    def sink(self, entries: Sequence[Stamped]) -> None:
        if self._breaks_at in [entry.seq for entry in entries]:
            self._breaks_at = 0
            raise RuntimeError("no more room")
        self.poured += [entry.seq for entry in entries]
        self.events += entries

    async def read(self, steps: AsyncGenerator[Batch, None]) -> None:
        async with aclosing(steps):
            async for batch in steps:
                told = [entry for entry in batch.entries if isinstance(entry, Stamped)]
                self.woken_for += [entry.seq for entry in told]
                self.events += told
                if batch.tap is not None:
                    batch.tap.sink = self.sink


@pytest.mark.parametrize("breaks_at", [0, 6])
async def test_a_sink_has_live_events_past_its_reader(
    harness: EngineHarness, breaks_at: int
) -> None:
    counter = Counter(8)
    async with harness.client(counter.agent) as client:
        op, ctx = client._message(("go",), {})
        reader = Pouring(breaks_at)
        async with background(reader.read(client.engine.stream(op, ctx))) as reading:
            for number in range(2, 10):  # after submitted and working
                await until(lambda number=number: len(reader.events) >= number)
                counter.go_on()
            await reading
        log = await checked(client, reader.events[0].task_id)
        assert reader.events == log  # each once, in order
        assert len(reader.poured) > len(reader.woken_for)
        assert log[-1].seq in reader.woken_for  # the end is always the reader's
        assert (6 in reader.woken_for) == bool(breaks_at)


async def test_what_is_ready_together_comes_together() -> None:
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        for number in range(20):
            yield str(number)

    async with Client(agent) as client:
        op, ctx = client._message(("go",), {})
        batches = [batch async for batch in client.engine.stream(op, ctx)]
        assert len(batches) == 1
        assert len(batches[0].entries) == 23
        assert batches[0].last


async def test_several_readers_see_the_same(harness: EngineHarness) -> None:
    counter = Counter(6)
    async with harness.client(counter.agent) as client:
        first = client.stream("go")
        opened = await anext(first)
        assert isinstance(opened, Stamped)
        task_id = opened.task_id
        seen: list[list[str]] = [[], [], []]

        async def read(number: int, cursor: int | None) -> None:
            async for event in client.watch(task_id, cursor):
                seen[number].extend(story([event]))

        async with (
            background(read(0, None)) as one,
            background(read(1, 0)) as two,
            background(read(2, 2)) as three,
        ):
            await until(lambda: seen[0] and seen[1])
            counter.go_on(6)
            await asyncio.gather(one, two, three)
        rest = await gathered(first)
        log = story(await checked(client, task_id))
        assert ["opened", *story(rest)] == log
        assert seen[1] == log
        assert seen[2] == log[2:]
        assert seen[0][0] == "snapshot working"
        assert seen[0][1:] == log[2:]


async def test_a_late_reader_begins_with_the_task_as_it_is(harness: EngineHarness) -> None:
    counter = Counter(4)
    async with harness.client(counter.agent) as client:
        task = await client.send("go", wait=False)
        counter.go_on(2)
        await until(lambda: _text_is(client, task.id, "1 2 "))
        async with background(gathered(client.watch(task.id))) as watching:
            await read_by(client, task.id)
            counter.go_on(2)
            events = await watching
        snapshot = events[0].event
        assert isinstance(snapshot, Snapshot)
        assert snapshot.task.text == "1 2 "
        fold = Fold(task.id, task.context_id)
        for event in events:
            fold.add(event)
        assert fold.task() == await client.get(task.id)
        assert [e.seq for e in events] == list(range(events[0].seq, events[-1].seq + 1))


async def _text_is(client: Client, task_id: str, text: str) -> bool:
    return (await client.get(task_id)).text == text


async def test_every_cursor_resumes_without_loss_or_repeat(harness: EngineHarness) -> None:
    counter = Counter(5)
    async with harness.client(counter.agent) as client:
        task = await client.send("go", wait=False)
        counter.go_on(3)
        await until(lambda: _text_is(client, task.id, "1 2 3 "))
        running = [background(gathered(client.watch(task.id, n))) for n in range(6)]
        readers = [await one.__aenter__() for one in running]
        await read_by(client, task.id, len(readers))
        counter.go_on(2)
        heard = [await reader for reader in readers]
        log = await checked(client, task.id)
        for cursor, events in enumerate(heard):
            assert events == log[cursor:]
        for cursor in range(len(log) + 1):
            assert await gathered(client.watch(task.id, cursor)) == log[cursor:]


async def test_a_cursor_works_after_a_restart(durable: EngineHarness) -> None:
    counter = Counter(2)
    counter.go_on(2)
    async with durable.client(counter.agent) as client:
        events = await gathered(client.stream("go"))
    async with durable.client(counter.agent) as client:
        assert await gathered(client.watch(events[0].task_id, 3)) == events[3:]


@pytest.mark.parametrize("cursor", [-1, 99])
async def test_a_cursor_that_is_no_place_is_refused(harness: EngineHarness, cursor: int) -> None:
    counter = Counter(1)
    async with harness.client(counter.agent) as client:
        task = await client.send("go", wait=False)
        with pytest.raises(BadParams, match="cursor"):
            await gathered(client.watch(task.id, cursor))
        counter.go_on()
        await until(lambda: _text_is(client, task.id, "1 "))
        with pytest.raises(BadParams, match="cursor"):
            await gathered(client.watch(task.id, cursor))


async def test_what_cannot_be_followed_is_refused_before_the_first_event(
    harness: EngineHarness,
) -> None:
    counter = Counter(1)
    counter.go_on()
    async with harness.client(counter.agent) as client:
        with pytest.raises(TaskNotFound):
            await gathered(client.watch("no-such-task"))
        with pytest.raises(TaskNotFound):
            await gathered(client.watch("no-such-task", 0))
        task = await client.send("go")
        with pytest.raises(TaskFinished):
            await gathered(client.watch(task.id))
        with pytest.raises(Unsupported):
            await client.engine.call(Watch(task_id=task.id), ANYONE)


async def test_a_slow_reader_blocks_nobody_and_misses_nothing(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring is small here: who falls behind reads the store."""
    monkeypatch.setattr(live_log, "RING", 16)
    agent = Agent("Writer")

    @agent.skill("write")
    async def write(turn: Turn) -> AsyncGenerator[str, None]:
        for number in range(300):
            yield f"{number} "
            if number % 10 == 0:
                await turns()

    async with harness.client(agent) as client:
        slow = client.stream("go")
        seen = [await anext(slow)]
        assert isinstance(seen[0], Stamped)
        task_id = seen[0].task_id
        fast = await gathered(client.watch(task_id, 0))
        assert (await client.get(task_id)).state is State.COMPLETED
        assert len(fast) == 303
        seen += [event async for event in slow]
        assert seen == fast == await checked(client, task_id)


async def test_the_ring_is_bounded(memory: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_log, "RING", 16)
    counter = Counter(200)
    async with memory.client(counter.agent) as client:
        task = await client.send("go", wait=False)
        counter.go_on(150)
        await until(lambda: _said(client, task.id, 150))
        assert len(client.engine.runner.runs[task.id].log.ring) <= 16


async def _said(client: Client, task_id: str, count: int) -> bool:
    return len((await client.get(task_id)).text.split()) == count


async def test_a_reader_that_leaves_leaves_nothing(harness: EngineHarness) -> None:
    counter = Counter(3)
    async with harness.client(counter.agent) as client:
        task = await client.send("go", wait=False)
        for _ in range(3):
            async with aclosing(client.watch(task.id)) as events:
                await anext(events)
        for _ in range(3):
            async with background(gathered(client.watch(task.id, 2))):
                await read_by(client, task.id)
        assert not client.engine.runner.idle
        assert not client.engine.runner.runs[task.id].log._readers
        assert not client.engine.runner.bell.listening()
        counter.go_on(3)
        await until(lambda: _text_is(client, task.id, "1 2 3 "))
        await checked(client, task.id)


async def test_a_quiet_stream_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "IDLE", 0.1)
    counter = Counter(1)
    async with Client(counter.agent) as client:
        task = await client.send("go", wait=False)
        async with aclosing(client.engine.stream(Watch(task_id=task.id), ANYONE)) as batches:
            first = await anext(batches)
            assert len(first.entries) == 1
            async with asyncio.timeout(60):
                alive = await anext(batches)
            assert alive.entries == []
            assert not alive.last
            counter.go_on()
            heard = [entry async for batch in batches for entry in batch.entries]
        assert story(heard)[-1] == "completed"


async def test_a_lost_ring_costs_a_delay_never_an_event(
    memory: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of a task that runs elsewhere looks again by itself."""
    monkeypatch.setattr(tail, "POLL", 0.05)
    counter = Counter(3)
    store = memory.store()
    # The second engine runs nothing and hears no bell.
    async with (
        Client(counter.agent, store=store) as client,
        Client(counter.agent, store=store) as deaf,
    ):
        task = await client.send("go", wait=False)
        async with background(gathered(deaf.watch(task.id, 0))) as watching:
            await until(deaf.engine.runner.bell.listening)
            counter.go_on(3)
            async with asyncio.timeout(60):
                events = await watching
        assert events == await log_of(client, task.id)


async def test_a_stream_that_begins_a_task_may_be_left_at_once(harness: EngineHarness) -> None:
    counter = Counter(2)
    counter.go_on(2)
    async with harness.client(counter.agent) as client:
        async with aclosing(client.stream("go")) as events:
            first = await anext(events)
        assert isinstance(first, Stamped)
        await until(lambda: _text_is(client, first.task_id, "1 2 "))


async def test_a_stream_of_an_unknown_skill_is_refused() -> None:
    async with Client(Counter(1).agent) as client:
        with pytest.raises(BadParams, match="count"):
            await gathered(client.stream("go", skill="sing"))
        assert (await client.list()).total == 0


async def test_a_stream_may_be_asked_for_as_an_operation() -> None:
    counter = Counter(1)
    counter.go_on()
    async with Client(counter.agent) as client:
        message = Message(message_id="m", role="user", parts=())  # type: ignore[arg-type]
        stream = client.engine.stream(SendMessage(message=message), ANYONE)
        entries = [entry async for batch in stream for entry in batch.entries]
        assert story(entries)[-1] == "completed"
