"""Who answers at `/agents/-/skills/NAME`: a stranger's card captures no skill of the operator's."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.gateway.configuration import registered
from dragoman.settings import Server, Settings
from dragoman.testing.served import served
from gateway.behind import Gateway
from gateway.rooms import Rooms
from server.two_agents import TwoAgents, serving
from waiting import until

TOKEN = "a-token-of-ann-0123456789"
CALLS = 12


def translator(name: str) -> Agent:
    agent = Agent(name, description=f"{name} translates.")

    @agent.skill("translate", description=f"As {name} does it.", default=True)
    async def translate(turn: Turn) -> str:
        return name

    return agent


async def answers(url: str, **headers: str) -> Counter[str]:
    """Who answered how often, as a caller that knows nothing but HTTP sees it."""
    found: Counter[str] = Counter()
    async with httpx2.AsyncClient(timeout=60, headers={"A2A-Version": "1.0", **headers}) as client:
        for number in range(CALLS):
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            reply = await client.post(
                f"{url}/agents/-/skills/translate/message:send", json={"message": message}
            )
            assert reply.status_code == 200, reply.text
            found[reply.json()["task"]["artifacts"][0]["parts"][0]["text"]] += 1
    return found


@asynccontextmanager
async def gateway(folder: Path, agents: dict[str, Agent], **more: Any) -> AsyncIterator[TwoAgents]:
    """A gateway where Ann may register agents, with an audit log."""
    (folder / "ann").write_text(TOKEN)
    ann = Known(secret=Secret(file=str(folder / "ann")), scopes=("agents:register",))
    more.setdefault("auth", {"all": Tokens(callers={"ann": ann})})
    private = Settings(server=Server(allow_private=True))
    server = {"audit": str(folder / "audit.jsonl")}
    async with serving(
        agents, several=True, registers=registered(private), server=server, **more
    ) as running:
        yield running


async def register(url: str, name: str, where: str) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(timeout=60, headers=bearer) as client:
        reply = await client.post(f"{url}/agents", json={"name": name, "url": where})
        assert reply.status_code == 200, reply.text

        async def has_skill() -> bool:
            found = (await client.get(f"{url}/agents?skill=translate")).json()["agents"]
            return name in [each["name"] for each in found]

        await until(has_skill)


@pytest.mark.parametrize("listed", [False, True])
async def test_a_registrar_shares_a_skill_only_if_the_operator_lists_it(
    tmp_path: Path, listed: bool
) -> None:
    more = {"skills": {"translate": ("honest", "stranger")}} if listed else {}
    async with (
        asyncio.timeout(240),
        served(translator("stranger")) as far,
        gateway(tmp_path, {"honest": translator("honest")}, **more) as door,
    ):
        await register(door.url, "stranger", far)
        found = await answers(door.url, authorization=f"Bearer {TOKEN}")
    assert set(found) == ({"honest", "stranger"} if listed else {"honest"})
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    chosen = [each for each in lines if each["operation"] == "ChooseAgent"]
    assert Counter(each["agent"] for each in chosen) == found
    assert {(each["skill"], each["principal"]) for each in chosen} == {("translate", "ann")}
    assert {each["why"] for each in chosen} == {
        "listed in [skills], 2 of 2 agents" if listed else "source file, 1 of 2 agents"
    }


async def test_a_member_of_a_room_neither_captures_a_skill_nor_describes_it(
    tmp_path: Path,
) -> None:
    """The stranger is there first: its card must not stay the description of the skill."""
    rooms, other = Rooms(), Agent("Other", description="Hums.")
    other.skill("hum", default=True)(_hum)
    async with (
        asyncio.timeout(240),
        gateway(tmp_path, {"other": other}, channels=rooms.meeting(), auth={}) as door,
        rooms.met(tmp_path, Gateway(door.url, {}), translator("stranger"), "stranger"),
    ):
        assert set(await answers(door.url)) == {"stranger"}
        assert await described(door.url) == "As stranger does it."
        await door.app.add_agent("honest", translator("honest"))
        assert set(await answers(door.url)) == {"honest"}
        assert await described(door.url) == "As honest does it."


async def described(url: str) -> str:
    """What the card of the skill says."""
    where = f"{url}/agents/-/skills/translate/.well-known/agent-card.json"
    async with httpx2.AsyncClient(timeout=60) as client:
        return str((await client.get(where)).json()["skills"][0]["description"])


async def _hum(turn: Turn) -> str:
    return "hm"
