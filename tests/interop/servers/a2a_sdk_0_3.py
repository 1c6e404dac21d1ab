"""A small agent on a2a-sdk 0.3.26: `a2a_sdk_0_3.py RPC_PORT REST_PORT GRPC_PORT`."""

import asyncio
import base64
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
    DataPart,
    FilePart,
    FileWithBytes,
    Part,
    TaskState,
    TextPart,
)
from a2a.utils import new_task

RPC, REST, GRPC = map(int, sys.argv[1:4])


def text_part(text: str) -> Part:
    return Part(root=TextPart(text=text))


class Desk(AgentExecutor):
    """Echoes in capitals; `count N`, `ask`, `parts` and `slow` do something else."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        command, _, rest = text.partition(" ")
        if context.current_task is not None:
            task, answer = context.current_task, f"A trip to {text}"
        else:
            task, answer = new_task(context.message), text.upper()
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if context.current_task is None and command == "ask":
            question = updater.new_agent_message([text_part("Which city?")])
            await updater.requires_input(question, final=True)
            return
        if command == "slow":
            await asyncio.sleep(60)  # until it is canceled
        elif command == "count":
            await self.count(updater, int(rest))
        elif command == "parts":
            await self.parts(updater, context)
        else:
            await updater.add_artifact([text_part(answer)], artifact_id="result")
        await updater.complete()

    async def count(self, updater: TaskUpdater, many: int) -> None:
        for number in range(many):
            if number % 7 == 3:
                said = updater.new_agent_message([text_part(f"at {number}")])
                await updater.update_status(TaskState.working, said)
            if number % 11 == 5:
                fact = [Part(root=DataPart(data={"number": number}))]
                await updater.add_artifact(fact, artifact_id=f"facts-{number}")
            await updater.add_artifact(
                [text_part(f"{number} ")],
                artifact_id="result",
                append=number > 0,
                last_chunk=number == many - 1,
            )
            await asyncio.sleep(0.01)  # its work

    async def parts(self, updater: TaskUpdater, context: RequestContext) -> None:
        made = []
        for part in context.message.parts:
            match part.root:
                case FilePart(file=FileWithBytes() as file):
                    back = base64.b64encode(base64.b64decode(file.bytes)[::-1]).decode()
                    turned = FileWithBytes(bytes=back, mime_type=file.mime_type, name="back.bin")
                    made.append(Part(root=FilePart(file=turned)))
                case DataPart(data=data):
                    made.append(Part(root=DataPart(data={"got": data})))
        await updater.add_artifact(made, artifact_id="result")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    main_url = f"http://127.0.0.1:{RPC}/"
    card = AgentCard(
        name="Desk on a2a-sdk 0.3.26",
        description="Echoes, and a little more.",
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
                id="desk", name="desk", description="Echoes.", tags=["a"], examples=["hello"]
            )
        ],
    )
    configs = InMemoryPushNotificationConfigStore()
    handler = DefaultRequestHandler(
        agent_executor=Desk(),
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
