"""The load on a registry: agents are registered, and searched for by a skill."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from .load import Connection, Exchange, connections
from .peers import Server
from .proxies import OPERATOR
from .sample import CONNECTIONS, Pace, Sample, timed
from .wire import WrongAnswer

SKILL = "write"
"""A skill that all of them have: they are the same agent under different names."""
PAGE = 10
LIMIT = 60.0
"""Seconds in which their cards are to be read."""


def searches(agents: int) -> Callable[[Server, Pace], Awaitable[Sample]]:
    """Searches among this many registered agents, and the memory that each of them takes."""

    async def run(server: Server, pace: Pace) -> Sample:
        async with connections(server.port, 1) as (connection,):
            await _register(connection, server.port, server.behind, range(-3, 0))
            before = server.rss_kib()
            await _register(connection, server.port, server.behind, range(agents))
            memory = server.rss_kib() - before
        sample = await timed(server, pace, CONNECTIONS, _search(server.port))
        return replace(sample, kib=memory / agents)

    return run


async def _register(connection: Connection, port: int, behind: int, numbers: Iterable[int]) -> None:
    """Registers the agent at a port under many names, and waits until all are found."""
    names = [f"agent-{number % 10_000:04}" for number in numbers]
    for name in names:
        body = json.dumps({"name": name, "url": f"http://{_host(behind)}"}).encode()
        await connection.start(_request(port, "POST", "/agents", body))
    deadline = time.perf_counter() + LIMIT
    for name in names:
        # The page that begins with the agent: it is the first on it as soon as it is found.
        path = f"/agents?skill={SKILL}&pageSize=1&pageToken={name[:-1]}{chr(ord(name[-1]) - 1)}"
        while _names(await connection.start(_request(port, "GET", path)))[:1] != [name]:
            if time.perf_counter() > deadline:
                raise WrongAnswer(f"{name} is not found by its skill")
            await asyncio.sleep(0.02)


def _search(port: int) -> Exchange:
    """Returns the exchange that asks for a page of the agents with the skill."""
    request = _request(port, "GET", f"/agents?skill={SKILL}&pageSize={PAGE}")

    async def exchange(connection: Connection, number: int) -> None:
        if len(_names(await connection.start(request))) != PAGE:
            raise WrongAnswer("a page of the registry is not full")

    return exchange


def _host(port: int) -> str:
    """Returns the host of an agent on this machine."""
    return f"127.0.0.1:{port}"


def _names(body: bytes) -> list[str]:
    return [each["name"] for each in json.loads(body)["agents"]]


def _request(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {_host(port)}\r\n"
        f"Authorization: Bearer {OPERATOR}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
