"""Who waits for a place, and who is refused."""

from __future__ import annotations

import asyncio

import pytest

from dragoman.core.errors import PeerUnreachable, TooMany
from dragoman.gateway.fair_queue import FairQueue
from waiting import turns, until


class Places:
    """So many places, and a queue in front of them."""

    def __init__(self, free: int, most: int = 10, seconds: float = 60.0) -> None:
        self.free = free
        self.queue: FairQueue[int] = FairQueue(most, seconds, self.give_back, TooMany)
        self.served: list[str] = []

    def give_back(self, place: int) -> None:
        self.free += place
        self.queue.serve()

    def take(self) -> int | None:
        if not self.free:
            return None
        self.free -= 1
        return 1

    async def call(self, principal: str, name: str = "") -> None:
        await self.queue.enter(principal, self.take)
        self.served.append(name or principal)


async def start(places: Places, *names: str) -> list[asyncio.Task[None]]:
    """Begins a call for each name, whose first letter is the principal."""
    tasks = [asyncio.create_task(places.call(name[0], name)) for name in names]
    await turns(2)
    return tasks


async def test_principals_are_served_in_turn() -> None:
    places = Places(0)
    tasks = await start(places, "a1", "a2", "a3", "b1", "b2", "c1")
    for _ in tasks:
        places.give_back(1)
    await asyncio.gather(*tasks)
    assert places.served == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_places_that_come_free_together_go_to_all_principals() -> None:
    places = Places(0)
    tasks = await start(places, "a1", "a2", "a3", "b1", "c1")
    places.give_back(3)
    await until(lambda: len(places.served) == 3)
    assert sorted(places.served) == ["a1", "b1", "c1"]
    places.give_back(2)
    await asyncio.gather(*tasks)


async def test_a_full_queue_refuses_whoever_has_most_in_it() -> None:
    places = Places(0, most=3)
    tasks = await start(places, "a1", "a2", "a3")
    (late,) = await start(places, "b1")
    with pytest.raises(TooMany):
        await tasks[2]
    (more,) = await start(places, "a4")
    with pytest.raises(TooMany):
        await more
    (third,) = await start(places, "c1")
    with pytest.raises(TooMany):
        await tasks[1]
    (fourth,) = await start(places, "d1")
    with pytest.raises(TooMany):
        await fourth  # all of them have one now, and nobody has to give it up
    places.give_back(3)
    await asyncio.gather(tasks[0], late, third)
    assert places.queue.count == 0


async def test_a_call_waits_only_so_long() -> None:
    places = Places(0, seconds=0.05)
    with pytest.raises(TooMany):
        await places.call("a")
    assert places.queue.count == 0


async def test_a_place_for_a_call_that_has_gone_is_given_to_the_next() -> None:
    places = Places(0)
    first, second = await start(places, "a1", "a2")
    places.give_back(1)
    first.cancel()  # it has the place already, and does not know it yet
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert (places.served, places.free) == (["a2"], 0)


async def test_a_call_that_is_canceled_leaves_the_queue() -> None:
    places = Places(0)
    (first,) = await start(places, "a1")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert places.queue.count == 0
    places.give_back(1)
    await places.call("b")


async def test_an_error_while_waiting_reaches_the_caller() -> None:
    places, down = Places(0), False

    def take() -> int | None:
        if down:
            raise PeerUnreachable("gone")
        return places.take()

    waiting = asyncio.create_task(places.queue.enter("a", take))
    await turns(2)
    down = True
    places.queue.serve()
    with pytest.raises(PeerUnreachable, match="gone"):
        await waiting
    assert places.queue.count == 0


async def test_whoever_waits_for_one_place_does_not_hold_up_those_who_take_any() -> None:
    places = Places(0)
    choosy = asyncio.create_task(places.queue.enter("a", lambda: None, choosy=True))
    await turns(2)
    (other,) = await start(places, "b1")
    places.give_back(1)
    await other
    assert not choosy.done()
    choosy.cancel()
