"""How tests wait: for a condition, never for a fixed time.

A limit only catches a hang, so it is generous: a loaded machine may take long.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

LIMIT = 120.0
"""Seconds after which nothing will happen any more."""
TICK = 0.005


async def until(condition: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """Waits until a function, plain or async, returns something true, and returns that."""
    found = await within(seconds, condition)
    assert found, f"not so after {seconds} s: {_words(condition)}"
    return found


async def within(seconds: float, condition: Callable[[], Any], tick: float = TICK) -> Any:
    """Like `until`, where it need not happen: after so many seconds what was returned last."""
    deadline = time.monotonic() + seconds
    while not (found := await _ask(condition)) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(tick)
    return found


async def before_again() -> None:
    """The pause of one that was refused or cut off, and tries again."""
    await asyncio.sleep(0.05)


async def pace(seconds: float) -> None:
    """The pace of a caller, a sender or a reader that a test plays. Nothing waits for it."""
    await asyncio.sleep(seconds)


async def stays(condition: Callable[[], Any], seconds: float = 0.05) -> None:
    """Looks for a short while that something stays true, where no later event can prove it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert await _ask(condition), f"no longer so: {_words(condition)}"
        await asyncio.sleep(TICK)


def wait_until(condition: Callable[[], Any], seconds: float = LIMIT) -> Any:
    """Like `until`, for tests without an event loop."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not so after {seconds} s: {_words(condition)}"
        time.sleep(TICK)
    return found


async def forever() -> None:
    """The work of an agent that ends only when it is canceled."""
    await asyncio.sleep(3600)


async def turns(count: int = 1) -> None:
    """Lets everything else that is ready run, so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _ask(condition: Callable[[], Any]) -> Any:
    found = condition()
    return await found if inspect.isawaitable(found) else found


def _words(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)
