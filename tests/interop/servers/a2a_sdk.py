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
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_part
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
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

RPC, REST, GRPC = map(int, sys.argv[1:4])
BINDINGS = {
    "JSONRPC": f"http://127.0.0.1:{RPC}/",
    "HTTP+JSON": f"http://127.0.0.1:{REST}",
    "GRPC": f"127.0.0.1:{GRPC}",
}


class Desk(AgentExecutor):
    """Echoes in capitals; `count N`, `ask`, `parts` and `slow` do something else."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        command, _, rest = text.partition(" ")
        if context.current_task is not None:
            task, answer = context.current_task, f"A trip to {text}"
        else:
            task, answer = new_task_from_user_message(context.message), text.upper()
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if context.current_task is None and command == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part("Which city?")]))
            return
        if command == "slow":
            await asyncio.sleep(60)  # until it is canceled
        elif command == "count":
            await self.count(updater, int(rest))
        elif command == "parts":
            await self.parts(updater, context)
        else:
            await updater.add_artifact([new_text_part(answer)], artifact_id="result")
        await updater.complete()

    async def count(self, updater: TaskUpdater, many: int) -> None:
        for number in range(many):
            if number % 7 == 3:
                said = updater.new_agent_message([new_text_part(f"at {number}")])
                await updater.update_status(TaskState.TASK_STATE_WORKING, said)
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
                    raw = part.raw[::-1]
                    made.append(new_raw_part(raw, media_type=part.media_type, filename="back.bin"))
                case "data":
                    made.append(new_data_part({"got": MessageToDict(part.data)}))
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
            AgentSkill(
                id="desk", name="desk", description="Echoes.", tags=["a"], examples=["hello"]
            )
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
