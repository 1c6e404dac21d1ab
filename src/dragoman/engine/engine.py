"""The engine: a peer over a store, and the only writer of tasks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import partial
from typing import Any, cast

from dragoman.agent import Agent, Skill
from dragoman.agent.invoke import invoke
from dragoman.agent.lifespan import Lifespan
from dragoman.agent.remote_calls import Outside
from dragoman.bell import SharedBell
from dragoman.core.errors import (
    BadParams,
    ExtendedCardOff,
    Forbidden,
    NotCancelable,
    TaskFinished,
    TaskNotFound,
    Unsupported,
)
from dragoman.core.events import Stamped
from dragoman.core.extensions import TRANSITIONS
from dragoman.core.lifecycle import FINAL, shortened
from dragoman.core.model import Json, State, Task
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    Invoke,
    ListHooks,
    ListTasks,
    Operation,
    R,
    Resolve,
    SendMessage,
    SetHook,
    Streamed,
    TaskPage,
    Watch,
)
from dragoman.core.outage import Outage
from dragoman.core.peer import Batch, Context
from dragoman.settings import EngineSettings, Push, Retention
from dragoman.store.approvals import Audit
from dragoman.store.clock import Clock, wall_clock
from dragoman.store.interface import Row, Scope, Store
from dragoman.store.opening import open_when_reachable
from dragoman.workspace import Space, space_of

from .history import with_history, with_transitions
from .hooks import Hooks
from .listing import list_tasks
from .maintenance import Maintenance
from .runner import Runner
from .runs.run import Run
from .runs.run_context import Receiver
from .send_message import MessageSender
from .tail import Place, within
from .task_ids import TaskNames, by_name
from .task_reader import TaskReader
from .webhook_queue import WebhookFigures, WebhookQueue
from .webhook_transport import WebhookTransport

AGAIN = 0.05
"""Seconds before another attempt to take a task over from another process."""


class Engine:
    """Executes operations on the tasks of one agent, and runs these tasks.

    Several engines may share a store, each with its own `name`: the tasks of one do not exist for
    another. In that case `opens_store` is false, and the code that starts the engines opens the
    store first and closes it after the last engine has stopped. The engines of one process share
    one `maintenance`. Without a name, the agent is the only one that is served, and its tasks are
    stored under the agent's own name.
    """

    def __init__(
        self,
        agent: Agent,
        store: Store,
        settings: EngineSettings | None = None,
        *,
        name: str = "",
        opens_store: bool = True,
        maintenance: Maintenance | None = None,
        secret: bytes | None = None,
        clock: Clock = wall_clock,
        sender: WebhookTransport | None = None,
        push: Push | None = None,
        retention: Iterable[Retention] = (),
        audit: Audit | None = None,
        workspace: Space | None = None,
        outside: Outside | None = None,
        bell: SharedBell | None = None,
    ) -> None:
        self.agent = agent
        self.name = name or agent.name
        """The name of the agent in the store."""
        self.store = store
        self._opens_store = opens_store
        self.settings = settings or EngineSettings()
        self._secret = secret or secrets.token_bytes(32)
        shared = maintenance is not None
        self._maintenance = maintenance or Maintenance(store, self.settings, clock, retention, bell)
        identity = self._maintenance.worker
        self.runner = Runner(agent, self.name, store, self.settings, clock, self._secret, identity)
        if audit is not None:
            self.runner.audit = audit
        self.runner.outside = outside
        space = space_of(workspace) or agent.workspace
        self._workspaces: Workspaces | None = None
        if space is not None:
            from dragoman.workspace import Workspaces

            self._workspaces = Workspaces(space, agent=name)
        self.runner.workspaces = self._workspaces
        self._lifespan = Lifespan(agent.name, agent.hooks)
        self.runner.state = self._lifespan.state
        self._clock = clock
        self.webhooks: WebhookQueue | None = None
        if sender is not None:
            self.webhooks = WebhookQueue(self.name, store, sender, push or Push(), polls=not shared)
            self.runner.on_webhook_due = self.webhooks.wake
        self._left: list[Outside] = []
        """The connections of code that was replaced, which its tasks may still use."""
        self._scope_of = self.runner.scope_of
        self._view = TaskReader(self.runner)
        self._names = TaskNames(store, self._view.mine)
        self._hooks = Hooks(store, self.webhooks, self._view.mine, self._scope_of)
        self._sending = MessageSender(self.runner, self._view, self._names, self._hooks)

    async def start(self) -> None:
        """Opens the store (unless it is shared), takes over the tasks of dead processes, and starts
        to run tasks."""
        if self._workspaces is not None:
            self._workspaces.open()
        await self._lifespan.start()
        try:
            if self._opens_store:
                await open_when_reachable(self.store)
            await self._maintenance.start(self.runner)
        except BaseException:
            await self._lifespan.stop()
            raise
        if self.webhooks is not None:
            self.webhooks.start()

    def receive_with(self, receiver: Receiver | None) -> None:
        """Has every message of a caller pass through a receiver before the skill gets it."""
        self.runner.receiver = receiver
        self.runner.renew_context()

    async def stop(self, grace: float = 3.0) -> None:
        """Gives runs `grace` seconds, then returns them to the store. Runs that are returned do not
        lose an attempt."""
        await self._maintenance.pause(self.runner)
        await self.runner.stop(grace)
        self._view.stop_waiting()
        if self.webhooks is not None:
            await self.webhooks.stop(min(grace, 1.0))
        for outside in (self.runner.outside, *self._left):
            if outside is not None:
                await outside.close()
        await self._maintenance.leave(self.runner)
        if self._opens_store:
            await self.store.close()
        if self._workspaces is not None:
            self._workspaces.close()
        await self._lifespan.stop()

    def replace_agent(self, agent: Agent, outside: Outside | None) -> None:
        """Replaces the code of the agent. Tasks that are running finish with the old code; tasks
        that start or are resumed later run the new code."""
        before, self.runner.outside = self.runner.outside, outside
        self.agent = self.runner.agent = agent
        self.runner.queue.use(agent)
        self.runner.renew_context()
        if before is not None:
            self._left.append(before)
        used = {id(run.shared.outside) for run in self.runner.runs.values()}
        for each in self._left:
            if id(each) not in used:
                self.runner.background.spawn(each.close())
        self._left = [each for each in self._left if id(each) in used]

    async def counts(self) -> dict[str, int]:
        """Returns the number of tasks by state, and of `runnable` tasks that wait for a worker."""
        return await self.store.count_by_state(self.name)

    @property
    def outage(self) -> Outage:
        """Whether the store does not work now."""
        return self.store.outage

    async def probe(self) -> None:
        """Writes to the store, and raises the error that prevents it."""
        await self.store.probe()

    async def mail(self) -> WebhookFigures | None:
        """Returns figures about webhook deliveries, or None if webhooks are off."""
        return await self.webhooks.figures(self._clock()) if self.webhooks is not None else None

    # Peer.

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Executes an operation and returns its result."""
        # `Operation[R]` binds the type of the result to the operation; a table cannot express it.
        try:
            answer = await _ANSWERS[type(op)](self, op, ctx)
        except TaskNotFound as missing:
            known = by_name(op, self._scope_of(ctx))
            if known is None:
                raise
            try:
                answer = await _ANSWERS[type(op)](self, known, ctx)
            except TaskNotFound:
                raise missing from None
        if ctx.extensions and TRANSITIONS in ctx.extensions and isinstance(answer, Task):
            answer = await with_transitions(self.store, self._scope_of(ctx), answer)
        return cast(R, answer)

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields every event of a task, in batches of events that are ready together."""
        steps = self._view.follow(self._scope_of(ctx), partial(self._place, op, ctx))
        if type(op) is SendMessage and op.history_length is not None:
            return with_history(steps, op.history_length)
        return steps

    async def _place(self, op: Streamed, ctx: Context) -> Place:
        """Returns where the stream of an operation begins."""
        if isinstance(op, Watch):
            task_id = await self._names.id_of(op.task_id, self._scope_of(ctx)) or op.task_id
            if ctx.cursor is None:
                return Place(task_id, first=await self._watchable(task_id, ctx))
            await self._check_cursor(task_id, ctx, ctx.cursor)
            return Place(task_id, ctx.cursor)
        return await self._sending.place(op, ctx)

    # The other operations.

    async def _get(self, op: GetTask, ctx: Context) -> Task:
        task = await self._view.task(self._scope_of(ctx), op.task_id)
        return shortened(task, op.history_length)

    async def _list(self, op: ListTasks, ctx: Context) -> TaskPage:
        return await list_tasks(self.store, self._scope_of(ctx), self._secret, op)

    async def _cancel(self, op: CancelTask, ctx: Context) -> Task:
        try:
            return await self._cancel_task(op, ctx)
        except asyncio.CancelledError:
            # The caller has disconnected, but its cancel may already be in the store, so it is
            # carried out.
            self.runner.background.finish_unseen(self._cancel_task(op, ctx))
            raise

    async def _cancel_task(self, op: CancelTask, ctx: Context) -> Task:
        scope = self._scope_of(ctx)
        if self.agent.needs_caller_token:
            await self._use_token(scope, op.task_id, ctx)
        row = await self.store.ask_cancel(scope, op.task_id)
        if row.final:
            raise NotCancelable(taskId=op.task_id)
        await self._stopped(row)
        _, task = await self.store.load(scope, op.task_id)
        if task.state in FINAL and task.state is not State.CANCELED:
            raise NotCancelable(taskId=op.task_id)
        return task

    async def _use_token(self, scope: Scope, task_id: str, ctx: Context) -> None:
        """Keeps the token that a cancel brings, for the run that cancels the work elsewhere. Raises
        `Forbidden` if it brings none, and no process has one of this caller."""
        row = await self.store.row(scope, task_id)  # a task of somebody else gets no token
        if ctx.token is not None:
            self.runner.keep_token(task_id, ctx.token)
            return
        run = self._view.mine(scope, task_id)
        if run is not None:
            known = run.caller.token is not None
        else:
            known = row.final or row.worker in await self.store.list_workers()
        if not known:
            raise Forbidden(
                "The agent acts for its callers, and this task has lost the token of its caller "
                "since the gateway restarted: show a token of an issuer to cancel it."
            )

    async def _stopped(self, row: Row) -> None:
        """Stops the code in whichever process it runs; after its grace period the task is canceled
        without it."""
        grace = self.runner.skill_of(row).cancel_grace
        while not row.final:
            run = self.runner.runs.get(row.task_id)
            if run is None and row.worker:
                # Another process runs the task and sees the request in the store. If it does not
                # react, the task is taken over from it.
                try:
                    async with asyncio.timeout(grace + 2):
                        await self._view.rest_elsewhere(row.scope, row.task_id)
                except TimeoutError:
                    pass
            run = run or await self._take_over(row)
            if run is None:
                return
            self.runner.use_token(run)
            self.runner.cancel(run)
            await within(run.when_resting(), grace + 5)
            if run.writer.error is None:
                return
            # The run was lost while it was stopped: another process has the task by now, and may
            # not know of the cancel.
            row = await self.store.row(row.scope, row.task_id)

    async def _take_over(self, row: Row) -> Run | None:
        """Claims a task that is to be canceled, or returns None if it has ended."""
        while not (row := await self.store.row(row.scope, row.task_id)).final:
            taken = await self.store.seize(self.runner.worker, row.task_id, row.epoch)
            if taken is not None:
                run = await self.runner.adopt(taken)
                self.runner.queue.length -= row.runnable and self.runner.queue.length > 0
                return run
            await asyncio.sleep(AGAIN)
        return None

    async def _watchable(self, task_id: str, ctx: Context) -> Stamped:
        begin, task = await self._view.snapshot(self._scope_of(ctx), task_id)
        if task.state in FINAL:
            # A2A 1.0 §3.1.6: a client cannot subscribe to a finished task.
            raise TaskFinished("The task is finished; get it instead", taskId=task_id)
        return begin

    async def _check_cursor(self, task_id: str, ctx: Context, cursor: int) -> None:
        scope = self._scope_of(ctx)
        run = self._view.mine(scope, task_id)
        last = run.writer.fold.seq if run else (await self.store.row(scope, task_id)).last_seq
        if not 0 <= cursor <= last:
            raise BadParams(f"The cursor {cursor} is no place in this task's log of {last}")

    async def _extended_card(self, op: GetExtendedCard, ctx: Context) -> None:
        raise ExtendedCardOff()  # if there is one, `AuthorizingPeer` in front returns it

    # For the authorization in front of the engine.

    async def count_unfinished(self, ctx: Context) -> int:
        """Returns the number of this caller's tasks that run or wait, in any process."""
        scope = self._scope_of(ctx)
        kept = sum(run.log.committed > 0 and not run.writer.unseen for run in self._runs_of(scope))
        elsewhere = await self.store.count_unfinished(scope) - kept
        # The runs here are counted after the query, because those that were created during it are
        # not yet in the store.
        return max(0, elsewhere) + len(self._runs_of(scope))

    def count_uncommitted(self, ctx: Context) -> int:
        """Returns the number of this caller's tasks that are new, and not in the store yet."""
        return sum(not run.log.committed for run in self._runs_of(self._scope_of(ctx)))

    def scope_of(self, ctx: Context) -> Scope:
        """Returns the scope of the caller's own tasks of this agent."""
        return self._scope_of(ctx)

    def _runs_of(self, scope: Scope) -> list[Run]:
        return [run for run in self.runner.runs.values() if run.writer.row.belongs_to(scope)]

    async def skill_of(self, ctx: Context, task_id: str) -> str:
        """Returns the skill of a caller's task."""
        scope = self._scope_of(ctx)
        task_id = await self._names.id_of(task_id, scope) or task_id
        run = self._view.mine(scope, task_id)
        return (run.writer.row if run else await self.store.row(scope, task_id)).skill

    def skill_for(self, op: SendMessage) -> Skill:
        """Returns the skill that a new task of this message would have."""
        return self._sending.skill(op)

    async def _invoke(self, op: Invoke, ctx: Context) -> Json:
        return await invoke(self.agent, op, ctx)

    async def _unstreamed(self, op: Watch, ctx: Context) -> None:
        raise Unsupported("Following a task is a stream, not a call")


_ANSWERS: dict[type, Callable[[Engine, Any, Context], Any]] = {
    SendMessage: lambda engine, op, ctx: engine._sending.send(op, ctx),
    GetTask: Engine._get,
    ListTasks: Engine._list,
    CancelTask: Engine._cancel,
    Resolve: lambda engine, op, ctx: engine._sending.resolve(op, ctx),
    Invoke: Engine._invoke,
    Watch: Engine._unstreamed,
    GetExtendedCard: Engine._extended_card,
    SetHook: lambda engine, op, ctx: engine._hooks.set(op, ctx),
    GetHook: lambda engine, op, ctx: engine._hooks.get(op, ctx),
    ListHooks: lambda engine, op, ctx: engine._hooks.list(op, ctx),
    DeleteHook: lambda engine, op, ctx: engine._hooks.delete(op, ctx),
}
