"""The matrix as python-a2a 0.5.10 sees it: `python_a2a_client.py FOLDER URL TOKEN JSONRPC 0.1`.

The client swallows errors and makes up tasks in their place, so what is looked at is what only the
agent can have said.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import python_a2a.client
from python_a2a import A2AClient, Message, MessageRole, Task, TaskState, TextContent

folder, url, token, _, _ = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import Cannot, Partly, has_none, judge, only_json_rpc  # noqa: E402


async def connect() -> A2AClient:
    return A2AClient(url, headers={"Authorization": f"Bearer {token}"})


def task(skill: str, text: str, **more: Any) -> Task:
    message = Message(content=TextContent(text=text), role=MessageRole.USER)
    return Task(message=message.to_dict(), metadata={"skillId": skill}, **more)


def text_of(done: Task) -> str:
    return "".join(part.get("text", "") for made in done.artifacts for part in made["parts"])


async def send(client: A2AClient) -> None:
    assert client.ask("hello") == "HELLO"
    done = await client.send_task_async(task("echo", "again"))
    assert (done.status.state, text_of(done)) == (TaskState.COMPLETED, "AGAIN"), done


async def stream(client: A2AClient) -> None:
    steps = [step["result"] async for step in client.stream_task(task("write", "one two"))]
    made = [step["artifact"] for step in steps if "artifact" in step]
    assert "".join(part["text"] for piece in made for part in piece["parts"]) == "one two ", steps
    assert steps[-1]["final"] is True, steps


async def get(client: A2AClient) -> None:
    asked = task("echo", "again")
    await client.send_task_async(asked)
    found = client.get_task(asked.id)
    assert (found.id, text_of(found)) == (asked.id, "AGAIN"), found


async def list_tasks(client: A2AClient) -> None:
    raise has_none([client], "list")


async def cancel(client: A2AClient) -> None:
    asked = task("trip", "plan")
    assert (await client.send_task_async(asked)).status.state is TaskState.INPUT_REQUIRED
    gone = client.cancel_task(asked.id)
    assert gone.status.state is TaskState.CANCELED, gone
    assert client.get_task(asked.id).status.state is TaskState.CANCELED


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
    await push(client)


async def unknown_task(client: A2AClient) -> None:
    found = client.get_task(str(uuid4()))
    assert found.artifacts == [], found
    raise Partly("makes up an empty task where the agent says that there is none")


async def extended_card(client: A2AClient) -> None:
    raise has_none([client], "extended")


async def other_bindings(client: A2AClient) -> None:
    raise Cannot(only_json_rpc(Path(python_a2a.client.__file__).parent))


OPERATIONS = [
    *(send, stream, get, list_tasks, cancel, resubscribe),
    *(push_set, push_get, push_list, push_delete, webhook, unknown_task, extended_card),
    other_bindings,
]
asyncio.run(judge(OPERATIONS, connect))
