"""The end of a task is told before an event that its receiver refuses again and again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dragoman.engine import webhook_queue
from dragoman.settings import Push
from webhooks.harness import QUICK, empty, engine, hook, send
from webhooks.receiver import Heard, Receiver

LONG: Push = replace(QUICK, schedule=(0, 0.02, 0.02, 0.3, 0.02), failures=99)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "OVERTAKES", 0.02)


async def test_the_end_overtakes_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_queue, "OVERTAKES", 600)

    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        times = sum(each.seq == 2 for each in receiver.heard)
        if times == 2:  # now it has been refused for long
            monkeypatch.setattr(webhook_queue, "OVERTAKES", 0)
        refused = one.seq == 2 and times < 5
        return (422 if refused else 204), {}

    receiver = Receiver(answer)
    async with receiver, engine(LONG) as running:
        await send(running, "1", hook(receiver.url))
        await empty(running)
        seqs = [one.seq for one in receiver.heard]
        assert [seq for seq in seqs if seq != 2] == [1, 4, 3, 4]
        assert seqs[1:3] == [2, 2]  # not at the first refusal
        early, late = (one for one in receiver.heard if one.seq == 4)
        assert early.id == late.id
        assert early.json == late.json
        assert "completed" in early.body.decode().lower()


async def test_a_receiver_that_is_down_is_not_asked_more_often() -> None:
    async with Receiver(lambda one: (503, {})) as receiver, engine(LONG) as running:
        await send(running, "1", hook(receiver.url))
        await receiver.until(4)
        assert {one.seq for one in receiver.heard[:4]} == {1}


async def test_a_task_that_goes_on_has_no_end_to_tell() -> None:
    def answer(one: Heard) -> tuple[int, dict[str, str]]:
        return (422 if one.seq == 1 else 204), {}

    async with Receiver(answer) as receiver, engine(LONG) as running:
        await send(running, "x", hook(receiver.url), skill="wait")
        await receiver.until(4)
        assert {one.seq for one in receiver.heard[:4]} == {1}
