"""Waits until a change that was handed to a store is on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .writes import Done


async def acknowledged(hand_over: Callable[[Done], None]) -> None:
    """Hands a change over and returns when it is committed; raises what prevented it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hand_over(lambda error: resolve(future, error))
    await future


def resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    """Tells the outcome to whoever waits; nobody may wait any more."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
