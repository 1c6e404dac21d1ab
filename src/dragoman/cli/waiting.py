"""What a command waits for: it is said after a second of silence, and `--timeout` ends it."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dragoman.client import RemoteAgent
from dragoman.client.auth.origins import printable
from dragoman.core.errors import AgentTimedOut, DragomanError, PeerUnreachable

from .view import Shown

NOTICE_DELAY_SECONDS = 1.0
RESPONSE_TIMEOUT_SECONDS = 30.0
"""The time for a response without `--timeout`."""


class Wait:
    """What one command waits for now, and for how long."""

    def __init__(
        self,
        url: str,
        timeout: float | None = None,
        *,
        response_timeout: float | None = None,
        document: bool = False,
    ) -> None:
        """`timeout` is the time for the whole command; None means that only responses are limited,
        to `response_timeout`. `document` says that a document is read at this address, and not a
        card."""
        self._url, self._timeout = url, timeout
        self._response_timeout = response_timeout or RESPONSE_TIMEOUT_SECONDS
        self._limit: asyncio.Timeout | None = None
        self._address = printable(url)
        # An address that names its dialect needs no card.
        self._reads_card = not document and "+" not in url.partition("://")[0]
        self._resting = False
        """Whether the person is waited for, and not the agent."""
        self._until_answer = False
        """Whether the agent may take as long as its work needs."""
        self._failure: DragomanError | None = None
        """Why the last attempt failed, if another one follows."""
        self._task_id = ""
        self._shows: Shown = "result"
        self._changed = asyncio.Event()
        self._said = ""
        self.print: Callable[[str], object] = _print_to_stderr
        """Prints a line; a live view sets its own function."""

    @property
    def expired(self) -> bool:
        """Whether the time of the command is over."""
        return self._limit is not None and self._limit.expired()

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Says in this block what is waited for, and ends it when the time is over."""
        notices = asyncio.create_task(self._print_notices())
        try:
            async with asyncio.timeout(self._timeout) as self._limit:
                yield
        except TimeoutError:
            if not self.expired:
                raise
            raise self._overdue() from None
        finally:
            notices.cancel()

    def restart(self) -> None:
        """Gives the command its whole time again: a person has answered a question."""
        if self._limit is not None and self._timeout is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._timeout)

    def begin_calls(self, agent: RemoteAgent) -> None:
        """Notes that the card was found: from now on calls are waited for."""
        agent.on_retry = self._retry
        address, source = agent.address
        origin = f" (from the card of {printable(source)})" if source else ""
        self._address, self._reads_card = printable(address) + origin, False
        self._changed.set()

    def begin_work(self) -> None:
        """Notes that the agent works now, which takes as long as it takes."""
        self._resting, self._until_answer, self._failure = False, True, None
        self._task_id = self._said = ""
        self._changed.set()

    def hear(self, task_id: str, shows: Shown) -> None:
        """Notes an event of a task, and what the view shows of it."""
        if shows != "result" or self._failure is not None or not self._task_id:
            self._changed.set()
        self._failure, self._task_id, self._shows = None, task_id, shows

    def rest(self) -> None:
        """Notes that nothing is expected of the agent now."""
        self._resting, self.print = True, _print_to_stderr
        self._changed.set()

    def _retry(self, failure: DragomanError) -> None:
        if self._failure is None or self._failure.message != failure.message:
            self._changed.set()
        self._failure = failure

    async def _print_notices(self) -> None:
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(NOTICE_DELAY_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                notice = self._notice()
                if notice and notice != self._said:
                    self._said = notice
                    self.print(notice)
                await self._changed.wait()

    def _notice(self) -> str:
        """Returns what is waited for and how long, or "" if that is shown or nothing is."""
        follows = bool(self._task_id) and self._failure is None
        if self._resting or (follows and self._shows == "state"):
            return ""
        subject = f"the card of {self._address}" if self._reads_card else self._address
        if follows:
            subject = f"task {printable(self._task_id, 80)} at {subject}"
        if self._timeout is not None:
            duration = f"for up to {self._timeout:g} s"
        elif self._until_answer and self._failure is None:
            duration = "until it is done; Ctrl-C stops"
        else:
            duration = f"for up to {self._response_timeout:g} s"
        why = f". {printable(self._failure.message, 1000)}" if self._failure is not None else ""
        return f"Waiting for {subject}, {duration}{why}"

    def _overdue(self) -> DragomanError:
        """Returns the error of a command whose time is over."""
        seconds = f"{self._timeout:g} s (--timeout)"
        if self._failure is not None:
            self._failure.reword(f"{self._failure.message.rstrip('.')}. Gave up after {seconds}")
            return self._failure
        if not self._task_id:
            return PeerUnreachable(f"{self._address} did not answer in time: {seconds}")
        id = shlex.quote(printable(self._task_id))
        return AgentTimedOut(
            f"The task did not end within {seconds}, and goes on. "
            f"Follow it with: dragoman tasks watch {self._url} {id}"
        )


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
