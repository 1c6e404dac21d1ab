"""Agents elsewhere that are down, frozen, slow, busy or come and go; and those with several
addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent, State, Task, Turn, connect
from dragoman.client import Events, RemoteAgent
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import DragomanError, PeerUnreachable, TooMany
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Message
from dragoman.core.peer import Context
from dragoman.engine.circuit_breaker import BreakerState
from dragoman.relay.known_ids import task_key
from dragoman.testing.served import served
from gateway.behind import DIALECTS, gateway, section, settings
from gateway.faulty import Door, door_to, frozen
from ports import own_port
from waiting import until

QUICK: dict[str, Any] = {"connect_timeout": 2.0, "probe": 0.3, "failures": 2, "health": 0.1}


class Worker:
    """An agent that says who it is, and works as long as the test wants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0
        self.going = asyncio.Event()
        self.agent = agent = Agent("Worker", description="Works.", version="1.0.0")

        @agent.skill("who", default=True)
        async def who(turn: Turn) -> str:
            self.calls += 1
            return self.name

        @agent.skill("work")
        async def work(turn: Turn) -> AsyncIterator[str]:
            self.calls += 1
            yield f"{self.name} begins "
            await self.going.wait()
            yield "and ends"

        @agent.skill("ask")
        async def ask(turn: Turn) -> str:
            self.calls += 1
            return f"{await turn.ask('Which city?')} for {self.name}"


@asynccontextmanager
async def doors(folder: Path, *names: str) -> AsyncIterator[list[tuple[Worker, Door]]]:
    """Workers behind doors."""
    async with AsyncExitStack() as stack:
        found = []
        for name in names:
            worker = Worker(name)
            door = await stack.enter_async_context(door_to(folder, worker.agent))
            stack.callback(worker.going.set)
            found.append((worker, door))
        yield found


async def ask(url: str, *what: object, **about: Any) -> Task:
    """Sends a message with a client of its own, and returns the task."""
    async with connect(url) as caller:
        task = await caller.send(*what, **about)
        assert isinstance(task, Task)
        return task


async def finished(caller: RemoteAgent, task: Task) -> Task:
    """Waits for the end of a task."""

    async def found() -> Task | None:
        now = await caller.get(task)
        return now if now.state in FINAL else None

    done = await until(found)
    assert isinstance(done, Task)
    return done


def reason(task: Task) -> object:
    message = task.status.message
    return ((message.metadata if message else None) or {}).get("reason")


async def test_an_agent_that_is_down_is_an_error_at_once(tmp_path: Path) -> None:
    sections = {"gone": {"url": f"http://127.0.0.1:{own_port()}", **QUICK}}
    async with asyncio.timeout(120), gateway(sections, settings(tmp_path), wait=False) as door:
        assert await _status(door.url) == 503


async def test_a_frozen_agent_ends_with_an_honest_reason(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a") as [(worker, there)]:
        sections = {"a": {"url": there.url, **QUICK, "answer_timeout": 0.5, "patience": 1.0}}
        async with gateway(sections, settings(tmp_path)) as door:
            there.flows.clear()
            task = await ask(door.url, "hi")
            assert task.state is State.FAILED
            # It keeps idempotency keys, so it was asked again; nothing says what it did.
            assert reason(task) in ("unknown_outcome", "unreachable")
            there.flows.set()
            assert worker.calls <= 1


async def _status(url: str) -> int:
    """Sends a message over REST once, and returns the HTTP status of the answer."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    async with httpx2.AsyncClient(headers={"a2a-version": "1.0"}, timeout=60) as client:
        answer = await client.post(f"{url}/message:send", json={"message": message})
    if answer.status_code in (429, 503):
        assert answer.headers["retry-after"].isdecimal()
    return int(answer.status_code)


async def test_the_breaker_opens_and_a_probe_closes_it(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a") as [(_, there)]:
        sections = {"a": {"url": there.url, **QUICK, "health": 0, "probe": 1.0}}
        async with gateway(sections, settings(tmp_path)) as door:
            pool = door.upstream("a").pool
            (address,) = pool.addresses
            await there.close()
            while pool.state(address) is BreakerState.CLOSED:
                assert await _status(door.url) == 503
            before, began = address.failures.total(), time.monotonic()
            for _ in range(10):
                assert await _status(door.url) == 503
            probes = 1 + (time.monotonic() - began) / pool.limits.probe
            assert address.failures.total() - before <= probes  # all others were not sent
            await until(lambda: pool.state(address) is BreakerState.HALF_OPEN)
            await there.open()
            assert (await ask(door.url, "hi")).text == "a"
            assert pool.state(address) is BreakerState.CLOSED


async def test_a_health_check_finds_that_an_agent_is_gone_and_is_back(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a") as [(_, there)]:
        sections = {"a": {"url": there.url, **QUICK}}
        async with gateway(sections, settings(tmp_path)) as door:
            pool = door.upstream("a").pool
            (address,) = pool.addresses
            await there.close()
            await until(lambda: pool.state(address) is not BreakerState.CLOSED)
            await there.open()
            await until(lambda: pool.state(address) is BreakerState.CLOSED)
            assert (await ask(door.url, "hi")).text == "a"


async def test_a_health_check_costs_one_small_request(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a") as [(_, there)]:
        sections = {"a": {"url": there.url, **QUICK}}
        async with gateway(sections, settings(tmp_path)) as door:
            pool = door.upstream("a").pool
            (address,) = pool.addresses
            first = address.checked_at
            await until(lambda: address.checked_at > first)
            connections = there.connections
            for _ in range(3):
                last = address.checked_at
                await until(lambda last=last: address.checked_at > last)
            assert there.connections == connections  # the same connection, the card by its ETag
            assert there.requests == 0


async def test_new_tasks_go_to_the_address_with_the_least_to_do(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a", "b") as [(one, at_one), (two, at_two)]:
        sections = {"a": {"url": at_one.url, "urls": [at_two.url], **QUICK}}
        async with gateway(sections, settings(tmp_path)) as door, connect(door.url) as caller:
            tasks = [await caller.send("go", skill="work", wait=False) for _ in range(6)]
            await until(lambda: one.calls + two.calls == 6)
            assert (one.calls, two.calls) == (3, 3)
            one.going.set()
            await until(lambda: door.upstream("a").pool.addresses[0].in_flight == 0)
            for _ in range(3):
                assert (await ask(door.url, "hi")).text == "a"  # the other one is busy
            two.going.set()
            for task in tasks:
                assert isinstance(task, Task)
                done = await finished(caller, task)
                assert done.state is State.COMPLETED


async def test_an_address_that_is_down_is_skipped(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a", "b") as [(_, at_one), (_, at_two)]:
        sections = {"a": {"url": at_one.url, "urls": [at_two.url], **QUICK, "health": 0}}
        async with gateway(sections, settings(tmp_path)) as door:
            assert {(await ask(door.url, "hi")).text for _ in range(2)} == {"a", "b"}
            await at_one.close()
            for _ in range(6):  # of which one or two are first sent to the address that is down
                assert (await ask(door.url, "hi")).text == "b"
            await at_one.open()
            await until(lambda: _both(door.url))


async def _both(url: str) -> bool:
    return {(await ask(url, "hi")).text for _ in range(3)} == {"a", "b"}


async def test_a_conversation_stays_at_its_address_on_request(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a", "b") as [(_, at_one), (_, at_two)]:
        more = {"sticky": "context", **QUICK}
        sections = {"a": {"url": at_one.url, "urls": [at_two.url], **more}}
        async with gateway(sections, settings(tmp_path)) as door, connect(door.url) as caller:
            used = set()
            for _ in range(8):
                first = await caller.send("hi")
                assert isinstance(first, Task)
                used.add(first.text)
                for _ in range(3):
                    again = await caller.send("hi", context_id=first.context_id)
                    assert isinstance(again, Task)
                    assert again.text == first.text
            assert used == {"a", "b"}  # not all conversations are at one address


async def test_an_address_killed_in_mid_stream_is_waited_for_and_the_task_resumed(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a", "b") as found:
        sections = {"a": {"urls": [there.url for _, there in found], **QUICK}}
        async with gateway(sections, settings(tmp_path)) as door, connect(door.url) as caller:
            stream = caller.stream("go", skill="work")
            words = [await _word(stream)]
            (worker, there) = next(each for each in found if each[0].calls)
            (other, _) = next(each for each in found if not each[0].calls)
            await there.close()
            for _ in range(3):
                assert (await ask(door.url, "hi")).text == other.name
            worker.going.set()
            await there.open()
            words.append(await _word(stream))
            async for _ in stream:
                pass
            assert "".join(words) == f"{worker.name} begins and ends"
            assert worker.calls == 1


async def _word(stream: Events) -> str:
    """The next piece of an artifact."""
    async for entry in stream:
        if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk):
            return entry.event.artifact.text
    raise AssertionError("the stream is over")


async def test_an_address_that_never_comes_back_fails_its_tasks(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a", "b") as found:
        sections = {"a": {"urls": [there.url for _, there in found], **QUICK, "patience": 0.5}}
        async with gateway(sections, settings(tmp_path)) as door, connect(door.url) as caller:
            task = await caller.send("go", skill="work", wait=False)
            assert isinstance(task, Task)
            key = task_key(Context(), task.id)
            await until(lambda: door.upstream("a").tasks.get(key))  # it is known that it arrived
            for worker, there in found:
                if worker.calls:
                    await there.close()
            done = await finished(caller, task)
            assert (done.state, reason(done)) == (State.FAILED, "unreachable")
            assert sum(worker.calls for worker, _ in found) == 1  # it was not opened elsewhere


async def test_a_task_goes_on_at_another_address_that_has_it_too(tmp_path: Path) -> None:
    worker = Worker("a")
    own = settings(tmp_path, store=f"sqlite:///{tmp_path}/shared.db")
    async with (
        asyncio.timeout(120),
        door_to(tmp_path, worker.agent, own) as at_one,
        door_to(tmp_path, Worker("b").agent, own) as at_two,
    ):
        sections = {"a": {"urls": [at_one.url, at_two.url], **QUICK}}
        async with gateway(sections, settings(tmp_path)) as door, connect(door.url) as caller:
            pool = door.upstream("a").pool
            task = await caller.send("go", skill="work", wait=False)
            assert isinstance(task, Task)
            await until(lambda: any(each.in_flight for each in pool.addresses))
            await until(lambda: _has_text(caller, task))
            gone, other = (at_one, at_two) if pool.addresses[0].in_flight else (at_two, at_one)
            await gone.close()  # its server goes on with the task, and nobody reaches it
            before = other.requests
            await until(lambda: other.requests > before)
            worker.going.set()
            done = await finished(caller, task)
            assert done.state is State.COMPLETED
            assert done.text.endswith("begins and ends")


async def _has_text(caller: RemoteAgent, task: Task) -> bool:
    return bool((await caller.get(task)).text)


@pytest.mark.slow  # takes three seconds
async def test_a_restarted_gateway_follows_a_task_at_its_address(tmp_path: Path) -> None:
    own = settings(tmp_path, store=f"sqlite:///{tmp_path}/gateway.db")
    async with asyncio.timeout(120), doors(tmp_path, "a", "b") as found:
        sections = {"a": {"urls": [there.url for _, there in found], **QUICK}}
        async with gateway(sections, own) as door, connect(door.url) as caller:
            tasks = [await caller.send("go", skill="work", wait=False) for _ in range(4)]
            for task in tasks:
                assert isinstance(task, Task)
                await until(lambda task=task: _has_text(caller, task))
        for worker, _ in found:
            assert worker.calls == 2
        async with gateway(sections, own) as door, connect(door.url) as caller:
            pool = door.upstream("a").pool
            await until(lambda: [each.in_flight for each in pool.addresses] == [2, 2])
            for worker, _ in found:
                worker.going.set()
            for task in tasks:
                assert isinstance(task, Task)
                done = await finished(caller, task)
                assert done.text in ("a begins and ends", "b begins and ends")
        for worker, _ in found:
            assert worker.calls == 2


async def test_a_full_queue_refuses_in_the_dialect_of_the_caller(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a") as [(worker, there)]:
        more = {**QUICK, "concurrency": 1, "queue": 1}
        async with gateway({"a": {"url": there.url, **more}}, settings(tmp_path)) as door:
            pool = door.upstream("a").pool
            first = asyncio.create_task(ask(door.url, "go", skill="work"))
            await until(lambda: worker.calls == 1)
            second = asyncio.create_task(ask(door.url, "hi"))
            await until(lambda: pool.queued == 1)
            assert await _status(door.url) == 429
            worker.going.set()
            assert (await first).state is State.COMPLETED
            assert (await second).text == "a"
            assert (pool.queued, pool.addresses[0].in_flight) == (0, 0)


async def test_a_task_that_waits_for_its_caller_takes_no_place(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "a") as [(_, there)]:
        more = {**QUICK, "concurrency": 1, "queue": 0}
        async with gateway({"a": {"url": there.url, **more}}, settings(tmp_path)) as door:
            async with connect(door.url) as caller:
                waiting = await caller.send("go", skill="ask")
                assert isinstance(waiting, Task)
                assert waiting.state is State.INPUT_REQUIRED
                assert (await ask(door.url, "hi")).text == "a"
                done = await caller.answer(waiting, "Rome")
                assert done.text == "Rome for a"
            await until(lambda: door.upstream("a").pool.addresses[0].in_flight == 0)


async def test_a_fallback_is_asked_when_no_address_can_be_reached(tmp_path: Path) -> None:
    async with asyncio.timeout(120), doors(tmp_path, "b") as [(worker, there)]:
        gone = [f"http://127.0.0.1:{own_port()}" for _ in range(2)]
        sections = {
            "a": {"urls": gone, "fallbacks": ["b"], **QUICK},
            "b": {"url": there.url, **QUICK},
        }
        async with gateway(sections, settings(tmp_path), wait=False) as door:
            url = door.at("a")
            for _ in range(4):
                assert (await ask(url, "hi")).text == "b"
            async with connect(url) as caller:
                task = await caller.send("go", skill="work", wait=False)
                assert isinstance(task, Task)
                await until(lambda: worker.calls == 5)
                canceled = await caller.cancel(task)
                assert canceled.state is State.CANCELED
                await until(lambda: door.upstream("b").pool.addresses[0].in_flight == 0)


@pytest.mark.slow
async def test_a_frozen_agent_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with asyncio.timeout(240), frozen() as cold, doors(tmp_path, "b", "c") as found:
        more = {**QUICK, "answer_timeout": 3.0, "concurrency": 10, "queue": 5, "patience": 10.0}
        sections = {
            name: {"url": url, **more}
            for name, url in zip("abc", (cold, found[0][1].url, found[1][1].url), strict=True)
        }
        async with gateway(sections, settings(tmp_path), wait=False) as door:
            await until(lambda: door.upstream("b").dialect and door.upstream("c").dialect)
            stuck = [asyncio.create_task(_ended(door.at("a"))) for _ in range(50)]
            began = time.monotonic()
            tasks = await asyncio.gather(
                *(ask(door.at(name), "hi") for name in "bc" for _ in range(10))
            )
            taken = time.monotonic() - began
            assert [task.text for task in tasks] == ["b"] * 10 + ["c"] * 10
            ended = await asyncio.gather(*stuck)
            assert all(ended), ended
            assert taken < 60


async def _ended(url: str) -> str:
    """Asks an agent that will not answer, and returns how that ended."""
    try:
        async with connect(url) as caller:
            found: Task | Message = await caller.send("hi")
    except (TooMany, PeerUnreachable) as exc:
        return exc.reason
    except DragomanError as exc:
        return f"{exc.reason}: {exc.message}"
    assert isinstance(found, Task)
    assert found.state is State.FAILED
    return str(reason(found))


@pytest.mark.parametrize("kind", ["restarting", "flapping"])
@pytest.mark.slow  # takes several seconds
async def test_tasks_survive_an_agent_that_comes_and_goes(tmp_path: Path, kind: str) -> None:
    async with asyncio.timeout(240), doors(tmp_path, "a") as [(worker, there)]:
        sections = {"a": {"url": there.url, **QUICK}}
        async with gateway(sections, settings(tmp_path)) as door, connect(door.url) as caller:
            tasks = [await caller.send("go", skill="work", wait=False) for _ in range(5)]
            await until(lambda: worker.calls == 5)
            if kind == "restarting":
                await there.close()
                address = door.upstream("a").pool.addresses[0]
                before = address.failures.total()
                await until(lambda: address.failures.total() > before + 3)
                await there.open()
            else:
                for _ in range(10):
                    there.cut()
                    before = there.connections
                    await until(lambda before=before: there.connections > before)
            worker.going.set()
            for task in tasks:
                assert isinstance(task, Task)
                done = await finished(caller, task)
                assert (done.state, done.text) == (State.COMPLETED, "a begins and ends")
            assert worker.calls == 5


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_dialect_has_a_health_check(tmp_path: Path, dialect: str) -> None:
    grpc_port = own_port() if "grpc" in dialect else 0
    async with (
        asyncio.timeout(120),
        served(Worker("a").agent, settings(tmp_path, grpc_port=grpc_port, name="worker")) as url,
        gateway(
            {"a": {**section(tmp_path, url, dialect, grpc_port), **QUICK, "refresh": 0.2}},
            settings(tmp_path),
        ) as door,
    ):
        pool = door.upstream("a").pool
        (address,) = pool.addresses
        for _ in range(3):
            last = address.checked_at
            await until(lambda last=last: address.checked_at > last)
        assert not address.failures, (address.failures, address.last_error)
        assert (await ask(door.url, "hi")).text == "a"


async def test_callers_are_served_in_turn(tmp_path: Path) -> None:
    (tmp_path / "ann").write_text("the-token-of-ann")
    (tmp_path / "bob").write_text("the-token-of-bob")
    callers = {name: Known(secret=Secret(file=str(tmp_path / name))) for name in ("ann", "bob")}
    own = replace(settings(tmp_path), auth={"all": Tokens(callers=callers)})
    order: list[str] = []
    worker = Worker("a")

    @worker.agent.skill("note")
    async def note(turn: Turn) -> str:
        order.append(turn.text)
        return turn.text

    async with asyncio.timeout(120), door_to(tmp_path, worker.agent) as there:
        sections = {"a": {"url": there.url, **QUICK, "concurrency": 1}}
        async with gateway(sections, own) as door:
            pool = door.upstream("a").pool
            async with (
                connect(door.url, auth="the-token-of-ann") as ann,
                connect(door.url, auth="the-token-of-bob") as bob,
            ):
                await ann.send("go", skill="work", wait=False)
                await until(lambda: worker.calls == 1)
                waiting = []
                for caller, name in [(ann, "ann")] * 4 + [(bob, "bob")] * 2:
                    waiting.append(asyncio.create_task(caller.send(name, skill="note")))
                    await until(lambda: pool.queued == len(waiting))
                worker.going.set()
                await asyncio.gather(*waiting)
    assert order == ["ann", "bob", "ann", "bob", "ann", "ann"]


@pytest.mark.slow  # takes two seconds
async def test_a_slow_agent_is_waited_for(tmp_path: Path) -> None:
    agent, going = Agent("Slow", description="Slow.", version="1.0.0"), asyncio.Event()

    @agent.skill("late", default=True)
    async def late(turn: Turn) -> str:
        await going.wait()
        return "at last"

    async with asyncio.timeout(120), door_to(tmp_path, agent) as there:
        more = {**QUICK, "idle_timeout": 0.3, "answer_timeout": 30.0}
        async with gateway({"a": {"url": there.url, **more}}, settings(tmp_path)) as door:
            asked = asyncio.create_task(ask(door.url, "hi"))
            before = there.requests
            await until(lambda: there.requests > before + 3)  # silence, and the stream again
            going.set()
            assert (await asked).text == "at last"
