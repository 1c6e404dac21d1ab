"""What the last a2a-sdk of 0.3 sees of a running agent over REST: one JSON line per scenario.

JSON-RPC is asked only for what differs there.

Runs in the environment of `a2a-sdk==0.3.26`, never in ours: `python THIS_FILE URL`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    GetTaskPushNotificationConfigParams,
    Message,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TaskState,
    TextPart,
    TransportProtocol,
)

PATIENCE = 60.0
REST = TransportProtocol.http_json


class Caller:
    """The same agent, asked for whole answers and for streams."""

    async def connect(self, http: httpx.AsyncClient, url: str, transport: str) -> None:
        card = await A2ACardResolver(http, url).get_agent_card()

        def client(streaming: bool) -> Client:
            config = ClientConfig(
                httpx_client=http,
                streaming=streaming,
                supported_transports=[transport],
                use_client_preference=True,
            )
            return ClientFactory(config).create(card)

        self.blocking, self.streaming = client(False), client(True)

    async def send(self, message: Message) -> Task:
        ((task, _),) = [answer async for answer in self.blocking.send_message(message)]
        return task

    async def start(self, message: Message) -> tuple[str, asyncio.Task[list[Any]]]:
        """A task that runs, and what will have been heard of it."""
        begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def listen() -> list[Any]:
            heard = []
            async for task, update in self.streaming.send_message(message):
                heard.append(update)
                if not begun.done():
                    begun.set_result(task.id)
            return heard

        listening = asyncio.create_task(listen())
        return await begun, listening


def said(text: str, skill: str = "", *more: Any, **ids: str) -> Message:
    parts = [Part(root=part) for part in (TextPart(text=text), *more)]
    metadata = {"skillId": skill} if skill else None
    return Message(message_id=str(uuid4()), role=Role.user, parts=parts, metadata=metadata, **ids)


def text_of(task: Task) -> str:
    return "".join(part.root.text for artifact in task.artifacts or () for part in artifact.parts)


async def status_of(action: Awaitable[object]) -> int:
    try:
        await action
    except A2AClientHTTPError as exc:
        return exc.status_code
    raise AssertionError("not refused")


async def send(caller: Caller) -> None:
    task = await caller.send(said("hello, 你好"))
    assert (task.status.state, text_of(task)) == (TaskState.completed, "HELLO, 你好")
    again = await caller.blocking.get_task(TaskQueryParams(id=task.id, history_length=1))
    assert (again.id, text_of(again), len(again.history)) == (task.id, "HELLO, 你好", 1)


async def stream(caller: Caller) -> None:
    events = [e async for e in caller.streaming.send_message(said("one two", "write"))]
    task, last = events[-1]
    assert last.final
    assert text_of(task) == "one two "


async def cancel_and_resubscribe(caller: Caller) -> None:
    task_id, listening = await caller.start(said("300", "slow"))

    heard = asyncio.Event()

    async def follow() -> TaskState:
        async for task, _ in caller.streaming.resubscribe(TaskIdParams(id=task_id)):
            state = task.status.state
            heard.set()
        return state

    following = asyncio.create_task(follow())
    await heard.wait()
    canceled = await caller.blocking.cancel_task(TaskIdParams(id=task_id))
    assert canceled.status.state == TaskState.canceled
    assert await following == TaskState.canceled
    assert (await listening)[-1].final


async def resubscribe_in_silence(caller: Caller) -> None:
    """Longer than the server stays silent: keep-alive comments are no events."""
    task_id, listening = await caller.start(said("9", "silent"))
    heard = [e async for e in caller.streaming.resubscribe(TaskIdParams(id=task_id))]
    assert text_of(heard[-1][0]) == "done", heard
    assert heard[-1][1].final, heard
    assert (await listening)[-1].final


async def resubscribe_in_silence_json_rpc(caller: Caller) -> None:
    await resubscribe_in_silence(caller)


async def webhooks(caller: Caller) -> None:
    task_id, listening = await caller.start(said("300", "slow"))
    authentication = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="secret")
    config = PushNotificationConfig(
        id="h1", url="https://hook.example.com/x", token="t", authentication=authentication
    )
    wanted = TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
    assert await caller.blocking.set_task_callback(wanted) == wanted
    found = await caller.blocking.get_task_callback(
        GetTaskPushNotificationConfigParams(id=task_id, push_notification_config_id="h1")
    )
    assert found.push_notification_config.url == config.url
    await caller.blocking.cancel_task(TaskIdParams(id=task_id))
    await listening


async def multi_turn(caller: Caller) -> None:
    task = await caller.send(said("plan", "trip"))
    assert task.status.state == TaskState.input_required
    assert task.status.message.parts[0].root.text == "Which city?"
    done = await caller.send(said("Kyoto", task_id=task.id, context_id=task.context_id))
    assert (done.id, text_of(done)) == (task.id, "A trip to Kyoto")


async def refusals(caller: Caller) -> None:
    assert await status_of(caller.blocking.get_task(TaskQueryParams(id="none"))) == 404
    task = await caller.send(said("hi"))
    assert await status_of(caller.blocking.cancel_task(TaskIdParams(id=task.id))) == 409


async def parts(caller: Caller) -> None:
    file = FileWithBytes(bytes="aGVsbG8=", name="n.bin", mime_type="application/octet-stream")
    task = await caller.send(said("look", "files", FilePart(file=file), DataPart(data={"a": 1})))
    saw, made, kept, facts = [part.root for part in task.artifacts[0].parts]
    assert saw.data == {"files": 1, "bytes": 5, "facts": {"a": 1}}
    assert made.file.bytes == "b2xsZWg="
    assert (kept.file.bytes, kept.file.name) == ("aGVsbG8=", "n.bin")
    assert facts.data == {"a": 1}


SCENARIOS: list[Callable[[Caller], Awaitable[None]]] = [
    send,
    stream,
    cancel_and_resubscribe,
    resubscribe_in_silence,
    resubscribe_in_silence_json_rpc,
    webhooks,
    multi_turn,
    refusals,
    parts,
]


async def main(url: str) -> None:
    for scenario in SCENARIOS:
        detail = ""
        async with httpx.AsyncClient(timeout=10) as http:
            caller = Caller()
            try:
                async with asyncio.timeout(PATIENCE):
                    json_rpc = scenario.__name__.endswith("json_rpc")
                    transport = TransportProtocol.jsonrpc if json_rpc else REST
                    await caller.connect(http, url, transport)
                    await scenario(caller)
            except Exception:
                detail = traceback.format_exc()
        print(json.dumps({"scenario": scenario.__name__, "ok": not detail, "detail": detail}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
