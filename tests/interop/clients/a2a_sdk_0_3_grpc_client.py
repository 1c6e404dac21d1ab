"""What the last official Python client of the 0.3 line sees of a running agent over gRPC.

Runs in the environment of `a2a-sdk` 0.3.26: `a2a_sdk_0_3_grpc_client.py URL`. One JSON line per
scenario. The agent is `tests/interop/agent.py`. This client knows errors only by their gRPC code.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Message,
    Part,
    Role,
    Task,
    TaskIdParams,
    TaskQueryParams,
    TaskState,
    TextPart,
)

PATIENCE = 60.0


def same(found: object, wanted: object, what: str) -> None:
    assert found == wanted, f"{what}: wanted {wanted!r}, found {found!r}"


def said(text: str, skill: str = "", *, task: str | None = None, parts: Any = ()) -> Message:
    return Message(
        message_id=str(uuid4()),
        role=Role.user,
        parts=[Part(root=TextPart(text=text)), *parts],
        task_id=task,
        metadata={"skillId": skill} if skill else None,
    )


def result_text(task: Task) -> str:
    parts = [part.root for artifact in task.artifacts or [] for part in artifact.parts]
    return "".join(part.text for part in parts if isinstance(part, TextPart))


class Caller:
    """The agent through a client that waits, one that polls and one that streams."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def connect(self) -> None:
        async with httpx.AsyncClient() as http:
            self.card = await A2ACardResolver(http, self.url).get_agent_card()
        self.blocking = self._client(streaming=False)
        self.polling = self._client(streaming=False, polling=True)
        self.streaming = self._client(streaming=True)

    def _client(self, **options: bool) -> Any:
        config = ClientConfig(
            supported_transports=["GRPC"],
            grpc_channel_factory=grpc.aio.insecure_channel,
            **options,
        )
        client = ClientFactory(config).create(self.card)
        same(type(client._transport).__name__, "GrpcTransport", "transport")
        return client

    async def send(self, message: Message, client: Any = None) -> Task:
        ((task, _),) = [event async for event in (client or self.blocking).send_message(message)]
        return task  # type: ignore[no-any-return]

    async def stream(self, message: Message) -> list[Any]:
        # The client goes on to change what it has handed out, so it is copied at once.
        return [copy.deepcopy(event) async for event in self.streaming.send_message(message)]

    async def get(self, task_id: str, history: int | None = None) -> Task:
        query = TaskQueryParams(id=task_id, history_length=history)
        return await self.blocking.get_task(query)  # type: ignore[no-any-return]


async def refused(action: Awaitable[object], code: grpc.StatusCode, name: str) -> None:
    try:
        found = await action
    except grpc.aio.AioRpcError as exc:
        told = exc.code(), (exc.details() or "").partition(": ")[0]
        same(told, (code, name), "error")
        return
    raise AssertionError(f"wanted {code}, found {found!r}")


async def send(caller: Caller) -> None:
    task = await caller.send(said("hello, wörld 你好"))
    same(task.status.state, TaskState.completed, "state")
    same(result_text(task), "HELLO, WÖRLD 你好", "text")
    assert task.context_id, "no context id"


async def send_without_waiting(caller: Caller) -> None:
    task = await caller.send(said("5", "slow"), caller.polling)
    assert task.status.state != TaskState.completed, "came back completed"
    while task.status.state != TaskState.completed:
        await asyncio.sleep(0.1)  # and looks again
        task = await caller.get(task.id)
    same(result_text(task), "5 steps", "text")


async def stream(caller: Caller) -> None:
    events = await caller.stream(said("one two three", "write"))
    task, first = events[0]
    same(first, None, "first event")
    chunks = [update for _, update in events if update and update.kind == "artifact-update"]
    texts = [part.root.text for chunk in chunks for part in chunk.artifact.parts]
    same([text for text in texts if text], ["one ", "two ", "three "], "chunks")
    last = events[-1][1]
    same((last.kind, last.status.state, last.final), ("status-update", "completed", True), "end")
    same(result_text(await caller.get(task.id)), "one two three ", "text afterwards")


async def get(caller: Caller) -> None:
    sent = await caller.send(said("again"))
    task = await caller.get(sent.id)
    same((task.id, task.context_id), (sent.id, sent.context_id), "ids")
    same(result_text(task), "AGAIN", "text")
    same(len((await caller.get(sent.id, 1)).history or []), 1, "history of length 1")


async def cancel(caller: Caller) -> None:
    task = await caller.send(said("300", "slow"), caller.polling)
    canceled = await caller.blocking.cancel_task(TaskIdParams(id=task.id))
    same((canceled.id, canceled.status.state), (task.id, TaskState.canceled), "canceled")
    same((await caller.get(task.id)).status.state, TaskState.canceled, "state")


async def resubscribe(caller: Caller) -> None:
    task = await caller.send(said("20", "slow"), caller.polling)
    events = [event async for event in caller.streaming.resubscribe(TaskIdParams(id=task.id))]
    same(events[-1][1].status.state, TaskState.completed, "last state")
    same(result_text(await caller.get(task.id)), "20 steps", "text afterwards")


async def multi_turn(caller: Caller) -> None:
    asked = await caller.send(said("Plan a trip", "trip"))
    same(asked.status.state, TaskState.input_required, "state")
    same(asked.status.message.parts[0].root.text, "Which city?", "question")
    done = await caller.send(said("Kyoto", task=asked.id))
    same((done.id, done.status.state), (asked.id, TaskState.completed), "second turn")
    same(result_text(done), "A trip to Kyoto", "text")


async def unknown_task(caller: Caller) -> None:
    nobody = TaskIdParams(id=str(uuid4()))
    code, name = grpc.StatusCode.NOT_FOUND, "TaskNotFoundError"
    await refused(caller.get(nobody.id), code, name)
    await refused(caller.blocking.cancel_task(nobody), code, name)
    await refused(anext(caller.streaming.resubscribe(nobody)), code, name)
    await refused(caller.send(said("hello", task=nobody.id)), code, name)


async def finished_task(caller: Caller) -> None:
    task = await caller.send(said("done"))
    cancel = caller.blocking.cancel_task(TaskIdParams(id=task.id))
    await refused(cancel, grpc.StatusCode.UNIMPLEMENTED, "TaskNotCancelableError")


async def parts(caller: Caller) -> None:
    import base64

    raw, facts = bytes(range(256)), {"city": "Kyoto", "days": 3, "tags": ["a"]}
    content = base64.b64encode(raw).decode()
    link = "https://example.com/report.pdf"
    mime = "application/octet-stream"
    sent = [
        Part(root=FilePart(file=FileWithBytes(bytes=content, name="b.bin", mime_type=mime))),
        Part(root=FilePart(file=FileWithUri(uri=link, name="r.pdf", mime_type="application/pdf"))),
        Part(root=DataPart(data=facts)),
    ]
    task = await caller.send(said("look", "files", parts=sent))
    back = [part.root for artifact in task.artifacts or [] for part in artifact.parts]
    same(back[0].data, {"files": 2, "bytes": 256, "facts": facts}, "what it saw")
    same(back[1].file.bytes, base64.b64encode(raw[::-1]).decode(), "made bytes")
    same((back[2].file.bytes, back[2].file.mime_type), (content, mime), "bytes")
    same(back[3].file.uri, link, "link")
    same(back[4].data, facts, "data")


SCENARIOS: list[Callable[[Caller], Awaitable[None]]] = [
    send,
    send_without_waiting,
    stream,
    get,
    cancel,
    resubscribe,
    multi_turn,
    unknown_task,
    finished_task,
    parts,
]


async def run(scenario: Callable[[Caller], Awaitable[None]], url: str) -> bool:
    detail, caller = "", Caller(url)
    try:
        async with asyncio.timeout(PATIENCE):
            await caller.connect()
            await scenario(caller)
    except Exception:
        detail = traceback.format_exc()
    print(json.dumps({"scenario": scenario.__name__, "ok": not detail, "detail": detail}))
    return not detail


async def main(url: str) -> int:
    return 0 if all([await run(scenario, url) for scenario in SCENARIOS]) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
