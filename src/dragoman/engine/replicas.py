"""The other processes on the same store: what this one tells them, and what it hears from them.

A process tells the others of a change only if one of them waits for it. A reader that waits for a
task of another process therefore marks the task as watched, and reads once more after that: what
was written in between was told to nobody. Inputs and cancels are told to the process that runs the
task. All of this only saves time: whoever hears nothing looks again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from dragoman.bell import SharedBell
from dragoman.core.errors import DragomanError, Fenced
from dragoman.core.log import Logger
from dragoman.store.interface import HeldTask, WatchedStore

from .runner import Runner
from .runs.run import Run

log = Logger("replicas")

CALL = "agent:"
"""Begins the name of an agent, in place of the id of a task, when a task of it waits for another
process."""
REMEMBERED = 10_000
"""The number of tasks of which we remember that we watch them."""


class Replicas:
    """Exchanges news with other processes."""

    def __init__(
        self,
        store: WatchedStore,
        bell: SharedBell,
        runners: Iterable[Runner],
        held: Callable[[], Awaitable[list[HeldTask]]],
        bring: Callable[[list[HeldTask]], Awaitable[None]],
    ) -> None:
        """`held` returns what the store knows about the tasks of this process, and `bring` delivers
        the inputs and cancels in it to the runs."""
        self._store, self._bell, self._runners = store, bell, runners
        self._held, self._bring = held, bring
        self._watched: dict[str, None] = {}
        self._to_watch: dict[str, None] = {}
        self._changed: dict[str, None] = {}
        self._all_changed = False
        self._wake = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to tell and to hear."""
        self._store.on_news = self._bell.ring
        self._work = asyncio.get_running_loop().create_task(self._run())
        await self._bell.start(self._hear)

    async def stop(self) -> None:
        """Ends both."""
        await self._bell.stop()
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait([self._work])

    def watch(self, task_id: str) -> None:
        """Has the others tell of changes of a task for which a reader here waits."""
        if task_id in self._watched or any(task_id in each.runs for each in self._runners):
            return
        if len(self._watched) >= REMEMBERED:
            self._watched.clear()
        self._watched[task_id] = None
        self._to_watch[task_id] = None
        self._wake.set()

    def call_others(self, agent: str) -> None:
        """Has the process that can run the tasks of an agent look for one now."""
        self._bell.ring([CALL + agent])

    def _hear(self, task_ids: Sequence[str] | None) -> None:
        if task_ids is None:
            self._all_changed = True
            self._wake.set()
            for runner in self._runners:
                runner.bell.ring_all()
            return
        for runner in self._runners:
            if CALL + runner.name in task_ids and not runner.agent.elsewhere:
                runner.place_free.set()
            for task_id in task_ids:
                runner.bell.ring(task_id)
                if task_id in runner.runs:
                    self._changed[task_id] = None
                    self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._watch_waiting()
                await self._deliver_changed()
            except DragomanError as exc:  # the next look of the maintenance finds it
                log.warning("News of other processes were missed", reason=exc.reason, why=exc)
            except Exception as exc:  # one bad task must not keep the others from their news
                log.error("News of other processes were missed", exc)

    async def _watch_waiting(self) -> None:
        if not self._to_watch:
            return
        waiting, self._to_watch = list(self._to_watch), {}
        try:
            new = await self._store.watch(waiting)
        except BaseException:
            for task_id in waiting:
                self._watched.pop(task_id, None)
            raise
        for runner in self._runners:
            for task_id in new:
                runner.bell.ring(task_id)

    async def _deliver_changed(self) -> None:
        if self._all_changed:
            self._all_changed = False
            self._changed.clear()
            await self._bring(await self._held())
            return
        changed, self._changed = list(self._changed), {}
        for task_id in changed:
            for runner in self._runners:
                run = runner.runs.get(task_id)
                if run is not None and run.log.committed:
                    await self._look_at(run)

    async def _look_at(self, run: Run) -> None:
        """Delivers inputs and a cancel that another process has stored, and stops a run whose task
        another process has taken."""
        row = await self._store.row(run.writer.row.scope, run.task_id)
        if row.token == run.writer.claim.token:
            await self._bring([HeldTask(row.claim, row.inputs, row.cancel)])
        elif not row.final:
            run.lose(Fenced(taskId=run.task_id))
