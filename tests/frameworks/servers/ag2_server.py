"""An agent of AG2, served by its own server: `ag2_server.py PORT`. Its model echoes, louder."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.config import LLMClient, ModelConfig
from ag2.events import ModelMessage, ModelRequest, ModelResponse


class Louder(LLMClient, ModelConfig):
    """A model of one line, and its own configuration."""

    provider = "none"
    model = "louder"

    async def __call__(self, messages: Any, context: Any, **_: Any) -> ModelResponse:
        said = [each for each in messages if isinstance(each, ModelRequest)][-1]
        message = ModelMessage("".join(part.content for part in said.parts).upper())
        await context.send(message)
        return ModelResponse(message)

    def copy(self) -> Louder:
        return self

    def create(self) -> Louder:
        return self


port = int(sys.argv[1])
server = A2AServer(Agent("desk", "Say it louder.", config=Louder()))
uvicorn.run(server.build_jsonrpc(url=f"http://127.0.0.1:{port}"), port=port, log_level="warning")
