"""An agent on a2a-sdk that asks two questions: `a2a_sdk_asks.py PORT [TOKEN]`.

JSON-RPC of 1.0 alone. With a token it takes bearers of that token only, and its card says so.
"""

import sys

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from starlette.applications import Starlette
from starlette.responses import JSONResponse

PORT, TOKEN = int(sys.argv[1]), (sys.argv[2:] or [""])[0]


class Desk(AgentExecutor):
    """`trip` leads to two questions; anything else is repeated."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        said = [message for message in task.history if message.role == context.message.role]
        first = said[0].parts[0].text if said else context.get_user_input()
        questions = ("Which city?", "Which day?")
        if first == "trip" and len(said) < len(questions):
            question = updater.new_agent_message([new_text_part(questions[len(said)])])
            await updater.requires_input(question)
            return
        await updater.add_artifact([new_text_part(first)], artifact_id="result")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def guarded(app):
    """Refuses calls without the token; the card is for everyone."""

    async def call(scope, receive, send):
        if scope["type"] == "http" and not scope["path"].startswith("/.well-known/"):
            sent = dict(scope["headers"]).get(b"authorization", b"").decode()
            if TOKEN and sent != f"Bearer {TOKEN}":
                answer = JSONResponse({"error": "no"}, 401, headers={"WWW-Authenticate": "Bearer"})
                await answer(scope, receive, send)
                return
        await app(scope, receive, send)

    return call


card = AgentCard(
    name="Desk that asks",
    description="Asks two questions.",
    version="1.0.0",
    supported_interfaces=[
        AgentInterface(
            protocol_binding="JSONRPC",
            protocol_version="1.0",
            url=f"http://127.0.0.1:{PORT}/",
        )
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="desk", name="desk", description="Asks.", tags=["a"], examples=["hi"])],
)
if TOKEN:
    bearer = HTTPAuthSecurityScheme(scheme="bearer")
    card.security_schemes["key"].CopyFrom(SecurityScheme(http_auth_security_scheme=bearer))
    card.security_requirements.append(SecurityRequirement(schemes={"key": StringList()}))
handler = DefaultRequestHandler(
    agent_executor=Desk(), task_store=InMemoryTaskStore(), agent_card=card
)
routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
uvicorn.run(guarded(Starlette(routes=routes)), port=PORT, log_level="warning")
