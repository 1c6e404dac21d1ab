"""Skills that ask other agents: results, questions, cancels, traces, loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from dragoman import Agent, State, SyncTurn, Task, Turn
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.peer import Context
from dragoman.testing import Client, served
from waiting import forever, turns

DIALECTS = ["a2a-1.0", "a2a-1.0-rest", "a2a-0.3", "a2a-0.3-rest", "a2a-0.1", "a2a-1.0-grpc"]


class Worker:
    """An agent that is asked, and writes down what it really did."""

    def __init__(self) -> None:
        self.agent = Agent("Worker", description="Works")
        self.did: list[str] = []
        self.callers: list[Context] = []
        self.started = asyncio.Event()
        self.canceled = asyncio.Event()

        @self.agent.skill("shout", default=True)
        async def shout(turn: Turn) -> str:
            self.did.append(turn.text)
            self.callers.append(turn.caller)
            return turn.text.upper()

        @self.agent.skill("ask")
        async def ask(turn: Turn) -> str:
            city = await turn.ask("Which city?")
            if not await turn.approve(f"Book {city}?", details={"city": str(city)}):
                raise turn.reject("Not approved")
            self.did.append(city)
            return f"booked {city}"

        @self.agent.skill("login")
        async def login(turn: Turn) -> str:
            secret = await turn.need_auth(["basic"], prompt="Who are you?")
            return f"hello {len(secret)}"

        @self.agent.skill("slow")
        async def slow(turn: Turn) -> str:
            self.did.append("slow")
            self.started.set()
            try:
                await forever()
            except asyncio.CancelledError:
                self.canceled.set()
                raise
            return "done"

        @self.agent.skill("fail")
        async def fail(turn: Turn) -> str:
            raise turn.fail("I cannot")

        @self.agent.skill("tell")
        async def tell(turn: Turn) -> AsyncIterator[str]:
            for word in turn.text.split():
                yield word + " "
                await turns(5)

        @self.agent.skill("greet", may_reply=True)
        async def greet(turn: Turn) -> None:
            self.did.append("greet")
            await turn.reply("hello")

        @self.agent.skill("plan")
        async def plan(turn: Turn, city: str, days: int = 3) -> dict[str, int]:
            return {city: days}

        @self.agent.method("worker.x/add")
        async def add(caller: Context, a: int, b: int) -> int:
            self.did.append("add")
            return a + b


@asynccontextmanager
async def team(boss: Agent, worker: Worker, *, grpc: bool = False) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        boss.url = await stack.enter_async_context(served(worker.agent, grpc=grpc))  # type: ignore[attr-defined]
        yield await stack.enter_async_context(Client(boss))


def url_of(boss: Agent) -> str:
    return boss.url  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_same_in_every_dialect(dialect: str) -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        other = turn.agent(url_of(boss), dialect=dialect)
        task = await other.send(turn.text)
        words = [
            event.event.artifact.text
            async for event in other.stream("one two", skill="tell")
            if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk)
        ]
        return f"{task.text} {''.join(words)}"

    async with team(boss, worker, grpc=dialect.endswith("grpc")) as client:
        task = await client.send("hi")
        assert task.state is State.COMPLETED, task
        assert task.text == "HI one two "
    assert worker.did == ["hi"]


async def test_everything_a_bound_agent_can_do() -> None:
    worker, boss = Worker(), Agent("Boss")
    found: dict[str, object] = {}

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        other = turn.agent(url_of(boss))
        found["card"] = (await other.card()).name
        found["call"] = await other.call("plan", city="Oslo")
        found["invoke"] = await other.invoke("worker.x/add", a=1, b=2)
        reply = await other.send("hello", skill="greet")
        found["reply"] = (type(reply), reply.text)
        failed = await other.send("x", skill="fail")
        assert isinstance(failed, Task)
        found["failed"] = failed.state
        task = await other.send("x", skill="ask")
        assert isinstance(task, Task)
        task = await other.answer(task, "Rome")
        found["waits"] = task.state
        found["done"] = (await other.answer(task, True)).text
        quick = await other.send("x", skill="slow", wait=False)
        assert isinstance(quick, Task)
        found["canceled"] = (await other.cancel(quick)).state
        found["got"] = (await other.get(quick)).state
        return "ok"

    async with team(boss, worker) as client:
        task = await client.send("hi")
        assert task.text == "ok", task
    assert found == {
        "card": "Worker",
        "call": {"Oslo": 3},
        "invoke": 3,
        "reply": (Task, "hello"),
        "failed": State.FAILED,
        "waits": State.INPUT_REQUIRED,
        "done": "booked Rome",
        "canceled": State.CANCELED,
        "got": State.CANCELED,
    }


async def test_fan_out_is_plain_python() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        other = turn.agent(url_of(boss))
        said = await asyncio.gather(*(other.send(word) for word in turn.text.split()))
        return " ".join(each.text for each in said)

    async with team(boss, worker) as client:
        assert (await client.send("a b c d")).text == "A B C D"
    assert sorted(worker.did) == ["a", "b", "c", "d"]


async def test_a_plain_function_blocks() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go")
    def go(turn: SyncTurn) -> str:
        other = turn.agent(url_of(boss))
        chunks = [each.event for each in other.stream("one two", skill="tell")]
        told = "".join(c.artifact.text for c in chunks if isinstance(c, ArtifactChunk))
        return f"{other.send(turn.text).text} {other.call('plan', city='Oslo')} {told}"

    async with team(boss, worker) as client:
        assert (await client.send("hi")).text == "HI {'Oslo': 3} one two "


async def test_questions_go_up_and_answers_down() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        task = await turn.agent(url_of(boss)).send("x", skill="ask", pass_up=True)
        return task.text

    async with team(boss, worker) as client:
        task = await client.send("hi")
        assert task.state is State.INPUT_REQUIRED
        assert task.status.message is not None
        assert task.status.message.text == "Which city?"
        task = await client.send("Rome", task=task)
        assert task.status.message is not None
        assert task.status.message.text == "Book Rome?"
        assert task.status.message.parts[1].value["kind"] == "approval"  # type: ignore[union-attr]
        assert task.status.message.parts[1].value["details"] == {"city": "Rome"}  # type: ignore[union-attr]
        task = await client.send("yes", task=task)
        assert task.text == "booked Rome"
    assert worker.did == ["Rome"]


async def test_credentials_pass_through_and_stay_nowhere() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        task = await turn.agent(url_of(boss)).send("x", skill="login", pass_up=True)
        return task.text

    async with team(boss, worker) as client:
        task = await client.send("hi")
        assert task.state is State.AUTH_REQUIRED
        task = await client.send("s3cret", task=task)
        assert task.text == "hello 6"
        assert "s3cret" not in str(await client.get(task.id))


async def test_a_cancel_goes_down() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        return (await turn.agent(url_of(boss)).send("x", skill="slow")).text

    async with team(boss, worker) as client:
        task = await client.send("hi", wait=False)
        await asyncio.wait_for(worker.started.wait(), 60)
        assert (await client.cancel(task.id)).state is State.CANCELED
        await asyncio.wait_for(worker.canceled.wait(), 60)


async def test_a_cancel_goes_down_through_code_that_will_not_stop() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go", cancel_grace=0.2)
    def go(turn: SyncTurn) -> str:
        return str(turn.agent(url_of(boss)).send("x", skill="slow").text)

    async with team(boss, worker) as client:
        task = await client.send("hi", wait=False)
        await asyncio.wait_for(worker.started.wait(), 60)
        assert (await client.cancel(task.id)).state is State.CANCELED
        await asyncio.wait_for(worker.canceled.wait(), 60)


@pytest.mark.parametrize("how", ["timeout", "fails"])
async def test_what_is_given_up_is_stopped_there_too(how: str) -> None:
    worker, boss = Worker(), Agent("Boss")

    async def broken() -> None:
        await worker.started.wait()
        raise RuntimeError("broken")

    async def too_late(limit: asyncio.Timeout) -> None:
        await worker.started.wait()
        limit.reschedule(0)

    @boss.skill("go")
    async def go(turn: Turn) -> str:
        other = turn.agent(url_of(boss))
        if how == "timeout":
            try:
                async with asyncio.timeout(None) as limit:
                    ending = asyncio.create_task(too_late(limit))
                    await other.send("x", skill="slow")
            except TimeoutError:
                await ending
                return "too slow"
        await asyncio.gather(other.send("x", skill="slow"), broken())
        return "never"

    async with team(boss, worker) as client:
        task = await client.send("hi")
        assert task.state is (State.COMPLETED if how == "timeout" else State.FAILED)
        await asyncio.wait_for(worker.canceled.wait(), 60)


async def test_trace_hops_and_deadline_go_along() -> None:
    worker, boss = Worker(), Agent("Boss")

    @boss.skill("go", timeout=20)
    async def go(turn: Turn) -> str:
        return (await turn.agent(url_of(boss)).send(turn.text)).text

    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with team(boss, worker) as client:
        await client.send("own")
        client.context = Context(trace=trace, hops=3, deadline=7.5)
        await client.send("given")
    own, given = worker.callers
    assert own.hops == 1
    assert own.trace.startswith("00-")
    assert own.deadline is not None
    assert 15 < own.deadline <= 20
    assert (given.hops, given.trace) == (4, trace)
    assert given.deadline is not None
    assert 5 < given.deadline <= 7.5


async def test_a_loop_ends() -> None:
    boss = Agent("Boss")
    runs = 0
    async with AsyncExitStack() as stack:

        @boss.skill("go")
        async def go(turn: Turn) -> str:
            nonlocal runs
            runs += 1
            return (await turn.agent(url).call("go"))["text"]  # type: ignore[index,call-overload,no-any-return]

        url = await stack.enter_async_context(served(boss))
        client = await stack.enter_async_context(Client(boss))
        task = await client.send("round")
        assert task.state is State.FAILED
    assert runs == 17


async def test_too_little_time_ends_the_work() -> None:
    worker = Worker()
    async with Client(worker.agent, context=Context(deadline=0.3)) as client:
        task = await client.send("x", skill="slow")
    assert task.state is State.FAILED
    assert (task.status.message.metadata or {})["reason"] == "agent_timed_out"  # type: ignore[union-attr]
