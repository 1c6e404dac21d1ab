"""The matrix as a2a-sdk 0.3.26 sees it: `a2a_sdk_0_3.py FOLDER URL TOKEN BINDING 0.3`."""

from __future__ import annotations

import asyncio
import copy
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, A2AClient, A2AGrpcClient, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
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
)

folder, url, token, binding, _ = sys.argv[1:]
sys.path.insert(0, folder)
from verdicts import (  # noqa: E402
    HOOK_CREDENTIALS,
    HOOK_TOKEN,
    SECRET_SKILL,
    Partly,
    Receiver,
    has_none,
    judge,
)

receiver = Receiver()
Refusal = (A2AClientHTTPError, A2AClientJSONRPCError, grpc.aio.AioRpcError)


class Known(CredentialService):
    """The token, for whatever scheme the card asks for."""

    async def get_credentials(self, security_scheme_name: str, context: object) -> str | None:
        return token


def with_token(details: Any) -> Any:
    """The token as metadata: over gRPC this client does not ask its interceptors."""
    metadata = (*(details.metadata or ()), ("authorization", f"Bearer {token}"))
    return details._replace(metadata=grpc.aio.Metadata(*metadata))


class Unary(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        return await go_on(with_token(details), request)


class Streaming(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        return await go_on(with_token(details), request)


class Caller:
    """The agent, asked with the token and without."""

    async def connect(self) -> Caller:
        async with httpx.AsyncClient() as http:
            self.card = await A2ACardResolver(http, url).get_agent_card()
        self.client = self._client(streaming=True)
        self.blocking = self._client(streaming=False)
        self.stranger = self._client(streaming=True, known=False)
        return self

    def _client(self, *, streaming: bool, known: bool = True) -> Any:
        def channel(target: str) -> grpc.aio.Channel:
            bearing = [Unary(), Streaming()] if known else []
            return grpc.aio.insecure_channel(target, interceptors=bearing)

        # Over REST it does not ask its interceptors either.
        rest = known and binding == "HTTP+JSON"
        headers = {"Authorization": f"Bearer {token}"} if rest else {}
        config = ClientConfig(
            streaming=streaming,
            httpx_client=httpx.AsyncClient(headers=headers),
            supported_transports=[binding],
            use_client_preference=True,
            grpc_channel_factory=channel,
        )
        interceptors = [AuthInterceptor(Known())] if known else []
        return ClientFactory(config).create(self.card, interceptors=interceptors)

    async def send(self, text: str, skill: str = "") -> Task:
        ((task, _),) = [each async for each in self.blocking.send_message(said(text, skill))]
        return task  # type: ignore[no-any-return]

    async def start(self, text: str) -> str:
        """A task that goes on after its stream was left."""
        stream = self.client.send_message(said(text, "slow"))
        async for task, _ in stream:
            await stream.aclose()
            return str(task.id)
        raise AssertionError("an empty stream")

    async def hook(self, text: str) -> TaskPushNotificationConfig:
        config = PushNotificationConfig(
            id="h1",
            url=receiver.address(),
            token=HOOK_TOKEN,
            authentication=PushNotificationAuthenticationInfo(
                schemes=["Bearer"], credentials=HOOK_CREDENTIALS
            ),
        )
        wanted = TaskPushNotificationConfig(
            task_id=await self.start(text), push_notification_config=config
        )
        made = await self.client.set_task_callback(wanted)
        assert made.task_id == wanted.task_id, made
        assert made.push_notification_config.url == config.url, made
        return wanted

    @property
    def everything(self) -> list[object]:
        """Whatever could have a method: the client, its transport, and the older clients."""
        return [self.client, self.client._transport, A2AClient, A2AGrpcClient]


def said(text: str, skill: str = "", task: str | None = None) -> Message:
    return Message(
        message_id=str(uuid4()),
        role=Role.user,
        parts=[Part(root=TextPart(text=text))],
        task_id=task,
        metadata={"skillId": skill} if skill else None,
    )


def text_of(task: Task) -> str:
    return "".join(part.root.text for made in task.artifacts or () for part in made.parts)


async def refused(action: Any) -> str:
    try:
        found = await action
    except Refusal as exc:
        return str(exc)
    raise AssertionError(f"not refused: {found!r}")


async def heard(stream: Any) -> list[Any]:
    # The client goes on to change what it has handed out, so it is copied at once.
    return [copy.deepcopy(event) async for event in stream]


async def send(caller: Caller) -> None:
    task = await caller.send("hello 你好")
    assert (task.status.state, text_of(task)) == (TaskState.completed, "HELLO 你好"), task


async def stream(caller: Caller) -> None:
    events = await heard(caller.client.send_message(said("one two three", "write")))
    task, last = events[-1]
    assert events[0][1] is None, events[0]
    assert last.final, last
    assert text_of(task) == "one two three ", task


async def get(caller: Caller) -> None:
    sent = await caller.send("again")
    found = await caller.client.get_task(TaskQueryParams(id=sent.id))
    assert (found.id, text_of(found)) == (sent.id, "AGAIN"), found


async def list_tasks(caller: Caller) -> None:
    raise has_none(caller.everything, "list")


async def cancel(caller: Caller) -> None:
    task_id = await caller.start("300")
    gone = await caller.client.cancel_task(TaskIdParams(id=task_id))
    assert (gone.id, gone.status.state) == (task_id, TaskState.canceled), gone


async def resubscribe(caller: Caller) -> None:
    task_id = await caller.start("10")
    events = await heard(caller.client.resubscribe(TaskIdParams(id=task_id)))
    assert events[-1][1].status.state == TaskState.completed, events[-1]
    assert len(events) > 5, events


async def push_set(caller: Caller) -> None:
    await caller.hook("3")


async def push_get(caller: Caller) -> None:
    wanted = await caller.hook("3")
    found = await caller.client.get_task_callback(
        GetTaskPushNotificationConfigParams(id=wanted.task_id, push_notification_config_id="h1")
    )
    assert found.push_notification_config.url == wanted.push_notification_config.url, found
    assert HOOK_CREDENTIALS not in str(found), "a secret came back"


async def push_list(caller: Caller) -> None:
    raise has_none(caller.everything, "list")


async def push_delete(caller: Caller) -> None:
    raise has_none(caller.everything, "delete")


async def webhook(caller: Caller) -> None:
    wanted = await caller.hook("5")
    address = wanted.push_notification_config.url
    told = await receiver.told(address, lambda body: body["status"]["state"] == "completed")
    tasks = [Task.model_validate(body) for body in told]
    assert {task.id for task in tasks} == {wanted.task_id}, told


async def unknown_task(caller: Caller) -> None:
    nobody = str(uuid4())
    asked = TaskIdParams(id=nobody)
    known = ("404", "-32001", "NOT_FOUND")
    for action in (
        caller.client.get_task(TaskQueryParams(id=nobody)),
        caller.client.cancel_task(asked),
    ):
        why = await refused(action)
        assert any(word in why for word in known), why
    blind = False
    for action in (
        caller.client.resubscribe(asked),
        caller.client.send_message(said("hello", task=nobody)),
    ):
        why = await refused(heard(action))
        blind |= "got 'application/json'" in why
        assert blind or any(word in why for word in known), why
    if blind:
        raise Partly("a refused stream is an error without its code: it reads no plain answer")


async def extended_card(caller: Caller) -> None:
    public = {skill.id for skill in caller.card.skills}
    assert SECRET_SKILL not in public, public
    why = await refused(caller.stranger.get_card())
    assert "401" in why or "UNAUTHENTICATED" in why, why
    card = await caller.client.get_card()
    assert {skill.id for skill in card.skills} == public | {SECRET_SKILL}, card


OPERATIONS = [
    *(send, stream, get, list_tasks, cancel, resubscribe),
    *(push_set, push_get, push_list, push_delete, webhook, unknown_task, extended_card),
]
asyncio.run(judge(OPERATIONS, lambda: Caller().connect()))
