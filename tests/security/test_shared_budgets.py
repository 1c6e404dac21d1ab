"""Rates and quotas that several processes on one store share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from counts import FULL
from dragoman import Agent, State, Task, Turn
from dragoman.core.errors import TooMany
from dragoman.core.peer import Context
from dragoman.security.rate_limits import Meter
from dragoman.server.services.shared_budgets import SharedBudgets
from dragoman.settings import Rates
from dragoman.store import Store, open_store
from dragoman.testing import Client
from dragoman.testing.stores import HandClock
from engine.conftest import shared as shared
from engine.harness import EngineHarness
from postgres import store_url
from waiting import until

ANN = Context(principal="ann")
BOB = Context(principal="bob")
LEASE = 3_600_000


class Replica:
    """What one process counts."""

    def __init__(
        self, store: Store, name: str, rates: Rates, clock: HandClock, *, never_alone: bool
    ) -> None:
        self.store, self.name, self.clock = store, name, clock
        self.meter = Meter(rates, self.seconds)
        self.budgets = SharedBudgets(
            [self.meter],
            store.budgets,
            lambda: self.name,
            never_alone=never_alone,
            clock=self.seconds,
        )

    def seconds(self) -> float:
        return self.clock.steady() / 1000

    async def call(self, caller: Context = ANN) -> bool:
        """Returns whether a call is admitted."""
        try:
            counted = self.meter.take(caller)
            if counted is not None:
                await counted
        except TooMany:
            return False
        return True


class Replicas:
    """Several processes on one store, whose clock is moved by hand."""

    def __init__(self, url: str, clock: HandClock) -> None:
        self.url, self.clock = url, clock
        self.all: list[Replica] = []
        self._stack = AsyncExitStack()

    async def add(self, rates: Rates, *, never_alone: bool = True) -> Replica:
        """Starts one more."""
        store = open_store(self.url, clock=self.clock)
        await store.open()
        self._stack.push_async_callback(store.close)
        name = f"w{len(self.all)}"
        await store.enlist(name, LEASE)
        replica = Replica(store, name, rates, self.clock, never_alone=never_alone)
        await replica.budgets.start()
        self._stack.push_async_callback(replica.budgets.drain)
        self.all.append(replica)
        return replica

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture(params=["sqlite", *(["postgres"] if FULL else [])])
async def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Replicas]:
    url = store_url(tmp_path) if request.param == "postgres" else f"sqlite:///{tmp_path}/tasks.db"
    made = Replicas(url, HandClock())
    yield made
    await made.close()


async def admitted(replicas: Replicas, seconds: int, chosen: Callable[[int], list[Replica]]) -> int:
    """Returns how many calls are admitted in some seconds, in which many more are made."""
    count = 0
    for second in range(seconds):
        for replica in chosen(second):
            count += sum([await replica.call() for _ in range(12)])
        replicas.clock.tick(1000)
    return count


SPREADS: dict[str, Callable[[list[Replica], int], list[Replica]]] = {
    "even": lambda all, n: all,
    "all at one": lambda all, n: all[:1],
    "one after the other": lambda all, n: [all[n // 5 % len(all)]],
    "uneven": lambda all, n: [all[0], all[0], all[0], *([all[1]] if n % 7 == 0 else [])],
}


@pytest.mark.parametrize("spread", SPREADS)
async def test_a_rate_holds_over_all_processes_however_calls_are_spread(
    replicas: Replicas, spread: str
) -> None:
    rates = Rates(calls_per_minute=120)
    for _ in range(3):
        await replicas.add(rates)
    chosen = SPREADS[spread]
    first = await admitted(replicas, 30, lambda n: chosen(replicas.all, n))
    # At first the bucket is full: one process alone would admit 120 + 2 a second.
    assert first == pytest.approx(120 + 60, rel=0.1)
    then = await admitted(replicas, 30, lambda n: chosen(replicas.all, n))
    assert then == pytest.approx(60, rel=0.1)


async def test_a_process_that_dies_takes_little_along(replicas: Replicas) -> None:
    rates = Rates(calls_per_minute=120)
    for _ in range(3):
        await replicas.add(rates)
    for replica in replicas.all:
        assert await replica.call()  # each has a share now
    before = await admitted(replicas, 2, lambda n: replicas.all[:1])
    # The first process is gone, with what it held, and nobody gives that back.
    after = await admitted(replicas, 58, lambda n: replicas.all[1:])
    assert before + after + 3 == pytest.approx(240, rel=0.1)


async def test_callers_have_budgets_of_their_own(replicas: Replicas) -> None:
    one = await replicas.add(Rates(calls_per_minute=2))
    two = await replicas.add(Rates(calls_per_minute=2))
    assert [await each.call() for each in (one, two, one, two)] == [True, True, False, False]
    assert [await each.call(BOB) for each in (one, two, one)] == [True, True, False]


async def test_a_refused_caller_learns_when_to_try_again(replicas: Replicas) -> None:
    one = await replicas.add(Rates(calls_per_minute=2))
    two = await replicas.add(Rates(calls_per_minute=2))
    assert await one.call()
    assert await two.call()
    counted = one.meter.take(ANN)
    assert counted is not None
    with pytest.raises(TooMany) as refused:
        await counted
    assert refused.value.public["retry_after"] == "30"
    # The next time it is refused at once, without a question to the store.
    with pytest.raises(TooMany) as refused:
        one.meter.take(ANN)
    assert refused.value.public["retry_after"] == "30"
    replicas.clock.tick(30_000)
    assert await one.call()


async def test_few_calls_ask_the_store(replicas: Replicas) -> None:
    one = await replicas.add(Rates(calls_per_minute=6000))
    asked = 0
    exchange = one.store.budgets.exchange

    async def counting(worker: str, asks: list[object]) -> list[object]:
        nonlocal asked
        asked += 1
        return await exchange(worker, asks)  # type: ignore[arg-type, return-value]

    one.store.budgets.exchange = counting  # type: ignore[method-assign, assignment]
    waited = 0
    for _ in range(2000):
        counted = one.meter.take(ANN)
        if counted is not None:
            waited += 1
            await counted
        else:
            await asyncio.sleep(0)
    assert asked <= 40
    assert waited <= 40


async def test_a_process_alone_counts_by_itself_until_another_comes(replicas: Replicas) -> None:
    rates = Rates(calls_per_minute=10)
    one = await replicas.add(rates, never_alone=False)
    assert not one.budgets.active
    for _ in range(8):
        assert one.meter.take(ANN) is None
    two = await replicas.add(rates, never_alone=False)
    assert two.budgets.active
    await until(lambda: one.budgets.active and not one.budgets.exchanging)
    # What was used alone is missing in the budget of all.
    assert sum([await each.call() for each in (two, one, two, one)]) == 2


async def test_a_process_counts_by_itself_while_the_store_cannot_be_asked(
    replicas: Replicas,
) -> None:
    one = await replicas.add(Rates(calls_per_minute=10, streams=2))
    await one.store.close()
    assert sum([await one.call() for _ in range(20)]) == 10
    replicas.clock.tick(30_000)
    assert sum([await one.call() for _ in range(20)]) == 5
    closes = [await one.meter.open_stream(ANN) for _ in range(2)]
    with pytest.raises(TooMany):
        await one.meter.open_stream(ANN)
    for close in closes:
        close()


@pytest.mark.slow  # takes two seconds
async def test_units_that_nobody_uses_are_given_back(replicas: Replicas) -> None:
    one = await replicas.add(Rates(calls_per_minute=128))
    two = await replicas.add(Rates(calls_per_minute=128))
    assert await one.call()
    assert one.budgets.held > 1
    await until(lambda: one.budgets.held == 0 and not one.budgets.exchanging)
    assert sum([await two.call() for _ in range(140)]) == 127


async def test_streams_are_counted_over_all_processes(replicas: Replicas) -> None:
    rates = Rates(streams=3)
    one, two = await replicas.add(rates), await replicas.add(rates)
    closes = [await each.meter.open_stream(ANN) for each in (one, one, two)]
    for each in (one, two):
        with pytest.raises(TooMany):
            await each.meter.open_stream(ANN)
    closes[0]()
    replicas.clock.tick(1000)
    close = await _opened(two)
    with pytest.raises(TooMany):
        await one.meter.open_stream(ANN)
    for each in (close, *closes[1:]):
        each()


async def _opened(replica: Replica) -> Callable[[], None]:
    async def tried() -> Callable[[], None] | None:
        try:
            return await replica.meter.open_stream(ANN)
        except TooMany:
            replica.clock.tick(50)
            return None

    found: Callable[[], None] = await until(tried)
    return found


async def test_the_streams_of_a_dead_process_are_free_again(replicas: Replicas) -> None:
    rates = Rates(streams=2)
    one, two = await replicas.add(rates), await replicas.add(rates)
    for _ in range(2):
        await one.meter.open_stream(ANN)
    with pytest.raises(TooMany):
        await two.meter.open_stream(ANN)
    await two.store.retire(one.name)
    replicas.clock.tick(1000)
    await _opened(two)


async def test_live_tasks_are_counted_over_all_processes(shared: EngineHarness) -> None:
    agent = Agent("Desk")
    go = asyncio.Event()

    @agent.skill("wait")
    async def wait(turn: Turn) -> str:
        await go.wait()
        return "done"

    async with shared.client(agent) as one, shared.client(agent) as two:
        clients = (one, two)
        meters = {client: Meter(Rates(live_tasks=30)) for client in clients}
        services = [
            SharedBudgets(
                [meters[client]],
                client.store.budgets,
                partial(_worker_of, client),
                never_alone=True,
            )
            for client in clients
        ]
        opened: list[Task] = []

        async def send(client: Client) -> None:
            try:
                await meters[client].open_task(client.context, client.engine)
            except TooMany:
                return
            opened.append(await client.send("x", wait=False))

        await asyncio.gather(*(send(client) for client in clients for _ in range(40)))
        # A place may be on its way from one process to the other, so it is tried again.
        await until(lambda: _filled(send, clients, opened))
        await asyncio.gather(*(send(client) for client in clients for _ in range(10)))
        assert len(opened) == 30
        go.set()
        for service in services:
            await service.drain()


def _worker_of(client: Client) -> str:
    return client.engine.runner.worker


async def _filled(
    send: Callable[[Client], Awaitable[None]], clients: Iterable[Client], opened: list[Task]
) -> bool:
    for client in clients:
        await send(client)
    return len(opened) >= 30


async def test_a_place_of_a_task_is_free_for_others_when_the_task_is_over(
    shared: EngineHarness,
) -> None:
    agent = Agent("Desk")

    @agent.skill("quick")
    async def quick(turn: Turn) -> str:
        return "done"

    async with shared.client(agent) as one, shared.client(agent) as two:
        meters = {client: Meter(Rates(live_tasks=2)) for client in (one, two)}
        for client, meter in meters.items():
            SharedBudgets(
                [meter], client.store.budgets, partial(_worker_of, client), never_alone=True
            )
        for client in (one, two):
            for _ in range(6):  # more than there are places, one after the other

                async def sent(client: Client = client) -> bool:
                    try:
                        await meters[client].open_task(client.context, client.engine)
                    except TooMany:
                        return False
                    return (await client.send("x")).state is State.COMPLETED

                await until(sent)
