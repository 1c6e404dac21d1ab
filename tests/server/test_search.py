"""`GET /agents` finds agents by what stands on their cards, as an AI Catalog too."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import pytest

from dragoman import Agent, Turn
from dragoman.app import create_app
from dragoman.server.registry.agent_index import AgentIndex, Search
from dragoman.settings import Server, Settings
from server.two_agents import TwoAgents, desk, serving


def expert(name: str, skill: str, *tags: str, **about: Any) -> Agent:
    agent = Agent(name, description=f"Knows about {skill}.", **about)

    @agent.skill(skill, description=f"Does {skill}.", tags=tags)
    async def work(turn: Turn) -> str:
        return skill

    return agent


def experts() -> dict[str, Agent]:
    return {
        "trips": expert("Trip planner", "plan-trip", "travel"),
        "hotels": expert("Hotel finder", "book-room", "travel", "Hotels"),
        "painter": expert("Painter", "paint", "art", output_modes=("image/png",)),
    }


async def found(two: TwoAgents, query: str) -> list[str]:
    async with httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        listed = (await client.get(f"/agents?{query}")).json()
        return [each["name"] for each in listed["agents"]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["hotels", "painter", "trips"]),
        ("skill=plan-trip", ["trips"]),
        ("skill=nothing", []),
        ("tag=travel", ["hotels", "trips"]),
        ("tag=HOTELS", ["hotels"]),
        ("mode=image/png", ["painter"]),
        ("mode=text/plain", ["hotels", "painter", "trips"]),
        ("q=plan", ["trips"]),
        ("q=knows+room", ["hotels"]),
        ("q=knows", ["hotels", "painter", "trips"]),
        ("q=xyz", []),
        ("tag=travel&q=finder", ["hotels"]),
        ("tag=travel&skill=paint", []),
    ],
)
async def test_agents_are_found_by_skill_tag_mode_and_text(query: str, names: list[str]) -> None:
    async with serving(experts()) as two:
        assert await found(two, query) == names


async def test_pages_of_a_search_follow_each_other() -> None:
    agents = {
        f"agent-{n:02}": expert(f"Agent {n}", "same", "odd" if n % 2 else "even") for n in range(9)
    }
    async with serving(agents) as two, httpx2.AsyncClient(base_url=two.url, timeout=60) as client:
        names: list[str] = []
        token = ""
        while True:
            query = {"tag": "even", "pageSize": "2", "pageToken": token}
            listed = (await client.get("/agents", params=query)).json()
            names += [each["name"] for each in listed["agents"]]
            token = listed.get("nextPageToken", "")
            if not token:
                break
        assert names == [f"agent-{n:02}" for n in range(0, 9, 2)]
        assert (await client.get("/agents?pageSize=x")).status_code == 400


async def test_a_search_knows_agents_that_come_change_and_go() -> None:
    async with serving(experts()) as two:
        await two.app.add_agent("singer", expert("Singer", "sing", "art"))
        assert await found(two, "tag=art") == ["painter", "singer"]
        await two.app.replace_agent("singer", expert("Dancer", "dance", "art"))
        assert await found(two, "skill=sing") == []
        assert await found(two, "q=dancer") == ["singer"]
        await two.app.remove_agent("painter")
        assert await found(two, "tag=art") == ["singer"]
        agent = two.app.mounts["singer"].agent
        agent.description = "Sculpts now."
        agent.card_changed()
        assert await found(two, "q=sculpts") == ["singer"]


async def test_one_agent_has_a_page_beside_its_json_rpc_address() -> None:
    async with (
        serving(experts()) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        entry = (await client.get("/agents/trips")).json()
        assert entry["title"] == "Trip planner"
        assert entry["url"] == f"{two.url}/agents/trips/"
        listed = (await client.get("/agents?skill=plan-trip")).json()["agents"]
        assert listed == [entry]
        assert (await client.get("/agents/nobody")).status_code == 404


async def test_the_agents_are_an_ai_catalog() -> None:
    async with (
        serving(experts()) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        reply = await client.get("/.well-known/ai-catalog.json")
        assert reply.headers["content-type"] == "application/ai-catalog+json"
        catalog = reply.json()
        assert catalog["specVersion"] == "1.0"
        entries = catalog["entries"]
        assert [each["displayName"] for each in entries] == [
            "Hotel finder",
            "Painter",
            "Trip planner",
        ]
        assert {each["type"] for each in entries} == {"application/a2a-agent-card+json"}
        assert entries[0]["identifier"] == "urn:air:127.0.0.1:hotels:a2a"
        card = (await client.get(entries[0]["url"])).json()
        assert card["name"] == "Hotel finder"


async def test_a_large_catalog_comes_in_pages() -> None:
    async with (
        serving(experts()) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        assert two.app.listed is not None
        two.app.listed.max_catalog_bytes = 500
        where, names, pages = "/.well-known/ai-catalog.json", [], 0
        while where:
            reply = await client.get(where)
            assert len(reply.content) < 1000
            names += [each["displayName"] for each in reply.json()["entries"]]
            pages += 1
            link = reply.links.get("next")
            assert ("nextPageToken" in reply.json()) == (link is not None)
            where = str(reply.url.join(link["url"])) if link else ""
        assert names == ["Hotel finder", "Painter", "Trip planner"]
        assert pages > 1


async def test_a_catalog_shows_only_what_its_reader_may_see() -> None:
    async with (
        serving(experts(), server={"card_access": "10.0.0.0/8"}) as two,
        httpx2.AsyncClient(base_url=two.url, timeout=60) as client,
    ):
        for path in (
            *("/agents", "/agents/trips", "/.well-known/ai-catalog.json"),
            "/agents/.well-known/agent-card.json",
        ):
            assert (await client.get(path)).status_code == 403, path


@pytest.mark.slow
async def test_a_search_among_a_thousand_agents_costs_little_more_than_among_ten() -> None:
    """The CPU of it, with the same number of hits."""

    async def cost(many: int) -> float:
        agents = {f"agent-{n}": expert(f"Agent {n}", f"skill-{n // 5}") for n in range(many)}
        app = create_app(agents, Settings(server=Server(store="memory:")))
        assert app.listed is not None
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/agents",
            "query_string": b"skill=skill-1",
            "headers": [(b"host", b"127.0.0.1")],
            "scheme": "http",
        }
        sent: list[Any] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {}

        best = float("inf")
        for _ in range(5):
            began = time.process_time()
            for _ in range(100):
                await app.listed.page(scope, receive, send)
            best = min(best, time.process_time() - began)
        assert sent[1]["body"].count(b'"name"') == 5
        return best

    few, many = await cost(10), await cost(1000)
    assert many < 5 * few


def test_an_index_forgets_what_it_was_told() -> None:
    index = AgentIndex()
    for number in range(3):
        index.put(f"a{number}", desk("x").card(()), ["red"])
    index.put("a1", desk("y").card(()), ["blue"])
    assert list(index.find(Search(tag="red"))) == ["a0", "a2"]
    for number in range(3):
        index.remove(f"a{number}")
        index.remove(f"a{number}")
    assert len(index) == 0
    assert (index._with, index._words, index._facets) == ({}, [], {})
