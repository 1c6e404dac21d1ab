"""Manners in a room: no echo loops, no task is touched by others, and ids are not mixed up."""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from dragoman import Agent, Turn
from lite.room import living, member, new_hub
from waiting import stays, until, within


@pytest.mark.slow  # takes three seconds
async def test_a_task_id_that_comes_again_is_answered_with_the_current_state() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nwait")
        await anna.hears_state("working", "t1")
        before = len(anna.of_type("status"))
        await anna.say("[A2A:task id=t1]\nwait")
        await until(lambda: len(anna.of_type("status")) == before + 1)
        await anna.say("[A2A:task id=t2]\nhello")
        await anna.hears("result", task="t2")
        await anna.say("[A2A:task id=t2]\nhello")
        await until(lambda: len(anna.of_type("result")) == 2)
        first, second = anna.of_type("result")
        assert (first.params, first.body) == (second.params, second.body)
        assert len([each for each in anna.of_type("ack") if each.task == "t2"]) == 1


async def test_two_senders_may_use_the_same_id() -> None:
    async with living() as hub, member(hub, "anna") as anna, member(hub, "bob") as bob:
        await anna.say("@desk [A2A:task id=t1]\nwho")
        await anna.hears_text("lite:here:anna")
        await bob.say("@desk [A2A:task id=t1]\nwho")
        await bob.hears_text("lite:here:bob")


async def test_only_the_requester_or_an_operator_cancels() -> None:
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(living(operators=("olga",)))
        anna, bob, olga = [
            await stack.enter_async_context(member(hub, name)) for name in ("anna", "bob", "olga")
        ]
        for task in ("t1", "t2"):
            await anna.say(f"@desk [A2A:task id={task}]\nwait")
            await anna.hears_state("working", task)
        await bob.say("[A2A:cancel task=t1]")
        await bob.hears_text("Only its requester or an operator may cancel t1.")
        assert not [each for each in anna.of_type("result") if each.task == "t1"]
        await anna.say("[A2A:cancel task=t1 reason=user-request]")
        await anna.hears_state("cancelled", "t1")
        await olga.say("[A2A:cancel task=t2]")
        await anna.hears_state("cancelled", "t2")


async def test_in_a_group_a_task_without_a_mention_is_for_nobody() -> None:
    async with living() as hub, member(hub, "anna") as anna, member(hub, "bob"):
        await anna.say("[A2A:task id=t1]\nhello")
        await anna.say("@bob [A2A:task id=t2]\nhello")
        await anna.say("@desk [A2A:task id=t3]\nhello")
        await anna.hears("result")
        assert {each.task for each in anna.markers} == {"t3"}


async def test_without_the_rule_a_task_needs_no_mention() -> None:
    async with living(mention=False) as hub, member(hub, "anna") as anna, member(hub, "bob"):
        await anna.say("[A2A:task id=t1]\nhello")
        await anna.hears("result", task="t1")


def polite(other: str) -> Agent:
    """An agent that always has the last word, or so it would."""
    agent = Agent("Polite", description="Answers everything.")

    @agent.skill("answer")
    async def answer(turn: Turn) -> str:
        return f"@{other} after you"

    return agent


async def test_two_agents_in_one_room_fall_silent() -> None:
    hub = new_hub()
    async with (
        living(polite("beta"), hub=hub, user="alpha"),
        living(polite("alpha"), hub=hub, user="beta"),
        member(hub, "anna") as anna,
    ):
        await anna.say("@alpha go ahead")
        await until(lambda: len(anna.heard) >= 6)
        await stays(lambda: len(anna.heard) <= 12, 0.5)
        before = len(anna.heard)
        await anna.say("@beta and you?")  # a person is answered, whatever was before
        await until(lambda: len(anna.heard) > before)
        await stays(lambda: len(anna.heard) <= before + 12, 0.5)


async def test_an_agent_and_a_parrot_in_a_room_of_two_fall_silent() -> None:
    async with living() as hub, member(hub, "parrot", person=False) as parrot:
        await parrot.say("hello")
        for said in range(1, 20):
            if not await within(0.5, lambda said=said: len(parrot.heard) >= said):
                break
            await parrot.say(parrot.heard[said - 1].text)
        assert 1 <= len(parrot.heard) <= 6


async def test_a_program_without_markers_is_answered_only_so_often() -> None:
    async with living() as hub, member(hub, "echo", person=False) as echo:
        for number in range(20):
            await echo.say(f"number {number}")
        await until(lambda: echo.texts)
        await stays(lambda: len(echo.texts) <= 6, 0.5)
        await echo.say("[A2A:task id=t1]\nhello")  # a task is always answered
        await echo.hears("result", task="t1")


async def test_unknown_messages_of_programs_are_ignored() -> None:
    async with living() as hub, member(hub, "other", person=False) as other:
        await other.say("[A2A:negotiate offer=3]\nDeal?")
        await other.say("[A2A:status task=t7 state=pondering]")
        await other.say("[A2A:result task=t7 state=completed]\nDone.")
        await other.say("[A2A:task id=t1 colour=red]\nhello")
        await other.hears("result", task="t1")
        assert [each.type for each in other.markers] == ["ack", "result"]
        assert len(other.heard) == 2


async def test_a_message_that_is_heard_again_is_not_answered_again(tmp_path: Path) -> None:
    """A process that dies before its channel has noted the message hears it again."""
    hub, store = new_hub(), f"sqlite:///{tmp_path}/tasks.db"
    async with member(hub, "anna") as anna:
        async with living(hub=hub, store=store):
            await anna.say("@desk [A2A:task id=t1]\nhello")
            await anna.hears("result", task="t1")
            await anna.say("@desk two")
            await anna.hears_text("TWO")
        (cursor,) = tmp_path.glob("*.cursor")  # noqa: ASYNC240  nothing else runs
        epoch = cursor.read_text().partition(":")[0]
        cursor.write_text(f"{epoch}:0")  # as if nothing had been heard
        async with living(hub=hub, store=store):
            await anna.say("@desk [A2A:task id=t2]\nhello")
            await anna.hears("result", task="t2")
        assert len(anna.of_type("result")) == 2
        assert anna.texts.count("TWO") == 1


@pytest.mark.slow  # makes a hundred thousand tasks
async def test_an_open_conversation_goes_on_after_a_restart_behind_many_older_tasks(
    tmp_path: Path,
) -> None:
    hub, store = new_hub(), f"sqlite:///{tmp_path}/tasks.db"
    async with member(hub, "anna") as anna:
        async with living(hub=hub, store=store):
            await anna.say("@desk [A2A:task id=old]\nhello")
            await anna.hears("result", task="old")
            await anna.say("@desk [A2A:task id=t1]\nask")
            await anna.hears_state("input-required", "t1")
        _add_older_tasks(tmp_path / "tasks.db", 100_100)
        async with living(hub=hub, store=store):
            await anna.say("@desk [A2A:task id=t1]\nKyoto")
            assert (await anna.hears("result", task="t1")).body == "You said Kyoto."


def _add_older_tasks(path: Path, count: int) -> None:
    """Copies the finished task of a store, three days older than it is."""
    with sqlite3.connect(path) as db:
        names = [row[1] for row in db.execute("PRAGMA table_info(task)")]
        earlier = {"task_id": "'older-' || n", "key": "NULL"}
        for name in ("created_at", "status_at"):
            earlier[name] = f"{name} - 259200000"
        values = ", ".join(earlier.get(name, name) for name in names)
        db.execute(
            f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers"
            f" WHERE n < {count}) INSERT INTO task ({', '.join(names)})"
            f" SELECT {values} FROM numbers, task WHERE state = 'completed' AND n > 0"
            f" AND task_id NOT LIKE 'older-%'"
        )
    db.close()
