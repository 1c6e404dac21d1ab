"""Load from the official Python client: `a2a_sdk_load.py URL CALLERS`, until its input is closed.

Runs in the environment of `a2a-sdk`, never in ours. The agent is `tests/crash/agent.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
)
from google.protobuf.struct_pb2 import Struct

COMPLETED = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING
SUBMITTED = TaskState.TASK_STATE_SUBMITTED
LONG = "20 0.05", "".join(f"{n} " for n in range(20))
SLOW = "100 0.05", "".join(f"{n} " for n in range(100))
"""Longer than a server that stops waits for its tasks, so they go on elsewhere."""


def request(text: str, skill: str) -> SendMessageRequest:
    metadata = Struct()
    metadata.update({"skillId": skill})
    message = Message(
        message_id=uuid4().hex, role=Role.ROLE_USER, parts=[Part(text=text)], metadata=metadata
    )
    return SendMessageRequest(message=message)


class Load:
    """Callers, and what came of their calls."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sends = self.streams = self.slow = self.subscribed_again = self.polled = 0
        self.failed: list[str] = []
        self.over = asyncio.Event()

    async def keep_calling(self, call: Callable[[Client], Awaitable[None]]) -> None:
        http = httpx.AsyncClient(timeout=60)
        card = await A2ACardResolver(http, self.url).get_agent_card(
            http_kwargs={"headers": {"A2A-Version": "1.0"}}
        )
        streaming = call in (self.stream, self.stream_slow)
        client = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)
        while not self.over.is_set():
            try:
                await call(client)
            except Exception as exc:  # whatever it is, it is a failed call
                self.failed.append(f"{call.__name__}: {exc!r} {exc.__cause__!r}")
            await asyncio.sleep(0.02)  # of a caller
        await http.aclose()

    async def send(self, client: Client) -> None:
        (answer,) = [each async for each in client.send_message(request("hello", "echo"))]
        assert answer.task.status.state == COMPLETED, answer
        found = await client.get_task(GetTaskRequest(id=answer.task.id))
        assert found.artifacts[0].parts[0].text == "HELLO", found
        self.sends += 1

    async def send_slow(self, client: Client) -> None:
        """A send that waits, until the server stops waiting because it stops itself."""
        asked, told = SLOW
        (answer,) = [each async for each in client.send_message(request(asked, "count"))]
        task = answer.task
        while task.status.state != COMPLETED:
            assert task.status.state in (WORKING, SUBMITTED), task
            self.polled += 1
            await asyncio.sleep(0.2)  # of a caller
            task = await client.get_task(GetTaskRequest(id=task.id))
        text = "".join(part.text for part in task.artifacts[0].parts)
        assert text == told, text
        self.slow += 1

    async def stream_slow(self, client: Client) -> None:
        await self.follow_to_end(client, *SLOW)
        self.slow += 1

    async def stream(self, client: Client) -> None:
        await self.follow_to_end(client, *LONG)
        self.streams += 1

    async def follow_to_end(self, client: Client, asked: str, told: str) -> None:
        task_id, state = await follow(client.send_message(request(asked, "count")))
        while state != COMPLETED:
            assert task_id, "a stream without a task"
            self.subscribed_again += 1
            found = await client.get_task(GetTaskRequest(id=task_id))
            state = found.status.state
            if state != COMPLETED:
                _, state = await follow(
                    client.subscribe(SubscribeToTaskRequest(id=task_id)), task_id
                )
        found = await client.get_task(GetTaskRequest(id=task_id))
        text = "".join(part.text for part in found.artifacts[0].parts)
        assert text == told, text


async def follow(
    events: AsyncIterator[StreamResponse], task_id: str = ""
) -> tuple[str, TaskState.ValueType]:
    """Reads a stream, and returns its task and the last state that it told."""
    state = TaskState.TASK_STATE_UNSPECIFIED
    async for event in events:
        kind = event.WhichOneof("payload")
        if kind == "task":
            task_id, state = event.task.id, event.task.status.state
        elif kind == "status_update":
            task_id, state = event.status_update.task_id, event.status_update.status.state
    return task_id, state


async def main(url: str, callers: int) -> None:
    load = Load(url)
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(load.keep_calling(load.send))
            group.create_task(load.keep_calling(load.stream))
        group.create_task(load.keep_calling(load.send_slow))
        group.create_task(load.keep_calling(load.stream_slow))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        load.over.set()
    told = {
        "sends": load.sends,
        "streams": load.streams,
        "slow": load.slow,
        "subscribed again": load.subscribed_again,
        "polled": load.polled,
        "failed": load.failed,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
