"""Requests that a worker passes on to the one that can answer them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dragoman.net.http.asgi import AsgiEvent, Receive, Scope, Send
from dragoman.server.workers.siblings import Siblings
from dragoman.server.workers.worker_process import WorkerProcess

SCOPE = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"a", b"b")]}
START: AsgiEvent = {"type": "http.response.start", "status": 200, "headers": [(b"c", b"d")]}


@asynccontextmanager
async def worker(number: int, folder: Path) -> AsyncIterator[Siblings]:
    process = WorkerProcess(number=number, count=2, listening=0, control=0, folder=str(folder))
    siblings = Siblings(process)
    await siblings.start()
    try:
        yield siblings
    finally:
        await siblings.stop()


async def passed_on(asked: Siblings, key: str) -> tuple[bool, list[AsgiEvent]]:
    """Whether another worker took the request, and what it sent."""
    sent: list[AsgiEvent] = []
    incoming: asyncio.Queue[AsgiEvent] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": b"x", "more_body": False})

    async def send(message: AsgiEvent) -> None:
        sent.append(message)

    async with asyncio.timeout(60):
        return await asked.pass_on("rooms", key, SCOPE, incoming.get, send), sent


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    body = (await receive())["body"] + scope["path"].encode()
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    await send(START)
    raise RuntimeError("a fault of the handler")


async def test_the_worker_that_has_what_is_named_answers(tmp_path: Path) -> None:
    async with worker(1, tmp_path) as first, worker(2, tmp_path) as second:
        second.answers["rooms"] = "blue".__eq__, echo
        taken, sent = await passed_on(first, "blue")
        assert taken
        body = {"type": "http.response.body", "body": b"x/mcp", "more_body": False}
        assert sent == [START, body]
        assert await passed_on(first, "red") == (False, [])
        assert await passed_on(second, "blue") == (False, [])


async def test_a_request_ends_when_its_handler_fails(tmp_path: Path) -> None:
    async with worker(1, tmp_path) as first, worker(2, tmp_path) as second:
        second.answers["rooms"] = "blue".__eq__, fail
        assert await passed_on(first, "blue") == (True, [START])


async def test_a_worker_that_has_ended_is_left_out(tmp_path: Path) -> None:
    async with worker(1, tmp_path) as first:
        (tmp_path / "2-1.figures").touch()
        assert await passed_on(first, "blue") == (False, [])
