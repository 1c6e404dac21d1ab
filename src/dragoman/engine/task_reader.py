"""How tasks stand: as they look now, and when they come to rest, whoever runs them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress

from dragoman.core.errors import DragomanError
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
    """Looks at the tasks of one agent. What is told is committed."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._store = runner.store
        self._max_wait = runner.settings.max_wait

    def follow(
        self, scope: Scope, place: Callable[[], Awaitable[Place]]
    ) -> AsyncGenerator[Batch, None]:
        """Every step of a task from a place on."""
        runner = self._runner
        return follow(self._store, runner.bell, runner.idle, scope, place, runner.runs.get)

    async def rest(self, run: Run, since: int | None = 0) -> bool:
        """Waits until a run finishes, asks back or answers early (after the event `since`),
        `max_wait` at the most; false if it was lost."""
        rest = run.when_resting(since or 0)
        if not rest.done():
            waits = self._runner.waits
            waits[rest] = self._runner.shared.loop.time() + self._max_wait
            try:
                await rest
            finally:
                del waits[rest]
        if run.writer.error is not None and run.log.committed == 0:
            raise run.writer.error
        return run.writer.error is None

    async def rested(self, scope: Scope, task_id: str, since: int | None) -> None:
        """The same for a task that does not run here; `since` None is from now on."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._max_wait):
                await self.rest_elsewhere(scope, task_id, since, until=_answers)

    async def heard(self, scope: Scope, task_id: str) -> None:
        """Waits until a task has taken up the answer it was just given, `max_wait` at the most."""
        if self.mine(scope, task_id) is not None:
            return  # what runs here has heard it by now
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
        """Waits until a task rests that another process may be running, or `until` that is true of
        something that happened after the event `since`, else from now on."""
        await self._elsewhere(scope, task_id, lambda row: not row.resting, since, until)

    async def _elsewhere(
        self,
        scope: Scope,
        task_id: str,
        still: Callable[[Row], bool],
        since: int | None = None,
        until: Callable[[Batch], bool] = lambda batch: False,
    ) -> None:
        """Waits while something holds for a task that another process may be running."""
        row = await self._store.row(scope, task_id)
        if not still(row):
            return
        # The row is read when others may have written long since: what happened after `since` but
        # before this moment is told too.
        place = Place(task_id, row.last_seq if since is None else since)
        async with aclosing(self.follow(scope, _at(place))) as batches:
            async for batch in batches:
                if until(batch) or batch.last or not still(await self._store.row(scope, task_id)):
                    return

    async def committed(self, run: Run) -> Task | None:
        """The run's task as it stands, once that is on disk; None if it never came there."""
        fold = run.writer.fold
        task, seq = run.writer.final_task or fold.task(), fold.seq
        try:
            await run.writer.committed()
        except DragomanError:
            if run.log.committed == 0:
                raise
            return None
        return task if run.writer.fold is fold and run.log.committed >= seq else None

    async def task(self, scope: Scope, task_id: str) -> Task:
        """A task as it stands."""
        run = self.mine(scope, task_id)
        task = await self.committed(run) if run is not None else None
        return task if task is not None else (await self._store.load(scope, task_id))[1]

    async def snapshot(self, scope: Scope, task_id: str) -> tuple[Stamped, Task]:
        """A task as it stands, and as the beginning of a stream."""
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
        """The run of a task in this process, if the caller may know of it."""
        run = self._runner.runs.get(task_id)
        if run is None or run.writer.unopened or run.writer.row.scope != scope:
            return None
        return run


def _unanswered(row: Row) -> bool:
    return row.state in WAITING and not row.resting


def _answers(batch: Batch) -> bool:
    """Whether the run answered those that wait, and works on."""
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
