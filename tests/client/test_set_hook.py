"""Webhooks in 0.3 over REST have two bodies, and servers that read only one of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from client.our_server import QUICK
from dragoman import connect
from dragoman.core.card import Card, Interface
from dragoman.core.errors import BadParams
from dragoman.net.http.granian_server import GranianServer, bind
from dragoman.settings import Limits

WHOLE, BARE = "config", "pushNotificationConfig"
"""The member that tells one body from the other."""


@asynccontextmanager
async def server(reads: str) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Reads one body only, and refuses the other as @a2a-js/sdk does; and what it was told."""
    told: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = json.loads((await receive())["body"])
        told.append(body)
        if reads in body:
            config = body.get(WHOLE, body)
            status, answer = 201, config
        else:
            status, answer = 400, {"code": -32602, "message": f"missing {reads}"}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    sock = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    listener = GranianServer(app, sock, Limits())
    listener.begin()
    try:
        yield url, told
    finally:
        listener.refuse()
        await listener.end(5.0)


def card(url: str) -> Card:
    rest = Interface(url=url, binding="HTTP+JSON", version="0.3")
    return Card(name="x", description="", version="1", interfaces=(rest,))


@pytest.mark.parametrize(("reads", "times"), [(WHOLE, 1), (BARE, 2)])
async def test_what_is_not_understood_is_said_in_the_other_way(reads: str, times: int) -> None:
    async with (
        server(reads) as (url, told),
        connect(url, card=card(url), dialect="a2a-0.3-rest", limits=QUICK) as agent,
    ):
        hook = await agent.set_hook("t-1", "https://a.example/hook", token="t" * 16, hook_id="h-1")
        assert (hook.task_id, hook.hook_id, hook.url) == ("t-1", "h-1", "https://a.example/hook")
    assert len(told) == times
    assert told[-1].get("name", "tasks/t-1/pushNotificationConfigs/h-1").endswith("h-1")


async def test_a_refusal_of_both_is_told() -> None:
    async with (
        server("neither") as (url, told),
        connect(url, card=card(url), dialect="a2a-0.3-rest", limits=QUICK) as agent,
    ):
        with pytest.raises(BadParams, match="missing neither"):
            await agent.set_hook("t-1", "https://a.example/hook")
    assert [WHOLE in each for each in told] == [True, False]
