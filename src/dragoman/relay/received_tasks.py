"""The calls of an agent behind a link or in a chat room, whose tasks are kept as received."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, ClassVar, cast

from dragoman.core.errors import TaskNotFound, Unsupported
from dragoman.core.model import Task
from dragoman.core.operations import CancelTask, GetTask, Operation, R, SendMessage, Streamed, Watch
from dragoman.core.peer import ANYONE, Batch, Begun, Context, begin_stream

from .received_task import ReceivedTask

MOST_TASKS = 1_000
"""The maximum number of finished tasks that are kept; the oldest are dropped first."""


class ReceivingAgent(ABC):
    """A `Peer` with the tasks of one agent. Its subclasses know how to reach the agent."""

    remembers = False
    unsupported: ClassVar[str]
    """What callers are told about an operation that cannot be expressed here."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[str, ReceivedTask] = OrderedDict()

    @abstractmethod
    async def _send(self, op: SendMessage, ctx: Context) -> ReceivedTask:
        """Sends a message, which opens a task, or answers the question of a known one."""

    @abstractmethod
    async def _adopt(self, op: Watch, ctx: Context) -> ReceivedTask:
        """Follows a task of an earlier process again."""

    @abstractmethod
    async def _cancel(self, task_id: str, ctx: Context) -> Task:
        """Has the agent cancel a task, and returns it."""

    async def cancel(self, task: Task | str) -> Task:
        """Has the agent cancel a task."""
        task_id = task if isinstance(task, str) else task.id
        return await self.call(CancelTask(task_id=task_id), ANYONE)

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the result, or raises a `DragomanError`."""
        return cast(R, await self._called(op, ctx))

    async def _called(self, op: Operation[Any], ctx: Context) -> object:
        match op:
            case SendMessage():
                task = await self._send(op, ctx)
                if op.wait:
                    async with aclosing(task.follow(0)) as steps:
                        async for _ in steps:
                            pass
                return task.task()
            case GetTask(task_id=task_id):
                return self._find(task_id).task()
            case CancelTask(task_id=task_id):
                return await self._cancel(task_id, ctx)
            case _:
                raise Unsupported(self.unsupported)

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields the events of a task."""
        after = ctx.cursor or 0
        if isinstance(op, Watch):
            task = self._tasks.get(op.task_id) or await self._adopt(op, ctx)
        else:
            # The stream of an answer begins after the question.
            known = self._tasks.get(op.message.task_id)
            after = known.seq if known is not None else after
            task = await self._send(op, ctx)
        async with aclosing(task.follow(after)) as steps:
            async for batch in steps:
                yield batch

    async def begin(self, op: Streamed, ctx: Context) -> Begun:
        """Returns the first events of a task, and the stream of all that follow."""
        return await begin_stream(self.stream(op, ctx))

    def _find(self, task_id: str) -> ReceivedTask:
        found = self._tasks.get(task_id)
        if found is None:
            raise TaskNotFound(taskId=task_id)
        return found

    def _keep(self, task: ReceivedTask) -> None:
        """Keeps a task as the newest one, and drops the oldest that has finished if there are too
        many."""
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id)
        if len(self._tasks) > MOST_TASKS:
            ended = (id for id, each in self._tasks.items() if each.pump is None)
            if (oldest := next(ended, None)) is not None:
                del self._tasks[oldest]
