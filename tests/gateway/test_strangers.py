"""Agents and callers that others wrote, on the official SDKs: directly with ours, and through a
gateway with ours and with one another. Only declared losses are missing.

`make test` tries some of a2a-go, `make test-full` all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counts import FULL
from dragoman.settings import Settings
from dragoman.testing.served import served
from gateway.behind import gateway, section, settings
from gateway.matrix import SCENARIOS, calling, expected, outcome, through
from gateway.matrix_page import MATRIX, ONLY, SDK_SCENARIOS, matrix_page, sdk_page
from gateway.strangers.sdks import ALL_LOSSES, OWN_LOSSES, STRANGERS, Stranger
from gateway.test_matrix import ARRIVALS, DIALECTS, LITE, XIAOYI, keys, name_of, teller, ways
from interop.client.servers import Running, Server, running
from interop.peers import PeerUnavailable
from ports import own_port

pytestmark = pytest.mark.slow  # starts processes
__all__ = ["keys"]
BY_NAME = {each.name: each for each in STRANGERS}
SOME = [
    BY_NAME[name]
    for name in (
        "a2a-go 2.4.0, A2A 1.0 JSON-RPC",
        "a2a-go 2.4.0, A2A 1.0 gRPC",
        "a2a-go 2.4.0, A2A 0.3 REST",
    )
]
ALONE = STRANGERS if FULL else SOME
CALLERS = STRANGERS if FULL else SOME[:1]
AGENTS = STRANGERS if FULL else SOME[1:2]
FRONTS = DIALECTS if FULL else ("a2a-0.3-rest",)
BACKS = DIALECTS if FULL else ("iat",)
MUTUAL_CALLERS = STRANGERS if FULL else SOME[2:]
MUTUAL_AGENTS = [
    each
    for each in STRANGERS
    # One binding of each SDK: our callers have tried the others.
    if each.dialect == "a2a-1.0" and (FULL or each.sdk.name == "a2a-sdk 1.3.0")
]
Found = dict[tuple[str, tuple[str, ...]], Any]


def wrong(found: Found) -> list[str]:
    """The cells that are not what they should be, by scenario and by what may lose something."""
    always = [loss for loss in ALL_LOSSES if not loss.sometimes]
    return [
        f"{scenario} over {' -> '.join(ways)}: {given} is not {meant}"
        for (scenario, ways), given in found.items()
        if given != (meant := expected(scenario, *ways, losses=ALL_LOSSES))
        and given != expected(scenario, *ways, losses=always)
    ]


def of_one(caller: Stranger, seen: Mapping[str, Any], *others: str) -> Found:
    """What a caller saw, all scenarios of it."""
    assert seen.keys() == SCENARIOS.keys(), seen.keys() ^ SCENARIOS.keys()
    return {(scenario, (*caller.as_caller, *others)): given for scenario, given in seen.items()}


def in_every_binding(folder: Path, **about: Any) -> Settings:
    """Settings whose card names all bindings."""
    own = settings(folder, grpc_port=own_port(), **about)
    interfaces = ("JSONRPC", "HTTP+JSON", "GRPC")
    return replace(own, server=replace(own.server, interfaces=interfaces))


def build(strangers: Iterable[Stranger]) -> None:
    """Builds what these need, or skips the test."""
    for each in strangers:
        try:
            each.sdk.peer.ready()
        except PeerUnavailable as exc:
            pytest.skip(str(exc))


@asynccontextmanager
async def started(strangers: Iterable[Stranger], folder: Path) -> AsyncIterator[dict[str, Running]]:
    """The agents of these, by the names of their SDKs."""
    servers: dict[str, Server] = {each.sdk.name: each.sdk.server for each in strangers}
    with ExitStack() as stack:
        yield {
            name: await asyncio.to_thread(stack.enter_context, running(server, folder))
            for name, server in servers.items()
        }


async def test_callers_of_others_call_our_agent(tmp_path: Path) -> None:
    build(ALONE)
    found: Found = {}
    async with served(teller(), in_every_binding(tmp_path, name="worker")) as url:
        for caller in ALONE:
            found |= of_one(caller, await caller.call(url))
    assert wrong(found) == [], "\n".join(wrong(found))


async def test_we_call_agents_of_others(tmp_path: Path) -> None:
    build(ALONE)
    found: Found = {}
    async with started(ALONE, tmp_path) as servers:
        for agent in ALONE:
            far = servers[agent.sdk.name]
            async with calling(far.url, agent.dialect, grpc_port=far.ports["GRPC"]) as caller:
                for scenario in SCENARIOS:
                    found[scenario, agent.as_agent] = await outcome(scenario, caller)
    assert wrong(found) == [], "\n".join(wrong(found))


@pytest.mark.parametrize("caller", CALLERS, ids=lambda each: each.agent)
async def test_callers_of_others_reach_our_agent_through_a_gateway(
    tmp_path: Path, caller: Stranger
) -> None:
    build([caller])
    found: Found = {}
    async with ways(tmp_path) as way:
        for back in BACKS:
            if caller.dialect != ONLY:
                seen = await caller.call(way.door.at(name_of(back)))
            elif back in ARRIVALS:
                continue
            else:
                alone = {"only": section(tmp_path, way.url, back, way.grpc_port)}
                async with gateway(alone, in_every_binding(tmp_path)) as door:
                    seen = await caller.call(door.at("only"))
            found |= of_one(caller, seen, back)
    assert wrong(found) == [], "\n".join(wrong(found))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda each: each.agent)
async def test_our_callers_reach_agents_of_others_through_a_gateway(
    tmp_path: Path, agent: Stranger
) -> None:
    build([agent])
    found: Found = {}
    name = agent.agent
    async with started([agent], tmp_path) as servers:
        on_phones = [name] if XIAOYI in FRONTS else []
        in_rooms = [name] if LITE in FRONTS else []
        at = {name: agent.section(servers[agent.sdk.name])}
        opened = ways(tmp_path, on_phones=on_phones, in_rooms=in_rooms, strangers=at)
        async with opened as way:
            assert way.door.upstream(name).dialect == agent.dialect
            for front in FRONTS:
                async with way.call(front, name) as caller:
                    for scenario in SCENARIOS:
                        given = await outcome(scenario, caller)
                        found[scenario, through(front, *agent.as_agent)] = given
    assert wrong(found) == [], "\n".join(wrong(found))


@pytest.mark.parametrize("agent", MUTUAL_AGENTS, ids=lambda each: each.agent)
async def test_callers_of_others_reach_agents_of_others_through_a_gateway(
    tmp_path: Path, agent: Stranger
) -> None:
    build([agent, *MUTUAL_CALLERS])
    found: Found = {}
    async with started([agent], tmp_path) as servers:
        # The only agent of a gateway is at its root, where 0.3 over gRPC finds it too.
        desk = agent.section(servers[agent.sdk.name])
        async with gateway({"desk": desk}, in_every_binding(tmp_path)) as door:
            for caller in MUTUAL_CALLERS:
                found |= of_one(caller, await caller.call(door.at("desk")), *agent.as_agent)
    assert wrong(found) == [], "\n".join(wrong(found))


def test_something_else_is_seen() -> None:
    go = BY_NAME["a2a-go 2.4.0, A2A 1.0 JSON-RPC"]
    seen = {"state": "completed", "text": "HI"}
    assert not wrong({("send", (*go.as_caller, "iat")): seen})
    assert wrong({("send", (*go.as_caller, "iat")): {**seen, "text": "HO"}})
    assert wrong({("send", (*go.as_caller, "iat")): "connection refused"})


def test_every_loss_of_a_stranger_is_one() -> None:
    ways = {way for each in STRANGERS for way in (*each.as_caller, *each.as_agent)}
    for loss in OWN_LOSSES:
        assert loss.dialect in ways
        assert loss.gives != SCENARIOS[loss.scenario][1][loss.value]


def test_the_pages_are_not_stale() -> None:
    said = "write them with: PYTHONPATH=src:tests python -m gateway.matrix_page"
    assert MATRIX.read_text("utf-8") == matrix_page(), said
    assert SDK_SCENARIOS.read_text("utf-8") == sdk_page(), said
