"""Every dialect in front of a gateway and every dialect behind it: what comes through.

Each scenario gives plain values by name. A dialect that loses one of them says so in `LOSSES`, with
the value that is there instead; it is the same when the agent is called in that dialect directly.
What a cell gives is what the caller's dialect and the agent's dialect leave of it, and nothing else
may be missing. `gateway.matrix_page` writes it down.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple

from dragoman import State, Task, connect
from dragoman.client import SharedSecret
from dragoman.client.agent import RemoteAgent
from dragoman.core.errors import ContentTypeUnsupported
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.core.model import Blob, Data, Message
from gateway.behind import SECRET

NAMES = {
    "a2a-1.0": "A2A 1.0 JSON-RPC",
    "a2a-1.0-rest": "A2A 1.0 REST",
    "a2a-1.0-grpc": "A2A 1.0 gRPC",
    "a2a-0.3": "A2A 0.3 JSON-RPC",
    "a2a-0.3-rest": "A2A 0.3 REST",
    "a2a-0.3-grpc": "A2A 0.3 gRPC",
    "a2a-0.1": "A2A 0.1",
    "a2a-go": "community a2a-go",
    "iat": "IAT HTTP",
    "iat-ws": "IAT WebSocket",
    "xiaoyi": "XiaoYi",
    "lite": "A2A-Lite",
}


ANY = "any"
"""The default skill of the agent, which does what the first part of a message names."""


class Loss(NamedTuple):
    """What a dialect gives instead of a value, and why; some only in front of a gateway."""

    dialect: str
    scenario: str
    value: str
    gives: Any
    why: str
    sometimes: bool = False
    """Whether the value itself may arrive all the same."""


LOSSES: tuple[Loss, ...] = (
    Loss(
        *("a2a-0.1", "rejection", "state", "failed"),
        "A2A 0.1 has no word for rejected: the task is failed, and its message says why",
    ),
    Loss(
        *("xiaoyi", "rejection", "state", "failed"),
        "XiaoYi has no word for rejected: the task is failed, and its message says why",
    ),
    Loss(
        *("xiaoyi", "failure", "reason", None),
        "XiaoYi has no metadata for the message of a task: it says why the task failed, without "
        "the code of the reason",
    ),
    Loss(
        *("a2a-0.1", "direct reply", "kind", "task"),
        "A2A 0.1 and the community a2a-go know no direct replies: the reply is the message of a "
        "task that is completed",
    ),
    Loss(
        *("a2a-go", "direct reply", "kind", "task"),
        "A2A 0.1 and the community a2a-go know no direct replies: the reply is the message of a "
        "task that is completed",
    ),
    Loss(
        *("xiaoyi", "direct reply", "kind", "task"),
        "XiaoYi knows no direct replies: the reply is the result of a task",
    ),
    Loss(
        *("xiaoyi", "error", "error", "a task that is completed"),
        "XiaoYi cannot name a skill: every message is for the default skill of the agent, which "
        "chooses by what is said",
    ),
    Loss(
        *("lite", "direct reply", "kind", "task"),
        "A2A-Lite knows no direct replies: the reply is the result of a task",
    ),
    *(
        Loss(
            *(f"{caller} in front", "error", "error", "a task that is failed"),
            "In A2A 0.1, the community a2a-go and A2A-Lite a task has its name before the agent "
            "behind a gateway answers: it fails with the error",
        )
        for caller in ("a2a-0.1", "a2a-go", "lite")
    ),
    Loss(
        *("xiaoyi", "skill", "done_by", ANY),
        "XiaoYi cannot name a skill: every message is for the default skill of the agent, which "
        "chooses by what is said",
    ),
    Loss(
        *("lite", "stream", "pieces", ["0 1 2 3 "]),
        "A2A-Lite has no streams: a room hears of a result when it is whole",
    ),
    Loss(
        *("lite", "failure", "reason", None),
        "A2A-Lite has no metadata for the message of a task: it says why the task failed, without "
        "the code of the reason",
    ),
)

Seen = dict[str, Any]
SCENARIOS: dict[str, tuple[Callable[[RemoteAgent], Awaitable[Seen]], Seen]] = {}


def scenario(**gives: Any) -> Callable[[Callable[[RemoteAgent], Awaitable[Seen]]], None]:
    """Adds a function to the table: its name is that of the row."""

    def add(run: Callable[[RemoteAgent], Awaitable[Seen]]) -> None:
        SCENARIOS[run.__name__.replace("_", " ")] = run, gives

    return add


def _task(found: object) -> Task:
    assert isinstance(found, Task), found
    return found


def to(skill: str, *content: object) -> tuple[object, ...]:
    """A message for a skill, which names it for dialects that cannot."""
    return {"do": skill}, *content


@scenario(state="completed", text="HI")
async def send(caller: RemoteAgent) -> Seen:
    task = _task(await caller.send(*to("echo", "hi"), skill="echo"))
    return {"state": task.state.value, "text": task.text}


@scenario(done_by="name")
async def skill(caller: RemoteAgent) -> Seen:
    return {"done_by": _task(await caller.send(*to("name", "go"), skill="name")).text}


@scenario(kind="message", text="hello yourself")
async def direct_reply(caller: RemoteAgent) -> Seen:
    found = await caller.ask(*to("greet", "hello"), skill="greet")
    kind = "message" if isinstance(found, Message) else "task"
    return {"kind": kind, "text": found.text}


@scenario(pieces=["0 ", "1 ", "2 ", "3 "], state="completed")
async def stream(caller: RemoteAgent) -> Seen:
    async with caller.stream(*to("count", "4"), skill="count") as events:
        pieces = [
            entry.event.artifact.text
            async for entry in events
            if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk)
        ]
        task = _task(events.task)
    return {"pieces": [each for each in pieces if each], "state": task.state.value}


@scenario(asked=["Which city?", "How many days?"], state="completed", text="3 days in Rome")
async def question_and_answer(caller: RemoteAgent) -> Seen:
    asked = []
    task = _task(await caller.send(*to("trip", "go"), skill="trip"))
    for answer in ("Rome", "3"):
        assert task.state is State.INPUT_REQUIRED, task.status
        asked.append(task.status.message.text if task.status.message else "")
        task = await caller.answer(task, answer)
    return {"asked": asked, "state": task.state.value, "text": task.text}


@scenario(before="working", after="canceled")
async def cancel(caller: RemoteAgent) -> Seen:
    async with caller.stream(*to("slow", "go"), skill="slow") as events:
        async for entry in events:
            task = events.task
            if isinstance(entry, Stamped) and task is not None and task.state is State.WORKING:
                break
    found = await caller.get(_task(task))
    return {"before": found.state.value, "after": (await caller.cancel(found)).state.value}


@scenario(content=b"cba\xff\x00", filename="back.bin", media_type="application/x-back")
async def file(caller: RemoteAgent) -> Seen:
    given = Blob(b"\x00\xffabc", filename="a.bin", media_type="application/x-a")
    task = _task(await caller.send(*to("file", given), skill="file"))
    parts = [part for made in task.artifacts for part in made.parts]
    assert len(parts) == 1, task
    (part,) = parts
    assert isinstance(part, Blob), part
    return {"content": part.content, "filename": part.filename, "media_type": part.media_type}


@scenario(value={"got": {"a": 1, "b": [True, None, "x"]}})
async def data(caller: RemoteAgent) -> Seen:
    given = {"a": 1, "b": [True, None, "x"]}
    task = _task(await caller.send(*to("data", given), skill="data"))
    parts = [part for made in task.artifacts for part in made.parts]
    assert len(parts) == 1, task
    (part,) = parts
    assert isinstance(part, Data), part
    return {"value": part.value}


@scenario(state="failed", says="No paper left", reason="paper")
async def failure(caller: RemoteAgent) -> Seen:
    task = _task(await caller.send(*to("fail", "go"), skill="fail"))
    message = task.status.message
    assert message is not None
    reason = (message.metadata or {}).get("reason")
    if reason == "failed":  # what a gateway says if the agent gives no reason
        reason = None
    return {"state": task.state.value, "says": message.text, "reason": reason}


@scenario(state="rejected", says="Not for me")
async def rejection(caller: RemoteAgent) -> Seen:
    task = _task(await caller.send(*to("refuse", "go"), skill="refuse"))
    message = task.status.message
    return {"state": task.state.value, "says": message.text if message is not None else ""}


@scenario(error="content type")
async def error(caller: RemoteAgent) -> Seen:
    picture = Blob(b"\x89PNG", filename="a.png", media_type="image/png")
    try:
        found = await caller.send(*to("picky", picture), skill="picky")
    except ContentTypeUnsupported:
        return {"error": "content type"}
    assert isinstance(found, Task), found
    return {"error": f"a task that is {found.state.value}"}


@scenario(same=True, text="AGAIN")
async def get(caller: RemoteAgent) -> Seen:
    sent = _task(await caller.send(*to("echo", "again"), skill="echo"))
    found = await caller.get(sent)
    return {"same": (found.id, found.context_id) == (sent.id, sent.context_id), "text": found.text}


@scenario(state="completed", text="first second")
async def resume(caller: RemoteAgent) -> Seen:
    async with caller.stream(*to("halves", "go"), skill="halves") as events:
        async for entry in events:
            # Where there are no pieces, the agent says that it is in the middle.
            if isinstance(entry, Stamped) and isinstance(entry.event, ArtifactChunk):
                break
            if events.task is not None and events.task.status.message is not None:
                break
        opened, cursor = _task(events.task), events.cursor
    await caller.send(*to("let-go", opened.context_id), skill="let-go", wait=True)
    async with aclosing(caller.watch(opened, cursor or None)) as events:
        async for _ in events:
            pass
    task = await caller.get(opened)
    return {"state": task.state.value, "text": task.text}


def through(front: str, *behind: str) -> tuple[str, ...]:
    """What may lose something between a caller of a dialect and what is behind a gateway."""
    return front, f"{front} in front", *behind


def expected(scenario: str, *dialects: str, losses: Sequence[Loss] = LOSSES) -> Seen:
    """What a way through these dialects gives."""
    _, perfect = SCENARIOS[scenario]
    return {
        name: next(
            (
                loss.gives
                for loss in losses
                if (loss.scenario, loss.value) == (scenario, name) and loss.dialect in dialects
            ),
            value,
        )
        for name, value in perfect.items()
    }


async def outcome(scenario: str, caller: RemoteAgent, seconds: float = 120.0) -> Any:
    """What a scenario gives; that it broke is something to give too."""
    run, _ = SCENARIOS[scenario]
    try:
        async with asyncio.timeout(seconds):
            return await run(caller)
    except Exception as exc:  # every cell is shown, whatever is wrong with one
        return f"{type(exc).__name__}: {str(exc)[:300]}"


@asynccontextmanager
async def calling(
    url: str, dialect: str, *, agent: str = "", to: str = "", grpc_port: int = 0
) -> AsyncIterator[RemoteAgent]:
    """A caller that speaks this dialect. `agent` names it on a gRPC port that several share, `to`
    in signed messages."""
    host = url.partition("://")[2]
    options: dict[str, Any] = {}
    match dialect:
        case "iat" | "iat-ws":
            scheme, path = ("iat+http", "/iat") if dialect == "iat" else ("iat+ws", "/iat/ws")
            url = f"{scheme}://{host}{path}"
            options["auth"] = SharedSecret(SECRET, to=to, me="")
        case "a2a-1.0-grpc" | "a2a-0.3-grpc":
            url = f"a2a+grpc://127.0.0.1:{grpc_port}"
            options["dialect"] = dialect
            if agent:
                options["auth"] = {"dragoman-agent": agent}
        case _:
            options["dialect"] = dialect
    async with connect(url, **options) as caller:
        yield caller
