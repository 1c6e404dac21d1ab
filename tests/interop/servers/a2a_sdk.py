"""A small agent on a2a-sdk 1.3.0: `a2a_sdk.py RPC_PORT REST_PORT GRPC_PORT`.

JSON-RPC, REST and gRPC of 1.0, and of 0.3 by its own switch; webhooks from memory.
"""

import asyncio
import sys

import grpc
import httpx
import uvicorn
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import (
    add_A2AServiceServicer_to_server as add_old_service,
)
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import (
    new_data_part,
    new_raw_part,
    new_task_from_user_message,
    new_text_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import (
    BasePushNotificationSender,
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Role,
    TaskState,
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

RPC, REST, GRPC = map(int, sys.argv[1:4])
BINDINGS = {
    "JSONRPC": f"http://127.0.0.1:{RPC}/",
    "HTTP+JSON": f"http://127.0.0.1:{REST}",
    "GRPC": f"127.0.0.1:{GRPC}",
}


SKILLS = (
    *("echo", "name", "greet", "count", "trip", "slow", "file", "data", "fail", "refuse"),
    *("picky", "halves", "let-go"),
)
WORKING, ROLE_AGENT = TaskState.TASK_STATE_WORKING, Role.ROLE_AGENT


def asked(message: Message) -> tuple[str, str]:
    """The command of a message, and the text that belongs to it."""
    text = "".join(part.text for part in message.parts)
    for part in message.parts:
        if part.WhichOneof("content") == "data":
            value = MessageToDict(part.data)
            if isinstance(value, dict) and "do" in value:
                return value["do"], text
    command, _, rest = text.partition(" ")
    if command in ("ask", "count", "parts", "slow"):
        return command, rest
    return "echo", text


def said(updater: TaskUpdater, words: str) -> Message:
    return updater.new_agent_message([new_text_part(words)])


class Desk(AgentExecutor):
    """Does what a data part names as `do`, or the first word of the text; else it echoes loudly."""

    def __init__(self) -> None:
        self.trips: dict[str, list[str]] = {}
        self.gate = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        command, text = asked(context.message)
        if command == "greet":
            await event_queue.enqueue_event(new_text_message("hello yourself", role=ROLE_AGENT))
            return
        if command == "picky":
            raise ContentTypeNotSupportedError("No pictures, please")
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if context.current_task is not None:
            await self.answer(updater, task.id, text)
        elif command in ("ask", "trip"):
            self.trips[task.id] = [command]
            await updater.requires_input(said(updater, "Which city?"))
        elif command == "fail":
            message = said(updater, "No paper left")
            message.metadata.update({"reason": "paper"})
            await updater.failed(message)
        elif command == "refuse":
            await updater.reject(said(updater, "Not for me"))
        else:
            await self.work(updater, context, command, text)
            await updater.complete()

    async def work(
        self, updater: TaskUpdater, context: RequestContext, command: str, text: str
    ) -> None:
        match command:
            case "slow":
                await updater.update_status(WORKING, said(updater, "begun"))
                await asyncio.sleep(60)  # until it is canceled
            case "count":
                await self.count(updater, int(text))
            case "parts" | "file" | "data":
                await self.parts(updater, context)
            case "halves":
                gate = self.gate
                await updater.add_artifact([new_text_part("first ")], artifact_id="result")
                await updater.update_status(WORKING, said(updater, "half of it"))
                await gate.wait()
                await updater.add_artifact(
                    [new_text_part("second")], artifact_id="result", append=True, last_chunk=True
                )
            case "let-go":
                self.gate.set()
                self.gate = asyncio.Event()
                await updater.add_artifact([new_text_part("gone")], artifact_id="result")
            case "name":
                skill = MessageToDict(context.message.metadata).get("skillId", "")
                await updater.add_artifact([new_text_part(skill)], artifact_id="result")
            case _:
                await updater.add_artifact([new_text_part(text.upper())], artifact_id="result")

    async def answer(self, updater: TaskUpdater, task_id: str, text: str) -> None:
        """Goes on with a task that has asked: once for `ask`, twice for `trip`."""
        known = self.trips[task_id]
        known.append(text)
        words = f"A trip to {text}"
        if known[0] == "trip":
            if len(known) == 2:
                await updater.requires_input(said(updater, "How many days?"))
                return
            words = f"{known[2]} days in {known[1]}"
        await updater.add_artifact([new_text_part(words)], artifact_id="result")
        await updater.complete()

    async def count(self, updater: TaskUpdater, many: int) -> None:
        for number in range(many):
            if number % 7 == 3:
                await updater.update_status(WORKING, said(updater, f"at {number}"))
            if number % 11 == 5:
                fact = [new_data_part({"number": number})]
                await updater.add_artifact(fact, artifact_id=f"facts-{number}")
            await updater.add_artifact(
                [new_text_part(f"{number} ")],
                artifact_id="result",
                append=number > 0,
                last_chunk=number == many - 1,
            )
            await asyncio.sleep(0.01)  # its work

    async def parts(self, updater: TaskUpdater, context: RequestContext) -> None:
        made = []
        for part in context.message.parts:
            match part.WhichOneof("content"):
                case "raw":
                    kind = "application/x-back"
                    made.append(new_raw_part(part.raw[::-1], media_type=kind, filename="back.bin"))
                case "data":
                    value = MessageToDict(part.data)
                    if not isinstance(value, dict) or "do" not in value:
                        made.append(new_data_part({"got": value}))
        await updater.add_artifact(made, artifact_id="result")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    card = AgentCard(
        name="Desk on a2a-sdk 1.3.0",
        description="Echoes, and a little more.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=url)
            for version in ("1.0", "0.3")
            for binding, url in BINDINGS.items()
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain", "application/json", "application/octet-stream"],
        default_output_modes=["text/plain", "application/json", "application/octet-stream"],
        skills=[
            AgentSkill(id=name, name=name, description="Does it.", tags=["a"], examples=["hello"])
            for name in SKILLS
        ],
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Desk(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    cards = create_agent_card_routes(card)
    rpc = Starlette(routes=[*cards, *create_jsonrpc_routes(handler, "/", enable_v0_3_compat=True)])
    rest = Starlette(routes=[*cards, *create_rest_routes(handler, enable_v0_3_compat=True)])
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    add_old_service(CompatGrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{GRPC}")
    await server.start()
    await asyncio.gather(*(serve(app, port) for app, port in ((rpc, RPC), (rest, REST))))


async def serve(app: Starlette, port: int) -> None:
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main())
