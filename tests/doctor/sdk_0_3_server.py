"""a2a-sdk 0.3.26 as its documentation shows it: JSON-RPC, REST and gRPC, push in memory."""

import asyncio
import sys
from typing import Any

import grpc
import httpx
import uvicorn
from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler, GrpcHandler
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
    Part,
    TextPart,
)
from a2a.utils import new_task

RPC, REST, GRPC = map(int, sys.argv[1:4])


class Talk(AgentExecutor):
    """Says it back word by word; `slow` takes its time."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        words = context.get_user_input().split()[:50] or ["nothing"]
        for number, word in enumerate(words):
            last = number == len(words) - 1
            part = [Part(root=TextPart(text=f"{word} "))]
            await updater.add_artifact(
                part, artifact_id="result", append=number > 0, last_chunk=last
            )
            if words[0] == "slow":
                await asyncio.sleep(20)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    main_url = f"http://127.0.0.1:{RPC}/"
    card = AgentCard(
        name="a2a-sdk 0.3.26",
        description="Says it back.",
        version="1.0.0",
        url=main_url,
        preferred_transport="JSONRPC",
        additional_interfaces=[
            AgentInterface(url=main_url, transport="JSONRPC"),
            AgentInterface(url=f"http://127.0.0.1:{REST}", transport="HTTP+JSON"),
            AgentInterface(url=f"127.0.0.1:{GRPC}", transport="GRPC"),
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
        push_config_store=configs,
        push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs),
    )
    rpc = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    rest = A2ARESTFastAPIApplication(agent_card=card, http_handler=handler).build()
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(card, handler), server)
    server.add_insecure_port(f"127.0.0.1:{GRPC}")
    await server.start()
    await asyncio.gather(serve(rpc, RPC), serve(rest, REST))


async def serve(app: Any, port: int) -> None:
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main())
