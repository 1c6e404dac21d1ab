"""`dragoman agents`, and `dragoman serve --register`: against a running gateway and its store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Turn
from dragoman.app import create_app
from dragoman.cli import main
from dragoman.client import connect
from dragoman.client.credentials import Fixed
from dragoman.client.registry import TOKEN, RegistryClient
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.core.errors import ConfigError
from dragoman.gateway.configuration import registered
from dragoman.server.registry import registrant
from dragoman.settings import Server, Settings
from server.two_agents import TwoAgents, desk, serving
from waiting import until

OPERATOR = "olga-token-of-sixteen"


@pytest.fixture
def auth(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    callers = {}
    for name, scope in (("olga", "agents:admin"), ("ann", "agents:register")):
        monkeypatch.setenv(f"T_{name}", f"{name}-token-of-sixteen")
        callers[name] = Known(secret=Secret(env=f"T_{name}"), scopes=(scope,))
    monkeypatch.setenv(TOKEN, OPERATOR)
    return {"all": Tokens(callers=callers)}


@asynccontextmanager
async def gateway(auth: dict[str, Any], tmp_path: Path) -> AsyncIterator[tuple[TwoAgents, str]]:
    """A gateway that calls whatever is registered, and the address of its store."""
    store = f"sqlite:///{tmp_path}/gateway.db"
    settings = Settings(server=Server(allow_private=True))
    async with serving(
        {"alpha": desk("alpha")},
        several=True,
        registers=registered(settings),
        auth=auth,
        store=store,
    ) as two:
        yield two, store


def expert() -> Agent:
    agent = Agent("Trip planner", description="Plans trips.")

    @agent.skill("plan-trip", description="Plans a trip.", tags=("travel",), default=True)
    async def plan(turn: Turn) -> str:
        return f"to {turn.text}"

    return agent


async def run(capsys: pytest.CaptureFixture[str], *tokens: str) -> str:
    """What a command prints; it has an event loop of its own."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        await asyncio.to_thread(main, ["agents", *tokens])
    if ended.value.code:
        raise ended.value
    return capsys.readouterr().out


async def names(capsys: pytest.CaptureFixture[str], *tokens: str) -> list[str]:
    lines = (await run(capsys, *tokens, "--json")).splitlines()
    return [json.loads(line)["name"] for line in lines]


async def test_agents_are_added_found_and_removed_over_http(
    auth: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway(auth, tmp_path) as (two, _), serving({"": expert()}) as far:
        at = ("--url", two.url)
        said = await run(capsys, "add", "trips", far.url, "--tag", "fast", *at)
        assert said == "trips is registered.\n"
        assert await names(capsys, "list", *at) == ["alpha", "trips"]
        shown = json.loads(await run(capsys, "show", "trips", "--json", *at))
        assert (shown["source"], shown["tags"]) == ("cli", ["fast"])
        assert "trips" in await run(capsys, "show", "trips", *at)

        async def found() -> bool:
            return await names(capsys, "search", "--skill", "plan-trip", *at) == ["trips"]

        await until(found)  # when its card was read
        shown = json.loads(await run(capsys, "show", "trips", "--json", *at))
        assert shown["health"] == "up"
        assert await names(capsys, "search", "plans", *at) == ["trips"]
        assert await names(capsys, "search", "--tag", "fast", *at) == ["trips"]
        assert await names(capsys, "search", "--mode", "image/png", *at) == []
        async with connect(
            f"{two.url}/agents/trips",
            auth=Fixed(OPERATOR),
            allow_private=True,
        ) as agent:
            assert (await agent.send("Kyoto")).text == "to Kyoto"
        await run(capsys, "remove", "trips", *at)
        assert await names(capsys, "list", *at) == ["alpha"]


async def test_agents_are_added_and_removed_in_the_store_of_a_running_gateway(
    auth: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway(auth, tmp_path) as (two, store), serving({"": expert()}) as far:
        at = ("--store", store)
        await run(capsys, "add", "trips", far.url, *at)
        await until(lambda: "trips" in two.app.mounts)
        assert await names(capsys, "list", *at) == ["alpha", "trips"]
        shown = json.loads(await run(capsys, "show", "trips", "--json", *at))
        assert shown["addresses"] == [far.url]
        assert await names(capsys, "search", "trip", *at) == ["trips"]
        assert "trips" in await run(capsys, "list", *at)
        await run(capsys, "remove", "trips", *at)
        await until(lambda: "trips" not in two.app.mounts)


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (("add", "Not A Name", "http://127.0.0.1:1"), "cannot be the name"),
        (("show", "nobody"), "no agent called nobody"),
        (("remove", "nobody"), "no agent called nobody"),
        (("remove", "alpha"), "settings file"),
        (("add", "alpha", "http://127.0.0.1:1"), "belongs to another agent"),
    ],
)
@pytest.mark.parametrize("way", ["url", "store"])
async def test_mistakes_are_told(
    auth: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tokens: tuple[str, ...],
    said: str,
    way: str,
) -> None:
    async with gateway(auth, tmp_path) as (two, store):
        at = ("--url", two.url) if way == "url" else ("--store", store)
        with pytest.raises(SystemExit) as ended:
            await run(capsys, *tokens, *at)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err


async def test_a_gateway_that_is_away_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        await run(capsys, "list", "--url", "http://127.0.0.1:9")
    assert "cannot be reached" in capsys.readouterr().err


async def test_a_server_registers_itself_stays_registered_and_leaves(
    auth: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "ann-token-of-sixteen")
    monkeypatch.setattr(registrant, "LEASE", 5.0)
    async with gateway(auth, tmp_path) as (two, _):
        client = RegistryClient(two.url)
        async with serving({"": expert()}, server={"register": two.url}) as far:
            await until(lambda: "trip-planner" in two.app.mounts)
            entry = await two.app.registry.store.find("trip-planner")
            assert entry is not None
            assert (entry.source, entry.addresses) == ("token", (far.url,))

            async def renewed() -> bool:
                now = await two.app.registry.store.find("trip-planner")
                return now is not None and now.until > entry.until

            await until(renewed)
            assert [each["name"] for each in await client.search(skill="plan-trip")] == [
                "trip-planner"
            ]
        await until(lambda: "trip-planner" not in two.app.mounts)
        await client.close()


async def test_several_agents_of_a_server_register_themselves(
    auth: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "ann-token-of-sixteen")
    async with gateway(auth, tmp_path) as (two, _):
        many = {"one": desk("one"), "two": desk("two")}
        async with serving(many, server={"register": two.url}) as far:
            await until(lambda: {"one", "two"} <= set(two.app.mounts))
            entry = await two.app.registry.store.find("two")
            assert entry is not None
            assert entry.addresses == (f"{far.url}/agents/two/",)


def test_a_server_that_registers_needs_a_token_and_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    known: dict[str, Any] = {"store": "memory:", "register": "http://127.0.0.1:1"}
    with pytest.raises(ConfigError, match="set public_url"):
        create_app(desk("x"), Settings(server=Server(**known)))
    with pytest.raises(ConfigError, match=TOKEN):
        create_app(desk("x"), Settings(server=Server(public_url="http://127.0.0.1:2", **known)))


@pytest.mark.parametrize("way", ["url", "store"])
async def test_agents_are_discovered_from_a_list_of_card_addresses(
    tmp_path: Path, auth: dict[str, Any], capsys: pytest.CaptureFixture[str], way: str
) -> None:
    async with (
        asyncio.timeout(120),
        serving({"one": expert(), "two": desk("Second")}, several=True) as far,
        gateway(auth, tmp_path) as (two, store),
    ):
        at = ("--url", two.url) if way == "url" else ("--store", store)
        cards = [f"{far.url}/agents/{name}/.well-known/agent-card.json" for name in ("one", "two")]
        told = await run(capsys, "discover", *cards, "--tag", "found", *at)
        assert told.splitlines() == ["trip-planner is registered.", "desk is registered."]
        await until(lambda: {"trip-planner", "desk"} <= set(two.app.mounts))
        fixed = Fixed({"authorization": f"Bearer {OPERATOR}"})
        async with connect(f"{two.url}/agents/trip-planner", auth=fixed) as agent:
            assert (await agent.send("Rome")).text == "to Rome"
        # What is there stays, and an address without a card does not keep the others out.
        with pytest.raises(SystemExit):
            await run(capsys, "discover", cards[0], f"{far.url}/nothing.json", *at)
        assert "trip-planner is registered already." in capsys.readouterr().out
