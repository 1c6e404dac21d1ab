"""Calls that must type-check under `mypy --strict` and pyright. Nothing here runs."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, assert_type

from msgspec import Struct

from dragoman import (
    Agent,
    Answer,
    Artifact,
    ArtifactChunk,
    Ask,
    Asked,
    Blob,
    Data,
    Event,
    Hook,
    Link,
    Message,
    Note,
    Noted,
    Opened,
    Part,
    Provider,
    Role,
    Snapshot,
    Stamped,
    State,
    StateChanged,
    Status,
    SyncTurn,
    Task,
    Text,
    Turn,
    connect,
    file,
    sync,
)
from dragoman.auth import ApiKeys, Known, Secret
from dragoman.client import Events, RemoteAgent
from dragoman.client.auth import CardAuth
from dragoman.core.model import AnyPart, File
from dragoman.core.operations import GetTask, TaskPage
from dragoman.core.peer import ANYONE, Context, Peer
from dragoman.engine import EngineSettings
from dragoman.security.card_trust import Trust
from dragoman.testing import Client


class Outline(Struct):
    title: str
    days: list[str]


async def make_outline(city: str) -> Outline:
    return Outline(title=city, days=[])


def count(city: str, *, times: int = 1) -> int:
    return len(city) * times


agent = Agent(
    "Travel desk",
    description="Plans trips",
    version="1.0.0",
    provider=Provider(organization="Acme", url="https://acme.example"),
    input_modes=["text/plain"],
    output_modes=("text/plain",),
)


# Every shape of a skill; the decorator gives the function back as it was.


@agent.skill("plan", description="Plans a trip", tags=["travel"], examples=["Three days in Kyoto"])
async def plan(turn: Turn) -> AsyncGenerator[str, None]:
    assert_type(turn, Turn)
    city = turn.text or await turn.ask("Which city?")
    outline = await turn.step("outline", make_outline, city)
    assert_type(outline, Outline)
    if not await turn.approve("Book the hotel?", details={"city": city}):
        raise turn.reject("Not approved")
    for day in outline.days:
        yield day


@agent.skill("typed", default=True, on_crash="fail", max_attempts=3, timeout=60, cancel_grace=1)
async def typed(turn: Turn, city: str, days: int = 3) -> dict[str, int]:
    return {city: days}


@agent.skill("plain", may_reply=True, join=0.05)
def plain(turn: SyncTurn, word: str) -> str:
    turn.say("looking")
    turn.detach()
    turn.complete("Done")
    return word


@agent.skill("pieces")
def pieces(turn: SyncTurn) -> Generator[bytes, None, None]:
    yield b"x"


_plan: Callable[[Turn], AsyncGenerator[str, None]] = plan
_typed: Callable[[Turn, str, int], Awaitable[dict[str, int]]] = typed
_plain: Callable[[SyncTurn, str], str] = plain


async def reads(turn: Turn) -> None:
    assert_type(turn.text, str)
    assert_type(turn.message, Message)
    assert_type(turn.parts, tuple[AnyPart, ...])
    assert_type(turn.files, tuple[File, ...])
    assert_type(turn.history, tuple[Message, ...])
    assert_type(turn.metadata, dict[str, Any])
    assert_type(turn.accepts, tuple[str, ...])
    assert_type(turn.references, tuple[str, ...])
    assert_type(turn.extensions, tuple[str, ...])
    assert_type(turn.context_id, str)
    assert_type(turn.task_id, str)
    assert_type(turn.caller, Context)
    assert_type(turn.skill, str)
    assert_type(turn.attempt, int)
    assert_type(turn.cancelled, bool)
    assert_type(await turn.conversation(limit=10), tuple[Message, ...])


async def verbs(turn: Turn) -> None:
    await turn.say("text", {"n": 1}, b"x", Path("x"), metadata={"a": 1})
    await turn.artifact("x", name="page", description="d", append=True, last=False)
    await turn.think("hm")
    await turn.log("line", level="debug", n=1)
    await turn.usage(tokens=1200)
    await turn.progress(0.4, eta=3)
    await turn.detach("This takes an hour", metadata={"a": 1})
    await turn.complete("Done", {"n": 1}, metadata={"a": 1})
    await turn.reply("hello")
    answer = await turn.ask("Well?", key="k", details={"max": 7}, expires=60)
    assert_type(answer, Answer)
    assert_type(answer.message, Message)
    assert_type(answer.files, tuple[File, ...])
    words: str = answer
    assert_type(await turn.approve("Sure?", details={"x": 1}, key="k", expires=1), bool)
    assert_type(await turn.need_auth({"basic": {}}, {"bank": "B"}, prompt=words), Answer)
    found = await turn.call_tool("weather", city="Kyoto")
    del found
    assert_type(turn.key("pay"), str)


async def steps(turn: Turn) -> None:
    assert_type(await turn.step("a", make_outline, "Kyoto"), Outline)
    assert_type(await turn.step("b", count, "Kyoto", times=2, key="k"), int)
    assert_type(await turn.step("c", lambda: "x"), str)


def ends(turn: Turn) -> None:
    if turn.text:
        raise turn.reject("No")
    raise turn.fail("No", reason="because")


async def client() -> None:
    settings = EngineSettings(max_wait=1, max_parked=2)
    async with Client(agent, store="memory:", settings=settings) as caller:
        task = await caller.send("Kyoto", {"days": 3}, skill="plan", wait=False)
        assert_type(task, Task)
        assert_type(task.state, State)
        assert_type(task.text, str)
        assert_type(task.artifacts, tuple[Artifact, ...])
        assert_type(await caller.ask("hi"), Task | Message)
        async for event in caller.stream("hi"):
            assert_type(event, Stamped | Message)
        async for entry in caller.watch(task.id, cursor=3):
            assert_type(entry, Stamped)
        assert_type(await caller.get(task.id, history_length=1), Task)
        assert_type(await caller.list(state=State.WORKING), TaskPage)
        assert_type(await caller.cancel(task.id), Task)
        assert_type(await caller.resolve(task.id, "input:Well?", {"n": 1}), Task)


def values() -> None:
    parts: list[Part] = [
        Text("x"),
        Data({"n": 1}),
        Blob(b"x", filename="x.bin", media_type="application/octet-stream"),
        Link("https://x.example"),
    ]
    assert_type(file(Path("x.csv")), Blob)
    assert_type(file(b"x", filename="x.csv"), Blob)
    message = Message(message_id="m", role=Role.USER, parts=(Text("hi"),))
    assert_type(message.text, str)
    del parts


def events(one: Stamped) -> None:
    match one.event:
        case Opened(message=message):
            assert_type(message, Message)
        case StateChanged(state=state, message=words):
            assert_type(state, State)
            assert_type(words, Message | None)
        case Asked(kind=kind):
            assert_type(kind, Ask)
        case ArtifactChunk(artifact=artifact, last=last):
            assert_type(artifact, Artifact)
            assert_type(last, bool)
        case Noted(kind=note):
            assert_type(note, Note)
        case Snapshot(task=task):
            assert_type(task.status, Status)
    any_event: Event = StateChanged(state=State.COMPLETED)
    hook = Hook(hook_id="h", task_id="t", url="https://x.example", scheme="Bearer", credentials="c")
    assert_type(hook.schemes, tuple[str, ...])
    del any_event


async def remote() -> None:
    async with connect("https://agent.example.com", auth="token", prefer=["GRPC"]) as far:
        assert_type(far, RemoteAgent)
        answer = await far.send("Kyoto", Path("x.csv"), {"days": 3}, skill="plan", wait=False)
        assert_type(answer, Task)
        assert_type(answer.text, str)
        assert_type(answer.files, tuple[File, ...])
        assert_type(answer.status.text, str)
        days: int = answer.data["days"]
        await far.answer(answer, f"{days} days")
        await far.cancel(answer)
        await far.send("Kyoto", skil="plan")  # type: ignore[call-arg]  # misspelt
        assert_type(await far.ask("Kyoto"), Task | Message)
        async for text in far.stream_text("Kyoto", skill="plan"):
            assert_type(text, str)
        events = far.stream("hi")
        assert_type(events, Events)
        async for event in events:
            assert_type(event, Stamped | Message)
        assert_type(events.task, Task | None)
        assert_type(await events.result(), Task)
        async for entry in far.watch(answer):
            assert_type(entry, Stamped)
        assert_type(await far.watch(answer, cursor=3).result(), Task)
        assert_type(await far.get("t"), Task)
        assert_type(await far.call(GetTask(task_id="t"), ANYONE), Task)
        talk = far.conversation()
        assert_type(await talk.send("hi"), Task)
        assert_type(await far.save(await far.get("t"), "folder"), list[Path])
        peer: Peer = far
        del peer


def blocking() -> None:
    with sync.connect("https://agent.example.com") as far:
        assert_type(far.send("hi"), Task)
        for event in far.stream("hi"):
            assert_type(event, Stamped | Message)


async def with_the_users_own_credentials() -> None:
    async with connect("https://agent.example.com", auth=CardAuth(), trust=Trust("require")):
        pass


def serves() -> None:
    agent.serve(port=0, store="memory:", log_level="debug", on_start=print)
    agent.serve(prot=1)  # type: ignore[call-arg]  # misspelt


guarded = Agent(
    "Desk", auth={"keys": ApiKeys(callers={"ada": Known(secret=Secret(env="ADAS_KEY"))})}
)


@guarded.lifespan
async def life(state: SimpleNamespace) -> AsyncGenerator[dict[str, int], None]:
    yield {"number": 1}


@guarded.on_start
async def start() -> None: ...


@guarded.skill("count")
async def counted(turn: Turn) -> str:
    number: int = turn.state.number
    return f"{number} {turn.caller.headers['accept-language']}"
