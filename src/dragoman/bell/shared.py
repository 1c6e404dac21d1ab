"""Bells between processes: one process tells the others which tasks have changed.

Theory. A bell only says "look again" (ADR 0002), so it may lose what it says: whoever waits looks
again after a second anyway. What was rung while the last message was on its way is one message. A
bell that was connected again does not know what it missed, so it rings for everything.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from dragoman.core.log import Logger

log = Logger("bell")

Heard = Callable[[Sequence[str] | None], None]
"""Gets the ids of tasks that have changed elsewhere, or None if any may have changed."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two attempts to connect."""
CANCEL_AGAIN = 1.0
"""Seconds after which a bell that was told to stop is told once more."""


class SharedBell(Protocol):
    """Tells other processes that tasks have changed, and hears it from them."""

    async def start(self, heard: Heard) -> None:
        """Begins to listen. It does not wait for a connection."""

    def ring(self, task_ids: Sequence[str]) -> None:
        """Tells the others that these tasks have changed. It neither waits nor fails."""

    async def stop(self) -> None:
        """Sends what was rung, as far as that is possible at once, and ends."""


class BellMessage(msgspec.Struct, array_like=True, frozen=True):
    """What one process tells the others."""

    sender: str
    tasks: list[str] | None
    """None if there are too many of them, so that any task may have changed."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BellMessage).decode


class ConnectedBell(ABC):
    """The part that all shared bells have in common: it gathers, connects and connects again. A
    subclass has the connection."""

    largest = 60_000
    """The size in bytes of the largest message."""
    failures: tuple[type[Exception], ...] = (OSError,)
    """The errors of a connection that is lost or cannot be made."""

    def __init__(self) -> None:
        self._sender = secrets.token_hex(8)
        self._gathered: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._heard: Heard = lambda task_ids: None
        self._work: asyncio.Task[None] | None = None
        self.connected = False
        """Whether it can ring and hear now."""

    @abstractmethod
    async def _connect(self) -> None:
        """Connects and subscribes. Messages go to `_hear`, and the end of the connection sets
        `_wake`."""

    @abstractmethod
    async def _send(self, message: bytes) -> None:
        """Sends a message to all processes. Raises one of `failures` if the connection is lost."""

    @abstractmethod
    async def _check(self) -> None:
        """Raises one of `failures` if the connection is lost."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Closes the connection, however it is."""

    async def start(self, heard: Heard) -> None:
        self._heard = heard
        self._work = asyncio.get_running_loop().create_task(self._run())

    def ring(self, task_ids: Sequence[str]) -> None:
        # While there is no connection nothing is kept: the others look by themselves.
        if self.connected:
            self._gathered.update(dict.fromkeys(task_ids))
            self._wake.set()

    async def stop(self) -> None:
        work, self._work = self._work, None
        while work is not None and not work.done():
            # A client may lose a cancellation that arrives together with a failure, and we would
            # connect again.
            work.cancel()
            await asyncio.wait([work], timeout=CANCEL_AGAIN)

    async def _run(self) -> None:
        pause, lost = FIRST_PAUSE, False
        while True:
            try:
                await self._connect()
                self.connected = True
                pause = FIRST_PAUSE
                if lost:
                    log.info("The bell is connected again")
                lost = False
                self._heard(None)
                await self._pump()
            except asyncio.CancelledError:
                raise
            except self.failures as error:
                if not lost:  # the next attempts fail alike
                    log.warning(
                        "The bell is not connected, so others look by themselves", why=error
                    )
                lost = True
            except Exception as error:  # without its task the bell would be silent forever
                log.error("The bell failed", error)
            finally:
                self.connected = False
                self._gathered.clear()
                await self._disconnect()
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _pump(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._gathered:
                    await self._flush()
                else:
                    await self._check()
        finally:
            if self._gathered and self.connected:
                await self._flush()

    async def _flush(self) -> None:
        tasks, self._gathered = list(self._gathered), {}
        message = _encode(BellMessage(self._sender, tasks))
        if len(message) > self.largest:
            message = _encode(BellMessage(self._sender, None))
        await self._send(message)

    def _hear(self, data: bytes | str) -> None:
        """Takes a message. One that is not ours is ignored: others may use the same channel."""
        try:
            message = _decode(data)
        except msgspec.MsgspecError:
            return
        if message.sender != self._sender:
            self._heard(message.tasks)
