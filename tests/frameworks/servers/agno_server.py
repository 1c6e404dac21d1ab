"""An agent of agno behind its AgentOS with the A2A interface: `agno_server.py PORT`.

AgentOS serves an agent at a path of its own, so the address is /a2a/agents/desk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"  # nothing leaves this machine

import uvicorn
from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS


class Louder(Model):
    """Needs no provider: says the last message louder, word by word in a stream."""

    @staticmethod
    def _text(given: dict[str, Any]) -> str:
        return str(given["messages"][-1].content).upper()

    def invoke(self, *_: Any, **given: Any) -> ModelResponse:
        return ModelResponse(role="assistant", content=self._text(given))

    async def ainvoke(self, *_: Any, **given: Any) -> ModelResponse:
        return self.invoke(**given)

    def invoke_stream(self, *_: Any, **given: Any) -> Iterator[ModelResponse]:
        first, *rest = self._text(given).split()
        for word in (first, *(f" {each}" for each in rest)):
            yield ModelResponse(role="assistant", content=word)

    async def ainvoke_stream(self, *_: Any, **given: Any) -> AsyncIterator[ModelResponse]:
        for piece in self.invoke_stream(**given):
            yield piece

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return response  # type: ignore[no-any-return]

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return response  # type: ignore[no-any-return]


port = int(sys.argv[1])
desk = Agent(id="desk", name="desk", model=Louder(id="louder"), telemetry=False)
system = AgentOS(agents=[desk], a2a_interface=True, telemetry=False)
uvicorn.run(system.get_app(), port=port, log_level="warning")
