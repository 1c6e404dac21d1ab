"""The background work of a worker: renews its lease, starts tasks that are due, takes over the
tasks of dead workers, expires questions and deletes old data.

Theory. A worker holds a lease, and every task that it runs has a claim with a fencing epoch. A
heartbeat renews the lease. As often, the claims in the store are compared with the runs in this
process. A task that is claimed but does not run (because the answer to its claim was lost) is
resumed after the second look: at the first, the claim may simply be newer than the run. A run whose
claim is gone is stopped. The tasks of a dead worker are released by the next worker that looks.

A heartbeat does nothing else: to resume many tasks on a slow store may take longer than a lease.

A process is one worker, whichever agents it runs: their runners share one lease, one heartbeat and
one look at the store. An agent without a run costs no query, no timer and no task here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic

from dragoman.bell import SharedBell
from dragoman.core.errors import DragomanError, Fenced
from dragoman.core.log import Logger
from dragoman.settings import EngineSettings, Retention
from dragoman.store.clock import Clock, steady_of
from dragoman.store.interface import (
    NO_LIMITS,
    AdminFilter,
    HeldTask,
    Row,
    Store,
    WatchedStore,
)
from dragoman.store.transfer.copy import refuse_incomplete_copy

from .overdue import end_overdue, expire_questions, give_back_all
from .replicas import Replicas
from .runner import Runner
from .runs.run import Run
from .worker import Worker

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
"""The smallest change in milliseconds that counts as setting the clock, and not merely as adjusting
it."""
BATCH = 64
CLAIMED, TOGETHER = 16, 4
"""How many tasks are claimed at a time, so that they run within a lease even if the store is slow;
and how many of them are resumed at a time, so that callers still reach the store."""


class Maintenance:
    """Does the background work of a process: for one runner, or for those of all its agents."""

    def __init__(
        self,
        store: Store,
        settings: EngineSettings,
        clock: Clock,
        retention: Iterable[Retention] = (),
        bell: SharedBell | None = None,
    ) -> None:
        """`bell` reaches the other processes on the same store, if the store is such a one."""
        self.worker = Worker()
        self._store, self._settings, self._clock = store, settings, clock
        self._runners: dict[Runner, None] = {}
        self._replicas: Replicas | None = None
        if bell is not None and isinstance(store, WatchedStore):
            self._replicas = Replicas(store, bell, self._runners, self._held, self._bring)
            self.worker.call_others = self._replicas.call_others
        self._changing = asyncio.Lock()
        self._loops: asyncio.Task[None] | None = None
        self._stray: set[str] = set()
        self._resuming: set[str] = set()
        """The tokens of claims whose runs are being prepared."""
        self._changes = -1
        """The change counter of the store at the last check."""
        self._steady = steady_of(clock)
        self._ahead = clock() - self._steady()
        """The difference between the system time and the monotonic time, in milliseconds."""
        self._swept_from = 0
        """The monotonic time from which the system time is trusted again to say what is old."""
        self.sooner = tuple(retention)
        """Retention rules that are shorter than the default."""

    async def start(self, runner: Runner) -> None:
        """Does the work for this runner too. For the first one it registers the worker, takes over
        the tasks of dead workers, and starts."""
        async with self._changing:
            self._runners[runner] = None
            runner.queue.open()
            if self._replicas is not None:
                runner.bell.on_wait = self._replicas.watch
            if len(self._runners) > 1:
                self.worker.place_free.set()  # it may have tasks that are due
                return
            try:
                await refuse_incomplete_copy(self._store)
                await self._enlist()
                await self._store.reap()
            except BaseException:
                del self._runners[runner]
                raise
            self._loops = asyncio.get_running_loop().create_task(self._run())
            if self._replicas is not None:
                await self._replicas.start()

    async def pause(self, runner: Runner) -> None:
        """Starts no more tasks of this runner, which is about to stop."""
        runner.stopping = True
        if len(self._runners) == 1:
            await self.stop()

    async def leave(self, runner: Runner) -> None:
        """Forgets a runner that has stopped. After the last one the worker ends, and what it still
        holds is given back."""
        async with self._changing:
            self._runners.pop(runner, None)
            runner.queue.close()
            if self._runners:
                return
            await self.stop()
            if self._replicas is not None:
                await self._replicas.stop()
            try:
                await self._store.retire(self.worker.id)
            except DragomanError as exc:  # closing the store frees its lock, others notice anyway
                log.warning(
                    "The worker could not be deregistered", worker=self.worker.id, reason=exc.reason
                )
            self.worker.renew()

    async def stop(self) -> None:
        """Stops the background work; the worker stays registered."""
        if self._loops is not None:
            self._loops.cancel()
            await asyncio.wait([self._loops])
            self._loops = None

    async def _run(self) -> None:
        lease = self._settings.lease
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(lambda: lease / 3, self._beat))
            group.create_task(self._every(lambda: lease / 3, self._reconcile))
            group.create_task(self._every(lambda: LOOK, self._look, wake=self.worker.place_free))
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
            await self._try(work)
            if wake is None:
                await asyncio.sleep(pause())
                continue
            try:
                async with asyncio.timeout(pause()):
                    await wake.wait()
            except TimeoutError:
                continue

    async def _try(self, work: Callable[..., Awaitable[None]], *about: Runner) -> None:
        agents = ",".join(runner.name for runner in about)
        name = work.__name__
        try:
            await work(*about)
        except DragomanError as exc:
            log.warning("Maintenance failed", work=name, reason=exc.reason, why=exc, agent=agents)
        except Exception as exc:  # one bad task must not stop the maintenance of all others
            log.error("Maintenance crashed", exc, work=name, agent=agents)

    async def _enlist(self) -> None:
        began = monotonic()
        await self._store.enlist(self.worker.id, self._lease_ms())
        self.worker.set_lease(began, self._settings.lease)

    def _lease_ms(self) -> int:
        return int(self._settings.lease * 1000)

    async def _beat(self) -> None:
        worker = self.worker
        began = monotonic()
        if worker.lease_is_over() or not await self._store.beat(worker.id, self._lease_ms()):
            # The lease has expired, so other workers may have taken over our tasks. Everything here
            # stops, and a new worker id makes sure that no old claim is mistaken for a new one.
            log.error(
                "The lease of this worker has expired, so its runs are stopped", worker=worker.id
            )
            for runner in self._runners:
                runner.lose_all()
            worker.renew()
            await self._enlist()
            return
        worker.set_lease(began, self._settings.lease)

    async def _reconcile(self) -> None:
        """Compares the claims in the store with the runs in this process."""
        held = await self._held()
        runs = self._runs()
        claims = [one.claim for one in held if one.claim.task_id not in runs]
        stray = [claim for claim in claims if claim.token not in self._resuming]
        for claim in stray:
            if claim.token in self._stray:
                log.warning(
                    "A task that this worker has claimed but does not run is resumed",
                    task=claim.task_id,
                )
                taken = await self._store.seize(self.worker.id, claim.task_id, claim.epoch)
                if taken is not None:
                    await self._resume(taken)
        self._stray = {claim.token for claim in stray}
        await self._bring(held)  # inputs that could not be delivered when they arrived

    def _runs(self) -> dict[str, tuple[Runner, Run]]:
        """The runs of all runners by their tasks."""
        return {
            task_id: (runner, run)
            for runner in self._runners
            for task_id, run in runner.runs.items()
        }

    async def _resume(self, row: Row) -> None:
        """Runs a claimed task again, or gives it back if its agent was removed."""
        runner = self._runner_of(row.agent)
        if runner is not None:
            await runner.resume(row)
        else:
            await self._store.release(row.claim, runnable=not row.resting)

    def _runner_of(self, agent: str) -> Runner | None:
        """The runner of an agent that starts tasks."""
        found = (each for each in self._runners if each.name == agent and not each.stopping)
        return next(found, None)

    async def _held(self) -> list[HeldTask]:
        """Returns the tasks that this worker has claimed, and stops runs whose claim is gone."""
        runs = [run for _, run in self._runs().values() if run.log.committed]
        held = await self._store.list_held_tasks(self.worker.id)
        tokens = {one.claim.token for one in held}
        for run in runs:
            if run.writer.claim.token not in tokens:
                run.lose(Fenced(taskId=run.task_id))
        return held

    async def _look(self) -> None:
        """Starts the tasks that are due, and ends those whose question expired."""
        self.worker.place_free.clear()
        runners = [each for each in self._runners if not each.stopping]
        if len(self._runners) > 1:
            # One query for all agents: most of them have nothing to do, however many there are.
            due = await self._store.agents_due()
            for runner in runners:
                if runner.name in due:
                    runner.on_webhook_due()
                else:
                    runner.queue.length = 0
            runners = [each for each in runners if each.name in due]
        for runner in runners:
            await self._try(self._look_for, runner)

    async def _look_for(self, runner: Runner) -> None:
        now = asyncio.get_running_loop().time
        while runner.places > 0:
            places = min(CLAIMED, runner.places)
            rows = await self._store.claim(
                runner.worker, runner.name, places, runner.queue.limits or NO_LIMITS
            )
            if not rows:
                break
            runner.queue.claimed(len(rows), now())
            self._resuming = {row.token for row in rows}
            for start in range(0, len(rows), TOGETHER):
                await asyncio.gather(*map(runner.resume, rows[start : start + TOGETHER]))
            self._resuming.clear()
        empty = runner.places > 0 and runner.queue.limits is None
        await runner.queue.count(self._store, now(), empty=empty)
        await expire_questions(runner, BATCH)

    async def _tick(self) -> None:
        # A heartbeat that waits for a store that is away must not keep our runs going.
        over = self.worker.lease_is_over()
        for runner in self._runners:
            if over:
                runner.lose_all()
            if runner.runs or runner.idle or runner.waits:
                end_overdue(runner)
            if runner.agent.elsewhere and runner.runs:
                give_back_all(runner)

    async def _reap(self) -> None:
        taken = await self._store.reap()
        if taken:
            log.warning("Tasks of a dead worker were released", tasks=len(taken))

    def _sweep_pause(self) -> float:
        """Returns the seconds until the next clean-up."""
        keep = self._settings
        shortest = min(keep.keep_events, keep.keep_tasks, *(it.keep_tasks for it in self.sooner))
        return min(SWEEP, max(1.0, shortest / 4))

    def _time_jumped(self) -> bool:
        """Returns whether the clock was set forward within the last hour. Deleted data cannot be
        restored, so an operator has that long to correct a wrong clock."""
        steady = self._steady()
        before, self._ahead = self._ahead, self._clock() - steady
        if self._ahead - before >= JUMPED:
            self._swept_from = steady + int(SWEEP * 1000)
            log.warning("The clock was set forward, so no old data is deleted for an hour")
        return steady < self._swept_from

    async def _sweep(self) -> None:
        if self._time_jumped():
            return
        for runner in tuple(self._runners):
            await self._sweep_for(runner.name)

    async def _sweep_for(self, agent: str) -> None:
        keep = self._settings
        events_ms, tasks_ms = int(keep.keep_events * 1000), int(keep.keep_tasks * 1000)
        swept = SWEPT
        while swept >= SWEPT:
            swept = await self._store.sweep(agent, events_ms, tasks_ms, SWEPT)
        for sooner in self.sooner:
            if sooner.agent in ("", agent):
                await self._sweep_sooner(sooner, agent)

    async def _sweep_sooner(self, sooner: Retention, agent: str) -> None:
        """Deletes the tasks of a tenant or of an agent that have a shorter retention."""
        before = self._clock() - int(sooner.keep_tasks * 1000)
        which = AdminFilter(tenant=sooner.tenant, agent=agent, ended_before=before)
        while rows := await self._store.find_in_all_scopes(which, SWEPT):
            await self._store.erase([row.task_id for row in rows])

    async def _peek(self) -> None:
        """Checks for inputs and cancels from other processes, while a run or a reader here needs
        them."""
        concerned = [
            each
            for each in self._runners
            if each.runs or each.agent.linked or each.bell.listening()
        ]
        if not concerned:
            return
        before, self._changes = self._changes, await self._store.data_version()
        if self._changes == before:
            return
        for runner in concerned:
            runner.bell.ring_all()
            if runner.agent.linked and not runner.agent.elsewhere:
                self.worker.place_free.set()  # a task may have been left for this process
        await self._bring(await self._held())

    async def _bring(self, held: list[HeldTask]) -> None:
        """Delivers stored inputs and cancels to the runs of this worker."""
        runs = self._runs()
        for one in held:
            runner, run = runs.get(one.claim.task_id, (None, None))
            if runner is None or run is None or run.writer.claim != one.claim:
                continue
            if one.cancel:
                runner.cancel(run)
            try:
                await runner.bring(run, one.inputs)
            except DragomanError as exc:  # an answer that cannot be audited; it is delivered later
                log.warning(
                    "An answer could not be delivered", task=run.task_id, reason=exc.reason, why=exc
                )
