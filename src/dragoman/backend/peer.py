"""The functions of a backend as a peer: each operation calls one of them.

If the author provides no function for send, get or cancel, they use a store of ours
(`FallbackTasks`), as `HandlerFuncs` of a2a-go does; every other operation is unsupported.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, cast
from uuid import uuid4
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.agent.invoke import invoke
from dragoman.agent.lifespan import Lifespan
from dragoman.core import operations as ops
from dragoman.core.errors import (
    AgentMisbehaved,
    AgentTimedOut,
    ExtendedCardOff,
    HookNotFound,
    NotCancelable,
    PushUnsupported,
    TaskFinished,
    TaskNotFound,
    Unsupported,
)
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.ids import check_ids
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.log import Logger
from dragoman.core.model import Hook, Message, State, Status, Task
from dragoman.core.outage import Outage
from dragoman.core.peer import Batch, Context
from dragoman.core.task_names import name_of
from dragoman.store.interface import Store

from .answers import AnswerStory, WrongAnswer, checked, fitting, page, state_in
from .fallback import FallbackTasks
from .function import Function
from .pieces import QUIET, each
from .task_names import addressed, name_in, renamed, shown_as, task_of

log = Logger("backend")

OWN = frozenset(("send", "get", "cancel"))
"""The functions with which a backend keeps all its tasks itself."""
THREADS = 64
"""The number of threads for functions that are not async."""


class Answering(Struct, frozen=True):
    """How one operation is answered: the function, the types it may return, and the errors without
    it."""

    what: str
    gives: tuple[type, ...]
    missing: type[Unsupported] = Unsupported
    nothing: type[Exception] | None = None
    """The error that None stands for."""


_ANSWERS: dict[type[ops.Operation[Any]], Answering] = {
    ops.SendMessage: Answering("send", (Task, Message)),
    ops.GetTask: Answering("get", (Task,), nothing=TaskNotFound),
    ops.ListTasks: Answering("list", (ops.TaskPage,)),
    ops.CancelTask: Answering("cancel", (Task,), nothing=TaskNotFound),
    ops.SetHook: Answering("set_hook", (Hook,), PushUnsupported),
    ops.GetHook: Answering("get_hook", (Hook,), PushUnsupported, HookNotFound),
    ops.ListHooks: Answering("list_hooks", (ops.HookPage,), PushUnsupported),
    ops.DeleteHook: Answering("delete_hook", (), PushUnsupported),
}


class BackendPeer:
    """A peer that answers operations with a backend's functions, or with a store where a function
    is missing."""

    def __init__(
        self,
        agent: Agent,
        functions: Mapping[str, Function],
        kept: FallbackTasks,
        *,
        push: bool,
        timeout: float,
    ) -> None:
        self._agent, self._functions, self._push = agent, functions, push
        self._kept, self._timeout = kept, timeout
        self._keeps = "get" not in functions
        """Whether a store of ours keeps the tasks."""
        self._lifespan = Lifespan(agent.name, agent.hooks)
        self._opening: WeakValueDictionary[tuple[str, str, str], asyncio.Lock]
        self._opening = WeakValueDictionary()
        """The locks of the names whose first send is under way."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dragoman-backend")

    async def start(self) -> None:
        """Calls the author's `start`, which opens what the functions need."""
        if not set(self._functions) >= OWN:
            await self._kept.open()
        await self._lifespan.start()

    async def open_store(self) -> Store:
        """Returns the store for what the functions do not keep, and opens it if necessary."""
        return await self._kept.open()

    async def stop(self, grace: float) -> None:
        """Calls the author's `stop`, which closes what `start` opened."""
        try:
            await self._lifespan.stop()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            await self._kept.close()

    async def counts(self) -> dict[str, int]:
        """Returns no counts: nobody here knows how many tasks there are."""
        return {}

    async def call(self, op: ops.Operation[ops.R], ctx: Context) -> ops.R:
        """Returns the answer of the function for this operation."""
        if isinstance(op, ops.Invoke):
            return cast(ops.R, await invoke(self._agent, op, ctx))  # `Operation[Json]`
        if isinstance(op, ops.GetExtendedCard):
            raise ExtendedCardOff()  # if there is one, `AuthorizingPeer` in front returns it
        if isinstance(op, ops.SendMessage):
            check_ids(op)
        try:
            # `_ANSWERS` binds the type of the result to the operation; a table cannot express it.
            return cast(ops.R, await self._named_answer(op, ctx))
        except WrongAnswer as exc:
            raise _misbehaved(exc) from exc

    async def stream(self, op: ops.Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields what the function yields, as it comes."""
        if isinstance(op, ops.SendMessage):
            check_ids(op)
        try:
            async with aclosing(self._named_stream(op, ctx)) as batches:
                async for batch in batches:
                    yield batch
        except WrongAnswer as exc:
            raise _misbehaved(exc) from exc

    @property
    def outage(self) -> Outage:
        """Whether the store does not work now."""
        return self._kept.outage

    async def probe(self) -> None:
        """Raises the error that would keep our store from storing something, if a store is in
        use."""
        await self._kept.probe()

    # Names.

    async def _named_answer(self, op: ops.Operation[Any], ctx: Context) -> Any:
        if isinstance(op, ops.SendMessage) and op.open_as:
            async with AsyncExitStack() as opening:
                op, name = await self._opened(op, ctx, opening)
                answer = await self._answer(op, ctx)
                return await self._shown(name, answer, ctx, fresh=not op.message.task_id)
        missing: TaskNotFound | None = None
        if not name_of(task_of(op)):  # else we made this id: no function knows it
            try:
                return await self._answer(op, ctx)
            except TaskNotFound as exc:
                missing = exc
        name, task_id = await self._found(op, ctx)
        if not task_id:
            raise missing or TaskNotFound(taskId=task_of(op))
        answer = await self._answer(addressed(op, task_id), ctx)
        return await self._shown(name, answer, ctx)

    async def _named_stream(self, op: ops.Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        if isinstance(op, ops.SendMessage) and op.open_as:
            async with AsyncExitStack() as opening:
                op, name = await self._opened(op, ctx, opening)
                async with aclosing(self._shown_stream(name, op, ctx, opening)) as batches:
                    async for batch in batches:
                        yield batch
            return
        missing, begun = TaskNotFound(taskId=task_of(op)), False
        if not name_of(task_of(op)):  # else we made this id: no function knows it
            try:
                async with aclosing(self._stream(op, ctx)) as batches:
                    async for batch in batches:
                        begun = True
                        yield batch
                return
            except TaskNotFound as exc:
                if begun:
                    raise
                missing = exc
        name, task_id = await self._found(op, ctx)
        if not task_id:
            raise missing
        async with aclosing(self._shown_stream(name, addressed(op, task_id), ctx)) as batches:
            async for batch in batches:
                yield batch

    async def _shown_stream(
        self, name: str, op: ops.Streamed, ctx: Context, opening: AsyncExitStack | None = None
    ) -> AsyncGenerator[Batch, None]:
        fresh = not task_of(op)
        async with aclosing(self._stream(op, ctx)) as batches:
            async for batch in batches:
                shown = []
                for entry in batch.entries:
                    shown.append(await self._shown(name, entry, ctx, fresh=fresh))
                    if fresh and opening is not None and isinstance(entry, Stamped):
                        fresh = False
                        await opening.aclose()
                yield Batch(shown, batch.last)

    async def _shown(self, name: str, answer: Any, ctx: Context, *, fresh: bool = False) -> Any:
        """Returns an answer about a named task as its caller sees it, and stores what it says of
        the name."""
        if isinstance(answer, Task | Stamped):
            ended = state_in(answer) in FINAL
            if fresh or ended:
                task_id = answer.id if isinstance(answer, Task) else answer.task_id
                await self._kept.name(name, task_id, ctx, ended=ended)
        return renamed(answer, shown_as(name, ctx))

    async def _opened(
        self, op: ops.SendMessage, ctx: Context, opening: AsyncExitStack
    ) -> tuple[ops.SendMessage, str]:
        """Returns a send to the task with the caller's name, or one that creates it if there is
        none. Until `opening` is closed, no other send creates it."""
        name = name_in(op.open_as)
        task_id = await self._kept.named(name, ctx)
        if not task_id:
            key = (ctx.tenant, ctx.principal, name)
            lock = self._opening.setdefault(key, asyncio.Lock())
            await opening.enter_async_context(lock)
            task_id = await self._kept.named(name, ctx)
            if task_id:
                await opening.aclose()
        return addressed(op, task_id), name

    async def _found(self, op: ops.Operation[Any], ctx: Context) -> tuple[str, str]:
        """Returns the name in an operation, and the id of the task of that name."""
        name = name_in(task_of(op))
        return name, await self._kept.named(name, ctx) if name else ""

    # Answers.

    async def _answer(self, op: ops.Operation[Any], ctx: Context) -> Any:
        answering = _ANSWERS.get(type(op))
        if answering is None:
            raise Unsupported()
        self._check_push(answering.missing, op)
        function = self._functions.get(answering.what)
        if function is not None:
            value = await self._asked(function, answering, op, ctx)
            if isinstance(op, ops.SendMessage) and isinstance(value, Task) and self._keeps:
                await self._kept.save(value, ctx)
            if isinstance(op, ops.GetTask):
                value = await self._unless_canceled(value, ctx)
        else:
            value = await self._missing(answering, op, ctx)
        return fitting(op, value)

    async def _asked(
        self, function: Function, answering: Answering, op: ops.Operation[Any], ctx: Context
    ) -> Any:
        try:
            async with asyncio.timeout(self._timeout) as limit:
                value = await function.ask(self._threads, op, ctx)
        except TimeoutError:
            if not limit.expired():
                raise
            raise AgentTimedOut() from None
        if value is None and answering.nothing is not None:
            raise answering.nothing()
        return checked(answering.what, page(op, value), answering.gives)

    async def _missing(self, answering: Answering, op: ops.Operation[Any], ctx: Context) -> Any:
        """Answers send, get and cancel from a store where the author gives no function."""
        match op:
            case ops.SendMessage() if "stream" in self._functions:
                return await self._streamed(op, ctx)
            case ops.SendMessage():
                return await self._received(op, ctx)
            case ops.GetTask(task_id=task_id):
                return await self._kept.load(task_id, ctx)
            case ops.CancelTask(task_id=task_id):
                return await self._canceled(task_id, ctx)
            case _:
                raise answering.missing()

    async def _streamed(self, op: ops.SendMessage, ctx: Context) -> Task | Message:
        """Returns what a stream adds up to."""
        fold: Fold | None = None
        async with aclosing(self._stream(op, ctx)) as batches:
            async for batch in batches:
                for entry in batch.entries:
                    if isinstance(entry, Message):
                        return entry
                    fold = fold or Fold(entry.task_id, entry.context_id)
                    fold.add(entry)
        if fold is None:
            raise WrongAnswer("stream gave nothing; it must yield a Task or a Message")
        return fold.task()

    async def _received(self, op: ops.SendMessage, ctx: Context) -> Task:
        """Returns the message in a new task that waits for the author's system, or in the task that
        exists."""
        said, task = op.message, None
        if said.task_id:
            task = await self._answer(ops.GetTask(task_id=said.task_id), ctx)
            if task.state in FINAL:
                raise TaskFinished(taskId=task.id)
            message = replace(said, context_id=task.context_id)
            task = replace(task, history=(*task.history, message))
        else:
            task_id = uuid4().hex
            context_id = said.context_id or task_id
            message = replace(said, task_id=task_id, context_id=context_id)
            status = Status(State.SUBMITTED, time.time_ns() // 1_000_000)
            task = Task(
                id=task_id,
                context_id=context_id,
                status=status,
                history=(message,),
                metadata=op.metadata,
            )
        await self._kept.save(task, ctx)
        if op.hook is not None:
            await self._answer(ops.SetHook(hook=replace(op.hook, task_id=task.id)), ctx)
        return task

    async def _canceled(self, task_id: str, ctx: Context) -> Task:
        """Cancels a task for its caller. Nobody can stop the author's code."""
        task = await self._answer(ops.GetTask(task_id=task_id), ctx)
        if task.state in FINAL:
            raise NotCancelable(taskId=task_id)
        status = Status(State.CANCELED, time.time_ns() // 1_000_000)
        canceled: Task = replace(task, status=status)
        await self._kept.save(canceled, ctx)
        return canceled

    async def _unless_canceled(self, task: Task, ctx: Context) -> Task:
        """Returns a task of the author, or its canceled form if its caller canceled it here."""
        if "cancel" in self._functions:
            return task
        with suppress(TaskNotFound):
            kept = await self._kept.load(task.id, ctx)
            return kept if kept.state is State.CANCELED else task
        return task

    async def _stream(self, op: ops.Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        what = "stream" if isinstance(op, ops.SendMessage) else "resubscribe"
        self._check_push(Unsupported, op)
        function = self._functions.get(what)
        if function is None:
            raise Unsupported()
        story, fold = AnswerStory(what), None
        pieces = await function.ask(self._threads, op, ctx)
        async with aclosing(each(what, pieces, self._threads)) as steps:
            async for piece in steps:
                if piece is QUIET:
                    yield Batch([], False)
                    continue
                entry = story.entry(piece)
                if self._keeps and isinstance(entry, Stamped):
                    fold = fold or Fold(entry.task_id, entry.context_id)
                    fold.add(entry)
                    if story.over or isinstance(entry.event, Snapshot | StateChanged):
                        await self._kept.save(fold.task(), ctx)
                yield Batch([entry], story.over)
                if story.over:
                    return

    def _check_push(self, missing: type[Unsupported], op: ops.Operation[Any]) -> None:
        if self._push:
            return
        if missing is PushUnsupported:
            raise PushUnsupported()
        if isinstance(op, ops.SendMessage) and op.hook is not None:
            raise PushUnsupported()  # not done in silence (a2a-wire D11)


def _misbehaved(wrong: WrongAnswer) -> AgentMisbehaved:
    """Logs the error with an id. The caller gets only the id (DESIGN §6)."""
    incident = secrets.token_hex(6)
    log.error(
        "A function of the backend returned an invalid value", wrong, error=incident, why=wrong
    )
    return AgentMisbehaved(f"The agent gave an invalid answer (error {incident})", error=incident)
