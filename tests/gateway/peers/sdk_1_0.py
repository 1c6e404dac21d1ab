"""What a2a-sdk 1.3.0 sees of the Desk: `sdk_1_0.py URL JSONRPC|HTTP+JSON|GRPC`, one JSON line."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    TaskState,
)

URL, BINDING = sys.argv[1:3]


def said(text: str, task: str = "") -> SendMessageRequest:
    message = Message(
        message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], task_id=task
    )
    return SendMessageRequest(message=message)


def state_of(task: Any) -> str:
    name = TaskState.Name(task.status.state)
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(task: Any) -> str:
    return "".join(part.text for made in task.artifacts for part in made.parts)


async def main() -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, URL).get_agent_card(
            http_kwargs={"headers": {"A2A-Version": "1.0"}}
        )

        def client(streaming: bool) -> Any:
            config = ClientConfig(streaming=streaming)
            config.httpx_client = http
            config.supported_protocol_bindings = [BINDING]
            config.grpc_channel_factory = grpc.aio.insecure_channel
            return ClientFactory(config).create(card)

        async def send(request: SendMessageRequest) -> Any:
            (event,) = [event async for event in client(False).send_message(request)]
            return event.task

        hello = await send(said("hello"))
        pieces, task_id = [], ""
        async for event in client(True).send_message(said("count 3")):
            if event.WhichOneof("payload") == "artifact_update":
                update = event.artifact_update
                task_id = update.task_id
                pieces += [part.text for part in update.artifact.parts]
        streamed = await client(False).get_task(GetTaskRequest(id=task_id))
        asked = await send(said("ask"))
        answered = await send(said("Rome", asked.id))
        found = {
            "name": card.name,
            "send": [state_of(hello), text_of(hello)],
            "stream": [state_of(streamed), "".join(pieces)],
            "asked": [state_of(asked), asked.status.message.parts[0].text],
            "answered": [state_of(answered), text_of(answered)],
        }
        print(json.dumps(found))


asyncio.run(main())
