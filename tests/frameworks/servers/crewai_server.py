"""An agent of CrewAI behind a2a-sdk's server: `crewai_server.py PORT`. Its model echoes, louder.

CrewAI brings what runs a task and what makes the card, and leaves the server to the SDK.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_STORAGE_DIR": tempfile.mkdtemp(),
}

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from crewai import Agent, BaseLLM
from crewai.a2a import A2AServerConfig
from crewai.a2a.utils.task import cancel, execute


class Louder(BaseLLM):
    """A model of one line."""

    def call(self, messages: Any, *_: Any, **__: Any) -> str:
        asked = messages if isinstance(messages, str) else messages[-1]["content"]
        task = asked.partition("Current Task:")[2].strip().splitlines()[0]
        return f"Thought: I now can give a great answer\nFinal Answer: {task.upper()}"

    async def acall(self, messages: Any, *_: Any, **__: Any) -> str:
        return self.call(messages)


class Executor(AgentExecutor):
    """As CrewAI's functions are meant to be used."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        await execute(agent, context, event_queue)

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await cancel(context, event_queue)


port = int(sys.argv[1])
agent = Agent(
    role="desk",
    goal="Say it louder",
    backstory="Loud",
    llm=Louder(model="louder"),
    a2a=A2AServerConfig(url=f"http://127.0.0.1:{port}"),
)
card = agent.to_agent_card(f"http://127.0.0.1:{port}")
handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
uvicorn.run(app, port=port, log_level="warning")
