"""Engine: the Peer over a store, and the only writer of tasks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from msgspec.structs import replace

from ..agent import Agent, Skill
from ..agent.agent import IDEMPOTENCY, TRANSITIONS, no_extended_card
from ..agent.calls import Outside
from ..agent.invoke import invoke
from ..agent.tools import offered
from ..agent.values import parts_of
from ..errors import (
    BadParams,
    Conflict,
    DragomanError,
    NotCancelable,
    TaskFinished,
    TaskNotFound,
    TooMany,
    Unsupported,
)
from ..events import Opened, Snapshot, Stamped
from ..lifecycle import FINAL, shortened
from ..model import Hook, Json, Message, Role, State, Task
from ..ops import (
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
from ..peer import Batch, Context
from ..settings import EngineSettings, Push, Retention
from ..store.approvals import Audit
from ..store.base import Existing, Idempotency, Input, Row, Scope, Store
from ..workspace import Space, Workspaces, space_of
from .hooks import Hooks
from .ids import new_id, now_ms
from .keeper import Keeper
from .keys import KEY_TAKEN, Keys, key_of, place_of, reply_in
from .listing import listed
from .naming import Names, by_name, named
from .pusher import Courier, Figures, Pusher
from .run import Run
from .runner import Runner
from .shorten import with_history
from .tail import Place, follow
from .transitions import with_transitions
from .waiting import first_of, within

AGAIN = 0.05
"""Seconds before another try to take a task from someone else."""


class Engine:
    """Answers operations on the tasks of one agent, and runs them."""

    def __init__(
        self,
        agent: Agent,
        store: Store,
        settings: EngineSettings | None = None,
        *,
        secret: bytes | None = None,
        clock: Callable[[], int] = now_ms,
        courier: Courier | None = None,
        push: Push | None = None,
        retention: Iterable[Retention] = (),
        audit: Audit | None = None,
        workspace: Space | None = None,
        outside: Outside | None = None,
    ) -> None:
        self.agent = agent
        self.store = store
        self.settings = settings or EngineSettings()
        self.runner = Runner(agent, store, self.settings, clock)
        if audit is not None:
            self.runner.audit = audit
        self.runner.outside = outside
        space = space_of(workspace) or agent.workspace
        self._workspaces = Workspaces(space) if space is not None else None
        self.runner.workspaces = self._workspaces
        self._keeper = Keeper(self.runner)
        self._keeper.sooner = tuple(retention)
        self._names = Names(store, self._mine)
        self._clock = clock
        self._secret = secret or secrets.token_bytes(32)
        self._keys = Keys(store)
        self.pusher: Pusher | None = None
        if courier is not None:
            self.pusher = Pusher(store, courier, push or Push())
            self.runner.mailed = self.pusher.wake
        self._hooks = Hooks(store, self.pusher)

    async def start(self) -> None:
        """Opens the store, takes over what dead processes left, and begins to run tasks."""
        if self._workspaces is not None:
            self._workspaces.open()
        await self.store.open()
        await self._keeper.start()
        if self.pusher is not None:
            await self.pusher.start()

    async def stop(self, grace: float = 3.0) -> None:
        """Gives runs `grace` seconds, then hands them back without costing an attempt."""
        await self._keeper.stop()
        await self.runner.stop(grace)
        if self.pusher is not None:
            await self.pusher.stop(min(grace, 1.0))
        if self.runner.outside is not None:
            await self.runner.outside.close()
        await self.store.retire(self.runner.worker)
        await self.store.close()
        if self._workspaces is not None:
            self._workspaces.close()

    async def counts(self) -> dict[str, int]:
        """Tasks by state, and `runnable` ones that wait for a worker."""
        return await self.store.counts(self.agent.name)

    async def mail(self) -> Figures | None:
        """How webhooks fare; None without any."""
        return await self.pusher.figures(self._clock()) if self.pusher is not None else None

    # Peer.

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer to an operation."""
        # `Operation[R]` binds the answer's type to the operation's; a table cannot say so.
        try:
            answer = await _ANSWERS[type(op)](self, op, ctx)
        except TaskNotFound as missing:
            known = by_name(op, ctx)
            if known is None:
                raise
            try:
                answer = await _ANSWERS[type(op)](self, known, ctx)
            except TaskNotFound:
                raise missing from None
        if ctx.extensions and TRANSITIONS in ctx.extensions and isinstance(answer, Task):
            answer = await with_transitions(self.store, _scope(ctx), answer)
        return cast(R, answer)

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step of a task, in batches of what is ready together."""
        steps = self._follow(_scope(ctx), partial(self._place, op, ctx))
        if type(op) is SendMessage and op.history_length is not None:
            return with_history(steps, op.history_length)
        return steps

    def _follow(
        self, scope: Scope, place: Callable[[], Awaitable[Place]]
    ) -> AsyncGenerator[Batch, None]:
        runner = self.runner
        return follow(self.store, runner.bell, runner.idle, scope, place, runner.runs.get)

    async def _place(self, op: Streamed, ctx: Context) -> Place:
        """Where the stream of an operation begins."""
        if isinstance(op, Watch):
            task_id = await self._names.id_of(op.task_id, ctx) or op.task_id
            if ctx.cursor is None:
                return Place(task_id, first=await self._watchable(task_id, ctx))
            await self._check_cursor(task_id, ctx, ctx.cursor)
            return Place(task_id, ctx.cursor)
        key: Idempotency | None = None
        if op.open_as or ctx.idempotency_key or ctx.extensions:
            op, key, again = await self._before(op, ctx)
            if again:
                return await self._repeated(op, ctx, again)
        if op.message.task_id:
            begin = await self._continue(op, ctx, key)
            return Place(begin.task_id, first=begin)
        run, task_id = self._begun(op, ctx) or await self._begin(op, ctx, waits=True)
        if run is not None:
            await self._opened(run)
            if run.direct is not None:
                return Place(task_id, first=run.direct)
        return Place(task_id, ctx.cursor or 0, run=run)

    # Send.

    async def _send(self, op: SendMessage, ctx: Context) -> Task | Message:
        key: Idempotency | None = None
        task_id = ""
        if op.open_as or ctx.idempotency_key or ctx.extensions:
            op, key, task_id = await self._before(op, ctx)
        run: Run | None
        if task_id or op.message.task_id:
            task_id = task_id or (await self._continue(op, ctx, key)).task_id
            run = self.runner.runs.get(task_id)
        else:
            run, task_id = self._begun(op, ctx) or await self._begin(op, ctx, waits=op.wait)
        if op.wait and (run is None or not await self._rest(run)):
            await self._rested(_scope(ctx), task_id)
        if run is not None:
            if run.direct is not None:
                return run.direct
            ended = run.ended if run.closed and run.error is None else None
            task = ended or await self._committed(run)
            if task is not None:
                return shortened(task, op.history_length)
        row, task = await self.store.load(_scope(ctx), task_id)
        return reply_in(row, task) or shortened(task, op.history_length)

    async def _before(
        self, op: SendMessage, ctx: Context
    ) -> tuple[SendMessage, Idempotency | None, str]:
        """A send, to the task that it calls by a name of its own; its key; and the task that it is
        about, if it was made before under this key."""
        key = key_of(op, ctx)
        # A send that only opens a task need not look: `Store.create` finds out.
        if key is not None and (op.open_as or op.message.task_id or self._skill(op).may_reply):
            again = await self._keys.made(key, ctx)
            if again:
                await self.runner.remind(_scope(ctx), again)
                return op, key, again
        if op.open_as:
            op = await self._names.addressed(op, ctx)
        return op, key, ""

    async def _repeated(self, op: SendMessage, ctx: Context, task_id: str) -> Place:
        """Where the stream of a send begins that was made before."""
        run = self.runner.runs.get(task_id)
        if run is not None and (run.unopened or run.direct is not None):
            await self._opened(run)
            if run.direct is not None:
                return Place(task_id, first=run.direct)
        row, task = await self.store.load(_scope(ctx), task_id)
        return place_of(op, ctx, row, task, run, self._clock())

    def _begun(self, op: SendMessage, ctx: Context) -> tuple[Run, str] | None:
        """Opens a task and starts it at once, if nothing has to be known or kept before."""
        runner = self.runner
        skill = self._skill(op)
        if skill.may_reply or op.hook is not None or op.open_as or runner.places <= 0:
            return None
        if ctx.idempotency_key or IDEMPOTENCY in ctx.extensions:
            return None
        skill.params.read(op.message)  # what is wrong is refused before a task is opened
        run = self._draft(op, ctx, skill, queued=False)
        run.open(run.opened, None, working=True)
        # The code's first step comes before the flush: a quick task is a single write.
        runner.start(run)
        run.schedule()
        return run, run.task_id

    async def _begin(self, op: SendMessage, ctx: Context, *, waits: bool) -> tuple[Run | None, str]:
        """Opens a task and starts it; no run if it waits for a place or was opened before."""
        hook = await self._hooks.checked(op.hook, ctx) if op.hook is not None else None
        skill = self._skill(op)
        skill.params.read(op.message)  # what is wrong is refused before a task is opened
        runner = self.runner
        queued = runner.places <= 0
        if queued and runner.queued >= self.settings.max_queue:
            raise TooMany("The agent has too much to do; try again later")
        run = self._draft(op, ctx, skill, queued=queued)
        if hook is not None:
            run.hook, run.hooked = self._hooks.sealed(hook, run.task_id), True
        key = key_of(op, ctx)
        run.open(run.opened, key, working=not queued)
        run.unopened = skill.may_reply and waits and not queued and not op.open_as
        place = (ctx.tenant, ctx.principal, key.key if key is not None else "")
        if run.unopened:
            if key is not None:
                self._keys.replying[place] = run
            runner.start(run)
            if key is None:
                return run, run.task_id
        else:
            run.flush()
        try:
            # Whether this is a new task is known only after the commit.
            await (self._opened(run) if run.unopened else run.landed())
        except Existing as exc:
            if exc.same:
                return runner.runs.get(exc.task_id), exc.task_id
            raise Conflict(KEY_TAKEN) from exc
        finally:
            self._keys.replying.pop(place, None)
        if queued:
            runner.queued += 1
            return None, run.task_id
        if run.task is None:
            runner.start(run)
        return run, run.task_id

    async def _opened(self, run: Run) -> None:
        """Waits until a run that may reply directly has replied, or opened its task. Who thinks
        longer than `max_wait` will not reply directly."""
        if run.unopened and run.direct is None:
            opened = self.runner.bell.listen(run.task_id)
            await first_of(run.rest(), opened, seconds=self.settings.max_wait)
            self.runner.bell.hush(run.task_id, opened)
            if run.unopened and run.direct is None:
                await run.landed()
        if run.error is not None:
            raise run.error

    def _draft(self, op: SendMessage, ctx: Context, skill: Skill, *, queued: bool) -> Run:
        message = op.message
        now = self._clock()
        task_id = named(op.open_as, ctx) if op.open_as else new_id()
        context_id = message.context_id or new_id()
        if self._workspaces is not None:
            self._workspaces.check(task_id, context_id, ctx, op.metadata, message.metadata)
        row = Row(
            task_id=task_id,
            context_id=context_id,
            tenant=ctx.tenant,
            principal=ctx.principal,
            agent=self.agent.name,
            skill=skill.id,
            dialect=ctx.dialect,
            state=State.SUBMITTED,
            last_seq=0,
            created_at=now,
            status_at=now,
            worker="" if queued else self.runner.worker,
            token="" if queued else self.runner.new_token(),
            epoch=0 if queued else 1,
            attempt=0 if queued else 1,
            runnable=queued,
            run_at=now,
        )
        opened = Opened(
            message=replace(_with_id(message), task_id=task_id, context_id=context_id),
            skill=skill.id,
            metadata=op.metadata,
            accepts=op.accepts,
            extensions=ctx.extensions,
            context=op.context,
            trace=ctx.trace,
            tools=offered(op, ctx),
            hops=ctx.hops,
            deadline=ctx.deadline,
        )
        return Run(self.runner.works, row, skill, opened, ctx)

    def _skill(self, op: SendMessage) -> Skill:
        for metadata in (op.message.metadata, op.metadata):
            named = metadata.get("skillId") if metadata else None
            if named is not None:
                if not isinstance(named, str):
                    raise BadParams("metadata.skillId must be a string", field="metadata.skillId")
                return self.agent.choose(named)
        return self.agent.choose("")

    async def _continue(
        self, op: SendMessage, ctx: Context, key: Idempotency | None = None
    ) -> Stamped:
        """Says something to a task that exists; gives the task as it was before."""
        message = op.message
        try:
            begin, task = await self._snapshot(_scope(ctx), message.task_id)
        except TaskNotFound as missing:  # perhaps what its caller called it in 0.1
            try:
                begin, task = await self._snapshot(_scope(ctx), named(message.task_id, ctx))
            except TaskNotFound:
                raise missing from None
        if message.context_id and message.context_id != task.context_id:
            raise BadParams("The task belongs to another context", field="message.contextId")
        if task.state in FINAL:
            raise TaskFinished(taskId=task.id)
        if op.hook is not None:
            await self._set_hook(SetHook(hook=replace(op.hook, task_id=task.id)), ctx)
        message = replace(_with_id(message), context_id=task.context_id)
        said = Input(message=message, by=_who(ctx), key=key)
        try:
            await self.runner.tell(_scope(ctx), task.id, said, None)
        except Existing as exc:  # the same was said a moment ago
            if not exc.same:
                raise Conflict(KEY_TAKEN) from exc
            await self.runner.remind(_scope(ctx), task.id)
        return begin

    async def _resolve(self, op: Resolve, ctx: Context) -> Task:
        message = Message(message_id=new_id(), role=Role.USER, parts=parts_of(op.value))
        said = Input(message=message, value=op.value, by=_who(ctx))
        await self.runner.tell(_scope(ctx), op.task_id, said, op.question)
        return await self._get(GetTask(task_id=op.task_id), ctx)

    # Waiting.

    async def _rest(self, run: Run) -> bool:
        """Waits until a run finishes or asks back, `max_wait` at the most; false if it was lost."""
        rest = run.rest()
        if not rest.done():
            waits = self.runner.waits
            waits[rest] = self.runner.works.loop.time() + self.settings.max_wait
            try:
                await rest
            finally:
                del waits[rest]
        if run.error is not None and run.committed == 0:
            raise run.error
        return run.error is None

    async def _rested(self, scope: Scope, task_id: str) -> None:
        """The same for a task that does not run here."""
        try:
            async with asyncio.timeout(self.settings.max_wait):
                await self._rest_elsewhere(scope, task_id)
        except TimeoutError:
            return

    async def _rest_elsewhere(self, scope: Scope, task_id: str) -> None:
        row = await self.store.row(scope, task_id)
        if row.resting:
            return
        place = Place(task_id, row.last_seq)
        async with aclosing(self._follow(scope, _at(place))) as batches:
            async for batch in batches:
                if batch.last or (await self.store.row(scope, task_id)).resting:
                    return

    async def _committed(self, run: Run) -> Task | None:
        """The run's task as it stands, once that is on disk; None if it never came there."""
        fold = run.fold
        task, seq = run.ended or fold.task(), fold.seq
        try:
            await run.landed()
        except DragomanError:
            if run.committed == 0:
                raise
            return None
        return task if run.fold is fold and run.committed >= seq else None

    async def _snapshot(self, scope: Scope, task_id: str) -> tuple[Stamped, Task]:
        run = self._mine(scope, task_id)
        seq = run.fold.seq if run is not None else 0
        task = await self._committed(run) if run is not None else None
        if task is None:
            row, task = await self.store.load(scope, task_id)
            seq = row.last_seq
        return Stamped(task_id, task.context_id, seq, self._clock(), Snapshot(task=task)), task

    def _mine(self, scope: Scope, task_id: str) -> Run | None:
        """The run of a task in this process, if the caller may know of it."""
        run = self.runner.runs.get(task_id)
        if run is None or run.unopened or run.row.scope != scope:
            return None
        return run

    # The other operations.

    async def _get(self, op: GetTask, ctx: Context) -> Task:
        run = self._mine(_scope(ctx), op.task_id)
        task = await self._committed(run) if run is not None else None
        if task is None:
            _, task = await self.store.load(_scope(ctx), op.task_id)
        return shortened(task, op.history_length)

    async def _list(self, op: ListTasks, ctx: Context) -> TaskPage:
        return await listed(self.store, self.agent.name, self._secret, op, ctx)

    async def _cancel(self, op: CancelTask, ctx: Context) -> Task:
        scope = _scope(ctx)
        row = await self.store.ask_cancel(scope, op.task_id)
        if row.final:
            raise NotCancelable(taskId=op.task_id)
        await self._stopped(row)
        _, task = await self.store.load(scope, op.task_id)
        if task.state in FINAL and task.state is not State.CANCELED:
            raise NotCancelable(taskId=op.task_id)
        return task

    async def _stopped(self, row: Row) -> None:
        """Stops the code wherever it runs; after its grace the task is canceled without it."""
        grace = self.runner.skill_of(row).cancel_grace
        run = self.runner.runs.get(row.task_id)
        if run is None and row.worker:
            # Another process runs it and sees the mark; if it does not, the task is taken from it.
            try:
                async with asyncio.timeout(grace + 2):
                    await self._rest_elsewhere(row.scope, row.task_id)
            except TimeoutError:
                pass
        while run is None:
            row = await self.store.row(row.scope, row.task_id)
            if row.final:
                return
            taken = await self.store.seize(self.runner.worker, row.task_id, row.epoch)
            if taken is not None:
                run = await self.runner.adopt(taken)
                self.runner.queued -= row.runnable and self.runner.queued > 0
            else:
                await asyncio.sleep(AGAIN)
        self.runner.cancel(run)
        await within(run.rest(), grace + 5)

    async def _watchable(self, task_id: str, ctx: Context) -> Stamped:
        begin, task = await self._snapshot(_scope(ctx), task_id)
        if task.state in FINAL:
            # A2A 1.0 §3.1.6: only a task that still goes on can be followed.
            raise TaskFinished("The task is finished; get it instead", taskId=task_id)
        return begin

    async def _check_cursor(self, task_id: str, ctx: Context, cursor: int) -> None:
        run = self._mine(_scope(ctx), task_id)
        last = run.fold.seq if run else (await self.store.row(_scope(ctx), task_id)).last_seq
        if not 0 <= cursor <= last:
            raise BadParams(f"The cursor {cursor} is no place in this task's log of {last}")

    async def _set_hook(self, op: SetHook, ctx: Context) -> Hook:
        hook = await self._hooks.set(op, ctx)
        run = self._mine(_scope(ctx), hook.task_id)
        if run is not None:
            run.hooked = True
        return hook

    async def _extended_card(self, op: GetExtendedCard, ctx: Context) -> None:
        raise no_extended_card(self.agent)

    # What a guard in front asks.

    def live(self, ctx: Context) -> int:
        """How many tasks of this caller run or wait in this process."""
        return sum(
            run.row.principal == ctx.principal and run.row.tenant == ctx.tenant
            for run in self.runner.runs.values()
        )

    async def skill_of(self, ctx: Context, task_id: str) -> str:
        """The skill of a caller's task."""
        task_id = await self._names.id_of(task_id, ctx) or task_id
        return (await self.store.row(_scope(ctx), task_id)).skill

    def skill_for(self, op: SendMessage) -> Skill:
        """The skill that a new task of this message would have."""
        return self._skill(op)

    async def _invoke(self, op: Invoke, ctx: Context) -> Json:
        return await invoke(self.agent, op, ctx)

    async def _unstreamed(self, op: Watch, ctx: Context) -> None:
        raise Unsupported("Following a task is a stream, not a call")


def _who(ctx: Context) -> str:
    """Who answers, as the audit log of approvals has it."""
    who = f"{ctx.tenant}/{ctx.principal}".lstrip("/")
    return f"{who} ({ctx.dialect})" if ctx.dialect else who


def _scope(ctx: Context) -> Scope:
    return Scope(ctx.tenant, ctx.principal)


def _with_id(message: Message) -> Message:
    """0.1's messages come without one."""
    return message if message.message_id else replace(message, message_id=new_id())


def _at(place: Place) -> Callable[[], Awaitable[Place]]:
    async def known() -> Place:
        return place

    return known


_ANSWERS: dict[type, Callable[[Engine, Any, Context], Any]] = {
    SendMessage: Engine._send,
    GetTask: Engine._get,
    ListTasks: Engine._list,
    CancelTask: Engine._cancel,
    Resolve: Engine._resolve,
    Invoke: Engine._invoke,
    Watch: Engine._unstreamed,
    GetExtendedCard: Engine._extended_card,
    SetHook: Engine._set_hook,
    GetHook: lambda engine, op, ctx: engine._hooks.get(op, ctx),
    ListHooks: lambda engine, op, ctx: engine._hooks.list(op, ctx),
    DeleteHook: lambda engine, op, ctx: engine._hooks.delete(op, ctx),
}
