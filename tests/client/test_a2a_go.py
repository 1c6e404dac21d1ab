"""The community a2a-go is found at the address where it is spoken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from client.auth.http_server import LittleHttp, Request, Response, as_json
from client.our_server import QUICK, open_server
from dragoman import Agent, Task, Turn, connect
from dragoman.client import RemoteAgent
from dragoman.testing.served import served


async def told(agent: RemoteAgent) -> str:
    """What a stream and a send tell; the oldest dialect loses artifacts if it is spoken wrong."""
    events = agent.stream("3", skill="story")
    streamed = await events.result()
    answer = await agent.send("3", skill="story")
    assert isinstance(answer, Task)
    assert streamed.text == answer.text
    assert (await agent.get(answer)).text == answer.text
    return answer.text


@pytest.mark.parametrize("path", ["", "/", "/a2a-go", "/.well-known/agent-card.json"])
async def test_our_own_server_is_spoken_with_where_its_card_says(path: str) -> None:
    async with open_server() as running:
        url = running.url + path
        async with connect(url, dialect="a2a-go", limits=QUICK) as agent:
            assert agent.dialect == "a2a-go"
            assert await told(agent) == "0 1 2 "


def card(url: str) -> Response:
    return as_json({"name": "Go", "description": "", "url": url, "capabilities": {}})


def answer(request: Request) -> Response:
    asked = msgspec.json.decode(request.body)
    artifact = {"parts": [{"type": "text", "text": "found"}], "index": 0}
    task: dict[str, Any] = {"id": asked["params"]["id"], "status": {"state": "completed"}}
    return as_json(
        {"jsonrpc": "2.0", "id": asked["id"], "result": task | {"artifacts": [artifact]}}
    )


NOTHING = Response(404, b"not here")


async def sent(url: str) -> str:
    async with connect(url, dialect="a2a-go", limits=QUICK) as agent:
        return (await agent.send("hi")).text


@pytest.mark.parametrize("base_has_card", [True, False])
async def test_a_card_beside_the_dialect_leads_to_it(base_has_card: bool) -> None:
    def respond(request: Request) -> Response:
        if request.path == "/a2a-go/.well-known/agent.json":
            return card(f"{request.base}/deep/a2a-go")
        if request.path == "/.well-known/agent.json" and base_has_card:
            return card(f"{request.base}/")
        return answer(request) if request.path == "/deep/a2a-go" else NOTHING

    async with LittleHttp(respond) as agent:
        assert await sent(agent.url) == "found"
        assert await sent(f"{agent.url}/deep/a2a-go") == "found"


@pytest.mark.parametrize("has_card", [True, False])
async def test_a_server_that_speaks_nothing_else_is_called_at_its_address(has_card: bool) -> None:
    def respond(request: Request) -> Response:
        if request.method == "GET":
            own = request.path == "/.well-known/agent.json" and has_card
            return card(f"{request.base}/") if own else NOTHING
        return answer(request) if request.path == "/" else NOTHING

    async with LittleHttp(respond) as agent:
        assert await sent(f"{agent.url}/") == "found"


@pytest.mark.parametrize("path", ["", "/a2a-go"])
async def test_an_agent_whose_own_path_ends_like_that_of_the_dialect_is_found(path: str) -> None:
    agents = {"a2a-go": teller("Go"), "other": teller("Other")}
    async with served(agents) as url:
        address = f"{url}/agents/a2a-go{path}"
        async with asyncio.timeout(60), connect(address, dialect="a2a-go", limits=QUICK) as agent:
            assert await told(agent) == "0 1 2 "


def teller(name: str) -> Agent:
    agent = Agent(name)

    @agent.skill("story")
    async def story(turn: Turn) -> AsyncIterator[str]:
        for number in range(int(turn.text)):
            yield f"{number} "

    return agent
