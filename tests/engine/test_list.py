"""Listing: filters, order, pages, and whose tasks they are."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from dragoman import Agent, State, Turn
from dragoman.core.errors import BadParams, TaskNotFound
from dragoman.core.peer import Context
from dragoman.testing import Client
from engine.harness import ANN, BOB, EngineHarness, gathered
from waiting import forever


def desk() -> Agent:
    agent = Agent("Desk")

    @agent.skill("do")
    async def do(turn: Turn) -> str | None:
        match turn.text:
            case "ask":
                return await turn.ask("Well?")
            case "fail":
                raise turn.fail("No")
            case "hang":
                await forever()
        return turn.text

    return agent


async def test_newest_first_and_in_pages(harness: EngineHarness) -> None:
    async with harness.client(desk()) as client:
        ids = [(await client.send(f"task {n}")).id for n in range(7)]
        page = await client.list()
        assert [task.id for task in page.tasks] == ids[::-1]
        assert (page.total, page.page_size, page.next_token) == (7, 50, "")
        seen: list[str] = []
        token = ""
        for _ in range(4):
            page = await client.list(page_size=2, page_token=token)
            assert page.total == 7
            assert page.page_size == 2
            seen += [task.id for task in page.tasks]
            token = page.next_token
        assert token == ""
        assert seen == ids[::-1]


async def test_a_full_last_page_has_no_next() -> None:
    async with Client(desk()) as client:
        for n in range(4):
            await client.send(str(n))
        page = await client.list(page_size=2)
        page = await client.list(page_size=2, page_token=page.next_token)
        assert len(page.tasks) == 2
        assert page.next_token == ""


async def test_new_tasks_do_not_disturb_the_pages(harness: EngineHarness) -> None:
    async with harness.client(desk()) as client:
        ids = [(await client.send(str(n))).id for n in range(4)]
        page = await client.list(page_size=2)
        harness.clock.skip(1)
        await client.send("new")
        more = await client.list(page_size=2, page_token=page.next_token)
        assert [t.id for t in (*page.tasks, *more.tasks)] == ids[::-1]


async def test_filters(harness: EngineHarness) -> None:
    async with harness.client(desk()) as client:
        one = await client.send("one", context_id="c")
        asked = await client.send("ask", context_id="c")
        failed = await client.send("fail", context_id="d")
        harness.clock.skip(10)
        hung = await client.send("hang", wait=False, context_id="c")

        async def ids(**filters: object) -> list[str]:
            return [task.id for task in (await client.list(**filters)).tasks]

        assert await ids(context_id="c") == [hung.id, asked.id, one.id]
        assert await ids(state=State.COMPLETED) == [one.id]
        assert await ids(state=State.INPUT_REQUIRED) == [asked.id]
        assert await ids(state=State.FAILED) == [failed.id]
        assert await ids(state=State.WORKING) == [hung.id]
        assert await ids(state=State.CANCELED) == []
        assert await ids(context_id="d", state=State.COMPLETED) == []
        assert await ids(since=hung.status.at) == [hung.id]
        assert await ids(since=0) == [hung.id, failed.id, asked.id, one.id]
        assert await ids(context_id="none") == []


async def test_a_task_moves_up_when_its_status_changes(harness: EngineHarness) -> None:
    async with harness.client(desk()) as client:
        asked = await client.send("ask")
        harness.clock.skip(1)
        other = await client.send("other")
        assert [t.id for t in (await client.list()).tasks] == [other.id, asked.id]
        harness.clock.skip(1)
        await client.send("yes", task=asked)
        assert [t.id for t in (await client.list()).tasks] == [asked.id, other.id]


async def test_artifacts_only_when_asked_for() -> None:
    async with Client(desk()) as client:
        await client.send("one")
        assert (await client.list()).tasks[0].artifacts == ()
        assert (await client.list(with_artifacts=True)).tasks[0].text == "one"


async def test_a_token_is_for_one_list_only(harness: EngineHarness) -> None:
    async with harness.client(desk(), context=ANN) as ann:
        for n in range(3):
            await ann.send(str(n), context_id="c")
        token = (await ann.list(page_size=1)).next_token
        assert token
        bob = Client(ann.engine.agent, store=ann.store, context=BOB)
        bob.engine = ann.engine
        for client, filters in (
            (ann, {"context_id": "c"}),
            (ann, {"state": State.COMPLETED}),
            (ann, {"since": 0}),
            (bob, {}),
        ):
            with pytest.raises(BadParams, match="page token"):
                await client.list(page_size=1, page_token=token, **filters)
        assert len((await ann.list(page_size=1, page_token=token)).tasks) == 1


@pytest.mark.parametrize("spoil", ["flip", "cut", "foreign", "nonsense", "emoji", "long"])
async def test_a_tampered_token_is_refused(spoil: str) -> None:
    async with Client(desk()) as client, Client(desk()) as other:
        for n in range(3):
            await client.send(str(n))
            await other.send(str(n))
        token = (await client.list(page_size=1)).next_token
        raw = bytearray(urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        raw[-1] ^= 1
        tokens = {
            "flip": urlsafe_b64encode(raw).decode().rstrip("="),
            "cut": token[: len(token) // 2],
            "foreign": (await other.list(page_size=1)).next_token,
            "nonsense": "nonsense",
            "emoji": "🐉🐉",
            "long": "A" * 100_000,
        }
        assert tokens[spoil] != token
        with pytest.raises(BadParams, match="page token"):
            await client.list(page_size=1, page_token=tokens[spoil])


# What belongs to someone else does not exist.


OTHERS = [
    pytest.param(BOB, id="principal"),
    pytest.param(Context(principal="ann", tenant="other"), id="tenant"),
]


@pytest.mark.parametrize("stranger", OTHERS)
@pytest.mark.parametrize("what", ["hang", "ask", "done"])
async def test_strangers_find_nothing(harness: EngineHarness, stranger: Context, what: str) -> None:
    async with harness.client(desk(), context=ANN) as ann:
        bob = Client(ann.engine.agent, store=ann.store, context=stranger)
        bob.engine = ann.engine
        task = await ann.send(what, context_id="c", wait=what != "hang")
        before = await ann.get(task.id)
        with pytest.raises(TaskNotFound):
            await bob.get(task.id)
        with pytest.raises(TaskNotFound):
            await bob.cancel(task.id)
        with pytest.raises(TaskNotFound):
            await bob.send("hi", task=task.id)
        with pytest.raises(TaskNotFound):
            await gathered(bob.stream("hi", task=task.id))
        with pytest.raises(TaskNotFound):
            await bob.resolve(task.id, "input:Well?", "yes")
        for cursor in (None, 0, 1, 99):
            with pytest.raises(TaskNotFound):
                await gathered(bob.watch(task.id, cursor))
        for filters in ({}, {"context_id": "c"}, {"state": task.state}):
            page = await bob.list(**filters)
            assert (page.tasks, page.total) == ((), 0)
        assert await ann.get(task.id) == before
