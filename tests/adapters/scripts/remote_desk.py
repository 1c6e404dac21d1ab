"""What the scripts share: a served agent for tools to call, and what a task used."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dragoman import Agent, Note, Noted, Stamped, Turn, connect
from dragoman.client import RemoteAgent
from dragoman.testing import Client, served

desk = Agent("Travel desk", description="Plans trips")


@desk.skill("plan", description="Plans a trip")
async def plan(turn: Turn) -> str:
    city = turn.text if turn.text != "trip" else await turn.ask("Which city?")
    if city == "Atlantis":
        raise turn.reject("It is under water.")
    return f"A trip to {city}"


@asynccontextmanager
async def remote_desk() -> AsyncIterator[RemoteAgent]:
    """A real server, and our client that is connected to it."""
    async with served(desk) as url, connect(url) as agent:
        yield agent


@asynccontextmanager
async def desk_url() -> AsyncIterator[str]:
    """The address of the same agent."""
    async with served(desk) as url:
        yield url


def example(name: str) -> Any:
    """A module of `examples/frameworks`."""
    folder = os.environ["EXAMPLES"]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


async def told(agent: Agent, *what: object, **about: Any) -> tuple[list[str], dict[str, Any], Any]:
    """The chunks that an agent sends for a message, the usage that it reports, and the task."""
    chunks: list[str] = []
    usage: dict[str, Any] = {}
    task = ""
    async with Client(agent) as client:
        async for entry in client.stream(*what, **about):
            assert isinstance(entry, Stamped)
            task = entry.task_id
            match entry.event:
                case Noted(kind=Note.USAGE, body=figures):
                    usage = figures
                case event if hasattr(event, "artifact"):
                    chunks.append(event.artifact.text)
        return chunks, usage, await client.get(task)
