"""A served agent and a plain gRPC client that knows the two packages from their descriptors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from dragoman import Agent, Turn
from dragoman.core.model import Blob, Text
from dragoman.dialects.a2a.proto import POOL
from dragoman.observability.log import Log
from dragoman.server.app import App, engine_for
from dragoman.settings import Limits, Server, Settings

PACKAGES = {"1.0": "lf.a2a.v1", "0.3": "a2a.v1"}
agent = Agent("Desk", description="Does a little of everything")


@agent.skill("echo", default=True)
async def echo(turn: Turn) -> str:
    return turn.text.upper()


@agent.skill("count")
async def count(turn: Turn) -> AsyncIterator[str]:
    for number in range(int(turn.text)):
        yield f"{number} "


@agent.skill("trip")
async def trip(turn: Turn) -> str:
    return f"A trip to {await turn.ask('Which city?')}"


@agent.skill("slow")
async def slow(turn: Turn) -> str:
    for step in range(600):
        await turn.say(f"step {step}")
        await asyncio.sleep(0.05)  # its work
    return "done"


@agent.skill("flood")
async def flood(turn: Turn) -> AsyncIterator[str]:
    for _ in range(int(turn.text)):
        yield "x" * 65536


@agent.skill("files")
async def files(turn: Turn) -> object:
    carried = b"".join(file.content for file in turn.files if isinstance(file, Blob))
    saw = {"bytes": len(carried), "facts": turn.data}
    return [saw, carried[::-1], *(part for part in turn.parts if not isinstance(part, Text))]


@agent.skill("crash")
async def crash(turn: Turn) -> str:
    raise RuntimeError("secret words")


@agent.skill("greet", may_reply=True)
async def greet(turn: Turn) -> None:
    await turn.reply("hello yourself")


class Caller:
    """Calls one version of the service by the names of its rpcs, with plain dictionaries."""

    def __init__(self, channel: grpc.aio.Channel, version: str) -> None:
        self.channel, self.version, self.package = channel, version, PACKAGES[version]
        self.new = version == "1.0"
        self.service = POOL.FindServiceByName(f"{self.package}.A2AService")

    def method(self, rpc: str, like: str = "") -> Any:
        """The callable of an rpc; `like` is the rpc of the proto that has its messages."""
        found = self.service.methods_by_name[like or rpc]
        make = self.channel.unary_stream if found.server_streaming else self.channel.unary_unary
        asked, told = GetMessageClass(found.input_type), GetMessageClass(found.output_type)
        return lambda fields, **options: make(
            f"/{self.package}.A2AService/{rpc}",
            request_serializer=lambda fields: asked(**fields).SerializeToString(),
            response_deserializer=told.FromString,
        )(fields, **options)

    def message(self, text: str, skill: str = "", **more: Any) -> dict[str, Any]:
        parts = "parts" if self.new else "content"
        said = {"message_id": "m", "role": 1, parts: [{"text": text}], **more}
        return said | ({"metadata": {"skillId": skill}} if skill else {})

    def request(self, message: dict[str, Any], *, wait: bool = True) -> dict[str, Any]:
        if self.new:
            return {"message": message, "configuration": {"return_immediately": not wait}}
        return {"request": message, "configuration": {"blocking": wait}}

    def named(self, task_id: str) -> dict[str, Any]:
        return {"id": task_id} if self.new else {"name": f"tasks/{task_id}"}

    async def send(self, text: str, skill: str = "", *, wait: bool = True, **more: Any) -> Any:
        """The task a message leads to."""
        request = self.request(self.message(text, skill, **more), wait=wait)
        return (await self.method("SendMessage")(request)).task

    def stream(self, text: str, skill: str = "", **options: Any) -> Any:
        request = self.request(self.message(text, skill))
        return self.method("SendStreamingMessage")(request, **options)

    def watch(self, task_id: str, **options: Any) -> Any:
        rpc = "SubscribeToTask" if self.new else "TaskSubscription"
        return self.method(rpc)(self.named(task_id), **options)

    async def get(self, task_id: str, **more: Any) -> Any:
        return await self.method("GetTask")({**self.named(task_id), **more})

    async def cancel(self, task_id: str) -> Any:
        return await self.method("CancelTask")(self.named(task_id))


def state(task: Any) -> str:
    """The state of a task or an update, short."""
    value = type(task.status).DESCRIPTOR.fields_by_name["state"].enum_type
    name = value.values_by_number[task.status.state].name.removeprefix("TASK_STATE_")
    return str(name).replace("CANCELLED", "CANCELED")


def text(task: Any) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def app(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.setattr("dragoman.server.app.GRACE", 0.2)  # slow runs need not be waited for
    server = Server(grpc=True, grpc_port=0, store="memory:", allow_private=True)
    settings = Settings(server=server, limits=limits)
    app = App(agent, engine_for(agent, settings), settings, Log("error"), "http://127.0.0.1:1")
    await app.start()
    yield app
    await app.stop()


@pytest.fixture
async def channel(app: App) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{app.ports['grpc']}") as channel:
        yield channel


@pytest.fixture(params=["1.0", "0.3"])
def caller(channel: grpc.aio.Channel, request: pytest.FixtureRequest) -> Caller:
    return Caller(channel, request.param)
