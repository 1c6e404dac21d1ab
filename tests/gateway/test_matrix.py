"""Every dialect in front of a gateway, every dialect behind: only declared losses are missing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dragoman import Agent, Turn
from dragoman.testing.served import served
from gateway.behind import DIALECTS, Gateway, gateway, section, settings, worker
from gateway.matrix import LOSSES, PAGE, SCENARIOS, calling, expected, outcome, page
from ports import own_port

FULL = bool(os.environ.get("DRAGOMAN_FULL"))
STEPS = range(len(DIALECTS)) if FULL else (0, 3)
"""Each caller meets the agent this many columns to the right: every row and column, some cells."""


def teller() -> Agent:
    """An agent that stops in the middle until it is let go, for streams that are resumed."""
    agent = worker()
    gates: dict[str, asyncio.Event] = {}

    @agent.skill("halves")
    async def halves(turn: Turn) -> AsyncIterator[str]:
        yield "first "
        gates.setdefault("all", asyncio.Event())
        await gates["all"].wait()
        yield "second"

    @agent.skill("let-go")
    async def let_go(turn: Turn) -> str:
        gates.setdefault("all", asyncio.Event()).set()
        gates.pop("all")
        return "gone"

    return agent


class Ways(NamedTuple):
    """The agent, a gateway in front of it, and their ports for gRPC."""

    url: str
    grpc_port: int
    door: Gateway
    door_grpc: int


def name_of(dialect: str) -> str:
    """What the agent that is called in a dialect is called at the gateway."""
    return "via-" + dialect.replace(".", "-")


@asynccontextmanager
async def ways(folder: Path) -> AsyncIterator[Ways]:
    """One agent, and a gateway that has it ten times: once for each dialect behind."""
    port, door_port = own_port(), own_port()
    behind = settings(folder, name="worker", grpc_port=port)
    in_front = settings(folder, grpc_port=door_port)
    async with served(teller(), behind) as url:
        sections = {name_of(each): section(folder, url, each, port) for each in DIALECTS}
        async with gateway(sections, in_front) as door:
            for each in DIALECTS:
                assert door.upstream(name_of(each)).dialect == each
            yield Ways(url, port, door, door_port)


def wrong(found: dict[tuple[str, ...], Any]) -> list[str]:
    return [
        f"{scenario} over {' -> '.join(dialects)}: {given} is not {meant}"
        for (scenario, *dialects), given in found.items()
        if given != (meant := expected(scenario, *dialects))
    ]


async def test_each_dialect_alone_loses_what_is_declared(tmp_path: Path) -> None:
    found: dict[tuple[str, ...], Any] = {}
    async with ways(tmp_path) as (url, port, _, _):
        for dialect in DIALECTS:
            async with calling(url, dialect, to="worker", grpc_port=port) as caller:
                for scenario in SCENARIOS:
                    found[scenario, dialect] = await outcome(scenario, caller)
    assert wrong(found) == [], "\n".join(wrong(found))


async def test_every_dialect_in_front_of_every_dialect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[tuple[str, ...], Any] = {}
    async with ways(tmp_path) as (_, _, door, door_grpc):
        for number, front in enumerate(DIALECTS):
            for step in STEPS:
                back = DIALECTS[(number + step) % len(DIALECTS)]
                name = name_of(back)
                where = door.at(name)
                async with calling(
                    where, front, agent=name, to=name, grpc_port=door_grpc
                ) as caller:
                    for scenario in SCENARIOS:
                        found[scenario, front, back] = await outcome(scenario, caller)
    with capsys.disabled():
        print(f"\n{len(found)} cells, {len(wrong(found))} wrong")
    assert wrong(found) == [], "\n".join(wrong(found))


def test_something_else_is_seen() -> None:
    assert wrong({("send", "a2a-1.0", "iat"): {"state": "completed", "text": "HO"}})
    assert wrong({("rejection", "a2a-1.0", "iat"): {"state": "failed", "says": "Not for me"}})
    assert not wrong({("rejection", "iat", "a2a-0.1"): {"state": "failed", "says": "Not for me"}})


def test_every_loss_is_one() -> None:
    for loss in LOSSES:
        assert loss.why
        assert loss.gives != SCENARIOS[loss.scenario][1][loss.value]


def test_the_page_is_not_stale() -> None:
    said = "write it with: PYTHONPATH=src:tests python -m gateway.matrix"
    assert PAGE.read_text("utf-8") == page(), said
