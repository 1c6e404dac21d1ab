"""Reads tasks: their current state, and when they end or wait, in whichever process they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

from dragoman.core.errors import DragomanError, StoreUnavailable
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.extensions import DETACHED
from dragoman.core.lifecycle import WAITING
from dragoman.core.model import Task
from dragoman.core.peer import Batch
from dragoman.store.interface import Row, Scope

from .runner import Runner
from .runs.run import Run
from .tail import Place, follow


class TaskReader:
    """Reads the tasks of one agent. It returns only committed states."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._store = runner.store
        self._max_wait = runner.settings.max_wait
        self.waits: set[asyncio.Timeout] = set()
        """The blocking sends that wait for a task which does not run here."""

    def stop_waiting(self) -> None:
        """Has blocking sends answer the task as it is, because the engine stops."""
        for wait in self.waits:
            wait.reschedule(self._runner.shared.loop.time())

    def follow(
        self, scope: Scope, place: Callable[[], Awaitable[Place]]
    ) -> AsyncGenerator[Batch, None]:
        """Yields every event of a task from a place on."""
        runner = self._runner
        return follow(self._store, runner.bell, runner.idle, scope, place, runner.runs.get)

    async def rest(self, run: Run, since: int | None = 0) -> bool:
        """Waits until a run ends, asks a question or detaches (after the event `since`), but not
        longer than `max_wait`; returns False if the run was lost."""
        rest = run.when_resting(since or 0)
        if not rest.done():
            waits = self._runner.waits
            waits[rest] = run.shared.loop.time() + self._max_wait
            try:
                await rest
            finally:
                del waits[rest]
        writer = run.writer
        if writer.stalled or isinstance(writer.error, StoreUnavailable):
            # The task goes on as soon as the store is back, but nobody knows when that is.
            raise StoreUnavailable
        if writer.error is not None and run.log.committed == 0:
            raise writer.error
        return writer.error is None

    async def rested(self, scope: Scope, task_id: str, since: int | None) -> None:
        """Does the same for a task that does not run here; `since` None means from now on."""
        waits = self.waits
        with suppress(TimeoutError):
            async with asyncio.timeout(self._max_wait) as wait:
                waits.add(wait)
                try:
                    await self.rest_elsewhere(scope, task_id, since, until=_answers)
                finally:
                    waits.discard(wait)

    async def heard(self, scope: Scope, task_id: str) -> None:
        """Waits until a task has received its answer, for at most `max_wait`."""
        if self.mine(scope, task_id) is not None:
            return  # a run in this process has already received it
        with suppress(TimeoutError):
            async with asyncio.timeout(self._max_wait):
                await self._elsewhere(scope, task_id, _unanswered)

    async def rest_elsewhere(
        self,
        scope: Scope,
        task_id: str,
        since: int | None = None,
        until: Callable[[Batch], bool] = lambda batch: False,
    ) -> None:
        """Waits until a task in any process ends or waits, or until a batch after the event `since`
        (None: from now on) fulfils `until`."""
        await self._elsewhere(scope, task_id, lambda row: not row.resting, since, until)

    async def _elsewhere(
        self,
        scope: Scope,
        task_id: str,
        still: Callable[[Row], bool],
        since: int | None = None,
        until: Callable[[Batch], bool] = lambda batch: False,
    ) -> None:
        """Waits while a condition holds for a task in any process."""
        row = await self._store.row(scope, task_id)
        if not still(row):
            return
        # Other processes may have written since the row was read, so the events between `since` and
        # now are read too.
        place = Place(task_id, row.last_seq if since is None else since)
        async with aclosing(self.follow(scope, _at(place))) as batches:
            async for batch in batches:
                if until(batch) or batch.last or not still(await self._store.row(scope, task_id)):
                    return

    async def committed(self, run: Run) -> Task | None:
        """Returns the run's task once its current state is committed, or None if the task was never
        created."""
        fold = run.writer.fold
        task, seq = run.writer.final_task or fold.task(), fold.seq
        try:
            await run.writer.committed(patient=False)
        except DragomanError:
            if run.log.committed == 0:
                raise
            return None
        return task if run.writer.fold is fold and run.log.committed >= seq else None

    async def task(self, scope: Scope, task_id: str) -> Task:
        """Returns the current state of a task."""
        run = self.mine(scope, task_id)
        task = await self.committed(run) if run is not None else None
        return task if task is not None else (await self._store.load(scope, task_id))[1]

    async def snapshot(self, scope: Scope, task_id: str) -> tuple[Stamped, Task]:
        """Returns the current state of a task, also as the first event of a stream."""
        run = self.mine(scope, task_id)
        seq = run.writer.fold.seq if run is not None else 0
        task = await self.committed(run) if run is not None else None
        if task is None:
            row, task = await self._store.load(scope, task_id)
            seq = row.last_seq
        return Stamped(
            task_id, task.context_id, seq, self._runner.clock(), Snapshot(task=task)
        ), task

    def mine(self, scope: Scope, task_id: str) -> Run | None:
        """Returns the run of a task in this process, if the task belongs to the caller."""
        run = self._runner.runs.get(task_id)
        if run is None or run.writer.unopened or run.writer.row.scope != scope:
            return None
        if run.log.committed and self._runner.identity.lease_is_over():
            # We were silent for so long that another process may have the task by now. What we know
            # of it would be the past.
            return None
        return run


def _unanswered(row: Row) -> bool:
    return row.state in WAITING and not row.resting


def _answers(batch: Batch) -> bool:
    """Returns whether the run has detached: it answered waiting sends and keeps working."""
    return any(
        isinstance(entry, Stamped)
        and isinstance(entry.event, StateChanged)
        and DETACHED in (entry.event.metadata or ())
        for entry in batch.entries
    )


def _at(place: Place) -> Callable[[], Awaitable[Place]]:
    async def known() -> Place:
        return place

    return known
