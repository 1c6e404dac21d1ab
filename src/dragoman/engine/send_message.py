"""Handles the messages of callers: a message creates a task, or is an input of an existing one."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from dragoman.agent import Skill
from dragoman.agent.parts import parts_of
from dragoman.agent.tools import read_tools
from dragoman.core.errors import (
    BadParams,
    Conflict,
    StoreUnavailable,
    TaskFinished,
    TaskNotFound,
)
from dragoman.core.events import Opened
from dragoman.core.extensions import IDEMPOTENCY
from dragoman.core.ids import check_ids
from dragoman.core.lifecycle import FINAL, WAITING, shortened
from dragoman.core.model import Message, Role, State, Task, from_caller
from dragoman.core.operations import Resolve, SendMessage, SetHook
from dragoman.core.peer import Context
from dragoman.store.interface import Existing, Idempotency, Input, Row, Scope
from dragoman.store.task_row import NORMAL, PRIORITIES

from .hooks import Hooks
from .idempotency import KEY_TAKEN, IdempotencyKeys, key_of, place_of, reply_in
from .runner import Runner
from .runs.run import Run
from .tail import Place, first_of
from .task_ids import TaskNames, named, new_id
from .task_reader import TaskReader

_SUBMITTED = State.SUBMITTED


class MessageSender:
    """Executes `SendMessage` and `Resolve` for the engine."""

    def __init__(self, runner: Runner, view: TaskReader, names: TaskNames, hooks: Hooks) -> None:
        self._runner = runner
        self._scope_of = runner.scope_of
        self._store = runner.store
        self._clock = runner.clock
        self._workspaces = runner.workspaces
        self._view = view
        self._names = names
        self._hooks = hooks
        self._keys = IdempotencyKeys(runner.store)

    async def send(self, op: SendMessage, ctx: Context) -> Task | Message:
        """Returns the task of a message, or the direct reply to it."""
        check_ids(op)
        key: Idempotency | None = None
        task_id = ""
        if op.open_as or ctx.idempotency_key or ctx.extensions:
            op, key, task_id = await self._before(op, ctx)
        run: Run | None
        # A send that creates a task waits from its first event on, also if the send is repeated. A
        # repeated send to an existing task cannot know which events came before it.
        since = None if task_id and op.message.task_id else 0
        if task_id or op.message.task_id:
            if not task_id:
                begin = await self._continue(op, ctx, key)
                task_id, since = begin.task_id, begin.since
            run = self._runner.runs.get(task_id)
            if not op.wait:
                await self._view.heard(self._scope_of(ctx), task_id)
        else:
            run, task_id = self._begun(op, ctx, waits=op.wait) or await self._begin(
                op, ctx, waits=op.wait
            )
        if op.wait and (run is None or not await self._view.rest(run, since)):
            await self._view.rested(self._scope_of(ctx), task_id, since)
        if run is not None:
            if run.direct_reply is not None:
                return run.direct_reply
            writer = run.writer
            ended = writer.final_task if writer.closed and writer.error is None else None
            task = ended or await self._view.committed(run)
            if task is not None:
                return shortened(task, op.history_length)
        row, task = await self._store.load(self._scope_of(ctx), task_id)
        return reply_in(row, task) or shortened(task, op.history_length)

    async def place(self, op: SendMessage, ctx: Context) -> Place:
        """Returns where the stream of a message begins."""
        check_ids(op)
        key: Idempotency | None = None
        if op.open_as or ctx.idempotency_key or ctx.extensions:
            op, key, again = await self._before(op, ctx)
            if again:
                return await self._repeated(op, ctx, again)
        if op.message.task_id:
            return await self._continue(op, ctx, key)
        begun = self._begun(op, ctx, waits=True)
        run, task_id = begun or await self._begin(op, ctx, waits=True)
        if run is not None:
            await self._opened(run)
            if begun is None:
                # The code has not run yet. A quick task ends now, and its stream is one batch.
                await asyncio.sleep(0)
            if run.direct_reply is not None:
                return Place(task_id, first=run.direct_reply)
        return Place(task_id, ctx.cursor or 0, run=run)

    async def _before(
        self, op: SendMessage, ctx: Context
    ) -> tuple[SendMessage, Idempotency | None, str]:
        """Returns the send with the id of the task that it names, its idempotency key, and the id
        of its task if it was made before with this key."""
        key = key_of(op, ctx)
        # A send that only creates a task need not look the key up: `Store.create` does.
        if key is not None and (op.open_as or op.message.task_id or self.skill(op).may_reply):
            again = await self._keys.made(key, self._scope_of(ctx))
            if again:
                await self._runner.remind(self._scope_of(ctx), again)
                return op, key, again
        if op.open_as:
            op = await self._names.addressed(op, self._scope_of(ctx))
        return op, key, ""

    async def _repeated(self, op: SendMessage, ctx: Context, task_id: str) -> Place:
        """Returns where the stream of a repeated send begins."""
        run = self._runner.runs.get(task_id)
        if run is not None and (run.writer.unopened or run.direct_reply is not None):
            await self._opened(run)
            if run.direct_reply is not None:
                return Place(task_id, first=run.direct_reply)
        row, task = await self._store.load(self._scope_of(ctx), task_id)
        return place_of(op, ctx, row, task, run, self._clock())

    def _begun(self, op: SendMessage, ctx: Context, *, waits: bool) -> tuple[Run, str] | None:
        """Creates a task and starts it at once, if nothing has to be looked up or stored before."""
        runner = self._runner
        skill = self.skill(op)
        may_reply = skill.may_reply
        if op.hook is not None or op.open_as or runner.places <= 0 or (may_reply and not waits):
            return None
        if ctx.idempotency_key or IDEMPOTENCY in ctx.extensions:
            return None
        if runner.queue.limits is not None and runner.queue.holds_up(skill.id):
            return None
        skill.params.read(op.message)  # invalid input is refused before a task is created
        run = self._draft(op, ctx, skill, queued=False)
        run.writer.open(run.opened, working=True)
        run.writer.unopened = may_reply
        # The code starts before the flush, so a quick task is created and finished in one write.
        runner.start(run)
        if not may_reply:
            run.writer.schedule()
        return run, run.task_id

    async def _begin(self, op: SendMessage, ctx: Context, *, waits: bool) -> tuple[Run | None, str]:
        """Creates a task and starts it. There is no run if the task is queued or existed before."""
        hook = await self._hooks.checked(op.hook, ctx) if op.hook is not None else None
        skill = self.skill(op)
        skill.params.read(op.message)  # invalid input is refused before a task is created
        runner = self._runner
        queued = runner.places <= 0 or runner.queue.holds_up(skill.id)
        if queued:
            runner.queue.check()
        run = self._draft(op, ctx, skill, queued=queued)
        if hook is not None:
            run.writer.hook, run.writer.has_webhooks = self._hooks.sealed(hook, run.task_id), True
        key = key_of(op, ctx)
        run.writer.idempotency = key
        run.writer.open(run.opened, working=not queued)
        run.writer.unopened = skill.may_reply and waits and not queued and not op.open_as
        place = (self._scope_of(ctx), key.key if key is not None else "")
        if run.writer.unopened:
            if key is not None:
                self._keys.replying[place] = run
            runner.start(run)
            if key is None:
                return run, run.task_id
        else:
            run.writer.flush()
        try:
            return await self._start_opened(run, place, queued=queued)
        except asyncio.CancelledError:
            # The caller has disconnected. Its task is already claimed, so it has to be started;
            # otherwise it would wait until the next heartbeats find it, and count as crashed.
            if key is not None and run.writer.unopened:
                self._keys.replying[place] = run
            runner.background.finish_unseen(self._start_opened(run, place, queued=queued))
            raise

    async def _start_opened(
        self, run: Run, place: tuple[Scope, str], *, queued: bool
    ) -> tuple[Run | None, str]:
        """Starts a task once the store has confirmed that it is new."""
        runner = self._runner
        try:
            # Only the commit shows whether this is a new task or a repeated send.
            await (self._opened(run) if run.writer.unopened else run.writer.committed())
        except Existing as exc:
            if exc.same:
                return runner.runs.get(exc.task_id), exc.task_id
            raise Conflict(KEY_TAKEN) from exc
        finally:
            self._keys.replying.pop(place, None)
        if queued:
            if runner.agent.elsewhere:
                runner.identity.call_others(runner.name)
                return None, run.task_id
            runner.queue.length += 1
            if runner.places > 0:
                runner.place_free.set()
            return None, run.task_id
        if run.task is None:
            runner.start(run)
        return run, run.task_id

    async def _opened(self, run: Run) -> None:
        """Waits until a run that may reply directly has replied or created its task. A run that
        takes longer than `max_wait` can no longer reply directly."""
        runner = self._runner
        rests, now = run.when_resting(), run.shared.loop.time
        until = now() + runner.settings.max_wait
        # A bell may ring for any change of any process, so the condition is checked again.
        writer = run.writer
        while (writer.unopened or writer.unseen) and not rests.done() and now() < until:
            opened = runner.bell.listen(run.task_id)
            try:
                await first_of(rests, opened, seconds=until - now())
            finally:
                runner.bell.hush(run.task_id, opened)
        if run.writer.unopened and run.direct_reply is None:
            await run.writer.committed()
        if run.writer.error is not None:
            raise run.writer.error

    def _draft(self, op: SendMessage, ctx: Context, skill: Skill, *, queued: bool) -> Run:
        if self._runner.stopped:  # the agent was removed while this message was on its way
            raise StoreUnavailable("The agent has stopped; try again later.")
        message, identity = op.message, self._runner.identity
        now = self._clock()
        made = new_id()
        task_id = named(op.open_as, self._scope_of(ctx)) if op.open_as else made
        context_id = message.context_id or made  # so it has the id of its first task (ADR 0012)
        if self._workspaces is not None:
            self._workspaces.check(task_id, context_id, ctx, op.metadata, message.metadata)
        row = Row(
            task_id=task_id,
            context_id=context_id,
            tenant=ctx.tenant,
            principal=ctx.principal,
            agent=self._runner.name,
            skill=skill.id,
            dialect=ctx.dialect,
            state=_SUBMITTED,
            last_seq=0,
            created_at=now,
            status_at=now,
            worker="" if queued else identity.id,
            token="" if queued else identity.new_token(),
            epoch=0 if queued else 1,
            attempt=0 if queued else 1,
            runnable=queued,
            run_at=now,
            priority=_priority(op) if op.metadata or message.metadata else NORMAL,
        )
        opened = Opened(
            message=replace(_heard(message), task_id=task_id, context_id=context_id),
            skill=skill.id,
            metadata=op.metadata,
            accepts=op.accepts,
            extensions=ctx.extensions,
            context=op.context,
            trace=ctx.trace,
            tools=read_tools(op, ctx),
            hops=ctx.hops,
            deadline=ctx.deadline,
            headers=dict(ctx.headers) if ctx.headers else None,
        )
        return Run(self._runner.shared, row, skill, opened, ctx)

    def skill(self, op: SendMessage) -> Skill:
        """Returns the skill for a new task of this message."""
        if op.message.metadata is None and op.metadata is None:
            return self._runner.agent.choose("")
        for metadata in (op.message.metadata, op.metadata):
            named = metadata.get("skillId") if metadata else None
            if named is not None:
                if not isinstance(named, str):
                    raise BadParams("metadata.skillId must be a string", field="metadata.skillId")
                return self._runner.agent.choose(named)
        return self._runner.agent.choose("")

    async def _continue(
        self, op: SendMessage, ctx: Context, key: Idempotency | None = None
    ) -> Place:
        """Adds a message to an existing task, and returns where its stream begins."""
        message = op.message
        try:
            begin, task = await self._view.snapshot(self._scope_of(ctx), message.task_id)
        except TaskNotFound as missing:  # it may be an id that the caller chose in 0.1
            try:
                begin, task = await self._view.snapshot(
                    self._scope_of(ctx), named(message.task_id, self._scope_of(ctx))
                )
            except TaskNotFound:
                raise missing from None
        if message.context_id and message.context_id != task.context_id:
            raise BadParams("The task belongs to another context", field="message.contextId")
        if task.state in FINAL:
            raise TaskFinished(taskId=task.id)
        if op.hook is not None:
            await self._hooks.set(SetHook(hook=replace(op.hook, task_id=task.id)), ctx)
        message = replace(_heard(message), context_id=task.context_id)
        said = Input(message=message, by=_who(ctx), key=key)
        try:
            await self._runner.add_input(self._scope_of(ctx), task.id, said, None, ctx.token)
        except Existing as exc:  # the same send arrived a moment ago
            if not exc.same:
                raise Conflict(KEY_TAKEN) from exc
            await self._runner.remind(self._scope_of(ctx), task.id)
            return await self._repeated(op, ctx, task.id)
        answer = message.message_id if task.state in WAITING else ""
        return Place(task.id, first=begin, answer=answer)

    async def resolve(self, op: Resolve, ctx: Context) -> Task:
        """Answers a question of a task by its name."""
        parts = op.parts or parts_of(op.value)
        message = Message(message_id=new_id(), role=Role.USER, parts=parts)
        said = Input(message=message, value=op.value, by=_who(ctx))
        await self._runner.add_input(self._scope_of(ctx), op.task_id, said, op.question, ctx.token)
        await self._view.heard(self._scope_of(ctx), op.task_id)
        return await self._view.task(self._scope_of(ctx), op.task_id)


def _priority(op: SendMessage) -> int:
    """Returns the priority that a caller gives its task. Unknown words mean nothing to us, since
    `priority` may be something else to the agent."""
    for metadata in (op.message.metadata, op.metadata):
        said = metadata.get("priority") if metadata else None
        if isinstance(said, str) and said in PRIORITIES:
            return PRIORITIES[said]
    return NORMAL


def _who(ctx: Context) -> str:
    """Returns the name of the caller as the audit log of approvals has it."""
    who = f"{ctx.tenant}/{ctx.principal}".lstrip("/")
    return f"{who} ({ctx.dialect})" if ctx.dialect else who


def _heard(message: Message) -> Message:
    """Returns the caller's message with an id, which messages of 0.1 do not have."""
    message = from_caller(message)
    return message if message.message_id else replace(message, message_id=new_id())
