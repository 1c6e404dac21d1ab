"""A share for everyone in a room: one sender cannot use up tasks, cards, memory or answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.lite.loop_guard import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    REQUEST_BURST,
    SenderPace,
)
from dragoman.lite.met_agents import MAX_AGENTS_PER_SENDER
from dragoman.lite.speaker import MAX_PIECES
from lite.irc_stranger import stranger
from lite.room import living, member, new_hub
from lite.test_room_agents import CARD, appears, gateway, listed
from lite.test_strangers import living as living_on_irc
from net.chat.ngircd import NEEDS_NGIRCD, Ngircd
from waiting import until


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    server = Ngircd(tmp_path)
    server.start()
    yield server.port
    server.stop()


@NEEDS_NGIRCD
@pytest.mark.slow  # starts processes
async def test_a_parrot_that_nobody_knows_to_be_a_program_does_not_keep_us_talking(
    port: int,
) -> None:
    async with stranger(port, "parrot", "#town") as parrot:
        async with living_on_irc(port, messages_per_second=1_000):

            async def repeat(who: str, room: str, text: str) -> None:
                await parrot.say(text)

            parrot.on_line = repeat
            await parrot.say("hello")
            await until(lambda: any("I listen again in" in text for _, _, text in parrot.lines))
            said = len(parrot.lines)
        assert said <= 3 * REQUEST_BURST + 10
        assert len(parrot.lines) <= 3 * REQUEST_BURST + 10


def test_who_keeps_asking_waits_longer_each_time() -> None:
    pace = SenderPace()
    now, answered, pauses = 0.0, 0, []
    for _ in range(200_000):  # a request every 100 ms, for five hours and a half
        now += 0.1
        admitted = pace.admit("parrot", now)
        answered += admitted == 0
        pauses += [admitted] if admitted else []
    assert pauses[:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, 4 * FIRST_PAUSE_SECONDS]
    assert max(pauses) == LONGEST_PAUSE_SECONDS
    assert answered < 100
    assert pace.admit("anna", now) == 0
    assert pace.admit("parrot", now + 2 * LONGEST_PAUSE_SECONDS) == 0


def test_a_person_who_talks_is_always_answered() -> None:
    pace = SenderPace()
    assert all(pace.admit("anna", 6.0 * number) == 0 for number in range(1_000))


async def test_a_sender_in_a_group_leaves_some_tasks_for_others() -> None:
    async with (
        living(tasks=4) as hub,
        member(hub, "mallory", person=False) as mallory,
        member(hub, "anna") as anna,
    ):
        for number in range(6):
            await mallory.say(f"[A2A:task id=m{number} to=desk]\nwait")
        await mallory.hears_state("rejected", "m5")
        await anna.say("[A2A:task id=t1 to=desk]\nhello")
        assert (await anna.hears("result", task="t1")).body == "HELLO"


async def test_an_account_stands_for_some_agents_and_not_for_all() -> None:
    hub = new_hub()
    async with living(hub=hub), gateway(hub) as gate, member(hub, "mallory") as mallory:
        for number in range(MAX_AGENTS_PER_SENDER + 3):
            card = CARD.replace('"id": "desk"', f'"id": "fake-{number}"')
            await mallory.say(f"[A2A:card]\nI am many.\n{card}")
        await appears(gate.url, "desk")
        await appears(gate.url, "fake-0")
        names = [name for name in await listed(gate.url) if name.startswith("fake-")]
        assert len(names) <= MAX_AGENTS_PER_SENDER


async def test_the_id_of_an_open_task_cannot_be_used_by_another() -> None:
    async with living() as hub, member(hub, "anna") as anna, member(hub, "mallory") as mallory:
        await anna.say("[A2A:task id=t1 to=desk]\nask")
        await anna.hears_state("input-required", "t1")
        await mallory.say("[A2A:task id=t1 to=desk]\nransom")
        await mallory.hears_text("Somebody else uses the id t1 here")
        await anna.say("[A2A:task id=t1]\nKyoto")
        assert (await anna.hears("result", task="t1")).body == "You said Kyoto."
        assert not any("RANSOM" in text for text in anna.texts)
        await mallory.say("[A2A:task id=t1 to=desk]\nnow it is free")
        await mallory.hears_text("NOW IT IS FREE")


@pytest.mark.slow  # says megabytes
async def test_a_text_that_is_too_long_for_a_room_is_cut_and_becomes_a_file() -> None:
    long = "[A2A:" * 800_000
    async with living() as hub, member(hub, "anna") as anna:
        await anna.post("long.txt", long.encode())
        await anna.say("[A2A:task id=t1]\nread\n[附件: long.txt]")
        result = await anna.hears("result", task="t1")
        assert "message.txt has all of it" in result.body
        assert len(anna.heard) <= MAX_PIECES + 5
        assert await anna.fetch("message.txt", 8 << 20) == long.encode()


async def test_who_asks_for_a_finished_task_again_and_again_is_not_always_answered() -> None:
    async with living() as hub, member(hub, "anna") as anna:
        await anna.say("[A2A:task id=t1]\nhello")
        await anna.hears("result", task="t1")
        for _ in range(3 * REQUEST_BURST):
            await anna.say("[A2A:task id=t1]\nhello")
        await anna.say("[A2A:task id=t2]\ngood-bye")
        await anna.hears("result", task="t2")
        results = [each for each in anna.of_type("result") if each.task == "t1"]
        assert 2 <= len(results) <= REQUEST_BURST + 5
