"""The matrix as fasta2a 2.1.1 sees it: `fasta2a_client.py FOLDER URL TOKEN JSONRPC 0.3`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import fasta2a
import httpx
from fasta2a.client import A2AClient

folder, url, token, _, _ = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import (  # noqa: E402
    HOOK_CREDENTIALS,
    HOOK_TOKEN,
    Cannot,
    Receiver,
    has_none,
    judge,
    only_json_rpc,
)

receiver = Receiver()


async def connect() -> A2AClient:
    return A2AClient(url, httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}))


def said(text: str, skill: str = "echo", **more: Any) -> dict[str, Any]:
    return {
        "role": "user",
        "parts": [{"text": text}],
        "message_id": str(uuid4()),
        "metadata": {"skillId": skill},
        **more,
    }


def text_of(made: list[dict[str, Any]]) -> str:
    return "".join(part.get("text", "") for artifact in made for part in artifact["parts"])


async def send(client: A2AClient) -> None:
    task = (await client.send_message(said("hello")))["result"]["task"]
    assert (task["status"]["state"], text_of(task["artifacts"])) == ("completed", "HELLO"), task


async def stream(client: A2AClient) -> None:
    steps = [step["result"] async for step in client.stream_message(said("one two", "write"))]
    chunks = [step["artifact_update"]["artifact"] for step in steps if "artifact_update" in step]
    assert text_of(chunks) == "one two ", steps
    assert steps[-1]["status_update"]["status"]["state"] == "completed", steps


async def get(client: A2AClient) -> None:
    sent = (await client.send_message(said("again")))["result"]["task"]
    assert (await client.get_task(sent["id"]))["result"] == sent


async def list_tasks(client: A2AClient) -> None:
    raise has_none([client], "list")


async def cancel(client: A2AClient) -> None:
    raise has_none([client], "cancel")


async def resubscribe(client: A2AClient) -> None:
    raise has_none([client], "subscribe")


async def push_set(client: A2AClient) -> None:
    raise has_none([client], "push")


push = push_set


async def push_get(client: A2AClient) -> None:
    await push(client)


async def push_list(client: A2AClient) -> None:
    await push(client)


async def push_delete(client: A2AClient) -> None:
    await push(client)


async def webhook(client: A2AClient) -> None:
    """It can name one along with a message, and only so."""
    address = receiver.address()
    config = {
        "url": address,
        "token": HOOK_TOKEN,
        "authentication": {"scheme": "Bearer", "credentials": HOOK_CREDENTIALS},
    }
    options = {"accepted_output_modes": [], "task_push_notification_config": config}
    answer = await client.send_message(said("hello"), configuration=options)
    told = await receiver.told(address, lambda body: "completed" in str(body))
    assert answer["result"]["task"]["id"] in str(told[-1]), told


async def unknown_task(client: A2AClient) -> None:
    answer = await client.get_task(str(uuid4()))
    assert answer["error"]["code"] == -32001, answer
    answer = await client.send_message(said("hello", task_id=str(uuid4())))
    assert answer["error"]["code"] == -32001, answer


async def extended_card(client: A2AClient) -> None:
    raise has_none([client], "extended")


async def other_bindings(client: A2AClient) -> None:
    raise Cannot(only_json_rpc(Path(fasta2a.__file__).parent))


OPERATIONS = [
    *(send, stream, get, list_tasks, cancel, resubscribe),
    *(push_set, push_get, push_list, push_delete, webhook, unknown_task, extended_card),
    other_bindings,
]
asyncio.run(judge(OPERATIONS, connect))
