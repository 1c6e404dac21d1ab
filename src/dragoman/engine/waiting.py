"""Waiting for something that happens, but not longer than that."""

from __future__ import annotations

import asyncio
from typing import Any


async def within(waiter: asyncio.Future[None], seconds: float) -> None:
    """Waits for something that happens, but not longer."""
    if not waiter.done():
        timer = asyncio.get_running_loop().call_later(seconds, _give_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()


async def first_of(*waiters: asyncio.Future[Any], seconds: float) -> None:
    """Waits for whichever comes first."""
    await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
