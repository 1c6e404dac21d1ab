"""Whose first answer is late, and who is canceled for another reason."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from dragoman.gateway.answer_timeout import AnswerTimeout
from waiting import turns, until


class Late(Exception):
    """The wait was too long."""


async def wait(limit: AnswerTimeout, answer: asyncio.Future[str]) -> str:
    task = limit.begin(monotonic())
    try:
        return await answer
    except asyncio.CancelledError:
        if limit.is_late(task):
            raise Late from None
        raise
    finally:
        limit.end(task)


def never() -> asyncio.Future[str]:
    return asyncio.get_running_loop().create_future()


async def test_a_wait_that_is_too_long_ends() -> None:
    timeout = AnswerTimeout(0.05)
    both = await asyncio.gather(
        wait(timeout, never()), wait(timeout, never()), return_exceptions=True
    )
    assert [type(each) for each in both] == [Late, Late]


async def test_each_wait_has_its_own_end() -> None:
    """One timer serves all, also those that begin while it runs."""
    timeout = AnswerTimeout(0.2)
    task = asyncio.current_task()
    assert task is not None
    answer = never()
    first = asyncio.create_task(wait(timeout, answer))
    await turns(2)
    answer.set_result("in time")
    assert await first == "in time"
    for _ in range(2):
        began = asyncio.get_running_loop().time()
        with pytest.raises(Late):
            await wait(timeout, never())
        assert not task.cancelling()
        assert asyncio.get_running_loop().time() - began >= 0.19


async def test_a_task_that_is_canceled_is_not_late() -> None:
    timeout = AnswerTimeout(60.0)
    task = asyncio.create_task(wait(timeout, never()))
    await turns(2)
    task.cancel()
    await until(task.done)
    assert task.cancelled()


async def test_a_task_that_is_canceled_when_it_is_late_is_canceled() -> None:
    timeout = AnswerTimeout(0.01)
    waiting = never()
    waiting.add_done_callback(lambda _: task.cancel())
    task = asyncio.create_task(wait(timeout, waiting))
    await until(task.done)
    assert task.cancelled()
