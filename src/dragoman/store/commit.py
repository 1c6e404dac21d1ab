"""Waiting for a change that was handed over to a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .writes import Done


async def commit(hand_over: Callable[[Done], None]) -> None:
    """Hands a change over and returns when it is committed; raises the error that prevented it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hand_over(lambda error: resolve(future, error))
    await future


def resolve(future: asyncio.Future[None], error: Exception | None) -> None:
    """Passes the outcome of a change on to a future."""
    # The task that awaits the future may have been canceled meanwhile.
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
