"""Two engines on one store: what one is told the other does, and never both (DESIGN §5.3, §5.6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from dragoman import Agent, Message, State, Turn
from dragoman.core.errors import Conflict, Fenced, TaskFinished, TaskNotFound
from dragoman.core.events import Stamped
from dragoman.store.interface import Claim, Write
from dragoman.testing import Client
from engine.harness import (
    ANN,
    BOB,
    EngineHarness,
    Slow,
    background,
    checked,
    client_of,
    ended,
    gathered,
    log_of,
    row_of,
    story,
    terminals,
    until,
)
from waiting import turns


class Trip:
    """An agent whose every start is counted."""

    def __init__(self) -> None:
        self.agent = Agent("Trip")
        self.starts: Counter[str] = Counter()
        self.now: Counter[str] = Counter()
        self.most = 0
        self.stopped: list[str] = []
        self.go = asyncio.Event()

        @self.agent.skill("go", cancel_grace=0.2)
        async def go(turn: Turn) -> AsyncGenerator[str, None]:
            task = turn.task_id
            self.starts[task] += 1
            self.now[task] += 1
            self.most = max(self.most, self.now[task])
            try:
                yield "a"
                if turn.text == "ask":
                    yield await turn.ask("Well?")
                elif turn.text == "wait":
                    await self.go.wait()
                elif turn.text == "deaf":
                    while not self.go.is_set():
                        try:
                            await self.go.wait()
                        except asyncio.CancelledError:
                            self.stopped.append(task)
                yield "b"
            except asyncio.CancelledError:
                self.stopped.append(task)
                raise
            finally:
                self.now[task] -= 1


@asynccontextmanager
async def pair(
    harness: EngineHarness, trip: Trip, **settings: object
) -> AsyncIterator[tuple[Client, Client]]:
    async with (
        harness.client(trip.agent, **settings) as one,
        harness.client(trip.agent, **settings) as two,
    ):
        yield one, two


async def test_a_send_that_waits_for_the_other_is_answered_when_its_engine_stops(
    shared: EngineHarness,
) -> None:
    """Its caller would otherwise be cut off, and could not know what became of the call."""
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        started = await one.send("wait", wait=False)
        async with background(two.send("more", task=started)) as waiting:
            await until(lambda: two.engine._view.waits)
            await two.engine.stop(0.1)
            task = await waiting
        assert (task.id, task.state) == (started.id, State.WORKING)
        trip.go.set()
        await ended(one, started.id)


async def test_both_see_the_same(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("hi")
        assert await two.get(task.id) == task
        assert (await two.list()).tasks == (await one.list()).tasks
        assert await log_of(one, task.id) == await log_of(two, task.id)


async def test_an_answer_crosses_over(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("ask")
        done = await two.send("!", task=task)
        assert done.state is State.COMPLETED
        assert done.text == "a!b"
        assert trip.starts[task.id] == 1
        task = await two.send("ask")
        await one.resolve(task.id, "input:Well?", "?")
        assert (await ended(one, task.id)).text == "a?b"
        assert trip.starts[task.id] == 1
        await checked(two, task.id)


async def test_an_answer_streamed_from_the_other_side(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("ask")
        events = await gathered(two.stream("!", task=task))
        assert story(events) == [
            "snapshot working",
            "+result:!",
            "+result:b!",
            "completed",
        ]


async def test_an_answer_without_waiting_does_not_show_the_old_question(
    shared: EngineHarness,
) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("ask")
        answered = await two.send("!", task=task, wait=False)
        assert answered.state is not State.INPUT_REQUIRED
        other = await one.send("ask")
        assert (await two.resolve(other.id, "input:Well?", "?")).state is not State.INPUT_REQUIRED


async def test_streams_follow_the_tasks_of_the_other(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("wait", wait=False)
        snapshot: list[Stamped] = []
        whole: list[Stamped] = []

        async def follow(events: AsyncIterator[Stamped | Message], seen: list[Stamped]) -> None:
            async for event in events:
                assert isinstance(event, Stamped)
                seen.append(event)

        async with (
            background(follow(two.watch(task.id), snapshot)) as first,
            background(follow(two.watch(task.id, 0), whole)) as second,
        ):
            await until(lambda: snapshot and whole)
            trip.go.set()
            await asyncio.gather(first, second)
        assert whole == await checked(one, task.id)
        assert story(snapshot)[-2:] == ["+result:b!", "completed"]


async def test_a_message_to_a_task_that_runs_elsewhere_is_heard_there(
    shared: EngineHarness,
) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("wait", wait=False)
        await two.send("hurry", task=task, wait=False)
        await until(lambda: _heard(one, task.id, "hurry"))
        trip.go.set()
        task = await ended(two, task.id)
        assert [m.text for m in task.history] == ["wait", "hurry"]
        await checked(two, task.id)


async def _heard(client: Client, task_id: str, text: str) -> bool:
    return text in [m.text for m in (await client.get(task_id)).history]


async def test_a_cancel_crosses_over(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("wait", wait=False)
        await until(lambda: trip.starts[task.id])
        done = await two.cancel(task.id)
        assert done.state is State.CANCELED
        assert trip.stopped == [task.id]
        assert await one.get(task.id) == done
        assert terminals(await checked(one, task.id)) == [State.CANCELED]


async def test_a_cancel_of_a_waiting_task_crosses_over(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("ask")
        done = await two.cancel(task.id)
        assert done.state is State.CANCELED
        await until(lambda: trip.stopped == [task.id])
        await checked(one, task.id)


async def test_a_cancel_is_enforced_against_a_deaf_run_elsewhere(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("deaf", wait=False)
        await until(lambda: trip.starts[task.id])
        done = await two.cancel(task.id)
        assert done.state is State.CANCELED
        trip.go.set()
        await until(lambda: not trip.now[task.id])
        assert await one.get(task.id) == done
        assert terminals(await checked(one, task.id)) == [State.CANCELED]


@pytest.mark.slow  # takes two seconds
async def test_a_cancel_is_enforced_against_a_process_that_sleeps(shared: EngineHarness) -> None:
    """Its keeper is stopped: it sees nothing, beats no more, and its lease still holds."""
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("wait", wait=False)
        await until(lambda: trip.starts[task.id])
        await one.engine._maintenance.stop()
        done = await two.cancel(task.id)
        assert done.state is State.CANCELED
        trip.go.set()
        await until(lambda: not trip.now[task.id])
        assert await two.get(task.id) == done
        assert terminals(await checked(two, task.id)) == [State.CANCELED]


async def test_keys_hold_for_both(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        trip.go.set()
        tasks = await asyncio.gather(
            *(client.send("wait", key="k", message_id="m") for client in (one, two, one, two))
        )
        assert len({task.id for task in tasks}) == 1
        assert {task.state for task in tasks} == {State.COMPLETED}
        assert sum(trip.starts.values()) == 1
        with pytest.raises(Conflict):
            await two.send("other", key="k", message_id="m")


async def test_a_task_is_never_run_by_both(shared: EngineHarness) -> None:
    """Queued tasks are free for all; each is started once."""
    trip = Trip()
    trip.go.set()
    async with pair(shared, trip, max_runs=2) as (one, two):
        tasks = [await (one, two)[n % 2].send("wait", wait=False) for n in range(20)]
        for task in tasks:
            assert (await ended(one, task.id)).text == "ab"
            assert story(await checked(two, task.id)) == [
                "opened",
                "working",
                "=result:a",
                "+result:b!",
                "completed",
            ]
        assert set(trip.starts.values()) == {1}
        assert trip.most == 1


async def test_answers_from_both_sides_wake_one_run(shared: EngineHarness) -> None:
    """Nobody holds the task; both are told at once."""
    trip = Trip()
    async with pair(shared, trip, max_parked=0) as (one, two):
        for _ in range(5):
            task = await one.send("ask")
            await until(lambda task=task: _held_by(one, task.id, ""))
            await asyncio.gather(
                one.send("!", task=task, wait=False),
                two.send("?", task=task, wait=False),
                return_exceptions=True,
            )
            done = await ended(one, task.id)
            assert done.text in ("a!b", "a?b")
            assert trip.most == 1
            assert terminals(await checked(one, task.id)) == [State.COMPLETED]


async def _held_by(client: Client, task_id: str, worker: str) -> bool:
    return (await row_of(client, task_id)).worker == worker


async def test_the_other_takes_over_from_the_dead(shared: EngineHarness) -> None:
    trip = Trip()
    one = shared.client(trip.agent)
    await one.engine.start()
    async with shared.client(trip.agent) as two:
        running = await one.send("wait", wait=False)
        waiting = await one.send("ask")
        await until(lambda: trip.starts[running.id])
        await shared.crash(one)
        trip.go.set()
        assert (await two.get(running.id)).state is State.WORKING
        await shared.later(two, 60)
        await two.store.reap()
        await shared.later(two, 2)
        done = await ended(two, running.id)
        assert done.text == "ab"
        assert trip.starts[running.id] == 2
        assert trip.most == 1
        assert (await two.send("!", task=waiting)).text == "a!b"
        for task in (running, waiting):
            await checked(two, task.id)


async def test_who_lost_the_lease_can_change_nothing(shared: EngineHarness) -> None:
    """The first sleeps too long, the second takes its task; then the first wakes and goes on."""
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("wait", wait=False)
        await until(lambda: trip.starts[task.id])
        run = one.engine.runner.runs[task.id]
        await one.engine._maintenance.stop()
        await shared.later(two, 60)
        await two.store.reap()
        await shared.later(two, 2)
        await until(lambda: trip.starts[task.id] == 2)
        await until(lambda: _length(two, task.id, 5))
        before = await log_of(two, task.id)
        run.finish(State.COMPLETED)
        await until(lambda: run.writer.closed)
        assert isinstance(run.writer.error, Fenced)
        await until(lambda: task.id in trip.stopped)
        assert await log_of(two, task.id) == before
        trip.go.set()
        assert (await ended(two, task.id)).text == "ab"
        log = await checked(two, task.id)
        assert terminals(log) == [State.COMPLETED]
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))


async def _length(client: Client, task_id: str, length: int) -> bool:
    return len(await log_of(client, task_id)) == length


async def test_who_waited_on_the_loser_gets_the_winners_result(shared: EngineHarness) -> None:
    trip = Trip()
    async with pair(shared, trip) as (one, two), background(one.send("wait")) as sending:
        await until(lambda: _listed(two, 1))
        (task_id,) = trip.starts
        await until(lambda: _held_by(one, task_id, one.engine.runner.worker))
        row = await row_of(two, task_id)
        taken = await two.store.seize(two.engine.runner.worker, task_id, row.epoch)
        assert taken is not None
        await two.engine.runner.resume(taken)
        await until(lambda: task_id in trip.stopped)
        trip.go.set()
        done = await sending
        assert done.state is State.COMPLETED
        assert done == await two.get(task_id)
        assert not one.engine.runner.runs


async def _listed(client: Client, total: int) -> bool:
    return (await client.list()).total == total


async def test_what_the_other_did_is_seen_at_once(shared: EngineHarness) -> None:
    """The first still has the run in memory; what it says must not be of yesterday."""
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("ask")
        done = await two.cancel(task.id)
        async with asyncio.timeout(60):
            await until(lambda: _is(one, task.id, State.CANCELED))
        assert await one.get(task.id) == done


async def test_a_process_that_slept_does_not_tell_of_the_past(shared: EngineHarness) -> None:
    """It has just woken up, and has not even looked at its lease."""
    trip = Trip()
    async with pair(shared, trip) as (one, two):
        task = await one.send("wait", wait=False)
        await until(lambda: _length(one, task.id, 3))
        work = one.engine._maintenance
        await work.stop()
        row = await row_of(two, task.id)
        taken = await two.store.seize(two.engine.runner.worker, task.id, row.epoch)
        assert taken is not None
        await two.engine.runner.resume(taken)
        two.engine.runner.cancel(two.engine.runner.runs[task.id])
        done = await ended(two, task.id)
        work.worker.set_lease(monotonic() - 60, 1)
        assert await one.get(task.id) == done
        with pytest.raises(TaskFinished):
            await gathered(one.watch(task.id))


async def _is(client: Client, task_id: str, state: State) -> bool:
    return (await client.get(task_id)).state is state


async def test_a_worker_that_was_silent_stops_all_and_begins_anew(harness: EngineHarness) -> None:
    trip = Trip()
    async with harness.client(trip.agent, lease=0.3) as client:
        task = await client.send("wait", wait=False)
        await until(lambda: trip.starts[task.id])
        worker = client.engine.runner.worker
        await client.store.retire("nobody")
        client.engine._maintenance.worker.set_lease(monotonic() - 60, 1)
        await until(lambda: client.engine.runner.worker != worker)
        await until(lambda: task.id in trip.stopped)
        assert not client.engine.runner.runs
        trip.go.set()
        assert (await client.send("hi")).text == "ab"
        # Its old task is free once the old lease is over.
        harness.clock.skip(1)
        await client.store.beat(client.engine.runner.worker, 10_000)
        await client.store.reap()
        await harness.later(client, 2)
        assert (await ended(client, task.id)).text == "ab"
        assert trip.most == 1
        await checked(client, task.id)


async def test_a_worker_that_cannot_renew_its_lease_stops_its_runs_when_it_is_over(
    memory: EngineHarness,
) -> None:
    """The store does not answer, not even with an error."""
    trip, store = Trip(), Slow(memory.store())
    async with client_of(trip.agent, store, memory.clock, lease=0.5) as client:
        task = await client.send("wait", wait=False)
        await until(lambda: trip.starts[task.id])
        store.hold("beat")
        await until(lambda: task.id in trip.stopped)
        assert store.holds("beat")
        assert not client.engine.runner.runs
        store.let_go()


async def test_tasks_that_take_long_to_resume_cost_no_lease_and_no_attempt(
    memory: EngineHarness,
) -> None:
    """Their worker is not taken for one that does not run what it has claimed."""
    trip = Trip()
    one = memory.client(trip.agent)
    await one.engine.start()
    tasks = [await one.send("wait", wait=False) for _ in range(4)]
    await until(lambda: len(trip.starts) == 4)
    await memory.crash(one)
    memory.clock.skip(60)
    store = Slow(memory.store())
    async with client_of(trip.agent, store, memory.clock, lease=0.6) as two:
        worker = two.engine.runner.worker
        store.hold("records")
        await until(lambda: _later(memory, two, lambda: store.waiting == 4))  # all at once
        reconciled = two.engine._maintenance._reconcile
        for _ in range(3):
            await reconciled()
        store.let_go()
        trip.go.set()
        for task in tasks:
            await ended(two, task.id)
            assert (await row_of(two, task.id)).attempt == 2
        assert two.engine.runner.worker == worker


async def _later(harness: EngineHarness, client: Client, so: Callable[[], bool]) -> bool:
    """Lets a second pass for a living engine; then whether it is so."""
    await harness.later(client, 1)
    return so()


async def test_a_task_whose_worker_died_before_its_first_event_runs_elsewhere(
    shared: EngineHarness,
) -> None:
    trip = Trip()
    one = shared.client(trip.agent, max_runs=1)
    await one.engine.start()
    await one.send("wait", wait=False)
    task = await one.send("queued", wait=False)
    row = await row_of(one, task.id)
    assert await one.store.seize(one.engine.runner.worker, task.id, row.epoch) is not None
    two = await shared.restart(one)
    assert (await ended(two, task.id)).text == "ab"
    assert (await row_of(two, task.id)).attempt == 2
    assert trip.starts[task.id] == 1
    await checked(two, task.id)
    trip.go.set()
    await two.engine.stop(0)


async def test_a_claim_nobody_runs_is_taken_up(harness: EngineHarness) -> None:
    """The answer to a claim was lost: two beats later the worker notices what it holds."""
    trip = Trip()
    async with harness.client(trip.agent, max_runs=1, lease=0.3) as client:
        await client.send("wait", wait=False)
        task = await client.send("queued", wait=False)
        row = await row_of(client, task.id)
        taken = await client.store.seize(client.engine.runner.worker, task.id, row.epoch)
        assert taken is not None
        done = await ended(client, task.id)
        assert done.text == "ab"
        await checked(client, task.id)


async def test_a_stale_claim_is_refused_by_every_store(harness: EngineHarness) -> None:
    trip = Trip()
    async with harness.client(trip.agent) as client:
        task = await client.send("ask")
        row = await row_of(client, task.id)
        answers: list[Exception | None] = []
        for claim in (
            Claim(task.id, row.worker, "forged", row.epoch),
            Claim(task.id, row.worker, row.token, row.epoch - 1),
            Claim(task.id, row.worker, "", row.epoch),
        ):
            write = Write(
                claim=claim,
                base=row.last_seq,
                entries=(),
                state=State.COMPLETED,
                status_at=0,
                heard=0,
            )
            client.store.append(write, answers.append)
        await until(lambda: len(answers) == 3)
        assert all(isinstance(answer, Fenced) for answer in answers)
        assert (await client.send("!", task=task)).text == "a!b"


async def test_scopes_hold_across_engines(shared: EngineHarness) -> None:
    trip = Trip()
    async with (
        shared.client(trip.agent, context=ANN) as ann,
        shared.client(trip.agent, context=BOB) as bob,
    ):
        task = await ann.send("ask")
        with pytest.raises(TaskNotFound):
            await bob.cancel(task.id)
        with pytest.raises(TaskNotFound):
            await bob.send("!", task=task)
        assert (await bob.list()).total == 0
        assert await ann.get(task.id) == task


async def test_agents_of_different_names_share_a_store(shared: EngineHarness) -> None:
    one, two = Agent("One"), Agent("Two")

    @one.skill("do")
    async def do_one(turn: Turn) -> str:
        return "one"

    @two.skill("do")
    async def do_two(turn: Turn) -> str:
        return await turn.ask("Well?")

    async with shared.client(one, max_runs=1) as first, shared.client(two) as second:
        task = await second.send("go")
        await turns(20)  # the first has looked for work, and this is none for it
        assert (await first.send("go")).text == "one"
        assert (await first.list()).total == 1
        assert (await second.list()).total == 1
        assert (await second.send("yes", task=task)).text == "yes"
