"""a2a-sdk 1.3.0 as its documentation shows it: JSON-RPC, REST and gRPC of 1.0 and, by its switch,
of 0.3, with push notifications in memory."""

import asyncio
import sys

import grpc
import httpx
import uvicorn
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import (
    add_A2AServiceServicer_to_server as add_old_service,
)
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_task_from_user_message, new_text_part
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
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from starlette.applications import Starlette

RPC, REST, GRPC = map(int, sys.argv[1:4])
BINDINGS = {
    "JSONRPC": f"http://127.0.0.1:{RPC}/",
    "HTTP+JSON": f"http://127.0.0.1:{REST}",
    "GRPC": f"127.0.0.1:{GRPC}",
}


class Talk(AgentExecutor):
    """Says it back word by word; `slow` takes its time."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        words = context.get_user_input().split()[:50] or ["nothing"]
        for number, word in enumerate(words):
            last = number == len(words) - 1
            part = [new_text_part(f"{word} ")]
            await updater.add_artifact(
                part, artifact_id="result", append=number > 0, last_chunk=last
            )
            if words[0] == "slow":
                await asyncio.sleep(20)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    card = AgentCard(
        name="a2a-sdk 1.3.0",
        description="Says it back.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=url)
            for version in ("1.0", "0.3")
            for binding, url in BINDINGS.items()
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[
            AgentSkill(
                id="talk", name="talk", description="Says it back.", tags=["a"], examples=["hello"]
            )
        ],
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Talk(),
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
