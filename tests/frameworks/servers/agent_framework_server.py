"""An agent of agent-framework behind its A2A executor: `agent_framework_server.py PORT`.

The executor is the default one, which does not stream: what the agent says is a message in the
task's history.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from agent_framework import AgentResponse, BaseAgent, Message
from agent_framework.a2a import A2AExecutor
from starlette.applications import Starlette


class Louder(BaseAgent):
    """Needs no model."""

    async def run(self, messages: Any = None, **_: Any) -> AgentResponse[Any]:
        return AgentResponse(messages=[Message("assistant", [str(messages).upper()])])


port = int(sys.argv[1])
card = AgentCard(
    name="desk",
    description="Says it louder",
    version="1.0.0",
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[
        AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC")
    ],
)
handler = DefaultRequestHandler(
    agent_executor=A2AExecutor(Louder(name="desk")),
    task_store=InMemoryTaskStore(),
    agent_card=card,
)
routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
uvicorn.run(Starlette(routes=routes), port=port, log_level="warning")
