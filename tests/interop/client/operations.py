"""What our client does with the agent of `tests/interop/servers`, one function an operation.

A function ends well, says `But` where the server falls short and the client makes up for it, or
raises. What a server does not offer it must refuse as such; `matrix` tells that from a failure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from dragoman import Blob, Data, State, Task, connect
from dragoman.client import ClientLimits, RemoteAgent
from dragoman.client.receiver import Notice, Proof, Receiver
from dragoman.core.errors import TaskNotFound
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import FINAL, Fold
from dragoman.core.model import Hook, Message
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.settings import Limits as ServerLimits
from waiting import until, within

QUICK = ClientLimits(backoff=0.05, poll=0.05, idle=10, patience=10, answer=10, wait=15)
TOKEN = "only-for-this-test-0123456789"
PATIENCE = 60


class But(NamedTuple):
    """It works, with a weakness of the server."""

    remark: str


class Scene(NamedTuple):
    """What an operation has to work with."""

    agent: RemoteAgent
    hook: Hook
    """Where the receiver listens."""
    told: list[Notice]
    """What it was told so far."""


Operation = Callable[[Scene], Awaitable[But | None]]


@asynccontextmanager
async def scene(url: str, dialect: str) -> AsyncIterator[Scene]:
    """A connection, and a receiver of webhooks that really listens."""
    told: list[Notice] = []

    async def hear(notice: Notice) -> None:
        told.append(notice)

    sock = bind("127.0.0.1", 0)
    receiver = Receiver(hear, Proof(tokens=(TOKEN,), unsigned=True))
    listener = GranianServer(receiver, sock, ServerLimits())
    listener.begin()
    place = f"http://127.0.0.1:{sock.getsockname()[1]}/hook"
    try:
        async with connect(url, dialect=dialect, limits=QUICK) as agent:
            assert agent.dialect == dialect
            yield Scene(agent, Hook(hook_id="", task_id="", url=place, token=TOKEN), told)
    finally:
        listener.refuse()
        await listener.end(1.0)


def counted(many: int) -> str:
    """What the agent writes when it counts."""
    return "".join(f"{number} " for number in range(many))


def joined(task: Task) -> Task:
    """The task with adjacent text joined, as our fold has it (DESIGN §4.1)."""
    return Fold.of(task, 0).task()


def task_of(answer: Task | Message) -> Task:
    """What the answer must be here."""
    assert isinstance(answer, Task), answer
    return answer


async def begun(agent: RemoteAgent, text: str) -> Task:
    """A task that goes on while nobody listens."""
    async with agent.stream(text) as events:
        await anext(events)
        assert events.task is not None
        task = events.task

    async def kept() -> bool:
        with suppress(TaskNotFound):
            await agent.get(task)
            return True
        return False

    await until(kept)  # python-a2a tells of a task before it has it
    return task


async def send(scene: Scene) -> None:
    task = task_of(await scene.agent.send("hello"))
    assert (task.state, task.text) == (State.COMPLETED, "HELLO"), task


async def stream(scene: Scene) -> But | None:
    events = scene.agent.stream("count 12")
    told = [event async for event in events]
    assert len(told) > 2
    task = task_of(await events.result())
    assert (task.state, task.text) == (State.COMPLETED, counted(12)), task
    there = joined(await scene.agent.get(task, history_length=100))
    if there.status.at and not task.status.at:
        task, there = untimed(task), untimed(there)
        assert task == there, f"{task}\n{there}"
        return But("its events have no times, its tasks have")
    assert task == there, f"{task}\n{there}"
    if len(told) < 12:
        return But("it tells the task before and after, and nothing in between")
    return None


def untimed(task: Task) -> Task:
    """The task as one who cannot read the time sees it."""
    status = task.status
    return Task(
        id=task.id,
        context_id=task.context_id,
        status=type(status)(status.state, 0, status.message),
        artifacts=task.artifacts,
        history=task.history,
        metadata=task.metadata,
    )


async def several_turns(scene: Scene) -> But | None:
    talk = scene.agent.conversation()
    first = task_of(await talk.send("ask"))
    assert (first.state, talk.waits) == (State.INPUT_REQUIRED, True), first
    second = task_of(await talk.send("Oslo"))
    assert (second.state, second.text) == (State.COMPLETED, "A trip to Oslo"), second
    talk = scene.agent.conversation()
    third = task_of(await talk.stream("ask").result())
    assert (third.state, talk.waits) == (State.INPUT_REQUIRED, True), third
    fourth = task_of(await talk.stream("Rome").result())
    assert (fourth.state, fourth.text) == (State.COMPLETED, "A trip to Rome"), fourth
    assert second.context_id == first.context_id
    if (second.id, fourth.id) == (first.id, third.id):
        return None
    assert (await scene.agent.get(first)).state is State.INPUT_REQUIRED
    return But("an answer opens another task of the same context; the first one waits on")


async def get(scene: Scene) -> None:
    task = task_of(await scene.agent.send("hello"))
    found = await scene.agent.get(task)
    assert (found.id, found.text) == (task.id, "HELLO"), found


async def list_tasks(scene: Scene) -> None:
    talk = scene.agent.conversation()
    await talk.send("hello")
    await talk.send("again")
    context_id = talk.context_id
    page = await scene.agent.list(context_id=context_id, page_size=1)
    assert len(page.tasks) == 1, page
    every = [task async for task in scene.agent.tasks(context_id=context_id, page_size=1)]
    assert len({task.id for task in every}) == 2, every


async def cancel(scene: Scene) -> But | None:
    # a2a-sdk 0.3.26 loses one now and then, when its agent speaks at the same moment.
    for _ in range(3):
        task = await begun(scene.agent, "slow")
        answer = await scene.agent.cancel(task)
        found = await _ended(scene.agent, task)
        if found.state is State.CANCELED:
            early = answer.state is not State.CANCELED
            return But("it answers before it has canceled") if early else None
    raise AssertionError(f"canceled three times, and still: {found}")


async def _ended(agent: RemoteAgent, task: Task) -> Task:
    async def ended() -> bool:
        return (await agent.get(task)).state in FINAL

    await within(5.0, ended, 0.1)  # some of them never end
    return await agent.get(task)


async def resubscribe(scene: Scene) -> But | None:
    for count in (40, 80, 160):  # on a busy machine it may be over before we come back to it
        task = await begun(scene.agent, f"count {count}")
        events = scene.agent.watch(task)
        told = [event async for event in events]
        assert all(isinstance(event, Stamped) for event in told)
        if events.connections > 0:
            break
    assert events.connections > 0, "it was only looked at"
    assert events.task is not None
    assert events.task.state is State.COMPLETED, events.task
    if events.task.text != counted(count):
        there = joined(await scene.agent.get(task, history_length=100))
        assert events.task == there, f"{events.task}\n{there}"
        return But(
            "while two listen, it writes chunks into its task twice; our task equals its own"
        )
    return None


async def push_set(scene: Scene) -> None:
    task = await begun(scene.agent, "slow")
    try:
        hook = await scene.agent.set_hook(task, scene.hook.url, token=TOKEN, hook_id="mine")
        assert hook.url == scene.hook.url, hook
    finally:
        await scene.agent.cancel(task)


async def push_get(scene: Scene) -> None:
    task = await begun(scene.agent, "slow")
    try:
        hook = await scene.agent.set_hook(task, scene.hook.url, token=TOKEN, hook_id="mine")
        found = await scene.agent.get_hook(task, hook.hook_id)
        assert (found.url, found.token) == (scene.hook.url, TOKEN), found
    finally:
        await scene.agent.cancel(task)


async def push_list(scene: Scene) -> None:
    task = await begun(scene.agent, "slow")
    try:
        for name in ("one", "two"):
            await scene.agent.set_hook(task, scene.hook.url, token=TOKEN, hook_id=name)
        found = (await scene.agent.list_hooks(task)).hooks
        assert sorted(hook.hook_id for hook in found) == ["one", "two"], found
    finally:
        await scene.agent.cancel(task)


async def push_delete(scene: Scene) -> None:
    task = await begun(scene.agent, "slow")
    try:
        hook = await scene.agent.set_hook(task, scene.hook.url, token=TOKEN, hook_id="mine")
        await scene.agent.delete_hook(task, hook.hook_id)
        assert (await scene.agent.list_hooks(task)).hooks == ()
    finally:
        await scene.agent.cancel(task)


async def webhook(scene: Scene) -> None:
    async with scene.agent.stream("count 60") as events:
        await anext(events)
        assert events.task is not None
        await scene.agent.set_hook(events.task, scene.hook.url, token=TOKEN)
        task = task_of(await events.result())
    await heard(scene, task)
    task = task_of(await scene.agent.send("count 3", hook=scene.hook))
    await heard(scene, task)


async def heard(scene: Scene, task: Task) -> None:
    """Waits until the receiver was told that the task is complete."""
    done = State.COMPLETED
    await until(lambda: any(n.task_id == task.id and n.state is done for n in scene.told), PATIENCE)


FEWER = But("of a message that is sent the agent gets the first text only, of a streamed one all")


async def turned(scene: Scene, what: object) -> tuple[Task, But | None]:
    """What the agent makes of a file or of data."""
    task = task_of(await scene.agent.send("parts", what))
    if task.artifacts[0].parts:
        return task, None
    return task_of(await scene.agent.stream("parts", what).result()), FEWER


async def files(scene: Scene) -> But | None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.bin").write_bytes(b"\x00abc")
        task, but = await turned(scene, folder / "in.bin")
        assert [type(part) for part in task.artifacts[0].parts] == [Blob], task
        (saved,) = await scene.agent.save(task, folder / "out")
        assert saved.read_bytes() == b"cba\x00", saved.read_bytes()
        return but


async def data(scene: Scene) -> But | None:
    value = {"a": 1, "b": [True, None, "x"]}
    task, but = await turned(scene, value)
    (part,) = task.artifacts[0].parts
    assert isinstance(part, Data), part
    assert part.value == {"got": value}, part
    return but


async def unknown_task(scene: Scene) -> None:
    with pytest.raises(TaskNotFound):
        await scene.agent.get("no-such-task")


OPERATIONS: dict[str, Operation] = {
    "send": send,
    "stream": stream,
    "several turns": several_turns,
    "get": get,
    "list": list_tasks,
    "cancel": cancel,
    "resubscribe": resubscribe,
    "push set": push_set,
    "push get": push_get,
    "push list": push_list,
    "push delete": push_delete,
    "webhook called": webhook,
    "files": files,
    "data": data,
    "unknown task": unknown_task,
}
"""By the names on the page."""
