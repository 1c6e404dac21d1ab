"""Keeps a worker alive and its tasks moving: leases, the dead, the due, the old.

Theory. A worker holds a lease; each task it runs is claimed under a fence. Every beat renews the
lease and compares what the store says this worker holds with what really runs here: a task held
but not run (the answer to its claim was lost) is taken up after two beats, and a run no longer
held is stopped. Tasks of dead workers are reaped by whoever looks next.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from dragoman.core.errors import DragomanError, Fenced
from dragoman.core.events import Ask
from dragoman.core.log import Logger
from dragoman.core.model import Message, Role, Text
from dragoman.core.questions import answer_value
from dragoman.settings import Retention
from dragoman.store.clock import steady_of
from dragoman.store.interface import SILENCE, AdminFilter, HeldTask, Input, Row

from .runner import Runner
from .task_ids import new_id

log = Logger("maintenance")

LOOK = 1.0
"""Seconds between two looks for tasks whose time has come."""
TICK = 0.2
"""Seconds between two looks at what takes too long here."""
PEEK = 0.05
"""Seconds between two looks at a store that other processes may change."""
SWEEP = 3600.0
"""Seconds between two clean-ups at the most; a shorter retention has shorter ones,"""
SWEPT = 1000
"""each in steps of this many tasks."""
JUMPED = 60_000
"""Milliseconds by which a clock is set, and not merely adjusted."""
BATCH = 64


class Maintenance:
    """The background work of a runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._store = runner.store
        self._loops: asyncio.Task[None] | None = None
        self._last_beat = 0.0
        self._stray: set[str] = set()
        self._changes = -1
        """What the store said at the last look for changes by other processes."""
        self._overdue = 0
        """Tasks that could not be ended at the last look, and would take the places of others."""
        self._steady = steady_of(runner.clock)
        self._ahead = runner.clock() - self._steady()
        """How far the time of day is ahead of the steady time,"""
        self._swept_from = 0
        """and from when on, by the latter, it is trusted to say what is old."""
        self.sooner: tuple[Retention, ...] = ()
        """Tasks that go before the others."""

    async def start(self) -> None:
        """Enlists the worker, takes over from the dead, and begins."""
        await self._enlist()
        await self._store.reap()
        self._loops = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends the background work; the worker stays enlisted."""
        if self._loops is not None:
            self._loops.cancel()
            await asyncio.wait([self._loops])

    async def _run(self) -> None:
        lease = self._runner.settings.lease
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(lambda: lease / 3, self._beat))
            group.create_task(self._every(lambda: LOOK, self._look, wake=self._runner.place_free))
            group.create_task(self._every(lambda: TICK, self._tick))
            group.create_task(self._every(lambda: random.uniform(5, 10), self._reap))
            group.create_task(self._every(self._sweep_pause, self._sweep))
            if self._store.shared:
                group.create_task(self._every(lambda: PEEK, self._peek))

    async def _every(
        self,
        pause: Callable[[], float],
        work: Callable[[], Awaitable[None]],
        wake: asyncio.Event | None = None,
    ) -> None:
        while True:
            try:
                await work()
            except DragomanError as exc:
                log.warning("Maintenance failed", work=work.__name__, reason=exc.reason, why=exc)
            except Exception as exc:  # one bad task must not end the work for all others
                log.error("Maintenance crashed", exc, work=work.__name__)
            if wake is None:
                await asyncio.sleep(pause())
                continue
            try:
                async with asyncio.timeout(pause()):
                    await wake.wait()
            except TimeoutError:
                continue

    async def _enlist(self) -> None:
        await self._store.enlist(self._runner.worker, self._lease_ms())
        self._last_beat = asyncio.get_running_loop().time()

    def _lease_ms(self) -> int:
        return int(self._runner.settings.lease * 1000)

    async def _beat(self) -> None:
        runner = self._runner
        began = asyncio.get_running_loop().time()
        alive = began - self._last_beat < runner.settings.lease
        if not alive or not await self._store.beat(runner.worker, self._lease_ms()):
            # Others may have our tasks by now. Stop everything, begin anew under another name.
            log.error("This worker counts as dead, so its runs are stopped", worker=runner.worker)
            runner.lose_all()
            runner.worker = new_id()
            await self._enlist()
            return
        self._last_beat = began
        held = await self._held()
        stray = [one.claim for one in held if one.claim.task_id not in runner.runs]
        for claim in stray:
            if claim.token in self._stray:
                log.warning("A task of ours that nobody runs is taken up", task=claim.task_id)
                taken = await self._store.seize(runner.worker, claim.task_id, claim.epoch)
                if taken is not None:
                    await runner.resume(taken)
        self._stray = {claim.token for claim in stray}
        await self._bring(held)  # what a run could not hear when it came

    async def _held(self) -> list[HeldTask]:
        """What this worker holds; runs of what it does not hold any more are stopped."""
        runs = [run for run in self._runner.runs.values() if run.log.committed]
        held = await self._store.held(self._runner.worker)
        tokens = {one.claim.token for one in held}
        for run in runs:
            if run.writer.claim.token not in tokens:
                run.lose(Fenced(taskId=run.task_id))
        return held

    async def _look(self) -> None:
        """Takes up what is due, and ends what waited too long."""
        runner = self._runner
        runner.place_free.clear()
        while runner.places > 0:
            places = min(BATCH, runner.places)
            rows = await self._store.claim(runner.worker, runner.name, places)
            for row in rows:
                await runner.resume(row)
            if len(rows) < places:
                runner.queued = 0
                break
            runner.queued = max(0, runner.queued - len(rows))
        failed = 0
        for row in await self._store.expired(runner.name, BATCH + self._overdue):
            try:
                await self._expire(row)
            except DragomanError as exc:  # its approval cannot be recorded: the others still end
                log.warning(
                    "A question did not expire", task=row.task_id, reason=exc.reason, why=exc
                )
                failed += 1
        self._overdue = failed

    async def _expire(self, row: Row) -> None:
        """Silence is a no to an approval, and the end of any other wait (DESIGN §4.1)."""
        runner = self._runner
        if row.asking is Ask.APPROVAL:
            silence = Message(message_id=new_id(), role=Role.USER, parts=(Text("[no answer]"),))
            said = Input(message=silence, value=answer_value(False), by=SILENCE)
            await runner.add_input(row.scope, row.task_id, said, row.question)
            return
        run = runner.runs.get(row.task_id)
        if run is None and not row.worker:
            taken = await self._store.seize(runner.worker, row.task_id, row.epoch)
            if taken is None:
                return
            if not taken.resting:
                await runner.resume(taken)  # the answer came in the last moment
                return
            run = await runner.adopt(taken)
        if run is not None and run.writer.question.key == row.question:
            runner.expire(run)

    async def _tick(self) -> None:
        self._runner.tick()

    async def _reap(self) -> None:
        taken = await self._store.reap()
        if taken:
            log.warning("Tasks of a dead worker were released", tasks=len(taken))

    def _sweep_pause(self) -> float:
        """What is to go after a minute must not stay for an hour."""
        keep = self._runner.settings
        shortest = min(keep.keep_events, keep.keep_tasks, *(it.keep_tasks for it in self.sooner))
        return min(SWEEP, max(1.0, shortest / 4))

    def _time_jumped(self) -> bool:
        """Whether the clock was set forward within the last hour: what is gone is gone, so whoever
        made a mistake has that long to mend it."""
        steady = self._steady()
        before, self._ahead = self._ahead, self._runner.clock() - steady
        if self._ahead - before >= JUMPED:
            self._swept_from = steady + int(SWEEP * 1000)
            log.warning("The clock was set forward, so nothing old is dropped for an hour")
        return steady < self._swept_from

    async def _sweep(self) -> None:
        if self._time_jumped():
            return
        keep = self._runner.settings
        events_ms, tasks_ms = int(keep.keep_events * 1000), int(keep.keep_tasks * 1000)
        swept = SWEPT
        while swept >= SWEPT:
            swept = await self._store.sweep(self._runner.name, events_ms, tasks_ms, SWEPT)
        for sooner in self.sooner:
            await self._sweep_sooner(sooner)

    async def _sweep_sooner(self, sooner: Retention) -> None:
        """Tasks of a tenant or of this agent that are not to be kept as long as others."""
        if sooner.agent not in ("", self._runner.name):
            return  # its own engine sees to it
        which = AdminFilter(
            tenant=sooner.tenant,
            agent=self._runner.name,
            ended_before=self._runner.clock() - int(sooner.keep_tasks * 1000),
        )
        while rows := await self._store.owned(which, SWEPT):
            await self._store.erase([row.task_id for row in rows])

    async def _peek(self) -> None:
        """Looks for what other processes said or wanted, while anyone here could care."""
        runner = self._runner
        if not (runner.runs or runner.bell.listening()):
            return
        before, self._changes = self._changes, await self._store.changed()
        if self._changes == before:
            return
        runner.bell.ring_all()
        await self._bring(await self._held())

    async def _bring(self, held: list[HeldTask]) -> None:
        """Has the runs of this worker hear what was said and wanted."""
        runner = self._runner
        for one in held:
            run = runner.runs.get(one.claim.task_id)
            if run is None or run.writer.claim != one.claim:
                continue
            if one.cancel:
                runner.cancel(run)
            try:
                await runner.bring(run, one.inputs)
            except DragomanError as exc:  # an answer that cannot be recorded: it comes again
                log.warning("An answer was not heard", task=run.task_id, reason=exc.reason, why=exc)
