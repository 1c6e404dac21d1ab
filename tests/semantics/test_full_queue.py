"""A server whose queue is full refuses in the words of each binding, and says when to try again."""

from __future__ import annotations

import asyncio

import pytest

from dragoman import Agent, Turn
from dragoman.core.errors import TooMany
from dragoman.settings import Limits
from semantics.ways import WAYS, said, served

CODES = {"JSON-RPC": -31429, "REST": 429, "gRPC": 8}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_told_with_a_time_to_try_again(stream: bool) -> None:
    agent, go = Agent("Desk"), asyncio.Event()

    @agent.skill("wait")
    async def wait(turn: Turn) -> str:
        await go.wait()
        return "done"

    async with served(agent, limits=Limits(max_runs=1, max_queue=1)) as server:
        for _ in range(2):
            heard = await WAYS["JSON-RPC 1.0"].ask(server, said("go", wait=False))
            assert heard.error is None
        for name, way in WAYS.items():
            heard = await way.ask(server, said("go", wait=False), stream=stream)
            assert isinstance(heard.error, TooMany), name
            code = -32010 if name == "JSON-RPC 0.1" else CODES[name.split()[0]]
            assert heard.code == code, name
            if name != "gRPC 0.3":  # its errors are texts
                assert heard.error.public["retry_after"] == "5", name
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
        path = "/message:stream" if stream else "/message:send"
        told = await server.client.post(path, json=body, headers={"A2A-Version": "1.0"})
        assert (told.status_code, told.headers["retry-after"]) == (429, "5")
        go.set()
