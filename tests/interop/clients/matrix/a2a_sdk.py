"""The matrix as a2a-sdk 1.3.0 sees it: `a2a_sdk.py FOLDER URL TOKEN BINDING 1.0|0.3`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.card_resolver import parse_agent_card
from a2a.types.a2a_pb2 import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError

folder, url, token, binding, version = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import (  # noqa: E402
    HOOK_CREDENTIALS,
    HOOK_TOKEN,
    SECRET_SKILL,
    Receiver,
    judge,
    refuses_itself,
)

LEGACY = version == "0.3"
WORDS = {True: "completed", False: "TASK_STATE_COMPLETED"}
receiver = Receiver()


class Known(CredentialService):
    """The token, for whatever scheme the card asks for."""

    async def get_credentials(self, security_scheme_name: str, context: object) -> str | None:
        return token


class Counting(grpc.aio.UnaryUnaryClientInterceptor):
    """Sees every call that leaves over gRPC; streams are none of its business."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    async def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        self.caller.asked += 1
        return await go_on(details, request)


class Caller:
    """The agent, asked with the token and without."""

    async def connect(self) -> Caller:
        self.asked = 0
        self.http = httpx.AsyncClient(event_hooks={"request": [self._count]})
        if LEGACY:
            raw = (await self.http.get(f"{url}/.well-known/agent-card.json")).json()
            raw.pop("supportedInterfaces", None)
            self.card = parse_agent_card(raw)
        else:
            self.card = await A2ACardResolver(self.http, url).get_agent_card(
                http_kwargs={"headers": {"A2A-Version": "1.0"}}
            )
        self.client = self._client(streaming=True)
        self.blocking = self._client(streaming=False)
        self.stranger = self._client(streaming=True, known=False)
        return self

    async def _count(self, _: httpx.Request) -> None:
        self.asked += 1

    def _channel(self, target: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(target, interceptors=[Counting(self)])

    def _client(self, *, streaming: bool, known: bool = True) -> Any:
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            supported_protocol_bindings=[binding],
            grpc_channel_factory=self._channel,
        )
        interceptors = [AuthInterceptor(Known())] if known else []
        return ClientFactory(config).create(self.card, interceptors)

    async def send(self, text: str, skill: str = "") -> Task:
        (answer,) = [each async for each in self.blocking.send_message(said(text, skill))]
        return answer.task

    async def start(self, text: str) -> str:
        """A task that goes on after its stream was left."""
        stream = self.client.send_message(said(text, "slow"))
        async for event in stream:
            await stream.aclose()
            return event.task.id
        raise AssertionError("an empty stream")

    async def hook(self, text: str) -> TaskPushNotificationConfig:
        config = TaskPushNotificationConfig(
            task_id=await self.start(text),
            id="h1",
            url=receiver.address(),
            token=HOOK_TOKEN,
            authentication=AuthenticationInfo(scheme="Bearer", credentials=HOOK_CREDENTIALS),
        )
        made = await self.client.create_task_push_notification_config(config)
        assert (made.task_id, made.id, made.url) == (config.task_id, "h1", config.url), made
        return config


def said(text: str, skill: str = "", task: str = "") -> SendMessageRequest:
    message = Message(
        message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], task_id=task
    )
    if skill:
        message.metadata.update({"skillId": skill})
    return SendMessageRequest(message=message)


def text_of(parts: Any) -> str:
    return "".join(part.text for part in parts)


async def refused(action: Any, kind: type[Exception] = TaskNotFoundError) -> str:
    try:
        found = await action
    except kind as exc:
        return str(exc)
    raise AssertionError(f"wanted {kind.__name__}, found {found!r}")


async def heard(stream: Any) -> list[StreamResponse]:
    return [event async for event in stream]


def last_state(events: list[StreamResponse]) -> str:
    last = events[-1]
    status = last.task.status if last.HasField("task") else last.status_update.status
    return TaskState.Name(status.state)


async def send(caller: Caller) -> None:
    task = await caller.send("hello 你好")
    assert task.status.state == TaskState.TASK_STATE_COMPLETED, task
    assert text_of(task.artifacts[0].parts) == "HELLO 你好", task


async def stream(caller: Caller) -> None:
    events = await heard(caller.client.send_message(said("one two three", "write")))
    assert events[0].HasField("task"), events[0]
    chunks = [e.artifact_update.artifact for e in events if e.HasField("artifact_update")]
    assert "".join(text_of(chunk.parts) for chunk in chunks) == "one two three ", chunks
    assert last_state(events) == "TASK_STATE_COMPLETED", events[-1]


async def get(caller: Caller) -> None:
    sent = await caller.send("again")
    found = await caller.client.get_task(GetTaskRequest(id=sent.id))
    assert (found.id, found.context_id) == (sent.id, sent.context_id), found
    assert text_of(found.artifacts[0].parts) == "AGAIN", found


async def list_tasks(caller: Caller) -> None:
    sent = await caller.send("listed")
    action = caller.client.list_tasks(ListTasksRequest(context_id=sent.context_id))
    if LEGACY:
        raise await refuses_itself(action, lambda: caller.asked)
    assert [task.id for task in (await action).tasks] == [sent.id]


async def cancel(caller: Caller) -> None:
    task_id = await caller.start("300")
    gone = await caller.client.cancel_task(CancelTaskRequest(id=task_id))
    assert (gone.id, gone.status.state) == (task_id, TaskState.TASK_STATE_CANCELED), gone


async def resubscribe(caller: Caller) -> None:
    task_id = await caller.start("10")
    events = await heard(caller.client.subscribe(SubscribeToTaskRequest(id=task_id)))
    assert last_state(events) == "TASK_STATE_COMPLETED", events[-1]
    assert sum(e.HasField("status_update") for e in events) > 5, events


async def push_set(caller: Caller) -> None:
    await caller.hook("3")


async def push_get(caller: Caller) -> None:
    config = await caller.hook("3")
    asked = GetTaskPushNotificationConfigRequest(task_id=config.task_id, id="h1")
    found = await caller.client.get_task_push_notification_config(asked)
    assert (found.task_id, found.id, found.url) == (config.task_id, "h1", config.url), found
    assert HOOK_CREDENTIALS not in str(found), "a secret came back"


async def push_list(caller: Caller) -> None:
    config = await caller.hook("3")
    asked = ListTaskPushNotificationConfigsRequest(task_id=config.task_id)
    action = caller.client.list_task_push_notification_configs(asked)
    if LEGACY and binding == "HTTP+JSON":
        raise await refuses_itself(action, lambda: caller.asked)
    assert [(each.id, each.url) for each in (await action).configs] == [("h1", config.url)]


async def push_delete(caller: Caller) -> None:
    config = await caller.hook("3")
    asked = DeleteTaskPushNotificationConfigRequest(task_id=config.task_id, id="h1")
    action = caller.client.delete_task_push_notification_config(asked)
    if LEGACY and binding == "HTTP+JSON":
        raise await refuses_itself(action, lambda: caller.asked)
    await action
    gone = GetTaskPushNotificationConfigRequest(task_id=config.task_id, id="h1")
    await refused(caller.client.get_task_push_notification_config(gone), A2AError)


async def webhook(caller: Caller) -> None:
    config = await caller.hook("5")
    told = await receiver.told(config.url, lambda body: WORDS[LEGACY] in str(body))
    if LEGACY:
        assert {body["kind"] for body in told} == {"task"}, told
        assert {body["id"] for body in told} == {config.task_id}, told
    else:
        ids = {(body.get("task") or {"id": ""})["id"] or one(body)["taskId"] for body in told}
        assert ids == {config.task_id}, told


def one(body: dict[str, Any]) -> dict[str, Any]:
    (step,) = body.values()
    return step  # type: ignore[no-any-return]


async def unknown_task(caller: Caller) -> None:
    nobody = str(uuid4())
    await refused(caller.client.get_task(GetTaskRequest(id=nobody)))
    await refused(caller.client.cancel_task(CancelTaskRequest(id=nobody)))
    await refused(heard(caller.client.subscribe(SubscribeToTaskRequest(id=nobody))))
    await refused(heard(caller.client.send_message(said("hello", task=nobody))))


async def extended_card(caller: Caller) -> None:
    public = {skill.id for skill in caller.card.skills}
    assert SECRET_SKILL not in public, public
    why = await refused(
        caller.stranger.get_extended_agent_card(GetExtendedAgentCardRequest()), Exception
    )
    assert "401" in why or "UNAUTHENTICATED" in why or "-31401" in why or "uthent" in why, why
    card = await caller.client.get_extended_agent_card(GetExtendedAgentCardRequest())
    assert {skill.id for skill in card.skills} == public | {SECRET_SKILL}, card


OPERATIONS = [
    *(send, stream, get, list_tasks, cancel, resubscribe),
    *(push_set, push_get, push_list, push_delete, webhook, unknown_task, extended_card),
]
asyncio.run(judge(OPERATIONS, lambda: Caller().connect()))
