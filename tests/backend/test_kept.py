"""What we keep for a backend: tasks where the author gives no function, and names of tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Artifact, ArtifactChunk, Backend, Hook, State, StateChanged, Status, Task, Text
from dragoman.backend.fallback import FallbackTasks
from dragoman.core.errors import NotCancelable, TaskFinished, TaskNotFound
from dragoman.core.operations import (
    CancelTask,
    GetHook,
    GetTask,
    ListHooks,
    SendMessage,
    SetHook,
    Watch,
)
from dragoman.core.peer import Context
from dragoman.store import open_store
from dragoman.store.interface import AdminFilter, Row, Scope
from dragoman.testing import Client
from engine.harness import until
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
    async with served(Orders().backend("send")) as server:
        done = (await way.ask(server, said("tea"))).answer
        got = (await way.ask(server, GetTask(task_id=done.id))).answer
        assert (got.id, got.state, got.text) == (done.id, State.COMPLETED, "TEA")
        late = await way.ask(server, CancelTask(task_id=done.id))
        assert type(late.error) is NotCancelable
        slow = (await way.ask(server, said("slow"))).answer
        assert slow.state is State.WORKING
        canceled = (await way.ask(server, CancelTask(task_id=slow.id))).answer
        assert (canceled.id, canceled.state) == (slow.id, State.CANCELED)
        got = (await way.ask(server, GetTask(task_id=slow.id))).answer
        assert (got.state, got.text) == (State.CANCELED, "SLOW")
        for op in (GetTask(task_id="none"), CancelTask(task_id="none")):
            assert type((await way.ask(server, op)).error) is TaskNotFound


@ways
async def test_without_send_a_message_is_kept_in_a_task(way: Way) -> None:
    hooks = ("set_hook", "get_hook")
    async with served(Orders().backend("resubscribe", *hooks)) as server:
        task = (await way.ask(server, said("tea", history_length=9))).answer
        assert task.state is State.SUBMITTED
        assert [message.text for message in task.history] == ["tea"]
        if way.name != "JSON-RPC 0.1":
            more = said("with milk", task=task.id)
            task = (await way.ask(server, more)).answer
            assert [message.text for message in task.history] == ["tea", "with milk"]
        await way.ask(server, CancelTask(task_id=task.id))
        got = (await way.ask(server, GetTask(task_id=task.id))).answer
        assert got.state is State.CANCELED
        if way.name != "JSON-RPC 0.1":
            late = await way.ask(server, said("too late", task=task.id))
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


async def test_all_that_is_too_old_goes_soon_however_much_it_is() -> None:
    """More than the store is asked to remove at a time, and nothing is saved any more."""
    store = open_store("memory:")
    peer = Orders().backend("send").peer(store=store, keep=1.0)
    await peer.start()
    try:
        for _ in range(2_100):
            await peer.call(said("tea"), ALICE)

        async def gone() -> bool:
            return await store.find_in_all_scopes(AdminFilter(), 1) == []

        await until(gone, 60)
    finally:
        await peer.stop(0)


# Names that callers choose.


@pytest.mark.parametrize("url", STORES)
async def test_a_name_is_kept_while_it_is_used_and_no_longer(url: str, tmp_path: Path) -> None:
    now = 1_800_000_000_000
    store = open_store(url.format(tmp_path), clock=lambda: now)
    kept = FallbackTasks(store, "Orders", 60.0, clock=lambda: now)
    try:
        await kept.name("t-1", "order-1", ALICE)
        await kept.name("t-1", "order-2", ALICE)
        await kept.name("ended", "order-3", ALICE)
        await kept.name("ended", "order-3", ALICE, ended=True)
        for _ in range(5):
            now += 50_000
            await kept.sweep()
            assert await kept.named("t-1", ALICE) == "order-1"
        assert await kept.named("ended", ALICE) == ""
        page = await store.read(*_place(await store.find_in_all_scopes(AdminFilter(), 9)), 0, 99)
        assert len(page.entries) == 1, "its log does not grow"
        now += 61_000
        await kept.sweep()
        assert await kept.named("t-1", ALICE) == ""
        assert await store.find_in_all_scopes(AdminFilter(), 9) == []
    finally:
        await kept.close()


def _place(rows: list[Row]) -> tuple[Scope, str]:
    (row,) = rows
    return row.scope, row.task_id


async def test_a_name_outlives_keep_tasks_with_the_task_of_the_author() -> None:
    store, orders = open_store("memory:"), Orders()
    peer = orders.backend(*EVERY).peer(store=store, keep=60.0)
    try:
        await peer.call(replace(said("slow"), open_as="t-1"), ALICE)
        await store.sweep("Orders", -1, -1, 1000)  # the time of all that has ended is over
        await peer.call(replace(said("go on"), open_as="t-1"), ALICE)
        assert list(orders.tasks) == ["order-1"]
        (row,) = await store.find_in_all_scopes(AdminFilter(), 9)
        assert row.final, "from here on it is kept like a finished task"
    finally:
        await peer.stop(0)


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
    async with served(orders.backend(*given)) as server:
        http = server.client
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


async def test_the_id_that_a_caller_is_shown_never_reaches_the_author() -> None:
    seen: list[str] = []

    async def resubscribe(op: Watch) -> AsyncIterator[object]:
        seen.append(op.task_id)
        yield Task(id=op.task_id, context_id="c", status=Status(State.COMPLETED))

    async def stream(op: SendMessage) -> AsyncIterator[object]:
        seen.append(op.message.task_id)
        number = op.message.task_id or "order-1"
        yield Task(id=number, context_id="c", status=Status(State.INPUT_REQUIRED))

    peer = Backend("Orders", stream=stream, resubscribe=resubscribe).peer()
    try:
        sent = replace(said("tea"), open_as="t-1")
        (shown,) = {e.task_id async for b in peer.stream(sent, ALICE) for e in b.entries}
        for op in (Watch(task_id=str(shown)), said("milk", task=str(shown))):
            told = {e.task_id async for b in peer.stream(op, ALICE) for e in b.entries}
            assert told == {shown}
        assert seen == ["", "order-1", "order-1"]
        with pytest.raises(TaskNotFound):
            async for _ in peer.stream(Watch(task_id=str(shown)), BOB):
                pass
        assert len(seen) == 3
    finally:
        await peer.stop(0)


@pytest.mark.parametrize("streams", [(False, False), (False, True), (True, False), (True, True)])
async def test_two_first_sends_with_one_name_open_one_task(streams: tuple[bool, bool]) -> None:
    seen: list[str] = []
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def send(op: SendMessage) -> Task:
        seen.append(op.message.task_id)
        number = op.message.task_id or f"order-{len(seen)}"
        entered.set()
        await go_on.wait()
        return Task(id=number, context_id="c", status=Status(State.INPUT_REQUIRED))

    async def stream(op: SendMessage) -> AsyncIterator[object]:
        yield await send(op)

    peer = Backend("Orders", send=send, stream=stream).peer()
    sent = replace(said("tea"), open_as="t-1")

    async def first(caller: Context, streamed: bool) -> str:
        if not streamed:
            return (await peer.call(sent, caller)).id  # type: ignore[return-value]
        (shown,) = {e.task_id async for b in peer.stream(sent, caller) for e in b.entries}
        return str(shown)

    try:
        one = asyncio.create_task(first(ALICE, streams[0]))
        await entered.wait()
        two = asyncio.create_task(first(ALICE, streams[1]))
        other = asyncio.create_task(first(BOB, streams[1]))
        await until(lambda: len(seen) >= 2, 60)  # another caller does not wait
        go_on.set()
        assert await one == await two != await other
        assert sorted(seen) == ["", "", "order-1"]
    finally:
        await peer.stop(0)
