"""A stream that never ends does not fill the memory of its reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from client.test_lines import at
from dragoman import connect
from dragoman.client import ClientLimits
from dragoman.client.event_stream import Events
from dragoman.core.card import Card
from dragoman.core.errors import PeerMisbehaved
from dragoman.core.model import State, Task
from dragoman.net.http.asgi import Receive, Scope, Send
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.settings import Limits
from waiting import turns

MIB = 1024 * 1024
NAMES = {"taskId": "t", "contextId": "c"}
Event = dict[str, Any]


def working(**more: Any) -> Event:
    return {"statusUpdate": {**NAMES, "status": {"state": "TASK_STATE_WORKING", **more}}}


def made(id: str, *parts: Any, append: bool, **more: Any) -> Event:
    artifact = {"artifactId": id, "parts": [*parts], **more}
    return {"artifactUpdate": {**NAMES, "artifact": artifact, "append": append}}


def said(id: str, *parts: Any, **more: Any) -> Event:
    return {"messageId": id, "role": "ROLE_AGENT", "parts": [*parts], **NAMES, **more}


FLOODS: dict[str, Callable[[int], Event]] = {
    "one artifact grows": lambda n: made("a", {"text": "x" * 10_000}, append=n > 0),
    "by very little": lambda n: made("a", *[{"text": ""}] * 100, append=n > 0),
    "by data": lambda n: made("a", {"data": {"x": "x" * 10_000}}, append=n > 0),
    "by links": lambda n: made("a", {"url": f"http://x/{'x' * 10_000}"}, append=n > 0),
    "by metadata": lambda n: made(
        "a", {"text": "x"}, append=n > 0, metadata={f"x{n}": "x" * 10_000}
    ),
    "many artifacts": lambda n: made(f"{n}{'x' * 1000}", {"text": ""}, append=False),
    "messages": lambda n: working(message=said(f"m{n}", {"text": "x" * 10_000})),
    "messages without content": lambda n: working(
        message=said(f"m{n}", {"text": ""}, referenceTaskIds=["x" * 1000])
    ),
    "one message in pieces": lambda n: {"message": said("m", {"text": "x" * 10_000})},
}


@asynccontextmanager
async def endless(event: Callable[[int], Event], times: int | None) -> AsyncIterator[Card]:
    """An agent that streams these events, for ever or so many times, and then completes."""

    over = False

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = b""
        while (message := await receive())["type"] == "http.request":
            request += message.get("body", b"")
            if not message.get("more_body"):
                break
        id = json.loads(request)["id"]
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def tell(event: Event) -> None:
            told = json.dumps({"jsonrpc": "2.0", "id": id, "result": event}).encode()
            body = b"data: " + told + b"\n\n"
            await send({"type": "http.response.body", "body": body, "more_body": True})

        await tell(
            {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}
        )
        for n in count() if times is None else range(times):
            if over:
                return
            await tell(event(n))
            await turns()  # what nobody reads any more is sent without a pause
        await tell({"statusUpdate": {**NAMES, "status": {"state": "TASK_STATE_COMPLETED"}}})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    listener = GranianServer(app, sock, Limits())
    listener.begin()
    try:
        yield replace(at((f"{url}/", "JSONRPC", "1.0")), streaming=True)
    finally:
        over = True
        listener.refuse()
        await listener.end(0.1)


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("iterated", [False, True], ids=["result", "events"])
async def test_a_stream_that_never_ends_is_left_at_the_limit(flood: str, iterated: bool) -> None:
    limits = ClientLimits(task_size=MIB, retries=0)
    seen = 0

    async def read(events: Events) -> None:
        nonlocal seen
        async with asyncio.timeout(60):
            if not iterated:
                await events.result()
            async for _ in events:
                seen += 1

    async with (
        endless(FLOODS[flood], None) as card,
        connect(card.interfaces[0].url, card=card, limits=limits) as agent,
    ):
        events = agent.stream("hello")
        with pytest.raises(PeerMisbehaved, match=r"1048576 bytes \(ClientLimits\.task_size\)"):
            await read(events)
        # What came before it is still there.
        assert isinstance(events.task, Task)
        assert events.task.state is State.WORKING
    assert seen < 20_000


@pytest.mark.parametrize(
    "event",
    [
        lambda n: made("a", {"text": "x" * 100_000}, append=False),
        lambda n: working(timestamp="2026-01-01T00:00:00Z"),
    ],
    ids=["an artifact that is replaced", "states"],
)
async def test_a_long_stream_that_holds_little_is_read_to_its_end(
    event: Callable[[int], Event],
) -> None:
    limits = ClientLimits(task_size=200_000)
    async with (
        endless(event, 400) as card,
        connect(card.interfaces[0].url, card=card, limits=limits) as agent,
    ):
        async with asyncio.timeout(60):
            found = await agent.stream("hello").result()
    assert isinstance(found, Task)
    assert found.state is State.COMPLETED
