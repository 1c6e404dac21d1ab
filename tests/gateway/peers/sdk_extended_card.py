"""An agent on a2a-sdk 1.3.0 that speaks nothing but gRPC, with an extended card that names an
address of the outside world: `sdk_extended_card.py PORT`."""

import asyncio
import sys

import grpc
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.grpc_handler import GrpcHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server


class Echo(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        said = context.get_user_input()
        await event_queue.enqueue_event(new_text_message(said.upper(), role=Role.ROLE_AGENT))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


async def main() -> None:
    card = AgentCard(
        name="Behind gRPC",
        description="Echoes.",
        version="7.1",
        supported_interfaces=[
            AgentInterface(
                protocol_binding="GRPC", protocol_version="1.0", url="agent.example.com:443"
            )
        ],
        capabilities=AgentCapabilities(extended_agent_card=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="echo", description="Echoes.", tags=["loud"])],
    )
    handler = DefaultRequestHandler(
        agent_executor=Echo(),
        task_store=InMemoryTaskStore(),
        agent_card=card,
        extended_agent_card=card,
    )
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
