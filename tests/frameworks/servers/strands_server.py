"""An agent of Strands, served by its own server: `strands_server.py PORT`. Its model echoes."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from typing import Any

from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer


class Louder(Model):
    """A model of one line."""

    def update_config(self, **_: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        said = "".join(block.get("text", "") for block in messages[-1]["content"])
        yield {"messageStart": {"role": "assistant"}}
        for word in said.upper().split(" "):
            yield {"contentBlockDelta": {"delta": {"text": f"{word} "}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


port = int(sys.argv[1])


def desk(context_id: str) -> Agent:
    return Agent(model=Louder(), name="desk", description="Says it louder", callback_handler=None)


A2AServer(agent_factory=desk, port=port, enable_a2a_compliant_streaming=True).serve(
    log_level="warning"
)
