"""What the last a2a-sdk of 0.3 says of streams that are refused over JSON-RPC: one JSON object.

Runs in the environment of `a2a-sdk==0.3.26`, never in ours: `python THIS_FILE URL`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import Message, Part, Role, TaskIdParams, TextPart, TransportProtocol


async def refusal(events: AsyncIterator[object]) -> dict[str, object]:
    try:
        async for _ in events:
            pass
    except A2AClientJSONRPCError as exc:
        return {"code": exc.error.code, "message": exc.error.message}
    except A2AClientHTTPError as exc:
        return {"status": exc.status_code, "message": str(exc)}
    return {"message": "not refused"}


async def main(url: str) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        config = ClientConfig(
            httpx_client=http,
            streaming=True,
            supported_transports=[TransportProtocol.jsonrpc],
            use_client_preference=True,
        )
        client = ClientFactory(config).create(card)
        lost = Message(
            message_id="m1",
            role=Role.user,
            parts=[Part(root=TextPart(text="hi"))],
            task_id="no-such-task",
        )
        told = {
            "message/stream": await refusal(client.send_message(lost)),
            "tasks/resubscribe": await refusal(client.resubscribe(TaskIdParams(id="nobody"))),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
