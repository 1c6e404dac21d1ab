"""What a2a-sdk 0.3.26 sees of the Desk: `sdk_0_3.py URL JSONRPC|HTTP+JSON|GRPC`, one JSON line."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TextPart

URL, BINDING = sys.argv[1:3]


def said(text: str, task: str | None = None) -> Message:
    part = Part(root=TextPart(text=text))
    return Message(message_id=str(uuid4()), role=Role.user, parts=[part], task_id=task)


def text_of(task: Any) -> str:
    return "".join(part.root.text for made in task.artifacts or [] for part in made.parts)


async def main() -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, URL).get_agent_card()

        def client(streaming: bool) -> Any:
            config = ClientConfig(
                httpx_client=http,
                streaming=streaming,
                supported_transports=[BINDING],
                use_client_preference=True,
                grpc_channel_factory=grpc.aio.insecure_channel,
            )
            return ClientFactory(config).create(card)

        async def send(message: Message) -> Any:
            ((task, _),) = [event async for event in client(False).send_message(message)]
            return task

        hello = await send(said("hello"))
        streamed = [task async for task, _ in client(True).send_message(said("count 3"))][-1]
        asked = await send(said("ask"))
        answered = await send(said("Rome", asked.id))
        found = {
            "name": card.name,
            "send": [hello.status.state.value, text_of(hello)],
            "stream": [streamed.status.state.value, text_of(streamed)],
            "asked": [asked.status.state.value, asked.status.message.parts[0].root.text],
            "answered": [answered.status.state.value, text_of(answered)],
        }
        print(json.dumps(found))


asyncio.run(main())
