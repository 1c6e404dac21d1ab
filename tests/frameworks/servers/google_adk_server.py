"""An agent of Google's ADK, served by its own `to_a2a`: `google_adk_server.py PORT`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

import uvicorn
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types


class Louder(BaseAgent):
    """Needs no model."""

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event, None]:
        said = "".join(part.text or "" for part in ctx.user_content.parts)
        content = types.Content(role="model", parts=[types.Part(text=said.upper())])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


port = int(sys.argv[1])
app = to_a2a(Louder(name="desk", description="Says it louder"), host="127.0.0.1", port=port)
uvicorn.run(app, port=port, log_level="warning")
