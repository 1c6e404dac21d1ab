"""The background work of a worker: renews its lease, starts tasks that are due, takes over the
tasks of dead workers, expires questions and deletes old data.

Theory. A worker holds a lease, and every task that it runs has a claim with a fencing epoch. Every
heartbeat renews the lease and compares the claims in the store with the runs in this process. A
task that is claimed but does not run (because the answer to its claim was lost) is resumed after
two heartbeats: after one, the claim may simply be newer than the run. A run whose claim is gone is
stopped. The tasks of a dead worker are released by the next worker that looks.
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
"""Seconds between two checks for tasks that are due."""
TICK = 0.2
"""Seconds between two checks for runs that take too long."""
PEEK = 0.05
"""Seconds between two checks for changes by other processes."""
SWEEP = 3600.0
"""The longest time in seconds between two clean-ups; a shorter retention is checked more often."""
SWEPT = 1000
"""The number of tasks that one step of a clean-up deletes."""
JUMPED = 60_000
"""Milliseconds from which a change of the clock counts as set, and not merely adjusted."""
BATCH = 64


class Maintenance:
    """Does the background work of a runner."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._store = runner.store
        self._loops: asyncio.Task[None] | None = None
        self._last_beat = 0.0
        self._stray: set[str] = set()
        self._changes = -1
        """The change counter of the store at the last check."""
        self._overdue = 0
        """The number of expired tasks that could not be ended last time. The next query asks for
        that many more, so that they do not displace others."""
        self._steady = steady_of(runner.clock)
        self._ahead = runner.clock() - self._steady()
        """The difference between the system time and the monotonic time, in milliseconds."""
        self._swept_from = 0
        """The monotonic time from which the system time is trusted again to say what is old."""
        self.sooner: tuple[Retention, ...] = ()
        """Retention rules that are shorter than the default."""

    async def start(self) -> None:
        """Registers the worker, takes over the tasks of dead workers, and starts."""
        await self._enlist()
        await self._store.reap()
        self._loops = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stops the background work; the worker stays registered."""
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
            except Exception as exc:  # one bad task must not stop the maintenance of all others
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
            # The lease has expired, so other workers may have taken over our tasks. Everything here
            # stops, and a new worker id makes sure that no old claim is mistaken for a new one.
            log.error(
                "The lease of this worker has expired, so its runs are stopped",
                worker=runner.worker,
            )
            runner.lose_all()
            runner.worker = new_id()
            await self._enlist()
            return
        self._last_beat = began
        held = await self._held()
        stray = [one.claim for one in held if one.claim.task_id not in runner.runs]
        for claim in stray:
            if claim.token in self._stray:
                log.warning(
                    "A task that this worker has claimed but does not run is resumed",
                    task=claim.task_id,
                )
                taken = await self._store.seize(runner.worker, claim.task_id, claim.epoch)
                if taken is not None:
                    await runner.resume(taken)
        self._stray = {claim.token for claim in stray}
        await self._bring(held)  # inputs that could not be delivered when they arrived

    async def _held(self) -> list[HeldTask]:
        """Returns the tasks that this worker has claimed, and stops runs whose claim is gone."""
        runs = [run for run in self._runner.runs.values() if run.log.committed]
        held = await self._store.list_held_tasks(self._runner.worker)
        tokens = {one.claim.token for one in held}
        for run in runs:
            if run.writer.claim.token not in tokens:
                run.lose(Fenced(taskId=run.task_id))
        return held

    async def _look(self) -> None:
        """Starts the tasks that are due, and ends those whose question expired."""
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
        for row in await self._store.list_expired_tasks(runner.name, BATCH + self._overdue):
            try:
                await self._expire(row)
            except DragomanError as exc:  # its denial cannot be audited; the others still end
                log.warning(
                    "A question did not expire", task=row.task_id, reason=exc.reason, why=exc
                )
                failed += 1
        self._overdue = failed

    async def _expire(self, row: Row) -> None:
        """Expires a question: an approval counts as denied, any other fails the task (DESIGN
        §4.1)."""
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
                await runner.resume(taken)  # the answer arrived at the last moment
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
        """Returns the seconds until the next clean-up, which depend on the shortest retention."""
        keep = self._runner.settings
        shortest = min(keep.keep_events, keep.keep_tasks, *(it.keep_tasks for it in self.sooner))
        return min(SWEEP, max(1.0, shortest / 4))

    def _time_jumped(self) -> bool:
        """Returns whether the clock was set forward within the last hour. Deleted data cannot be
        restored, so an operator has that long to correct a wrong clock."""
        steady = self._steady()
        before, self._ahead = self._ahead, self._runner.clock() - steady
        if self._ahead - before >= JUMPED:
            self._swept_from = steady + int(SWEEP * 1000)
            log.warning("The clock was set forward, so no old data is deleted for an hour")
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
        """Deletes the tasks of a tenant or of this agent that have a shorter retention."""
        if sooner.agent not in ("", self._runner.name):
            return  # the engine of that agent does it
        which = AdminFilter(
            tenant=sooner.tenant,
            agent=self._runner.name,
            ended_before=self._runner.clock() - int(sooner.keep_tasks * 1000),
        )
        while rows := await self._store.find_in_all_scopes(which, SWEPT):
            await self._store.erase([row.task_id for row in rows])

    async def _peek(self) -> None:
        """Checks for inputs and cancels from other processes, while a run or a reader here needs
        them."""
        runner = self._runner
        if not (runner.runs or runner.bell.listening()):
            return
        before, self._changes = self._changes, await self._store.data_version()
        if self._changes == before:
            return
        runner.bell.ring_all()
        await self._bring(await self._held())

    async def _bring(self, held: list[HeldTask]) -> None:
        """Delivers stored inputs and cancels to the runs of this worker."""
        runner = self._runner
        for one in held:
            run = runner.runs.get(one.claim.task_id)
            if run is None or run.writer.claim != one.claim:
                continue
            if one.cancel:
                runner.cancel(run)
            try:
                await runner.bring(run, one.inputs)
            except DragomanError as exc:  # an answer that cannot be audited; it is delivered later
                log.warning(
                    "An answer could not be delivered", task=run.task_id, reason=exc.reason, why=exc
                )
