"""`connect("xiaoyi+ws://...")` listens until the agent dials in, and calls it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.client import connect as dial
from websockets.exceptions import InvalidStatus

from dragoman import State
from dragoman.client import connect
from dragoman.client.limits import ClientLimits
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.core.events import ArtifactChunk, Stamped
from dragoman.dialects.xiaoyi.signing import handshake_headers
from dragoman.store.clock import wall_clock
from ports import own_port
from waiting import before_again, until
from xiaoyi.links import AGENT, PATH, Skill, StandIn, echo

AK, SK = "ak-1", "sk-of-many-characters"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_XIAOYI_AK", AK)
    monkeypatch.setenv("DRAGOMAN_XIAOYI_SK", SK)


@asynccontextmanager
async def dialling(port: int, skill: Skill = echo, sk: str = SK) -> AsyncIterator[list[Any]]:
    """An agent that dials until it is let in; what it was refused with."""
    refusals: list[int] = []

    async def work() -> None:
        url = f"ws://127.0.0.1:{port}{PATH}"
        while True:
            try:
                headers = handshake_headers(AK, sk, AGENT, wall_clock())
                async with dial(url, additional_headers=headers) as socket:
                    await socket.send(json.dumps({"msgType": "clawd_bot_init", "agentId": AGENT}))
                    await StandIn(socket, skill, AGENT).read()
            except InvalidStatus as exc:
                refusals.append(exc.response.status_code)
            except OSError:
                pass
            await before_again()

    task = asyncio.create_task(work())
    try:
        yield refusals
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_agent_that_dials_in_is_called() -> None:
    port = own_port()
    async with (
        asyncio.timeout(120),
        dialling(port),
        connect(f"xiaoyi+ws://127.0.0.1:{port}/{AGENT}") as agent,
    ):
        assert agent.dialect == "xiaoyi"
        assert agent.card.name == AGENT
        task = await agent.send("hello")
        assert (task.state, task.text) == (State.COMPLETED, "hello!")
        pieces = [
            event.event.artifact.text
            async for event in agent.stream("again")
            if isinstance(event, Stamped) and isinstance(event.event, ArtifactChunk)
        ]
        assert pieces == ["again", "!"]
        cleared = await agent.invoke("clearContext", sessionId=task.context_id)
        assert cleared == {"status": {"state": "cleared"}}


async def test_a_question_is_asked_and_answered() -> None:
    async def asks(agent: StandIn, request: dict[str, Any]) -> None:
        said = request["params"]["message"]["parts"][0]["text"]
        if said == "book":
            await agent.status(request, "input-required", "Which city?", final=True)
        else:
            await agent.text(request, f"booked {said}", final=True)

    port = own_port()
    async with (
        asyncio.timeout(120),
        dialling(port, asks),
        connect(f"xiaoyi+ws://127.0.0.1:{port}/{AGENT}") as agent,
    ):
        task = await agent.send("book")
        assert task.state is State.INPUT_REQUIRED
        assert (await agent.send("Kyoto", task=task)).text == "booked Kyoto"


async def test_an_agent_with_other_keys_is_not_let_in() -> None:
    port = own_port()
    async with asyncio.timeout(120), dialling(port, sk="wrong") as refusals:
        connection = connect(f"xiaoyi+ws://127.0.0.1:{port}/{AGENT}", limits=ClientLimits(wait=60))
        waiting = asyncio.ensure_future(connection.__aenter__())
        await until(lambda: bool(refusals))
        assert set(refusals) == {401}
        assert not waiting.done()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting


async def test_a_listener_that_ends_closes_its_links() -> None:
    port = own_port()
    connection = connect(f"xiaoyi+ws://127.0.0.1:{port}/{AGENT}")
    entering = asyncio.ensure_future(connection.__aenter__())
    async with asyncio.timeout(120):
        while True:
            try:
                headers = handshake_headers(AK, SK, AGENT, wall_clock())
                link = await dial(f"ws://127.0.0.1:{port}{PATH}", additional_headers=headers)
                break
            except OSError:
                await before_again()
        await entering
        await connection.__aexit__(None, None, None)
        await link.wait_closed()
    assert link.close_code == 1001


async def test_an_agent_that_does_not_come_is_named() -> None:
    address = f"xiaoyi+ws://127.0.0.1:{own_port()}/{AGENT}"
    with pytest.raises(PeerUnreachable, match="did not dial in"):
        async with connect(address, limits=ClientLimits(wait=0.2)):
            pass


@pytest.mark.parametrize(
    "address",
    ["xiaoyi+ws://127.0.0.1:1", "xiaoyi+ws://127.0.0.1/ag", "xiaoyi+wss://127.0.0.1:9/ag"],
)
async def test_an_address_that_says_too_little_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        async with connect(address):
            pass


async def test_without_keys_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGOMAN_XIAOYI_SK")
    with pytest.raises(ConfigError, match="DRAGOMAN_XIAOYI_SK"):
        async with connect(f"xiaoyi+ws://127.0.0.1:{own_port()}/{AGENT}"):
            pass
