"""Threads for work that must not block the event loop, with as few wake-ups as possible.

Waking a thread, or the loop, costs more than most jobs. Therefore all jobs of one iteration of the
loop reach the thread in one hand-over, and the outcomes of one batch come back in one call. Each
thread owns a `JobRunner`, such as a connection and its cache, that no other thread touches, so
nothing in it needs a lock.
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
from dragoman.core.outage import Outage

from ..writes import Done

log = Logger("store")

UNREADABLE, UNWRITABLE = "cannot be read", "cannot be written"
"""What is said of a store on a disk that fails."""

S = TypeVar("S")
R = TypeVar("R")


class Job(Struct, frozen=True):
    """A method of the runner with its argument, and either a callback or a future for the
    outcome."""

    apply: Callable[[Any, Any], Any]
    argument: Any
    done: Done | None
    """Called with None, or with the error if the job failed."""
    future: asyncio.Future[Any] | None
    """Gets the result or the error."""


Outcome = tuple[Job, Any, Exception | None]
"""A job, its result, and the error if it failed."""


class JobRunner(Protocol):
    """Does the jobs of a thread, which owns it."""

    def run(self, jobs: list[Job]) -> list[Outcome]:
        """Does the jobs and returns exactly one outcome for each, in their order. It must not
        raise: that would end the thread, and every caller that waits for it would wait forever."""

    def maintain(self) -> None:
        """Does work that can wait until the outcomes of a batch have been reported."""

    def close(self) -> None:
        """Releases everything, at the end of the thread."""


class WorkerThread(Generic[S]):
    """One or more threads that work on one queue of jobs.

    At most `limit` jobs make a batch. A `patient` thread gets its jobs one iteration of the loop
    later, so that more of them share a batch. A job that may wait is handed over no sooner than
    `delay` seconds after the jobs before it."""

    def __init__(
        self,
        name: str,
        runners: list[JobRunner],
        *,
        limit: int,
        patient: bool = False,
        delay: float = 0.0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._patient = patient
        self._delay = delay
        self._pending: list[Job] = []
        self._scheduled = False
        """Whether the pending jobs are handed over in one of the next iterations of the loop."""
        self._timer: asyncio.TimerHandle | None = None
        """The hand-over of jobs that may all wait."""
        self._handed_over_at = 0.0
        self._inbox: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(
                target=self._work, args=(runner,), name=f"dragoman-{name}", daemon=True
            )
            for runner in runners
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
        may_wait: bool = False,
    ) -> None:
        """Hands a job over; `done` is called once, in the loop. A `whole` job is handed over at
        once, because no other job follows that could share its batch. A job that `may_wait` waits
        for others if the last batch was just handed over."""
        self._push(Job(apply, argument, done, None), whole=whole, may_wait=may_wait)

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

    def _push(self, job: Job, *, whole: bool = False, may_wait: bool = False) -> None:
        if self._closed:
            outcome: Outcome = (job, None, StoreUnavailable("The store is closed."))
            self._loop.call_soon(self._deliver, iter([outcome]))
            return
        self._pending.append(job)
        if whole:
            self._hand_over()
        elif not self._scheduled:
            self._schedule(may_wait)

    def _schedule(self, may_wait: bool) -> None:
        wait = self._handed_over_at + self._delay - self._loop.time() if may_wait else 0.0
        if wait <= 0.0:
            self._scheduled = True
            self._loop.call_soon(self._wait_a_turn if self._patient else self._hand_over)
        elif self._timer is None:
            self._timer = self._loop.call_later(wait, self._hand_over)

    def _wait_a_turn(self) -> None:
        # A new run takes its first step in this iteration of the loop. If that step also ends it,
        # its beginning and its end share a commit, even if there are no other jobs.
        self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._scheduled = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            self._inbox.put(self._pending)
            self._pending = []
            if self._delay:
                self._handed_over_at = self._loop.time()

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

    def _work(self, runner: JobRunner) -> None:
        last = False
        while not last:
            jobs = self._inbox.get()
            if jobs is None:
                break
            # Jobs that have queued up during the last batch join this one. Under load this creates
            # the group commit: the slower the disk, the larger the batches.
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
                outcomes = runner.run(jobs[start : start + self._limit])
                # The loop may be gone when a process ends without closing its store.
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._deliver, iter(outcomes))
                try:
                    runner.maintain()
                except Exception as exc:
                    # Without its thread, the next caller would wait forever.
                    name = threading.current_thread().name
                    log.error("A store thread could not look after its files", exc, thread=name)
        runner.close()


def report_unavailable(outage: Outage, problem: str, error: Exception) -> StoreUnavailable:
    """Notes an error that callers can do nothing about, and returns the error that they get."""
    outage.begin(problem, str(error) or type(error).__name__)
    failure = StoreUnavailable()
    failure.__cause__ = error
    return failure
