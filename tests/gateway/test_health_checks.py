"""One scheduler checks all agents elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter

from dragoman.gateway.health_checks import AT_ONCE, HealthChecks, health_checks
from waiting import turns, until


async def test_a_thousand_agents_need_one_task_and_few_checks_at_once() -> None:
    checks, done = HealthChecks(), Counter[int]()
    most = running = 0

    async def check(number: int) -> float:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await turns()
        running -= 1
        done[number] += 1
        return 3600.0

    before = len(asyncio.all_tasks())
    for number in range(1000):
        checks.add(number, lambda number=number: check(number))
    await until(lambda: len(done) == 1000)
    assert most <= AT_ONCE
    await until(lambda: len(asyncio.all_tasks()) == before + 1)  # nothing is due, and one waits
    assert set(done.values()) == {1}
    for number in range(1000):
        await checks.remove(number)
    assert len(asyncio.all_tasks()) == before


async def test_the_times_of_checks_drift_apart() -> None:
    checks, times = HealthChecks(), list[float]()
    loop = asyncio.get_running_loop()
    again = Counter[int]()

    async def check(number: int) -> float:
        again[number] += 1
        if again[number] == 2:
            times.append(loop.time())
        return 0.5 if again[number] == 1 else 3600.0

    for number in range(100):
        checks.add(number, lambda number=number: check(number))
    await until(lambda: len(times) == 100)
    assert max(times) - min(times) > 0.1  # all of them were begun at the same time
    for number in range(100):
        await checks.remove(number)


async def test_checks_that_hang_and_checks_that_crash_leave_the_others_alone() -> None:
    checks, done, ended = HealthChecks(), Counter[str](), asyncio.Event()

    async def hang() -> float:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return 0.0

    async def crash() -> float:
        done["crash"] += 1
        raise RuntimeError("on purpose")

    async def well() -> float:
        done["well"] += 1
        return 0.001

    checks.add("hang", hang)
    checks.add("crash", crash)
    checks.add("well", well)
    await until(lambda: done["well"] > 5 and done["crash"])
    await checks.remove("hang")  # a check that runs is ended
    assert ended.is_set()
    before = done["well"]
    await until(lambda: done["well"] > before + 5)
    await checks.remove("well")
    await checks.remove("crash")
    checks.add("well", well)  # it can begin again
    before = done["well"]
    await until(lambda: done["well"] > before)
    await checks.remove("well")


async def test_an_event_loop_has_one_scheduler() -> None:
    assert health_checks() is health_checks()
