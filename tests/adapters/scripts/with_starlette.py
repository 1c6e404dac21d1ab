"""An agent inside a Starlette application: started by a real server, which then stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from dragoman import Agent, Turn, connect
from dragoman.adapters.starlette import mount
from dragoman.app import create_app
from dragoman.settings import Server, Settings


def desk() -> Agent:
    agent = Agent("Desk", description="Counts, and asks")

    @agent.skill("count", description="Counts")
    async def count(turn: Turn) -> AsyncIterator[str]:
        for number in range(3):
            yield f"{number} "
        yield str(await turn.ask("More?"))

    return agent


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), "the server did not start"
        await asyncio.sleep(0)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def talk(url: str) -> None:
    async with connect(url) as agent:
        events = agent.stream("count")
        told = [event async for event in events]
        assert told
        assert events.task is not None
        assert events.task.text == "0 1 2 "
        done = await agent.answer(events.task, "yes")
        assert done.text == "0 1 2 yes", done


async def test_a_mounted_agent_streams_asks_and_stops_with_the_server() -> None:
    app = Starlette(routes=[Route("/hello", hello)])
    agents = mount(app, "/desk", desk(), store="memory:")
    async with served(app) as url:
        await talk(f"{url}/desk")
        await talk(f"{url}/desk/")
    assert not agents.ready


async def test_routes_and_the_lifespan_may_be_written_out() -> None:
    agents = create_app(desk(), Settings(server=Server(store="memory:")))
    app = Starlette(routes=[Mount("/desk", agents)], lifespan=agents.lifespan)
    async with served(app) as url:
        await talk(f"{url}/desk")


async def test_tasks_outlive_the_application() -> None:
    for part in ("ask", "answer"):
        app = Starlette()
        mount(app, "/desk", desk(), store="sqlite:///tasks.db")
        async with served(app) as url, connect(f"{url}/desk") as agent:
            if part == "ask":
                task = await agent.send("count")
            else:
                task = await agent.answer(task.id, "yes")  # type: ignore[union-attr]
    assert task.text == "0 1 2 yes", task
