"""A server under load that is killed again and again, and the verdict on it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import Protocol

from crash.check import Counts, Kept, check_kept, check_told, count, settled
from crash.client import Client
from crash.load import Load, Memory
from crash.server import Server

FULL = os.environ.get("DRAGOMAN_FULL") == "1"
SETTLE = 90.0 if FULL else 40.0
ATTEMPTS = 5
"""How often a control is tried at most: whether a fault hits where it does harm is chance."""


class Target(Protocol):
    """What is killed: a server, or several at once."""

    def start(self) -> None: ...

    async def ready(self) -> None: ...

    def kill(self) -> None: ...


class Callers(Protocol):
    """What keeps asking until `enough` is set."""

    enough: asyncio.Event

    async def run(self) -> None: ...


async def under_fire(
    server: Server,
    memory: Memory,
    kills: int,
    seed: int,
    unsettled: Callable[[], int],
    after_kill: Callable[[], None] = lambda: None,
    settle: float = SETTLE,
) -> None:
    """Load and kills, then a last life in which everything comes to rest by itself."""
    server.start()
    await server.ready()
    load = Load([Client(server.url)], memory, seed)
    await fire_at(server, load, kills, seed, unsettled, after_kill, settle)


async def fire_at(
    server: Target,
    load: Callers,
    kills: int,
    seed: int,
    unsettled: Callable[[], int],
    after_kill: Callable[[], None] = lambda: None,
    settle: float = SETTLE,
) -> None:
    """The same for a load and servers that run already."""
    dice = random.Random(seed)
    loading = asyncio.create_task(load.run())
    try:
        for n in range(kills):
            if n % 7 == 3:
                await asyncio.sleep(dice.uniform(0.05, 0.6))  # perhaps before it is up again
            else:
                await server.ready()
                await asyncio.sleep(dice.uniform(0.2, 1.2))  # anywhere in its work
            assert not loading.done(), loading.result()
            server.kill()
            after_kill()
            server.start()
        await server.ready()
        load.enough.set()
        await settled(loading, unsettled, settle)
    finally:
        loading.cancel()
        await asyncio.wait([loading])


async def verdict(
    server: Server,
    memory: Memory,
    read: Callable[[], dict[str, Kept]],
    kills: int,
    patience: float = 20.0,
) -> Counts:
    """Over HTTP while it runs, then from what lies on the disk."""
    compared = await check_told(memory, read(), Client(server.url), patience)
    code, _ = await server.stop()
    assert code == 0, server.logged()
    kept = read()
    check_kept(memory, kept, server.ledger)
    return count(memory, kept, server.ledger, kills, compared)
