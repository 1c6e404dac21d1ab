"""What we keep for a backend: tasks where the author gives no function, and names of tasks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Artifact, ArtifactChunk, Backend, Hook, State, StateChanged, Status, Task, Text
from dragoman.errors import NotCancelable, TaskFinished, TaskNotFound
from dragoman.ops import CancelTask, GetHook, GetTask, ListHooks, SendMessage, SetHook, Watch
from dragoman.peer import Context
from dragoman.testing import Client
from semantics.ways import WAYS, Way, said, served

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
STORES = ["memory:", "sqlite:///{}/tasks.db", "file://{}/tasks"]
ALICE, BOB = Context(principal="alice"), Context(principal="bob")


class Orders:
    """An author's system with ids of its own; it never sees a name that a caller chose."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.hooks: dict[str, Hook] = {}

    def order(self, op: SendMessage, state: State) -> Task:
        assert op.open_as == "", "names are the server's business"
        said = op.message
        if said.task_id:
            task = self.tasks[said.task_id]
            task = replace(task, history=(*task.history, said), status=Status(State.COMPLETED))
        else:
            number = f"order-{len(self.tasks) + 1}"
            goods = (Artifact(artifact_id="a", parts=(Text(said.text.upper()),)),)
            status = Status(state)
            task = Task(id=number, context_id="c", status=status, artifacts=goods, history=(said,))
        self.tasks[task.id] = task
        return task

    async def send(self, op: SendMessage) -> Task:
        return self.order(op, State.WORKING if op.message.text == "slow" else State.COMPLETED)

    async def stream(self, op: SendMessage) -> AsyncIterator[object]:
        yield replace(self.order(op, State.WORKING), artifacts=())
        piece = Artifact(artifact_id="a", parts=(Text("piece"),))
        yield ArtifactChunk(artifact=piece, last=True)
        yield StateChanged(state=State.COMPLETED)

    def get(self, op: GetTask) -> Task | None:
        return self.tasks.get(op.task_id)

    async def cancel(self, op: CancelTask) -> Task | None:
        task = self.tasks.get(op.task_id)
        return replace(task, status=Status(State.CANCELED)) if task else None

    async def resubscribe(self, op: Watch) -> AsyncIterator[object]:
        if op.task_id not in self.tasks:
            raise TaskNotFound(taskId=op.task_id)
        yield self.tasks[op.task_id]

    def set_hook(self, op: SetHook) -> Hook:
        if op.hook.task_id not in self.tasks:
            raise TaskNotFound(taskId=op.hook.task_id)
        self.hooks[op.hook.task_id] = op.hook
        return op.hook

    def get_hook(self, op: GetHook) -> Hook | None:
        if op.task_id not in self.tasks:
            raise TaskNotFound(taskId=op.task_id)
        return self.hooks.get(op.task_id)

    def list_hooks(self, op: ListHooks) -> list[Hook]:
        return [hook for task_id, hook in self.hooks.items() if task_id == op.task_id]

    def backend(self, *names: str) -> Backend:
        return Backend("Orders", **{name: getattr(self, name) for name in names})


# A store of ours.


@ways
async def test_get_and_cancel_work_on_what_send_gave(way: Way) -> None:
    async with served(Orders().backend("send")) as house:
        done = (await way.ask(house, said("tea"))).answer
        got = (await way.ask(house, GetTask(task_id=done.id))).answer
        assert (got.id, got.state, got.text) == (done.id, State.COMPLETED, "TEA")
        late = await way.ask(house, CancelTask(task_id=done.id))
        assert type(late.error) is NotCancelable
        slow = (await way.ask(house, said("slow"))).answer
        assert slow.state is State.WORKING
        canceled = (await way.ask(house, CancelTask(task_id=slow.id))).answer
        assert (canceled.id, canceled.state) == (slow.id, State.CANCELED)
        got = (await way.ask(house, GetTask(task_id=slow.id))).answer
        assert (got.state, got.text) == (State.CANCELED, "SLOW")
        for op in (GetTask(task_id="none"), CancelTask(task_id="none")):
            assert type((await way.ask(house, op)).error) is TaskNotFound


@ways
async def test_without_send_a_message_is_kept_in_a_task(way: Way) -> None:
    hooks = ("set_hook", "get_hook")
    async with served(Orders().backend("resubscribe", *hooks)) as house:
        task = (await way.ask(house, said("tea", history_length=9))).answer
        assert task.state is State.SUBMITTED
        assert [message.text for message in task.history] == ["tea"]
        if way.name != "JSON-RPC 0.1":
            more = said("with milk", task=task.id)
            task = (await way.ask(house, more)).answer
            assert [message.text for message in task.history] == ["tea", "with milk"]
        await way.ask(house, CancelTask(task_id=task.id))
        got = (await way.ask(house, GetTask(task_id=task.id))).answer
        assert got.state is State.CANCELED
        if way.name != "JSON-RPC 0.1":
            late = await way.ask(house, said("too late", task=task.id))
            assert isinstance(late.error, TaskFinished) or late.code is not None


async def test_what_a_stream_told_can_be_read_later() -> None:
    async with Client(Orders().backend("stream")) as client:
        told = [entry async for entry in client.stream("tea")]
        assert len(told) == 3
        task = await client.get("order-1")
        assert (task.state, task.text) == (State.COMPLETED, "piece")


@pytest.mark.parametrize("given", [("send", "get"), ("send",)])
async def test_a_task_that_was_canceled_here_stays_so(given: tuple[str, ...]) -> None:
    async with Client(Orders().backend(*given)) as client:
        task = await client.send("slow")
        assert (await client.cancel(task.id)).state is State.CANCELED
        assert (await client.get(task.id)).state is State.CANCELED
        with pytest.raises(NotCancelable):
            await client.cancel(task.id)


@pytest.mark.parametrize("store", STORES[1:])
async def test_what_is_kept_survives_a_restart(store: str, tmp_path: Path) -> None:
    place, orders = store.format(tmp_path), Orders()
    async with Client(orders.backend("send"), store=place) as client:
        task = await client.send("slow")
        done = await client.send("tea")
    async with Client(orders.backend("send"), store=place) as client:
        assert await client.get(task.id) == task
        assert await client.get(done.id) == done
        assert (await client.cancel(task.id)).state is State.CANCELED


@pytest.mark.parametrize("store", STORES)
async def test_what_is_kept_belongs_to_its_caller(store: str, tmp_path: Path) -> None:
    """Two callers may even have tasks of one id in the author's system."""
    backend = Backend(
        "Same",
        send=lambda op, caller: Task(
            id="1",
            context_id="c",
            status=Status(State.WORKING),
            artifacts=(Artifact(artifact_id="a", parts=(Text(caller.principal),)),),
        ),
    )
    peer = backend.peer(store=store.format(tmp_path))
    await peer.start()
    try:
        await peer.call(said("x"), ALICE)
        with pytest.raises(TaskNotFound):
            await peer.call(GetTask(task_id="1"), BOB)
        await peer.call(said("x"), BOB)
        assert (await peer.call(GetTask(task_id="1"), ALICE)).text == "alice"
        await peer.call(CancelTask(task_id="1"), BOB)
        assert (await peer.call(GetTask(task_id="1"), ALICE)).state is State.WORKING
    finally:
        await peer.stop(0)


# Names that callers choose.

EVERY = ("send", "stream", "get", "cancel", "resubscribe", "set_hook", "get_hook", "list_hooks")


async def ask(client: httpx2.AsyncClient, path: str, method: str, params: dict[str, Any]) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return (await client.post(path, json=body)).json()


def sending(text: str, **more: Any) -> dict[str, Any]:
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": "t-1", "message": message, **more}


@pytest.mark.parametrize("path", ["/", "/a2a-go"])
@pytest.mark.parametrize("given", [EVERY, ("send",), ("stream",), ("send", "get", "cancel")])
async def test_a_name_of_the_callers_leads_to_the_authors_task(
    path: str, given: tuple[str, ...]
) -> None:
    orders = Orders()
    async with served(orders.backend(*given)) as house:
        http = house.client
        opened = (await ask(http, path, "tasks/send", sending("slow")))["result"]
        assert opened["id"] == "t-1"
        assert list(orders.tasks) == ["order-1"]
        got = (await ask(http, path, "tasks/get", {"id": "t-1", "historyLength": 9}))["result"]
        assert got["id"] == "t-1"
        if given != ("stream",):
            more = (await ask(http, path, "tasks/send", sending("go on")))["result"]
            assert (more["id"], more["status"]["state"]) == ("t-1", "completed")
            assert list(orders.tasks) == ["order-1"], "it went on with the same task"
        missing = await ask(http, path, "tasks/get", {"id": "t-2"})
        assert missing["error"]["code"] == -32001


async def test_streams_and_webhooks_know_the_name_too() -> None:
    orders = Orders()
    peer = orders.backend(*EVERY).peer()
    sent = replace(said("tea"), open_as="t-1")
    batches = [batch async for batch in peer.stream(sent, ALICE)]
    ids = {entry.task_id for batch in batches for entry in batch.entries}
    (shown,) = ids
    assert shown.startswith("t-1~")
    assert list(orders.tasks) == ["order-1"]
    for name in ("t-1", str(shown)):
        told = [e async for b in peer.stream(Watch(task_id=name), ALICE) for e in b.entries]
        assert {entry.task_id for entry in told} == ids
        hook = Hook(hook_id="h", task_id=name, url="https://example.org/hook")
        assert (await peer.call(SetHook(hook=hook), ALICE)).task_id == shown
        assert (await peer.call(GetHook(task_id=name, hook_id="h"), ALICE)).task_id == shown
        assert (await peer.call(GetTask(task_id=name), ALICE)).id == shown
    assert list(orders.hooks) == ["order-1"]
    page = await peer.call(ListHooks(task_id=str(shown)), ALICE)
    assert [hook.task_id for hook in page.hooks] == [shown]
    with pytest.raises(TaskNotFound):
        await peer.call(GetTask(task_id="t-1"), BOB)
    # The author's own id is good as well.
    assert (await peer.call(GetTask(task_id="order-1"), ALICE)).id == "order-1"
    await peer.stop(0)


async def test_two_callers_may_use_one_name(tmp_path: Path) -> None:
    orders = Orders()
    for _ in range(2):  # the second time after a restart
        peer = orders.backend(*EVERY).peer(store=f"sqlite:///{tmp_path}/tasks.db")
        await peer.start()
        for caller in (ALICE, BOB):
            task = await peer.call(replace(said("slow"), open_as="t-1"), caller)
            assert isinstance(task, Task)
        await peer.stop(0)
    assert list(orders.tasks) == ["order-1", "order-2"]
    assert all(task.state is State.COMPLETED for task in orders.tasks.values())


async def test_a_backend_with_all_of_its_functions_makes_no_store(tmp_path: Path) -> None:
    async with Client(Orders().backend(*EVERY), store=f"sqlite:///{tmp_path}/tasks.db") as client:
        task = await client.send("tea")
        assert (await client.get(task.id)).text == "TEA"
    assert os.listdir(tmp_path) == []
