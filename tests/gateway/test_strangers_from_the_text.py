"""Agents written from the source text alone behind a gateway, called in our callers' dialects:
only declared losses are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from counts import FULL
from dragoman.client.agent import RemoteAgent
from dragoman.settings.chat import IrcSettings
from gateway.behind import SECRET, gateway, settings
from gateway.matrix import SCENARIOS, expected, outcome, through
from gateway.phones import ACCESS_KEY, Phones, store_with_keys
from gateway.rooms import Rooms
from gateway.strangers.from_the_text import NOT_RUN, PLAIN_AGENTS, IatDesk, PlainAgent, XiaoYiDesk
from gateway.strangers.legacy_desk import LegacyDesk
from gateway.strangers.room_desk import RoomDesk
from gateway.test_matrix import ARRIVALS, DIALECTS, LITE, XIAOYI, Ways, keys
from iat.stranger import running
from lite.irc_stranger import stranger as entering
from net.chat.ngircd import NEEDS_NGIRCD, Ngircd
from ports import own_port
from waiting import until
from xiaoyi.links import PATH
from xiaoyi.strangers import stranger as dialling

pytestmark = pytest.mark.slow  # opens many sockets
__all__ = ["keys"]
FRONTS = DIALECTS if FULL else ("a2a-1.0", "a2a-0.3-rest", "iat")
IN_A_ROOM = DIALECTS if FULL else ("a2a-0.3",)
"""Nobody knows when a member of a room has said all, so each answer takes some seconds, and the
scenarios of a caller run at once."""
NAME, ROOM = "plain", "#town"
UNUSED = {each: {"url": "http://127.0.0.1:9"} for each in ("one", "two")}
"""A gateway with several agents has each at an address of its own, also those that arrive later."""


@asynccontextmanager
async def ways(folder: Path, dialect: str) -> AsyncIterator[Ways]:
    """The agent of a dialect behind a gateway, which is called in all of `FRONTS`."""
    port = own_port()
    async with AsyncExitStack() as stack:
        phones = Phones(stack, [NAME] if XIAOYI in FRONTS else [])
        rooms = Rooms()
        of_callers = rooms.of([NAME] if LITE in FRONTS else [])
        sections: dict[str, dict[str, Any]] = {}
        channels: dict[str, Any] = {}
        match dialect:
            case "iat":
                desk = stack.enter_context(running(IatDesk()))
                sections = {NAME: {"url": f"iat+{desk.url}/"}}
            case "a2a-0.1" | "a2a-go":
                legacy = stack.enter_context(running(LegacyDesk(go=dialect == "a2a-go")))
                sections = {NAME: {"url": legacy.url, "dialect": dialect}}
            case "lite":
                server = Ngircd(folder)
                stack.callback(server.stop)
                server.start()
                RoomDesk(await stack.enter_async_context(entering(server.port, NAME, ROOM)))
                channels["town"] = IrcSettings(
                    host="127.0.0.1",
                    port=server.port,
                    tls=False,
                    nick="gate",
                    rooms=(ROOM,),
                    agents=(),
                    meet=True,
                    messages_per_second=1000,
                )
        if dialect not in ARRIVALS:
            sections[NAME] |= phones.link(NAME)
            channels |= of_callers
        store = await store_with_keys(folder, NAME)
        own = settings(folder, grpc_port=port, store=store, channels=channels)
        door = await stack.enter_async_context(gateway(UNUSED | sections, own, wait=False))
        if dialect == XIAOYI:
            link = door.url.replace("http:", "ws:") + PATH
            dialler = dialling(link, ACCESS_KEY, SECRET, NAME, XiaoYiDesk())
            await stack.enter_async_context(dialler)
        await served_at(door.at(NAME))
        if dialect in ARRIVALS and {XIAOYI, LITE} & {*FRONTS}:
            # Another gateway takes an agent that has arrived by itself to phones and rooms.
            relayed = UNUSED | {NAME: {"url": door.at(NAME)} | phones.link(NAME)}
            again = gateway(relayed, settings(folder, channels=of_callers), wait=False)
            await served_at((await stack.enter_async_context(again)).at(NAME))
        await phones.connected()
        yield Ways(door.at(NAME), port, door, port, phones, rooms)


async def served_at(url: str) -> None:
    """Waits until an agent is there."""
    async with httpx2.AsyncClient(timeout=60) as client:

        async def has_card() -> bool:
            card = await client.get(f"{url}/.well-known/agent-card.json")
            return card.status_code == 200

        await until(has_card)


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(each, id=each.dialect, marks=NEEDS_NGIRCD if each.dialect == LITE else ())
        for each in PLAIN_AGENTS
    ],
)
async def test_an_agent_written_from_the_text(tmp_path: Path, agent: PlainAgent) -> None:
    wrong = []
    async with ways(tmp_path, agent.dialect) as way:
        at_once = asyncio.Semaphore(len(agent.scenarios) if agent.dialect == LITE else 1)

        async def run(scenario: str, caller: RemoteAgent) -> Any:
            async with at_once:
                return await outcome(scenario, caller)

        for front in IN_A_ROOM if agent.dialect == LITE else FRONTS:
            async with way.call(front, NAME) as caller:
                scenarios = agent.run_by(front)
                found = await asyncio.gather(*(run(each, caller) for each in scenarios))
            for scenario, given in zip(scenarios, found, strict=True):
                meant = expected(scenario, *through(front, agent.dialect))
                if given != meant:
                    wrong.append(f"{front}, {scenario}: {given} is not {meant}")
    assert wrong == [], "\n".join(wrong)


def test_every_scenario_of_an_agent_is_one() -> None:
    for agent in PLAIN_AGENTS:
        assert {*agent.scenarios} <= {*SCENARIOS}
    known = {each.dialect: each for each in PLAIN_AGENTS}
    for dialect, caller, scenario in NOT_RUN:
        assert scenario in known[dialect].scenarios
        assert caller in DIALECTS
