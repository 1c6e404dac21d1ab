"""The remote task of a relay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec

from dragoman.agent.remote_calls import AGENT, SENDING, TurnAccess
from dragoman.core.errors import DragomanError
from dragoman.core.peer import Begun

from .remote_task import RemoteTask
from .upstream import Upstream


class RelayedTask(RemoteTask):
    """The remote task that a task of ours mirrors."""

    def __init__(self, access: TurnAccess, upstream: Upstream) -> None:
        name = access.record_name(AGENT, "relay")
        super().__init__(access, name)
        self._upstream = upstream
        self._late: asyncio.Future[Any] | None = None
        """The first answer, once our task does not want it any more."""
        self._sending = f"{SENDING}:{name}"
        self.announced: list[str] = []
        """The addresses to which this run or an earlier one was about to send the message, the last
        one at the end. A message that could not be sent to one is announced again for the next."""
        if access.run.resumed:
            while (raw := access.run.recorded(self._sending_key())) is not None:
                self.announced.append(msgspec.json.decode(raw, type=str))
            self.in_doubt = bool(self.announced)

    @property
    def recorded_address(self) -> str:
        """The address at which the task is, or to which the message may have been sent; empty if
        that is not known."""
        if self._started is not None:
            return self._started.address
        return self.announced[-1] if self.announced else ""

    async def announce(self) -> None:
        """Records that the message is about to be sent to the address. The first answer decides
        whether our task becomes visible."""
        if self.announced[-1:] != [self.address]:
            key = self._sending_key()
            self.announced.append(self.address)
            await self._run.record_unseen(key, msgspec.json.encode(self.address))

    def _sending_key(self) -> str:
        number = len(self.announced)
        return f"{self._sending}#{number}" if number else self._sending

    async def begun(self, answer: Awaitable[Begun]) -> Begun:
        """Returns the first answer to the message. It contains the id of the new task, so it is
        awaited even if our caller gives up. Only the engine stops a relay, so it is told how to do
        so meanwhile; a task that shields the answer (`first`) would cost as much as the answer."""
        run = self._run
        run.on_stop = self._stop
        try:
            batch, steps = await answer
        except DragomanError as exc:
            if self._late is None:
                raise
            if not self._late.done():
                self._late.set_exception(exc)
        else:
            if self._late is None:
                return batch, steps
            if not self._late.done():
                self._late.set_result(batch.entries if batch is not None else None)
            await steps.aclose()
        finally:
            run.on_stop = None
        raise asyncio.CancelledError

    def _stop(self) -> None:
        """Has the remote task canceled as soon as its id is known."""
        self._awaited = True
        self._late = asyncio.get_running_loop().create_future()
        self._run.before_end(self._stop_late(self._late))

    async def _stop_late(self, late: asyncio.Future[Any]) -> None:
        try:
            await self._stop_after(late, None)
        finally:
            self._run.stop_code()

    async def find(self) -> str:
        """Asks the upstream for the task of our message."""
        found = await self._upstream.find_task(self.key, self.recorded_address)
        if found:
            self.address = self._upstream.address
        return found
