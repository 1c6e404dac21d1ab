"""The runner starts the runs of this process, delivers their inputs and stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from msgspec.structs import replace

from dragoman import spans, workspace
from dragoman.agent import Agent, Skill
from dragoman.agent.remote_calls import Outside
from dragoman.bell import LocalBell
from dragoman.core.errors import DragomanError, Fenced, StoreUnavailable
from dragoman.core.events import Ask, Opened, Stamped, StateChanged
from dragoman.core.lifecycle import WAITING
from dragoman.core.log import Logger
from dragoman.core.model import State
from dragoman.core.peer import NO_HEADERS, BearerToken, Context
from dragoman.settings import EngineSettings
from dragoman.store.approvals import Audit
from dragoman.store.interface import WORKER_LOST, Input, Row, Scope, Store

from .background_work import BackgroundWork
from .runs.replay import Replay
from .runs.run import Run
from .runs.run_context import Receiver, RunContext
from .runs.sealed_inputs import InputSealer
from .runs.skill_driver import SYNC_THREADS, perform, perform_traced, stop
from .runs.stop_reason import StopReason
from .tail import Idle
from .worker import TaskQueue, Worker

log = Logger("runner")

PAGE = 256
MOST_TOKENS = 1000
SYNC_PARKED = SYNC_THREADS // 2
"""The number of plain functions that may hold a thread while they wait for their caller."""


class Runner:
    """Manages all runs of one agent in one process."""

    def __init__(
        self,
        agent: Agent,
        name: str,
        store: Store,
        settings: EngineSettings,
        clock: Callable[[], int],
        secret: bytes,
        identity: Worker | None = None,
    ) -> None:
        """`identity` is the worker that several agents of a process share."""
        self.agent = agent
        self.name = name
        """The name of the agent in the store."""
        self.store = store
        self.settings = settings
        self.clock = clock
        self._credentials = InputSealer(secret)
        self.bell = LocalBell()
        self.identity = identity or Worker()
        self.runs: dict[str, Run] = {}
        self.parked: dict[str, Run] = {}
        self.queue = TaskQueue(name, self.identity, settings, agent)
        self.place_free = self.identity.place_free
        self.overdue = 0
        """The number of expired tasks that could not be ended last time. The next query asks for
        that many more, so that they do not displace others."""
        self.waits: dict[asyncio.Future[None], float] = {}
        """The blocking sends and the loop time at which each of them stops waiting, oldest
        first."""
        self.idle: Idle = {}
        self.on_webhook_due: Callable[[], None] = lambda: None
        """Called when a delivery is due to a webhook; set by the engine."""
        self.audit = Audit()
        self.outside: Outside | None = None
        self.workspaces: workspace.Workspaces | None = None
        self.receiver: Receiver | None = None
        self.state = SimpleNamespace()
        """What the agent's own functions opened at the start, for its turns."""
        self._tokens: dict[str, BearerToken] = {}
        """The tokens of callers that answered just now, by task, for runs that start again."""
        self.stopping = self.stopped = False
        """Whether the engine stops, and whether no task may start any more."""
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="dragoman-skill")
        self._step_threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="dragoman-step")
        self.background = BackgroundWork()
        self._shared: RunContext | None = None

    @property
    def shared(self) -> RunContext:
        """The context that all runs share; created inside the loop that runs them."""
        if self._shared is None:
            self._shared = self._new_context()
        return self._shared

    def _new_context(self) -> RunContext:
        return RunContext(
            # Looked up only once: in Python 3.11 `get_running_loop` is a system call.
            loop=asyncio.get_running_loop(),
            store=self.store,
            bell=self.bell,
            clock=self.clock,
            waiting_ms=int(self.settings.waiting * 1000),
            max_task_size=self.settings.max_task_size,
            max_relayed_size=self.settings.max_relayed_size,
            relayed_sizes=self.identity.relayed_sizes,
            on_close=self._on_close,
            on_park=self._on_park,
            on_wake=self._on_wake,
            on_webhook_due=lambda: self.on_webhook_due(),
            workspaces=self.workspaces,
            receiver=self.receiver,
            open_input=self._credentials.open,
            audit=self.audit,
            spawn=self.background.spawn,
            spawn_until_stop=self.background.spawn_until_stop,
            outside=self.outside,
            state=self.state,
            step_threads=self._step_threads,
        )

    def renew_context(self) -> None:
        """Has runs that start from now on use what has been replaced since the first one."""
        self._shared = None

    def scope_of(self, ctx: Context) -> Scope:
        """Returns the scope of the caller's own tasks of this agent."""
        return Scope(ctx.tenant, ctx.principal, self.name)

    @property
    def places(self) -> int:
        """The number of runs that may still start. Runs that wait for their caller do not count."""
        free = self.settings.max_runs - len(self.runs) + len(self.parked)
        return 0 if self.agent.elsewhere else free

    @property
    def worker(self) -> str:
        """The worker that claims the tasks of this runner."""
        return self.identity.id

    def start(self, run: Run) -> None:
        """Starts to run a task that this worker has claimed."""
        self.runs[run.task_id] = run
        if spans.tracer is None:
            driven = perform(run, self._threads)
        else:
            driven = perform_traced(spans.tracer, run, self._threads)
        run.task = run.shared.loop.create_task(driven)

    # Resuming an existing task.

    async def adopt(self, row: Row) -> Run:
        """Returns a run, not yet started, for a task that this worker has just claimed."""
        scope = row.scope
        first = (await self.store.read(scope, row.task_id, 0, 1)).entries[0].event
        assert isinstance(first, Opened)  # noqa: S101  # seq 1 is always Opened (DESIGN §4.1)
        _, task = await self.store.load(scope, row.task_id)
        caller = Context(
            tenant=row.tenant,
            principal=row.principal,
            dialect=row.dialect,
            extensions=first.extensions,
            trace=first.trace,
            tools=first.tools,
            hops=first.hops,
            deadline=first.deadline,
            headers=first.headers or NO_HEADERS,
            token=self._tokens.pop(row.task_id, None),
        )
        run = Run(self.shared, row, self.skill_of(row), first, caller)
        run.writer.load(task)
        run.resumed, run.journal.loaded = True, False
        run.writer.has_webhooks = bool(await self.store.hooks(scope, row.task_id))
        self.runs[row.task_id] = run
        return run

    def skill_of(self, row: Row) -> Skill:
        """Returns the skill of a task. If the code no longer has it, any skill is returned, which
        only serves to end the task."""
        return self.agent.recorded_skill(row.skill) or self.agent.choose("")

    async def resume(self, row: Row) -> None:
        """Runs a claimed task again from the top, with its journal (DESIGN §4.1).
        If the store fails, the claim remains, and the maintenance finds a task that nobody runs."""
        try:
            await self._go_on(await self.adopt(row), row)
        except DragomanError as exc:
            log.warning("A task could not be resumed", task=row.task_id, reason=exc.reason, why=exc)
            run = self.runs.get(row.task_id)
            if run is not None and run.writer.claim == row.claim:
                run.lose(exc)

    async def _go_on(self, run: Run, row: Row) -> None:
        run.journal.load(await self.store.records(row.claim))
        if row.cancel:
            self.cancel(run)
            return
        if self.agent.recorded_skill(row.skill) is None:
            run.fail(f"This agent has no skill `{row.skill}` any more", "skill_gone")
            return
        # A run that only waited for its caller did not crash, and its answer resets the attempts.
        crashed = row.state not in WAITING and row.attempt > run.skill.max_attempts
        if crashed or (run.skill.on_crash == "fail" and row.attempt > 1):
            run.fail("The process that ran this task was lost", WORKER_LOST)
            return
        since, records = run.journal.last_seq, len(run.journal.entries)
        told = await self._entries(row.scope, row.task_id, since)
        inputs = await self._inputs(run)
        if run.over or run.stop_reason is not None:
            return  # it was canceled in the meantime
        run.questions.load(inputs)
        if row.last_seq == 1:
            run.emit(StateChanged(state=State.WORKING))
        else:
            if row.state not in WAITING:
                run.emit(StateChanged(state=State.WORKING, metadata={"attempt": row.attempt}))
            self._hear(run, inputs)
            answered = len(run.journal.entries) > records
            run.replay = Replay(list(run.journal.entries), [] if answered else told, run.history())
        log.info("A task was resumed", task=row.task_id, attempt=row.attempt)
        self.start(run)
        # Inputs that arrived while the run was being prepared.
        await self.bring(run, (await self.store.row(row.scope, row.task_id)).inputs)

    async def _entries(self, scope: Scope, task_id: str, after: int) -> list[Stamped]:
        found: list[Stamped] = []
        while entries := (await self.store.read(scope, task_id, after, PAGE)).entries:
            found.extend(entries)
            after = entries[-1].seq
        return found

    # The inputs of a run.

    async def add_input(
        self,
        scope: Scope,
        task_id: str,
        said: Input,
        question: str | None,
        token: BearerToken | None = None,
    ) -> Row:
        """Stores an input and delivers it to the run, in whichever process that is. `token` is what
        the caller showed now, if its tokens are needed; it is not stored."""
        # Shielded from a caller that disconnects: what is in the store must be delivered.
        adding = self.background.spawn(self._add_input(scope, task_id, said, question, token))
        return await asyncio.shield(adding)

    async def _add_input(
        self,
        scope: Scope,
        task_id: str,
        said: Input,
        question: str | None,
        token: BearerToken | None,
    ) -> Row:
        asking = await self._asking(scope, task_id)
        if asking is Ask.APPROVAL and self.audit.path is not None:
            # Fails closed: an answer to an approval that cannot be audited is not even stored.
            self.audit.check()
        if asking is Ask.CREDENTIALS:
            said = self._credentials.seal(task_id, said)
        if token is not None:
            # The maintenance may be the first to resume the task, so it has to find the token.
            self.keep_token(task_id, token)
        row = await self.store.add_input(scope, task_id, said, question)
        run = self.runs.get(task_id)
        if run is not None and row.worker == self.worker:
            if token is not None:
                self.use_token(run)
            try:
                await self.bring(run, row.inputs)
            except Fenced as lost:  # the input is stored: the new holder of the task finds it
                run.lose(lost)
        elif not row.worker and self.agent.elsewhere:
            self.identity.call_others(self.name)
        elif not row.worker and row.state in WAITING and not self.stopping:
            taken = await self.store.seize(self.worker, task_id, row.epoch)
            if taken is not None:
                await self.resume(taken)
        return row

    def keep_token(self, task_id: str, token: BearerToken) -> None:
        """Keeps what the caller of a task showed just now, for the run that needs it."""
        self._tokens[task_id] = token
        if len(self._tokens) > MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]

    def use_token(self, run: Run) -> None:
        """Gives a run the token that its caller showed last, if there is a new one."""
        token = self._tokens.pop(run.task_id, None)
        if token is not None:
            run.caller = replace(run.caller, token=token)

    async def _asking(self, scope: Scope, task_id: str) -> Ask | None:
        """Returns the kind of question that a task waits for, or None."""
        run = self.runs.get(task_id)
        if run is not None and run.writer.row.scope == scope:
            return run.writer.question.kind
        return (await self.store.row(scope, task_id)).asking

    async def _inputs(self, run: Run) -> list[Input]:
        """Returns all inputs of a run."""
        inputs = await self.store.inputs(run.writer.claim)
        return [self._credentials.open(run.task_id, said) for said in inputs]

    async def remind(self, scope: Scope, task_id: str) -> None:
        """Delivers stored inputs to a run at once, for a caller that repeats a send."""
        run = self.runs.get(task_id)
        if run is not None and run.log.committed:
            try:
                await self.bring(run, (await self.store.row(scope, task_id)).inputs)
            except Fenced as lost:
                run.lose(lost)

    async def bring(self, run: Run, count: int) -> None:
        """Delivers the stored inputs of a run, up to the `count`th."""
        if run.task is not None and run.writer.heard < count and not run.writer.closed:
            self._hear(run, await self._inputs(run))

    def _hear(self, run: Run, inputs: list[Input]) -> None:
        for said in inputs:
            if said.n > run.writer.heard:
                run.questions.receive(said)

    # Stopping.

    def cancel(self, run: Run) -> None:
        """Cancels the code of a run; after its grace period the task is canceled without it."""
        if run.stop_reason is not None:
            return
        run.stop_reason = StopReason.CANCELED
        run.stop_calls()
        if run.task is None or run.task.done():
            run.finish(State.CANCELED)
            return
        stop(run)
        run.task.add_done_callback(lambda _: run.finish(State.CANCELED))  # even if it never started

    def expire(self, run: Run) -> None:
        """Fails a task whose question expired."""
        run.fail("Nobody answered in time", "expired")
        run.stop_code()

    async def give_back(self, run: Run) -> None:
        """Returns a task to the store without using up an attempt. Another worker, or a later
        answer, resumes it."""
        if run.writer.closed:
            return
        try:
            await run.writer.committed()
        except DragomanError as exc:
            log.warning("A task was lost", task=run.task_id, reason=exc.reason)
            return
        if run.writer.closed:
            return
        # The run is closed before its code is stopped: events of code that is being canceled do not
        # count, and inputs stay in the store for the next run.
        waiting = run.resting
        run.stop_reason = run.stop_reason or StopReason.GIVEN_BACK
        run.close(None)
        if run.task is not None and not run.task.done():
            run.task.cancel()
            await asyncio.wait([run.task], timeout=0.5)
        try:
            await self.store.release(run.writer.claim, runnable=not waiting)
        except StoreUnavailable:
            log.warning(
                "A task could not be returned to the store, so it goes on when our lease is over",
                task=run.task_id,
            )
        self.place_free.set()  # an input that arrived in the meantime has made the task due

    async def stop(self, grace: float) -> None:
        """Gives runs `grace` seconds to end, then returns them to the store."""
        self.stopping = True
        await asyncio.gather(*(self.give_back(run) for run in list(self.parked.values())))
        running = [run.task for run in self.runs.values() if run.task is not None]
        if running:
            await asyncio.wait(running, timeout=grace)
        self.stopped = True
        await asyncio.gather(*(self.give_back(run) for run in list(self.runs.values())))
        self.background.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._step_threads.shutdown(wait=False, cancel_futures=True)

    def lose_all(self) -> None:
        """Stops all runs, because the lease of this worker has expired."""
        for run in list(self.runs.values()):
            if run.log.committed:  # nobody else can have claimed a task that is being created
                run.lose(Fenced("This process was silent for too long"))

    # Callbacks of the runs.

    def _on_close(self, run: Run) -> None:
        if self.runs.get(run.task_id) is run:
            del self.runs[run.task_id]
        self.parked.pop(run.task_id, None)
        self.queue.on_place_free()

    def _on_park(self, run: Run) -> None:
        self.parked[run.task_id] = run
        if len(self.parked) > self.settings.max_parked:
            self._drop(next(iter(self.parked.values())))
        elif run.skill.shape.threaded:
            threaded = [one for one in self.parked.values() if one.skill.shape.threaded]
            if len(threaded) > SYNC_PARKED:
                self._drop(threaded[0])
        self.queue.on_place_free()

    def _drop(self, run: Run) -> None:
        del self.parked[run.task_id]
        self.background.spawn(self.give_back(run))

    def _on_wake(self, run: Run) -> None:
        self.parked.pop(run.task_id, None)
