"""Tasks that are kept elsewhere: plain functions, only those you have, served in every binding."""

from collections.abc import AsyncIterator
from itertools import count

from dragoman import Artifact, Backend, Message, State, Task, Text
from dragoman.core.card import CardSkill
from dragoman.core.errors import NotCancelable
from dragoman.core.events import ArtifactChunk, StateChanged
from dragoman.core.model import Status
from dragoman.core.operations import CancelTask, GetTask, ListTasks, SendMessage
from dragoman.core.peer import Context

# What stands here for your own tables: one caller's orders are not another's.
orders: dict[tuple[str, str], Task] = {}
numbers = count(1)


def take(message: Message, caller: Context) -> Task:
    number = f"order-{next(numbers)}"
    status = Status(State.WORKING)
    task = Task(id=number, context_id=message.context_id or number, status=status)
    orders[caller.principal, number] = task
    return task


def packed(task: Task, what: str, caller: Context) -> Task:
    parcel = Artifact(artifact_id="parcel", parts=(Text(f"One parcel of {what}"),))
    done = Task(
        id=task.id,
        context_id=task.context_id,
        status=Status(State.COMPLETED),
        artifacts=(parcel,),
    )
    orders[caller.principal, task.id] = done
    return done


async def send(op: SendMessage, caller: Context) -> Task:
    task = take(op.message, caller)
    return packed(task, op.message.text, caller) if op.wait else task


async def stream(op: SendMessage, caller: Context) -> AsyncIterator[object]:
    task = take(op.message, caller)
    yield task
    done = packed(task, op.message.text, caller)
    yield ArtifactChunk(artifact=done.artifacts[0], last=True)
    yield StateChanged(state=State.COMPLETED)


def get(op: GetTask, caller: Context) -> Task | None:
    return orders.get((caller.principal, op.task_id))


def find(op: ListTasks, caller: Context) -> list[Task]:
    mine = [task for (owner, _), task in orders.items() if owner == caller.principal]
    return [task for task in mine if op.state in (None, task.state)][: op.page_size]


def cancel(op: CancelTask, caller: Context) -> Task | None:
    task = orders.get((caller.principal, op.task_id))
    if task is not None and task.state is State.COMPLETED:
        raise NotCancelable(taskId=op.task_id)
    return task


backend = Backend(
    "Order desk",
    description="Takes orders into a system that was there before.",
    send=send,
    stream=stream,
    get=get,
    list=find,
    cancel=cancel,
    skills=[
        CardSkill(
            id="order",
            name="Order",
            description="Packs what you name.",
            tags=("orders",),
            examples=("green tea",),
        )
    ],
)
