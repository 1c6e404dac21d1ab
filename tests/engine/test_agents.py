"""Two agents over one store in one process: what belongs to one does not exist for the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dragoman import Agent, State, Turn
from dragoman.core.errors import BadParams, TaskNotFound
from dragoman.core.events import Stamped
from dragoman.core.model import Hook, Json, Message, Role, Task, Text
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetHook,
    GetTask,
    ListHooks,
    ListTasks,
    Resolve,
    SendMessage,
    SetHook,
    Watch,
)
from dragoman.core.peer import Context
from dragoman.engine import Engine, EngineSettings
from dragoman.engine.webhook_transport import WebhookAnswer
from dragoman.settings import Retention
from dragoman.store import open_store
from dragoman.store.interface import AdminFilter
from engine.harness import ANN, EngineHarness, until

SECRET = b"s" * 32


class Sender:
    """Notes which events reach which webhooks."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    async def check(self, hook: Hook) -> None:
        return None

    def sealed(self, hook: Hook, known: Hook | None = None) -> Hook:
        return hook

    def masked(self, hook: Hook) -> Hook:
        return hook

    def wants_task(self, hook: Hook) -> bool:
        return False

    def host(self, hook: Hook) -> str:
        return "example.com"

    async def deliver(self, hook: Hook, entry: Stamped, task: Task | None) -> WebhookAnswer:
        self.told.append((entry.task_id, entry.seq))
        return WebhookAnswer(status=200)

    async def close(self) -> None:
        return None


def desk(greeting: str) -> Agent:
    """Agents of one display name and one skill: only their names in the store differ."""
    agent = Agent("Desk")

    @agent.skill("talk", default=True, cancel_grace=0.2)
    async def talk(turn: Turn) -> str:
        if turn.text == "ask":
            return f"{greeting} {await turn.ask('Who?')}"
        if turn.text == "past":
            said = await turn.conversation()
            return f"{greeting} {[message.text for message in said]}"
        return f"{greeting} {turn.text}"

    @agent.skill("reply", may_reply=True)
    async def reply(turn: Turn) -> None:
        await turn.reply(greeting)

    return agent


class Pair:
    """Alpha and beta over one store that is opened and closed once."""

    def __init__(self, harness: EngineHarness, **options: object) -> None:
        self.harness, self.store = harness, harness.store()
        self.senders = {name: Sender() for name in ("alpha", "beta")}
        self.alpha, self.beta = (self.engine(name, **options) for name in self.senders)

    def engine(self, name: str, **options: object) -> Engine:
        return Engine(
            desk(name),
            self.store,
            EngineSettings(),
            name=name,
            opens_store=False,
            secret=SECRET,
            clock=self.harness.clock,
            sender=self.senders[name],
            **options,  # type: ignore[arg-type]
        )


@asynccontextmanager
async def pair(harness: EngineHarness, **options: object) -> AsyncIterator[Pair]:
    both = Pair(harness, **options)
    await both.store.open()
    await both.alpha.start()
    await both.beta.start()
    try:
        yield both
    finally:
        await both.alpha.stop(0)
        await both.beta.stop(0)
        await both.store.close()


def message(text: str, **about: Json) -> SendMessage:
    skill = {"skillId": about.pop("skill")} if "skill" in about else None
    said = Message(message_id="m", role=Role.USER, parts=(Text(text),), metadata=skill)
    return SendMessage(message=replace(said, **about))


async def send(engine: Engine, text: str, ctx: Context = ANN, **about: Json) -> Task:
    task = await engine.call(message(text, **about), ctx)
    assert isinstance(task, Task)
    return task


def text_of(task: Task) -> str:
    return "".join(artifact.text for artifact in task.artifacts)


async def test_the_task_of_alpha_does_not_exist_under_beta(harness: EngineHarness) -> None:
    async with pair(harness) as both:
        ended = await send(both.alpha, "hello")
        asked = await send(both.alpha, "ask")
        hook = Hook(hook_id="h", task_id="", url="https://example.com/")
        question = "input:Who?"
        for task in (ended, asked):
            await both.alpha.call(SetHook(hook=replace(hook, task_id=task.id)), ANN)
            for op in (
                GetTask(task_id=task.id),
                CancelTask(task_id=task.id),
                Resolve(task_id=task.id, question=question, value="Bob"),
                message("to the task", task_id=task.id),
                SetHook(hook=replace(hook, task_id=task.id)),
                GetHook(task_id=task.id, hook_id="h"),
                ListHooks(task_id=task.id),
                DeleteHook(task_id=task.id, hook_id="h"),
            ):
                with pytest.raises(TaskNotFound):
                    await both.beta.call(op, ANN)
            for op in (Watch(task_id=task.id), message("to the task", task_id=task.id)):
                for cursor in (None, 1):
                    with pytest.raises(TaskNotFound):
                        async for _ in both.beta.stream(op, replace(ANN, cursor=cursor)):
                            pass
            page = await both.alpha.call(ListHooks(task_id=task.id), ANN)
            assert [one.hook_id for one in page.hooks] == ["h"]
        assert (await both.beta.call(ListTasks(), ANN)).tasks == ()
        assert (await both.alpha.call(ListTasks(), ANN)).total == 2
        assert await both.beta.count_unfinished(ANN) == 0
        assert await both.beta.counts() == {"runnable": 0}
        done = await both.alpha.call(Resolve(task_id=asked.id, question=question, value="Bob"), ANN)
        await until(lambda: asked.id not in both.alpha.runner.runs)
        done = await both.alpha.call(GetTask(task_id=done.id), ANN)
        assert text_of(done) == "alpha Bob"


async def test_an_idempotency_key_is_of_one_agent(harness: EngineHarness) -> None:
    async with pair(harness) as both:
        keyed = replace(ANN, idempotency_key="k")
        first, second = await send(both.alpha, "x", keyed), await send(both.beta, "x", keyed)
        assert (text_of(first), text_of(second)) == ("alpha x", "beta x")
        assert (await send(both.alpha, "x", keyed)).id == first.id
        assert (await send(both.beta, "x", keyed)).id == second.id
        replies = replace(ANN, idempotency_key="reply")
        for engine in (both.alpha, both.beta, both.alpha):
            answer = await engine.call(message("hi", skill="reply"), replies)
            assert isinstance(answer, Message)
            assert answer.text == engine.name
        # A reply that is kept is no task.
        assert await both.alpha.counts() == {"completed": 1, "runnable": 0}
        assert (await both.alpha.call(ListTasks(), ANN)).total == 1


async def test_a_context_and_a_name_are_of_one_agent(harness: EngineHarness) -> None:
    async with pair(harness) as both:
        await send(both.alpha, "a secret", context_id="c")
        assert "secret" in text_of(await send(both.alpha, "past", context_id="c"))
        assert "secret" not in text_of(await send(both.beta, "past", context_id="c"))
        tasks = [
            await engine.call(replace(message("hi"), open_as="mine"), ANN)
            for engine in (both.alpha, both.beta)
        ]
        assert [text_of(task) for task in tasks] == ["alpha hi", "beta hi"]
        for engine, task in zip((both.alpha, both.beta), tasks, strict=True):
            assert (await engine.call(GetTask(task_id="mine"), ANN)).id == task.id


async def test_a_page_token_of_alpha_is_refused_under_beta(harness: EngineHarness) -> None:
    async with pair(harness) as both:
        for engine in (both.alpha, both.beta):
            for _ in range(3):
                await send(engine, "x")
        first = await both.alpha.call(ListTasks(page_size=1), ANN)
        assert first.total == 3
        rest = ListTasks(page_size=1, page_token=first.next_token)
        assert len((await both.alpha.call(rest, ANN)).tasks) == 1
        with pytest.raises(BadParams, match="page token"):
            await both.beta.call(rest, ANN)


async def test_each_engine_calls_the_webhooks_of_its_own_tasks(harness: EngineHarness) -> None:
    async with pair(harness) as both:
        hook = Hook(hook_id="h", task_id="", url="https://example.com/")
        tasks = {
            engine.name: await engine.call(replace(message("x"), hook=hook), ANN)
            for engine in (both.alpha, both.beta)
        }

        async def delivered() -> bool:
            return not await both.store.outbox(dead=False, limit=1)

        await until(delivered)
        for name, sender in both.senders.items():
            task = tasks[name]
            assert isinstance(task, Task)
            assert {told for told, _ in sender.told} == {task.id}


async def test_each_engine_takes_up_only_its_own_tasks(durable: EngineHarness) -> None:
    async with pair(durable) as both:
        asked = [await send(engine, "ask") for engine in (both.alpha, both.beta)]
    # They were given back. One agent comes back alone, and hears an answer to its own task.
    again = Pair(durable)
    durable.clock.skip(60)
    await again.store.open()
    await again.beta.start()
    try:
        done = await send(again.beta, "Bob", task_id=asked[1].id)
        assert text_of(done) == "beta Bob"
        with pytest.raises(TaskNotFound):
            await send(again.beta, "Bob", task_id=asked[0].id)
        await again.alpha.start()
        done = await send(again.alpha, "Ann", task_id=asked[0].id)
        assert text_of(done) == "alpha Ann"
        await again.alpha.stop(0)
    finally:
        await again.beta.stop(0)
        await again.store.close()


async def test_an_engine_that_stops_disturbs_no_other(harness: EngineHarness) -> None:
    async with pair(harness) as both:
        kept, given = await send(both.beta, "ask"), await send(both.alpha, "ask")
        await both.alpha.stop(0)
        assert (await both.beta.call(GetTask(task_id=kept.id), ANN)).state is State.INPUT_REQUIRED
        assert kept.id in both.beta.runner.runs
        assert text_of(await send(both.beta, "Bob", task_id=kept.id)) == "beta Bob"
        # Another engine of this agent goes on over the same store.
        fresh = both.engine("alpha")
        await fresh.start()
        assert text_of(await send(fresh, "Ann", task_id=given.id)) == "alpha Ann"
        await fresh.stop(0)


async def test_each_engine_hears_of_what_another_process_did(shared: EngineHarness) -> None:
    """What has changed is news for every engine over a store, not for the first that looks."""
    async with pair(shared) as both:
        asked = [(engine, await send(engine, "ask")) for engine in (both.alpha, both.beta)]
        elsewhere = open_store(shared.url, clock=shared.clock)
        await elsewhere.open()
        for engine, task in asked:
            await elsewhere.ask_cancel(engine.runner.scope_of(ANN), task.id)
        await elsewhere.close()
        for engine, task in asked:

            async def canceled(engine: Engine = engine, task: Task = task) -> bool:
                found = await engine.call(GetTask(task_id=task.id), ANN)
                return found.state is State.CANCELED

            await until(canceled)


async def test_an_agent_drops_what_is_too_old_of_its_own(harness: EngineHarness) -> None:
    rules = (Retention(agent="alpha", keep_tasks=60.0),)
    async with pair(harness, retention=rules) as both:
        await send(both.alpha, "x")
        kept = await send(both.beta, "x")
        harness.clock.skip(61)
        await asyncio.gather(*(one._maintenance._sweep() for one in (both.alpha, both.beta)))
        assert [row.task_id for row in await both.store.find_in_all_scopes(AdminFilter(), 9)] == [
            kept.id
        ]


async def test_an_agent_without_a_name_keeps_its_tasks_under_its_own(
    harness: EngineHarness,
) -> None:
    """So a server of one agent goes on with the store it always had."""
    store = harness.store()
    engine = Engine(desk("alone"), store, clock=harness.clock)
    assert engine.name == "Desk"
    await engine.start()
    try:
        task = await send(engine, "x")
        (row,) = await store.find_in_all_scopes(AdminFilter(agent="Desk"), 9)
        assert row.task_id == task.id
    finally:
        await engine.stop(0)
