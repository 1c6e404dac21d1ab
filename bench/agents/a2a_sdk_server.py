"""The bench agent on a2a-sdk, served the way its documentation shows: Starlette and uvicorn."""

import argparse
import asyncio

import uvicorn
import uvloop
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

GAP_SECONDS = 0.005


class BenchExecutor(AgentExecutor):
    """Echoes; `chunks N` and `spaced N` stream N chunks, `hang` never ends."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()

        text = context.get_user_input()
        command, _, count = text.partition(" ")
        if command in ("chunks", "spaced"):
            await self.write_chunks(updater, int(count), spaced=command == "spaced")
        elif command == "hang":
            await updater.add_artifact([new_text_part("w0 ")], artifact_id="result")
            await asyncio.Event().wait()
        else:
            await updater.add_artifact([new_text_part(text)], artifact_id="result")
        await updater.complete()

    async def write_chunks(self, updater: TaskUpdater, count: int, *, spaced: bool) -> None:
        for number in range(count):
            if spaced and number:
                await asyncio.sleep(GAP_SECONDS)
            await updater.add_artifact(
                [new_text_part(f"w{number} ")],
                artifact_id="result",
                append=number > 0,
                last_chunk=number == count - 1,
            )

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def open_store(url: str) -> TaskStore:
    if url == "memory:":
        return InMemoryTaskStore()
    # Imported only when used: a server in memory need not load SQLAlchemy.
    from a2a.server.tasks import DatabaseTaskStore
    from sqlalchemy.ext.asyncio import create_async_engine

    scheme, _, rest = url.partition(":")
    driver = {"sqlite": "aiosqlite", "postgresql": "asyncpg"}[scheme]
    return DatabaseTaskStore(create_async_engine(f"{scheme}+{driver}:{rest}"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", default="memory:")
    parser.add_argument("--grpc-port", type=int, default=0)
    options = parser.parse_args()

    card = AgentCard(
        name="Bench",
        description="Echoes and streams for the bench.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(
                protocol_binding="JSONRPC",
                protocol_version="1.0",
                url=f"http://127.0.0.1:{options.port}/",
            )
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="echo", name="echo", description="Says it back.", tags=["bench"])],
    )
    request_handler = DefaultRequestHandler(
        agent_executor=BenchExecutor(), task_store=open_store(options.store), agent_card=card
    )
    app = Starlette(
        routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(request_handler, "/")]
    )
    # No access log: nobody in this comparison writes one.
    config = uvicorn.Config(
        app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False
    )
    server = uvicorn.Server(config)
    if options.grpc_port:
        uvloop.run(serve_with_grpc(server, request_handler, options.grpc_port))
    else:
        server.run()


async def serve_with_grpc(
    http: uvicorn.Server, request_handler: DefaultRequestHandler, port: int
) -> None:
    """Both in one process and one loop, as Dragoman does."""
    import grpc
    from a2a.server.request_handlers.grpc_handler import GrpcHandler
    from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server

    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(request_handler), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await http.serve()
    await server.stop(0)


if __name__ == "__main__":
    main()
