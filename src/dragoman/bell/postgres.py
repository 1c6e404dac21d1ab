"""A bell on PostgreSQL: LISTEN and NOTIFY on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from .shared import ConnectedBell

CHECK = 10.0
"""Seconds between two checks of a connection that is silent, and how long a check may take."""

_NOTIFY = "SELECT pg_notify($1, $2)"
# A notification is a transaction of its own. It keeps nothing, so it need not wait for the disk.
_HURRY = "SET synchronous_commit = off"


class PostgresBell(ConnectedBell):
    """Implements `SharedBell`. The connection must not go through a pooler that assigns connections
    per transaction: such a one loses notifications."""

    largest = 7_900  # PostgreSQL allows 8,000
    failures = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection[Any]]], channel: str
    ) -> None:
        """`channel` is the same for all processes on one store, and no other's."""
        super().__init__()
        self._open, self._channel = connect, channel
        self._connection: asyncpg.Connection[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def _connect(self) -> None:
        connection = self._connection = await self._open()
        connection.add_termination_listener(lambda _: self._wake.set())
        await connection.execute(_HURRY)
        await connection.add_listener(self._channel, lambda *heard: self._hear(heard[3]))
        self._check_later()

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK, self._wake.set)

    async def _send(self, message: bytes) -> None:
        if self._connection is not None:
            await self._connection.execute(_NOTIFY, self._channel, message.decode(), timeout=CHECK)

    async def _check(self) -> None:
        if self._connection is not None:
            await self._connection.execute("SELECT 1", timeout=CHECK)
        self._check_later()

    async def _disconnect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
