"""Threads that do what must not block the event loop, with as few wake-ups as possible.

Jobs given in one turn of the loop reach the thread in one hand-over, and whatever it did at once
comes back in one call. Each thread owns a *side* (a connection and what belongs to it) that nobody
else touches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from dragoman.core.errors import StoreUnavailable
from dragoman.core.log import Logger

from .writes import Done

log = Logger("store")

S = TypeVar("S")
R = TypeVar("R")


class Job(Struct, frozen=True, gc=False):
    """Something to do, and whom to tell: `done` hears only of failure, the future gets it all."""

    apply: Callable[[Any, Any], Any]
    argument: Any
    done: Done | None
    future: asyncio.Future[Any] | None


Outcome = tuple[Job, Any, Exception | None]


class Side(Protocol):
    """What a thread owns."""

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs; exactly one outcome each, in their order. Never raises."""

    def rest(self) -> None:
        """Does what can wait until the outcomes are on their way. Never raises."""

    def close(self) -> None:
        """Lets go."""


class WorkerThread(Generic[S]):
    """One or more threads working on one queue of jobs."""

    def __init__(self, name: str, sides: list[Side], *, limit: int, patient: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._patient = patient
        self._pending: list[Job] = []
        self._inbox: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(side,), name=f"dragoman-{name}", daemon=True)
            for side in sides
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        apply: Callable[[S, Any], object],
        argument: Any,
        done: Done,
        *,
        whole: bool = False,
    ) -> None:
        """Hands a job over; `done` is called in the loop, once. A `whole` one goes at once:
        nothing will follow it."""
        self._push(Job(apply, argument, done, None), whole=whole)

    async def ask(self, apply: Callable[[S, Any], R], argument: Any) -> R:
        """Hands a job over and waits for its result."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._push(Job(apply, argument, None, future))
        return await future

    async def close(self) -> None:
        """Finishes what was handed over, then ends the threads."""
        self._hand_over()
        self._closed = True
        for _ in self._threads:
            self._inbox.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _push(self, job: Job, *, whole: bool = False) -> None:
        if self._closed:
            outcome: Outcome = (job, None, StoreUnavailable("The store is closed."))
            self._loop.call_soon(self._deliver, iter([outcome]))
            return
        first = not self._pending
        self._pending.append(job)
        if whole:
            self._hand_over()
        elif first:
            self._loop.call_soon(self._wait_a_turn if self._patient else self._hand_over)

    def _wait_a_turn(self) -> None:
        # A run that was just opened takes its first step in this turn. If that is all it takes,
        # its beginning and its end share a commit, even when nobody else is there to share with.
        self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._pending:
            self._inbox.put(self._pending)
            self._pending = []

    def _deliver(self, outcomes: Iterator[Outcome]) -> None:
        try:
            for job, result, error in outcomes:
                if job.done is not None:
                    job.done(error)
                elif job.future is not None and not job.future.done():
                    if error is None:
                        job.future.set_result(result)
                    else:
                        job.future.set_exception(error)
        except BaseException:
            # A callback that raises is reported by the loop; the others still get their call.
            self._loop.call_soon(self._deliver, outcomes)
            raise

    def _work(self, side: Side) -> None:
        last = False
        while not last:
            jobs = self._inbox.get()
            if jobs is None:
                break
            # Whatever piled up meanwhile goes along: under load this is the group commit.
            while len(jobs) < self._limit and not self._inbox.empty():
                try:
                    more = self._inbox.get_nowait()
                except Empty:  # another thread was faster
                    break
                if more is None:
                    last = True
                    break
                jobs += more
            for start in range(0, len(jobs), self._limit):
                outcomes = side.run(jobs[start : start + self._limit])
                # The loop may be gone when a process ends without closing its store.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._deliver, iter(outcomes))
                try:
                    side.rest()
                except Exception as exc:  # without its thread, the next caller would wait for ever
                    name = threading.current_thread().name
                    log.error("A store thread could not rest", exc, thread=name)
        side.close()
