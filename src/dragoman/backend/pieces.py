"""Yields what a streaming function of a backend yields, async or not, piece by piece."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from .answers import WrongAnswer, named

IDLE = 4.0
"""The seconds of silence after which a reader is told that the stream is alive."""
QUIET = object()

_OVER = object()


async def each(what: str, pieces: Any, threads: ThreadPoolExecutor) -> AsyncGenerator[Any, None]:
    """Yields each piece of a function of a backend, and `QUIET` after a while without one."""
    if isinstance(pieces, AsyncIterator):
        following: AsyncIterator[Any] = pieces
    elif isinstance(pieces, Iterable) and not isinstance(pieces, str | bytes | dict):
        following = _threaded(iter(pieces), threads)
    else:
        raise WrongAnswer(f"{what} gave {named(pieces)}; it must yield (async or not)")
    step: asyncio.Task[Any] | None = None
    try:
        while True:
            # A separate task, because only the wait for an item times out, not the item itself.
            step = asyncio.get_running_loop().create_task(_next(following))
            while not (await asyncio.wait({step}, timeout=IDLE))[0]:
                yield QUIET
            if step.result() is _OVER:
                return
            yield step.result()
    finally:
        if step is not None and not step.done():
            step.cancel()
            await asyncio.wait({step})
        if isinstance(following, AsyncGenerator):
            await following.aclose()


async def _threaded(
    pieces: Iterator[Any], threads: ThreadPoolExecutor
) -> AsyncGenerator[Any, None]:
    loop = asyncio.get_running_loop()
    try:
        while True:
            piece = await loop.run_in_executor(threads, next, pieces, _OVER)
            if piece is _OVER:
                return
            yield piece
    finally:
        if inspect.isgenerator(pieces):
            with suppress(ValueError):  # it still runs in its thread, and its items are ignored
                pieces.close()


async def _next(pieces: AsyncIterator[Any]) -> Any:
    try:
        return await anext(pieces)
    except StopAsyncIteration:
        return _OVER
