"""A backend of one's own: what it has is served in every binding, what it lacks is unsupported."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Artifact, Backend, Extension, Message, Role, State, Task, Text
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.card import Card, CardSkill
from dragoman.core.errors import (
    ConfigError,
    ContentTypeUnsupported,
    ExtensionRequired,
    Forbidden,
    HookNotFound,
    NoExtendedCard,
    NotCancelable,
    PeerRefused,
    PushUnsupported,
    TaskNotFound,
    TooMany,
    Unauthenticated,
    UnknownMethod,
    Unsupported,
)
from dragoman.core.events import ArtifactChunk, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import Fold
from dragoman.core.model import Data, Hook, Status
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    HookPage,
    Invoke,
    ListHooks,
    ListTasks,
    SendMessage,
    SetHook,
    TaskPage,
    Watch,
)
from dragoman.core.peer import Context
from dragoman.dialects.a2a.cards.documents import card_in
from dragoman.observability.log import Bridge
from dragoman.server.agent_loader import load_agent
from dragoman.settings import Push, Rates
from dragoman.testing import Client
from semantics.ways import WAYS, Heard, RunningServer, Way, said, served
from waiting import forever

ways = pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
TOKEN = "token-of-alice-0123456789"
WITH_CARD = tuple(way for way in WAYS.values() if way.name != "JSON-RPC 0.1")
BOOK = "https://example.org/ext/booking/v1"


EVERY = (
    *("send", "stream", "get", "list", "cancel", "resubscribe"),
    *("set_hook", "get_hook", "list_hooks", "delete_hook"),
)


class Shop:
    """Tasks in a dictionary, and a function for each operation."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.hooks: dict[str, Hook] = {}
        self.asked: list[Any] = []
        self.left = asyncio.Event()

    def task(self, op: SendMessage, state: State = State.COMPLETED) -> Task:
        number = op.open_as or f"t{len(self.tasks) + 1}"
        task = self.tasks[number] = Task(
            id=number,
            context_id=op.message.context_id or "c1",
            status=Status(state, 1_700_000_000_000),
            artifacts=(Artifact(artifact_id="a", parts=(Text(op.message.text.upper()),)),),
            history=(op.message, replace(op.message, message_id="2")),
            metadata=op.metadata,
        )
        return task

    async def send(self, op: SendMessage, caller: Context) -> Task | Message:
        self.asked.append((op, caller))
        if op.message.text == "hello":
            return Message(message_id="r", role=Role.AGENT, parts=(Text("hello yourself"),))
        return self.task(op)

    async def stream(self, op: SendMessage, caller: Context) -> AsyncIterator[object]:
        self.asked.append((op, caller))
        if op.message.text == "hello":
            yield Message(message_id="r", role=Role.AGENT, parts=(Text("hello yourself"),))
            return
        task = replace(self.task(op, State.WORKING), artifacts=())
        yield task
        if op.message.text == "wait":
            try:
                await forever()
            finally:
                self.left.set()
        for word in op.message.text.split():
            yield ArtifactChunk(
                artifact=Artifact(artifact_id="a", parts=(Text(f"{word} "),)), append=True
            )
        yield StateChanged(state=State.COMPLETED)
        raise AssertionError("nobody asks for more after the end")

    def get(self, op: GetTask) -> Task | None:  # plain: it runs in a thread
        assert threading.current_thread() is not threading.main_thread()
        return self.tasks.get(op.task_id)

    async def list(self, op: ListTasks) -> TaskPage:
        tasks = tuple(self.tasks.values())[: op.page_size]
        return TaskPage(tasks=tasks, next_token="more", page_size=op.page_size, total=7)

    async def cancel(self, op: CancelTask) -> Task | None:
        if op.task_id == "t1":
            raise NotCancelable(taskId=op.task_id)
        return self.tasks.get(op.task_id)

    def resubscribe(self, op: Watch) -> Iterator[object]:  # plain, and a generator
        if op.task_id not in self.tasks:
            raise TaskNotFound(taskId=op.task_id)
        yield self.tasks[op.task_id]
        yield StateChanged(state=State.COMPLETED)

    async def set_hook(self, op: SetHook) -> Hook:
        hook = replace(op.hook, hook_id=op.hook.hook_id or "h")
        self.hooks[hook.hook_id] = hook
        return hook

    async def get_hook(self, op: GetHook) -> Hook | None:
        return self.hooks.get(op.hook_id)

    async def list_hooks(self, op: ListHooks) -> list[Hook]:
        return [*self.hooks.values()]

    async def delete_hook(self, op: DeleteHook) -> None:
        self.hooks.pop(op.hook_id, None)

    def backend(self, *names: str, **about: Any) -> Backend:
        given = {name: getattr(self, name) for name in names or EVERY}
        return Backend("Shop", **given, **about)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# What it has.


@ways
async def test_send_get_list_and_cancel(way: Way, shop: Shop) -> None:
    async with served(shop.backend()) as server:
        task = (await way.ask(server, said("tea", metadata={"k": [1]}))).answer
        assert task.state is State.COMPLETED
        assert task.text == "TEA"
        assert task.metadata["k"] == [1]
        op, caller = shop.asked[0]
        assert op.message.text == "tea"
        assert caller.principal == "anonymous"
        assert caller.dialect.startswith("a2a-")
        got = (await way.ask(server, GetTask(task_id=task.id, history_length=1))).answer
        assert (got.id, got.text, len(got.history)) == (task.id, "TEA", 1)
        missing = await way.ask(server, GetTask(task_id="none"))
        assert type(missing.error) is TaskNotFound
        listed = await way.ask(server, ListTasks(with_artifacts=True))
        if not listed.unasked:
            assert [one.id for one in listed.answer.tasks] == [task.id]
            assert listed.answer.tasks[0].text == ("TEA")
        canceled = await way.ask(server, CancelTask(task_id="t9"))
        assert type(canceled.error) is TaskNotFound


@ways
async def test_a_direct_reply(way: Way, shop: Shop) -> None:
    async with served(shop.backend()) as server:
        heard = await way.ask(server, said("hello"))
        if way.name == "JSON-RPC 0.1":
            assert heard.answer is not None or heard.error is not None  # it has only tasks
            return
        assert isinstance(heard.answer, Message)
        assert heard.answer.text == "hello yourself"
        streamed = await way.ask(server, said("hello"), stream=True)
        assert [entry.text for entry in streamed.entries if isinstance(entry, Message)] == [
            "hello yourself"
        ]


def folded(heard: Heard) -> Task:
    first = heard.entries[0]
    assert isinstance(first, Stamped)
    fold = Fold(first.task_id, first.context_id)
    for entry in heard.entries:
        assert isinstance(entry, Stamped)
        fold.add(entry)
    return fold.task()


@ways
async def test_a_stream(way: Way, shop: Shop) -> None:
    async with served(shop.backend()) as server:
        heard = await way.ask(server, said("green tea"), stream=True)
        assert heard.error is None
        task = folded(heard)
        assert task.text == "green tea "
        assert task.state is State.COMPLETED
        watched = await way.ask(server, Watch(task_id=task.id), stream=True)
        assert watched.error is None
        assert folded(watched).state is State.COMPLETED
        missing = await way.ask(server, Watch(task_id="none"), stream=True)
        assert type(missing.error) is TaskNotFound


@ways
async def test_webhooks(way: Way, shop: Shop) -> None:
    async with served(shop.backend()) as server:
        task = (await way.ask(server, said("tea"))).answer
        hook = Hook(hook_id="h7", task_id=task.id, url="https://example.org/hook")
        heard = await way.ask(server, SetHook(hook=hook))
        assert heard.error is None
        (stored,) = shop.hooks.values()
        assert stored.url == hook.url
        got = await way.ask(server, GetHook(task_id=task.id, hook_id=stored.hook_id))
        if way.name != "JSON-RPC 0.1":  # it cannot name one
            assert got.answer.url == hook.url
            missing = await way.ask(server, GetHook(task_id=task.id, hook_id="none"))
            assert type(missing.error) in (HookNotFound, TaskNotFound)  # one code for both
        listed = await way.ask(server, ListHooks(task_id=task.id))
        if not listed.unasked:
            assert [one.url for one in listed.answer.hooks] == [hook.url]
            await way.ask(server, DeleteHook(task_id=task.id, hook_id=stored.hook_id))
            assert shop.hooks == {}
        inline = await way.ask(server, said("tea", hook=hook))
        assert inline.error is None
        assert shop.asked[-1][0].hook.url == hook.url


@ways
async def test_what_a_function_refuses_is_told_as_it_is(way: Way, shop: Shop) -> None:
    async with served(shop.backend()) as server:
        heard = await way.ask(server, CancelTask(task_id="t1"))
        assert type(heard.error) is NotCancelable


# What it lacks.


@ways
async def test_what_is_missing_is_unsupported(way: Way, shop: Shop) -> None:
    hook = Hook(hook_id="h", task_id="t", url="https://example.org/hook")
    async with served(shop.backend("send")) as server:
        for op, stream, error in (
            (ListTasks(), False, Unsupported),
            (said("x"), True, Unsupported),
            (Watch(task_id="t"), True, Unsupported),
            (SetHook(hook=hook), False, PushUnsupported),
            (GetHook(task_id="t", hook_id="h"), False, PushUnsupported),
            (ListHooks(task_id="t"), False, PushUnsupported),
            (DeleteHook(task_id="t", hook_id="h"), False, PushUnsupported),
            (said("x", hook=hook), False, PushUnsupported),
        ):
            heard = await way.ask(server, op, stream=stream)  # type: ignore[arg-type]
            assert heard.unasked or type(heard.error) is error, op
        extended = await way.ask(server, GetExtendedCard())
        if way.name == "gRPC 0.3":  # its one rpc for cards answers with the public one
            assert extended.answer.name == "Shop"
        else:
            assert extended.unasked or isinstance(extended.error, NoExtendedCard | Unsupported)
        assert (await way.ask(server, said("x"))).error is None


@ways
async def test_half_of_the_streams(way: Way, shop: Shop) -> None:
    async with served(shop.backend("stream")) as server:
        assert (await way.ask(server, said("x"), stream=True)).error is None
        assert type((await way.ask(server, Watch(task_id="t"), stream=True)).error) is Unsupported
        # A send without a stream gets what the stream comes to.
        task = (await way.ask(server, said("green tea"))).answer
        assert (task.state, task.text) == (State.COMPLETED, "green tea ")


@ways
async def test_the_operator_can_switch_webhooks_off(way: Way, shop: Shop) -> None:
    async with served(shop.backend(), push=Push(enabled=False)) as server:
        hook = Hook(hook_id="h", task_id="t", url="https://example.org/hook")
        for op in (SetHook(hook=hook), said("x", hook=hook)):
            assert type((await way.ask(server, op)).error) is PushUnsupported
        assert shop.asked == []


# The card.


async def card_of(server: RunningServer, version: str = "1.0") -> Card:
    headers = {"a2a-version": version}
    return card_in(
        (await server.client.get("/.well-known/agent-card.json", headers=headers)).content
    )


@pytest.mark.parametrize(
    ("functions", "streaming", "push"),
    [
        (("send",), False, False),
        (("send", "stream"), True, False),
        (("get", "resubscribe"), True, False),
        (("send", "set_hook"), False, True),
        (("send", "get_hook"), False, False),
        ((), True, True),
    ],
)
async def test_capabilities_follow_from_the_functions(
    functions: tuple[str, ...], streaming: bool, push: bool, shop: Shop
) -> None:
    skill = CardSkill(id="buy", name="Buy", description="Sells")
    async with served(shop.backend(*functions, skills=[skill], description="Sells")) as server:
        for version in ("1.0", "0.3"):
            card = await card_of(server, version)
            assert (card.streaming, card.push) == (streaming, push)
            assert (card.name, card.description) == ("Shop", "Sells")
            assert [one.id for one in card.skills] == ["buy"]
            assert card.skills[0].input_modes == ("text/plain", "application/json")
            assert {i.binding for i in card.interfaces} == {"JSONRPC", "HTTP+JSON", "GRPC"}
            # A backend keeps no log here, so it has nothing of what ours need one for.
            assert {e.uri for e in card.extensions} <= {"urn:dragoman:dialects:1"}


@pytest.mark.parametrize("called", [False, True])
async def test_a_card_of_its_own(called: bool, shop: Shop) -> None:
    own = Card(name="Other", description="Mine", version="7.0.0", streaming=True, push=True)
    async with served(shop.backend("send", card=(lambda: own) if called else own)) as server:
        card = await card_of(server)
        assert (card.name, card.version) == ("Other", "7.0.0")
        assert (card.streaming, card.push) == (False, False)
        assert card.interfaces


# Doors, rates and terms are those of an agent.


@ways
async def test_doors_scopes_and_the_extended_card(
    way: Way, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_ALICE", TOKEN)
    monkeypatch.setenv("TOKEN_OF_BOB", TOKEN[::-1])
    secret = Secret(env="TOKEN_OF_ALICE")
    other = Secret(env="TOKEN_OF_BOB")
    auth = {
        "token": Tokens(
            callers={
                "alice": Known(secret=secret, scopes=("shop",)),
                "bob": Known(secret=other),
            }
        )
    }
    backend = shop.backend(auth=auth, scopes=["shop"], extended_card=extended)
    seen: list[tuple[str, str]] = []

    @backend.authorize
    def may(caller: Context, op: object, skill: str, task: str) -> bool:
        seen.append((caller.principal, task))
        return task != "secret"

    async with served(backend) as server:
        alice = {"authorization": f"Bearer {TOKEN}"}
        bob = {"authorization": f"Bearer {TOKEN[::-1]}"}
        assert type((await way.ask(server, said("x"))).error) is Unauthenticated
        assert type((await way.ask(server, said("x"), headers=bob)).error) is Forbidden
        assert (await way.ask(server, said("x"), headers=alice)).error is None
        assert shop.asked[-1][1].principal == "alice"
        refused = await way.ask(server, GetTask(task_id="secret"), headers=alice)
        assert type(refused.error) is Forbidden
        assert ("alice", "secret") in seen
        card = await way.ask(server, GetExtendedCard(), headers=alice)
        if not card.unasked:
            assert card.answer.description == "for alice"


async def extended(caller: Context) -> Card:
    return Card(name="Shop", description=f"for {caller.principal}", version="1.0.0")


@ways
async def test_rates(way: Way, shop: Shop) -> None:
    async with served(shop.backend(), rates=Rates(calls_per_minute=1)) as server:
        assert (await way.ask(server, said("x"))).error is None
        assert type((await way.ask(server, said("x"))).error) is TooMany


@ways
async def test_terms(way: Way, shop: Shop) -> None:
    backend = shop.backend(
        input_modes=["text/plain"], extensions=[Extension(uri=BOOK, required=True)]
    )
    async with served(backend) as server:
        refused = await way.ask(server, said("x"))
        assert isinstance(refused.error, ExtensionRequired | Unsupported)
        typed = await way.ask(server, said(Data({"a": 1})), extensions=(BOOK,))
        assert type(typed.error) is ContentTypeUnsupported
        heard = await way.ask(server, said("x"), extensions=(BOOK,))
        assert heard.error is None
        assert heard.active == BOOK


@ways
async def test_methods_of_its_own(way: Way, shop: Shop) -> None:
    backend = shop.backend("send")

    @backend.method("myorg.shop/add")
    def add(caller: Context, a: int) -> dict[str, int]:
        return {"sum": a + 1}

    async with served(backend) as server:
        heard = await way.ask(server, Invoke(method="myorg.shop/add", params={"a": 1}))
        assert heard.answer == {"sum": 2}
        unknown = await way.ask(server, Invoke(method="myorg.shop/none", params={}))
        assert type(unknown.error) is UnknownMethod


# What a function may not give.

TASK = Task(id="t", context_id="c", status=Status(State.COMPLETED))
DONE = StateChanged(state=State.COMPLETED)
REPLY = Message(message_id="r", role=Role.AGENT, parts=(Text("x"),))


async def explained(way: Way, op: Any, streamed: bool, /, **functions: Any) -> tuple[Heard, str]:
    """What is heard, and what the log says."""
    reading, writing = os.pipe()
    try:
        async with served(Backend("Bad", **functions), log_fd=writing) as server:
            bridge = Bridge(server.app.log)
            logging.getLogger("dragoman").addHandler(bridge)
            heard = await way.ask(server, op, stream=streamed)
            logging.getLogger("dragoman").removeHandler(bridge)
            server.app.log.close(wait=5)
    finally:
        os.close(writing)
    with os.fdopen(reading, errors="replace") as log:
        return heard, log.read()


def internal(way: Way, heard: Heard, log: str) -> None:
    """An internal error whose id stands in the log, and nothing more."""
    assert heard.error is not None
    assert heard.error.message.startswith("Internal error ") or "Internal error" in str(heard.error)
    if way.name.startswith("JSON-RPC"):
        assert isinstance(heard.error, PeerRefused)
        assert heard.code == -32603
    found = heard.error.message.partition("Internal error ")[2].split(".")[0]
    assert len(found) == 12
    assert found in log


def invalid(way: Way, heard: Heard, log: str) -> None:
    """An invalid answer of the agent, whose id stands in the log, and nothing more."""
    assert heard.error is not None
    told = heard.error.message
    assert "The agent gave an invalid answer (error " in told
    if way.name.startswith("JSON-RPC"):
        assert heard.code == (-32603 if way.name.endswith("0.1") else -32006)
    found = told.partition("(error ")[2].partition(")")[0]
    assert len(found) == 12
    assert f"returned an invalid value error={found}" in log


@ways
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "send gave nothing; it must give Task or Message"),
        ("done", "send gave a str; it must give Task or Message"),
        ({"id": "t"}, "send gave a dict; it must give Task or Message"),
        (Status(State.COMPLETED), "send gave a Status"),
        (Task(id=7, context_id="c", status=Status(State.COMPLETED)), "at `$.id`"),  # type: ignore[arg-type]
        (Task(id="t", context_id="c", status="done"), "at `$.status`"),  # type: ignore[arg-type]
    ],
)
async def test_a_wrong_answer_is_explained_in_the_log(way: Way, value: object, why: str) -> None:
    heard, log = await explained(way, said("secret words"), False, send=lambda op: value)
    invalid(way, heard, log)
    assert why in log
    assert why not in str(heard.error)
    assert "secret words" not in log


@pytest.mark.parametrize(
    ("pieces", "why"),
    [
        ([DONE], "stream gave a StateChanged before a Task"),
        ([7], "stream gave a int; give a Task, then events"),
        ([TASK.status], "stream gave a Status; give a Task, then events"),
        (7, "stream gave a int; it must yield"),
        ("abc", "stream gave a str; it must yield"),
    ],
)
async def test_a_stream_that_begins_wrong(pieces: object, why: str) -> None:
    for way in WITH_CARD:
        heard, log = await explained(way, said("x"), True, stream=lambda op: pieces)
        invalid(way, heard, log)
        assert why in log


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (REPLY, "stream gave a Message after a Task"),
        (StateChanged(state="sleepy"), "stream gave a StateChanged that is none"),  # type: ignore[arg-type]
        (None, "stream gave nothing; give a Task"),
    ],
)
async def test_a_stream_that_goes_wrong(piece: object, why: str) -> None:
    working = replace(TASK, status=Status(State.WORKING))
    for way in WITH_CARD:
        heard, log = await explained(way, said("x"), True, stream=lambda op: [working, piece])
        assert len(heard.entries) == 1
        invalid(way, heard, log)
        assert why in log


async def test_the_task_that_was_asked_for() -> None:
    for op, functions in (
        (GetTask(task_id="x"), {"get": lambda op: TASK}),
        (CancelTask(task_id="x"), {"cancel": lambda op: TASK}),
    ):
        heard, log = await explained(WAYS["REST 1.0"], op, False, **functions)
        invalid(WAYS["REST 1.0"], heard, log)
        assert "asked for task 'x', the backend gave 't'" in log


@ways
async def test_a_function_that_fails(way: Way) -> None:
    def send(op: SendMessage) -> Task:
        raise KeyError("secret words")

    heard, log = await explained(way, said("x"), False, send=send)
    internal(way, heard, log)
    assert "secret words" not in str(heard.error)


@ways
async def test_a_function_has_its_time(way: Way) -> None:
    async def send(op: SendMessage) -> Task:
        await forever()
        return TASK

    async with served(Backend("Slow", send=send, timeout=0.05)) as server:
        heard = await way.ask(server, said("x"))
        assert heard.error is not None
        if way.name.startswith("JSON-RPC"):
            assert heard.code == -31504


# In this process.


async def test_the_in_memory_client_knows_backends(shop: Shop) -> None:
    async with Client(shop.backend()) as client:
        task = await client.send("tea")
        assert (await client.get(task.id)).text == "TEA"
        assert [type(e.event) async for e in client.stream("a b") if isinstance(e, Stamped)] == [
            Snapshot,
            ArtifactChunk,
            ArtifactChunk,
            StateChanged,
        ]
        with pytest.raises(Unsupported, match="engine"):
            _ = client.engine


async def test_who_leaves_ends_the_generator(shop: Shop) -> None:
    async with served(shop.backend()) as server:
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "wait"}]}}
        async with server.client.stream(
            "POST", "/message:stream", json=body, headers={"a2a-version": "1.0"}
        ) as reply:
            async for _ in reply.aiter_text():
                break
        async with asyncio.timeout(60):
            await shop.left.wait()


async def test_silence_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.backend.pieces.IDLE", 0.02)

    async def stream(op: SendMessage) -> AsyncIterator[object]:
        yield replace(TASK, status=Status(State.WORKING))
        await asyncio.sleep(0.2)  # the silence
        yield DONE

    peer = Backend("Slow", stream=stream).peer()
    batches = [batch async for batch in peer.stream(said("x"), Context())]
    quiet = [batch for batch in batches if not batch.entries]
    assert len(quiet) >= 3
    assert [batch.last for batch in batches][-1] is True
    seqs = [e.seq for batch in batches for e in batch.entries if isinstance(e, Stamped)]
    assert seqs == [1, 2]


async def test_stamps_of_its_own_are_kept() -> None:
    entries = [
        Stamped("t", "c", 8, 5, Snapshot(task=replace(TASK, status=Status(State.WORKING)))),
        Stamped("t", "c", 9, 6, DONE),
    ]
    peer = Backend("Log", resubscribe=lambda op, caller: entries[caller.cursor or 0 :]).peer()
    told = [e async for b in peer.stream(Watch(task_id="t"), Context(cursor=1)) for e in b.entries]
    assert told == entries[1:]


async def test_it_is_told_when_to_begin_and_to_end(shop: Shop) -> None:
    told: list[str] = []

    async def start() -> None:
        told.append("start")

    backend = shop.backend(start=start, stop=lambda: told.append("stop"))
    async with served(backend) as server:
        assert told == ["start"]
        assert (await server.client.get("/readyz")).status_code == 200
        assert (await server.client.get("/metrics")).status_code == 200
    assert told == ["start", "stop"]


async def test_hooks_may_come_as_a_page(shop: Shop) -> None:
    hook = Hook(hook_id="h", task_id="t", url="https://example.org/hook")
    page = HookPage(hooks=(hook,), next_token="2")
    peer = Backend("Paged", set_hook=shop.set_hook, list_hooks=lambda op: page).peer()
    assert await peer.call(ListHooks(task_id="t"), Context()) == page


# What is wrong before anything starts.


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "has no functions"),
        ({"send": 7}, "must be a function"),
        ({"send": lambda: None}, "takes the operation"),
        ({"send": lambda a, b, c: None}, "takes the operation"),
        ({"send": print, "timeout": 0}, "timeout"),
        ({"send": print, "extensions": [Extension(uri="")]}, "URI"),
    ],
)
def test_mistakes_are_found_at_once(about: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Backend("Shop", **about)


def test_a_backend_runs_no_skills(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="runs no skills"):
        shop.backend().skill("x")


def test_a_file_may_hold_a_backend(tmp_path: Path) -> None:
    file = tmp_path / "shop_file.py"
    file.write_text(
        "from dragoman import Backend\nbackend = Backend('Shop', send=lambda op: None)\n", "utf-8"
    )
    assert isinstance(load_agent(str(file)), Backend)
