"""The scenarios of the gateway's matrix on a2a-sdk 1.3.0, without a line of ours:
`a2a_sdk_caller.py URL JSONRPC|HTTP+JSON|GRPC 1.0|0.3` prints a JSON line for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.card_resolver import parse_agent_card
from a2a.helpers import new_data_part, new_raw_part, new_text_part
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, ContentTypeNotSupportedError
from google.protobuf.json_format import MessageToDict

url, binding, version = sys.argv[1:4]
PATIENCE = 60.0
Seen = dict[str, Any]


class Caller:
    """The agent in one binding of one version."""

    async def connect(self) -> Caller:
        self.http = httpx.AsyncClient(timeout=PATIENCE)
        if version == "0.3":
            raw = (await self.http.get(f"{url}/.well-known/agent-card.json")).json()
            raw.pop("supportedInterfaces", None)
            self.card = parse_agent_card(raw)
        else:
            self.card = await A2ACardResolver(self.http, url).get_agent_card()
        self.client = self._client(streaming=True)
        self.blocking = self._client(streaming=False)
        return self

    def _client(self, *, streaming: bool) -> Any:
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            supported_protocol_bindings=[binding],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        return ClientFactory(config).create(self.card)

    async def send(self, message: Message) -> Any:
        """The task, or the message of a direct reply."""
        request = SendMessageRequest(message=message)
        (answer,) = [each async for each in self.blocking.send_message(request)]
        return answer.message if answer.HasField("message") else answer.task


def to(skill: str, *parts: Part) -> Message:
    """A message for a skill, which names it for dialects that cannot."""
    parts = (new_data_part({"do": skill}), *parts)
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=parts)
    message.metadata.update({"skillId": skill})
    return message


def state_of(status: Any) -> str:
    return TaskState.Name(status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(parts: Any) -> str:
    return "".join(part.text for part in parts)


def result(task: Task) -> str:
    return "".join(text_of(made.parts) for made in task.artifacts)


def only_part(task: Task) -> Part:
    (part,) = [part for made in task.artifacts for part in made.parts]
    return part


async def send(caller: Caller) -> Seen:
    task = await caller.send(to("echo", new_text_part("hi")))
    return {"state": state_of(task.status), "text": result(task)}


async def skill(caller: Caller) -> Seen:
    return {"done_by": result(await caller.send(to("name", new_text_part("go"))))}


async def direct_reply(caller: Caller) -> Seen:
    found = await caller.send(to("greet", new_text_part("hello")))
    if isinstance(found, Message):
        return {"kind": "message", "text": text_of(found.parts)}
    return {"kind": "task", "text": result(found) or text_of(found.status.message.parts)}


async def stream(caller: Caller) -> Seen:
    pieces, state = [], ""
    request = SendMessageRequest(message=to("count", new_text_part("4")))
    async for event in caller.client.send_message(request):
        if event.HasField("artifact_update"):
            pieces.append(text_of(event.artifact_update.artifact.parts))
        elif event.HasField("status_update"):
            state = state_of(event.status_update.status)
    return {"pieces": [piece for piece in pieces if piece], "state": state}


async def question_and_answer(caller: Caller) -> Seen:
    asked = []
    task = await caller.send(to("trip", new_text_part("go")))
    for answer in ("Rome", "3"):
        assert state_of(task.status) == "input-required", task
        asked.append(text_of(task.status.message.parts))
        message = Message(
            message_id=str(uuid4()),
            role=Role.ROLE_USER,
            parts=[new_text_part(answer)],
            task_id=task.id,
            context_id=task.context_id,
        )
        task = await caller.send(message)
    return {"asked": asked, "state": state_of(task.status), "text": result(task)}


async def cancel(caller: Caller) -> Seen:
    task_id = ""
    events = caller.client.send_message(SendMessageRequest(message=to("slow", new_text_part("go"))))
    async for event in events:
        if event.HasField("task"):
            task_id = event.task.id
        elif state_of(event.status_update.status) == "working":
            break
    await events.aclose()
    found = await caller.client.get_task(GetTaskRequest(id=task_id))
    gone = await caller.client.cancel_task(CancelTaskRequest(id=task_id))
    return {"before": state_of(found.status), "after": state_of(gone.status)}


async def file(caller: Caller) -> Seen:
    given = new_raw_part(b"\x00\xffabc", media_type="application/x-a", filename="a.bin")
    part = only_part(await caller.send(to("file", given)))
    return {"content": part.raw.hex(), "filename": part.filename, "media_type": part.media_type}


async def data(caller: Caller) -> Seen:
    given = new_data_part({"a": 1, "b": [True, None, "x"]})
    return {"value": MessageToDict(only_part(await caller.send(to("data", given))).data)}


async def failure(caller: Caller) -> Seen:
    status = (await caller.send(to("fail", new_text_part("go")))).status
    reason = MessageToDict(status.message.metadata).get("reason")
    return {"state": state_of(status), "says": text_of(status.message.parts), "reason": reason}


async def rejection(caller: Caller) -> Seen:
    status = (await caller.send(to("refuse", new_text_part("go")))).status
    return {"state": state_of(status), "says": text_of(status.message.parts)}


async def error(caller: Caller) -> Seen:
    picture = new_raw_part(b"\x89PNG", media_type="image/png", filename="a.png")
    try:
        found = await caller.send(to("picky", picture))
    except ContentTypeNotSupportedError:
        return {"error": "content type"}
    assert isinstance(found, Task), found
    return {"error": f"a task that is {state_of(found.status)}"}


async def get(caller: Caller) -> Seen:
    sent = await caller.send(to("echo", new_text_part("again")))
    found = await caller.client.get_task(GetTaskRequest(id=sent.id))
    same = (found.id, found.context_id) == (sent.id, sent.context_id)
    return {"same": same, "text": result(found)}


async def resume(caller: Caller) -> Seen:
    task_id = context_id = ""
    message = to("halves", new_text_part("go"))
    events = caller.client.send_message(SendMessageRequest(message=message))
    async for event in events:
        if event.HasField("task"):
            task_id, context_id = event.task.id, event.task.context_id
        elif event.HasField("artifact_update") or event.status_update.status.HasField("message"):
            break
    await events.aclose()
    await caller.send(to("let-go", new_text_part(context_id)))
    try:
        async for _ in caller.client.subscribe(SubscribeToTaskRequest(id=task_id)):
            pass
    except A2AError:
        pass  # it has ended before anybody asked for the rest
    task = await caller.client.get_task(GetTaskRequest(id=task_id))
    return {"state": state_of(task.status), "text": result(task)}


SCENARIOS: dict[str, Callable[[Caller], Awaitable[Seen]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        *(send, skill, direct_reply, stream, question_and_answer, cancel, file, data),
        *(failure, rejection, error, get, resume),
    )
}


async def main() -> None:
    for name, run in SCENARIOS.items():
        line: dict[str, Any] = {"scenario": name}
        try:
            async with asyncio.timeout(PATIENCE):
                line["seen"] = await run(await Caller().connect())
        except Exception as exc:  # every scenario is shown, whatever is wrong with one
            line["broken"] = f"{type(exc).__name__}: {exc}"
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
