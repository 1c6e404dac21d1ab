"""Agents register themselves, or an operator does; a running server serves them at once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from dragoman import Agent
from dragoman.client import connect
from dragoman.core.auth_schemes import Known, Secret, Tokens
from dragoman.gateway import registry as registries
from dragoman.gateway.configuration import upstream_of
from dragoman.settings import HostedAgent, Settings
from dragoman.store import open_store
from dragoman.store.registry import (
    MOST_OF_OWNER,
    AgentHealth,
    RegistryEntry,
    RegistryStore,
    Source,
)
from gateway.faulty import door_to
from server.two_agents import TwoAgents, desk, serving
from waiting import until

FAR = "https://93.184.216.34"
"""A public address that nobody calls here: the agents of these tests are made on the spot."""


def made(entry: RegistryEntry) -> Agent:
    """What is at the address is not asked: each agent says its address."""
    return desk(entry.addresses[0])


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Ann and Bob may register, Olga is the operator, Carl may do nothing."""
    scopes = {
        "ann": "agents:register",
        "bob": "agents:register",
        "olga": "agents:admin",
        "carl": "",
    }
    for name in scopes:
        monkeypatch.setenv(f"T_{name}", f"{name}-token-of-sixteen")
    callers = {
        name: Known(secret=Secret(env=f"T_{name}"), scopes=(scope,) if scope else ())
        for name, scope in scopes.items()
    }
    return {"all": Tokens(callers=callers)}


def as_(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-token-of-sixteen"}


class House(TwoAgents):
    """A gateway, and its registry as callers reach it."""

    client: httpx2.AsyncClient

    async def register(self, who: str, name: str, url: str = FAR, **more: Any) -> httpx2.Response:
        body = {"name": name, **({"url": url} if url else {}), **more}
        return await self.client.post("/agents", json=body, headers=as_(who))

    async def names(self) -> list[str]:
        reply = await self.client.get("/agents?pageSize=100")
        return [each["name"] for each in reply.json()["agents"]]

    async def says(self, name: str, who: str = "carl") -> str:
        where = f"{self.url}/agents/{name}"
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {
                "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            },
        }
        reply = await self.client.post(where, json=body, headers={**as_(who), "A2A-Version": "1.0"})
        return str(reply.json()["result"]["task"]["artifacts"][0]["parts"][0]["text"])


@asynccontextmanager
async def gateway(people: dict[str, Any], **options: Any) -> AsyncIterator[House]:
    options.setdefault("served", {"alpha": desk("alpha")})
    async with serving(
        options.pop("served"), several=True, registers=made, auth=people, **options
    ) as two:
        running = House(two.app, two.url)
        async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
            running.client = client
            yield running


async def test_an_agent_that_registers_itself_is_served_when_the_call_returns(
    people: dict[str, Any],
) -> None:
    async with gateway(people, server={"allow_private": False}) as running:
        reply = await running.register("ann", "one", tags=["fast"], lease=60)
        assert reply.status_code == 200
        assert reply.json()["source"] == "token"
        assert await running.names() == ["alpha", "one"]
        assert await running.says("one") == f"{FAR} hi"
        entry = (await running.client.get("/agents/one")).json()
        assert (entry["tags"], entry["health"]) == (["fast"], "up")
        assert entry["leaseUntil"] > time.time() * 1000
        assert "addresses" not in entry  # where it is, is for operators
        found = (await running.client.get("/agents?tag=fast")).json()["agents"]
        assert [each["name"] for each in found] == ["one"]
        moved = await running.register("ann", "one", f"{FAR}/elsewhere")
        assert moved.status_code == 200
        assert await running.says("one") == f"{FAR}/elsewhere hi"
        gone = await running.client.delete("/agents/one", headers=as_("ann"))
        assert gone.status_code == 204
        await until(lambda: "one" not in running.app.mounts)
        assert await running.names() == ["alpha"]
        assert (await running.client.delete("/agents/one", headers=as_("ann"))).status_code == 404


async def test_only_callers_with_the_scope_may_register(people: dict[str, Any]) -> None:
    async with gateway(people) as running:
        for headers, status in ((as_("carl"), 403), ({}, 401), (as_("eve"), 401)):
            reply = await running.client.post(
                "/agents", json={"name": "x", "url": FAR}, headers=headers
            )
            assert reply.status_code == status
            reply = await running.client.delete("/agents/alpha", headers=headers)
            assert reply.status_code == status
        assert await running.names() == ["alpha"]


async def test_a_name_that_is_taken_is_refused_and_never_replaced(people: dict[str, Any]) -> None:
    async with gateway(people) as running:
        assert (await running.register("ann", "one")).status_code == 200
        stolen = await running.register("bob", "one", f"{FAR}/bob")
        assert stolen.status_code == 409
        assert "belongs to another agent" in stolen.json()["message"]
        assert await running.says("one") == f"{FAR} hi"
        assert (await running.client.delete("/agents/one", headers=as_("bob"))).status_code == 404
        renewed = await running.register("bob", "one", "")
        assert renewed.status_code == 404
        for who in ("ann", "olga"):  # not even the operator replaces what stands in the file
            assert (await running.register(who, "alpha")).status_code == 409
            reply = await running.client.delete("/agents/alpha", headers=as_(who))
            assert reply.status_code == 404
        assert (await running.register("olga", "one", f"{FAR}/olga")).status_code == 200
        assert await running.says("one") == f"{FAR}/olga hi"
        assert (await running.register("ann", "one")).status_code == 409


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "Not A Name", "url": FAR}, "cannot be the name"),
        ({"name": "-", "url": FAR}, "cannot be the name"),
        ({"name": "x" * 64, "url": FAR}, "cannot be the name"),
        ({"name": "one", "url": "http://127.0.0.1:80"}, "may not be called"),
        ({"name": "one", "url": "http://10.0.0.1:80"}, "may not be called"),
        ({"name": "one", "url": "http://10.0.0.1:80"}, "allow_private in [server]"),
        ({"name": "one", "url": "iat+ws://127.0.0.1:9/iat/ws"}, "allow_private in [server]"),
        ({"name": "one", "url": "xiaoyi+ws://93.184.216.34:9000/x"}, "dials in"),
        ({"name": "one", "url": FAR, "urls": ["xiaoyi+ws://93.184.216.34:9/x"]}, "dials in"),
        ({"name": "one", "url": "http://[::1]:80"}, "may not be called"),
        ({"name": "one", "url": "http://169.254.169.254"}, "may not be called"),
        ({"name": "one", "url": "file:///etc/passwd"}, ""),
        ({"name": "one", "url": "https://u:p@example.com"}, "user name or password"),
        ({"name": "one", "url": FAR, "lease": 0.1}, "lease must be"),
        ({"name": "one", "url": FAR, "tags": ["x" * 65]}, "tags"),
        ({"name": "one", "url": FAR, "urls": [f"{FAR}/{n}" for n in range(16)]}, "addresses"),
        ({"name": "one", "url": FAR, "admin": True}, "unknown field"),
        ({"url": FAR}, "name"),
        ([], "registration is not valid"),
    ],
)
async def test_a_wrong_registration_is_told_what_is_wrong(
    people: dict[str, Any], body: Any, said: str
) -> None:
    async with gateway(people, server={"allow_private": False}) as running:
        reply = await running.client.post("/agents", json=body, headers=as_("ann"))
        assert reply.status_code == 400
        assert said in reply.json()["message"]
        assert await running.names() == ["alpha"]


async def test_what_no_setting_opens_is_refused_without_naming_one(
    people: dict[str, Any],
) -> None:
    async with gateway(people, server={"allow_private": False}) as running:
        reply = await running.register("ann", "one", "http://169.254.169.254")
        assert reply.status_code == 400
        assert "allow_private" not in reply.json()["message"]


async def test_a_registrar_cannot_have_us_listen(people: dict[str, Any]) -> None:
    """`xiaoyi+ws` names an address of ours. Whoever has a token must not open ports here."""
    async with gateway(people) as running:
        for where in ("127.0.0.1:9", "0.0.0.0:9", "93.184.216.34:9"):
            reply = await running.register("ann", "one", f"xiaoyi+ws://{where}/x")
            assert reply.status_code == 400
            assert "dials in" in reply.json()["message"]
        public = await running.register("olga", "one", "xiaoyi+ws://93.184.216.34:9/x")
        assert public.status_code == 400


async def test_registrations_are_in_the_audit_log(people: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with gateway(people, server={"audit": str(path)}) as running:
        await running.register("ann", "one", lease=60)
        await running.register("ann", "one", "", lease=60)  # a renewal changes nothing
        await running.register("bob", "one")
        await running.register("carl", "two")
        await running.register("ann", "one", f"{FAR}/elsewhere")
        await running.client.delete("/agents/one", headers=as_("bob"))
        await running.client.delete("/agents/one", headers=as_("olga"))
        await running.client.post("/agents", json={"name": "three", "url": FAR})  # nobody
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [(one["principal"], one["operation"], one["agent"], one["outcome"]) for one in lines]
    assert told == [
        ("ann", "RegisterAgent", "one", "ok"),
        ("bob", "RegisterAgent", "one", "conflict"),
        ("carl", "RegisterAgent", "-", "forbidden"),
        ("ann", "RegisterAgent", "one", "ok"),
        ("bob", "UnregisterAgent", "one", "not_found"),
        ("olga", "UnregisterAgent", "one", "ok"),
    ]
    assert [one["why"] for one in lines if one["outcome"] == "ok"] == ["token", "token", "token"]
    assert FAR not in path.read_text()  # where agents are, is not in it


async def test_a_huge_card_is_refused(people: dict[str, Any]) -> None:
    async with gateway(people) as running:
        reply = await running.register("ann", "one", card={"name": "x" * 300_000})
        assert reply.status_code == 413
        assert await running.names() == ["alpha"]


async def test_what_is_no_card_is_refused(people: dict[str, Any]) -> None:
    async with gateway(people) as running:
        reply = await running.register("ann", "one", card={"name": 5})
        assert reply.status_code == 400
        assert await running.names() == ["alpha"]


async def test_the_registry_records_how_an_agent_is_and_when_it_was_last_seen(
    people: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "SWEEP", 0.1)
    quick: dict[str, Any] = {"health": 0.1, "failures": 1, "probe": 0.1, "connect_timeout": 2.0}

    def make(entry: RegistryEntry) -> Agent:
        section = HostedAgent(url=entry.addresses[0], **quick)
        return upstream_of(entry.name, section, own)

    own = replace(Settings(), server=replace(Settings().server, allow_private=True))
    async with (
        asyncio.timeout(120),
        door_to(tmp_path, desk("far")) as door,
        serving({}, several=True, registers=make, auth=people) as two,
    ):
        store = two.app.registry.store
        entry = RegistryEntry(name="far", source=Source.CLI, addresses=(door.url,), seen_at=1)
        await store.put(entry)
        up = await until(lambda: _health(store, AgentHealth.UP))
        assert up.seen_at > 1
        await door.close()
        down = await until(lambda: _health(store, AgentHealth.DOWN))
        assert down.seen_at >= up.seen_at
        await door.open()
        assert (await until(lambda: _health(store, AgentHealth.UP))).seen_at > up.seen_at


async def _health(store: RegistryStore, health: AgentHealth) -> RegistryEntry | None:
    entry = await store.find("far")
    return entry if entry is not None and entry.health is health else None


async def test_one_token_cannot_fill_the_registry(people: dict[str, Any]) -> None:
    async with gateway(people) as running:
        store = running.app.registry.store
        assert (await running.register("ann", "first")).status_code == 200
        first = await store.find("first")
        assert first is not None
        for number in range(MOST_OF_OWNER - 1):
            await store.put(replace(first, name=f"a{number}"))
        assert (await running.register("ann", "one-more")).status_code == 429
        assert (await running.register("ann", "first", lease=60)).status_code == 200
        assert (await running.register("bob", "bobs")).status_code == 200


@pytest.mark.slow  # a lease of two seconds
async def test_a_lease_that_is_not_renewed_ends(
    people: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.server.registry.registration.SHORTEST_LEASE", 0.01)
    monkeypatch.setattr(registries, "SWEEP", 0.1)
    async with gateway(people) as running:
        running.app.registry._offline_ms = 2_000
        assert (await running.register("ann", "brief", lease=0.2)).status_code == 200
        assert (await running.register("ann", "kept", lease=60)).status_code == 200

        async def health() -> str:
            reply = await running.client.get("/agents/brief")
            return reply.json().get("health", "gone")

        await until(lambda: _is(health, "offline"))
        renewed = await running.register("ann", "brief", "", lease=60)
        assert renewed.status_code == 200
        await until(lambda: _is(health, "up"))
        assert (await running.register("ann", "brief", "", lease=0.2)).status_code == 200
        await until(lambda: "brief" not in running.app.mounts)
        assert await running.names() == ["alpha", "kept"]


async def _is(ask: Any, value: str) -> bool:
    return bool(await ask() == value)


async def test_what_another_process_registers_is_served_within_a_second(
    people: dict[str, Any], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with gateway(people, store=url) as running:
        other = open_store(url)
        await other.open()
        try:
            await other.registry.put(RegistryEntry(name="new", source=Source.CLI, addresses=(FAR,)))
            began = time.monotonic()
            await until(lambda: "new" in running.app.mounts)
            assert time.monotonic() - began < 30  # a third of one, where nothing else runs
            assert await running.says("new") == f"{FAR} hi"
            await other.registry.remove("new", Source.CLI, "")
            await until(lambda: "new" not in running.app.mounts)
        finally:
            await other.close()


async def test_the_registry_is_there_again_after_a_restart(
    people: dict[str, Any], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with gateway(people, store=url) as running:
        assert (await running.register("ann", "one", lease=600)).status_code == 200
        assert (await running.register("ann", "alphas-friend", lease=600)).status_code == 200
    both = {"alpha": desk("alpha"), "alphas-friend": desk("of the file")}
    async with gateway(people, store=url, served=both) as running:
        assert await running.names() == ["alpha", "alphas-friend", "one"]
        assert await running.says("one") == f"{FAR} hi"
        assert await running.says("alphas-friend") == "of the file hi"
        renewed = await running.register("ann", "alphas-friend", "")
        assert renewed.status_code == 404  # the file has taken the name
    async with gateway(people, store=url) as running:
        assert await running.names() == ["alpha", "one"]


async def test_an_agent_that_cannot_be_served_does_not_hold_up_others(
    people: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, "AGAIN", 0.1)
    broken = {"bad"}

    def make(entry: RegistryEntry) -> Agent:
        if entry.name in broken:
            raise OSError("nobody there")
        return made(entry)

    async with gateway(people) as running:
        running.app.registry._make = make
        assert (await running.register("ann", "bad")).status_code == 200
        assert (await running.register("ann", "good")).status_code == 200
        assert await running.names() == ["alpha", "good"]
        broken.clear()
        await until(lambda: "bad" in running.app.mounts)
        assert (await running.client.delete("/agents/bad", headers=as_("olga"))).status_code == 204


async def test_a_stream_of_another_agent_goes_on_while_agents_register(
    people: dict[str, Any],
) -> None:
    async with (
        gateway({}, server={"insecure": True}) as running,
        connect(f"{running.url}/agents/alpha", allow_private=True) as agent,
        agent.stream("wait") as stream,
        asyncio.timeout(120),
    ):
        async for _ in stream:
            break
        store = running.app.registry.store
        await store.put(RegistryEntry(name="x", source=Source.CLI, addresses=(FAR,)))
        await until(lambda: "x" in running.app.mounts)
        await store.remove("x", Source.CLI, "")
        await until(lambda: "x" not in running.app.mounts)
        assert stream.task is not None
        await agent.cancel(stream.task)
        async for _ in stream:
            pass
        assert stream.connections == 1
