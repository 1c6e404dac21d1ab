"""An agent on a2a-sdk 1.3.0, as others write them: `sdk_desk.py RPC REST GRPC [plain] [at=URL]`.

It replies directly, refuses, asks twice, and tells what it was sent. It checks nothing itself: what
the SDK makes of a message is what its users meet. With `plain` it has no streaming, and `at` is
where its card says that JSON-RPC is.
"""

import asyncio
import sys
from collections import defaultdict

import grpc
import httpx
import uvicorn
from a2a.compat.v0_3.a2a_v0_3_pb2_grpc import (
    add_A2AServiceServicer_to_server as add_old_service,
)
from a2a.compat.v0_3.grpc_handler import CompatGrpcHandler
from a2a.helpers import new_data_part, new_text_message, new_text_part
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
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

RPC, REST, GRPC = map(int, sys.argv[1:4])
STREAMS = "plain" not in sys.argv
BINDINGS = {
    "JSONRPC": next(
        (each[3:] for each in sys.argv if each[:3] == "at="), f"http://127.0.0.1:{RPC}/"
    ),
    "HTTP+JSON": f"http://127.0.0.1:{REST}",
    "GRPC": f"127.0.0.1:{GRPC}",
}
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
executed: list[str] = []
"""What was said to it, once for each time that it was executed."""


class Desk(AgentExecutor):
    """`reply`, `late NAME` until `go NAME`, `refuse`, `trip`, `tell`, `slow` and `executed`; all
    else is echoed."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        command, _, rest = text.partition(" ")
        executed.append(text)
        current = context.current_task
        if current is None:
            match command:
                case "reply":
                    await self.reply(context, event_queue, f"You said {rest}")
                    return
                case "late":
                    await gates[rest].wait()
                    await self.reply(context, event_queue, "Better late")
                    return
                case "go":
                    gates[rest].set()
                    await self.reply(context, event_queue, "Gone")
                    return
                case "refuse":
                    raise ContentTypeNotSupportedError(message="I read no such thing")
                case "executed":
                    count = executed.count(rest)
                    await self.reply(context, event_queue, str(count))
                    return
            opened = Task(id=context.task_id, context_id=context.context_id)
            opened.status.CopyFrom(TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
            opened.history.append(context.message)
            await event_queue.enqueue_event(opened)
        # As the samples of the SDK do it: with the ids of the request.
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        if current is None and command in ("trip", "tell-answers"):
            await updater.requires_input(updater.new_agent_message([new_text_part("Which city?")]))
            return
        history = current.history if current is not None else ()
        said = [each.parts[0].text for each in history if each.role == Role.ROLE_USER]
        opening = said[0] if said else ""
        if opening == "trip" and text != "done":
            await updater.requires_input(
                updater.new_agent_message([new_text_part(f"And after {text}?")])
            )
            return
        if command == "slow":
            begun = updater.new_agent_message([new_text_part("begun")])
            await updater.start_work(begun)
            await asyncio.Event().wait()  # until it is canceled
        elif command == "tell" or opening == "tell-answers":
            told = MessageToDict(context.message)
            told["header"] = context.call_context.state.get("headers", {}).get("idempotency-key")
            told["requestMetadata"] = context.metadata
            await updater.add_artifact([new_data_part(told)], artifact_id="told")
        elif opening == "trip":
            stops = ", ".join(each for each in said[1:] if each != "done")
            await updater.add_artifact([new_text_part(stops)], artifact_id="result")
        else:
            await updater.add_artifact([new_text_part(text.upper())], artifact_id="result")
        await updater.complete()

    async def reply(self, context: RequestContext, queue: EventQueue, text: str) -> None:
        message = new_text_message(text, context_id=context.context_id)
        message.metadata.update({"by": "desk"})
        await queue.enqueue_event(message)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


async def main() -> None:
    card = AgentCard(
        name="Desk of a stranger",
        description="Replies, refuses and asks.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(protocol_binding=binding, protocol_version=version, url=url)
            for version in ("1.0", "0.3")
            for binding, url in BINDINGS.items()
        ],
        capabilities=AgentCapabilities(streaming=STREAMS, push_notifications=True),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain", "application/json"],
        skills=[AgentSkill(id="desk", name="desk", description="Echoes.", tags=["a"])],
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
