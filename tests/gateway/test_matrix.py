"""Every dialect in front of a gateway, every dialect behind: only declared losses are missing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from dragoman import Agent, Data, Turn
from dragoman.client.agent import RemoteAgent
from dragoman.testing.served import served
from gateway.behind import SECRET, Gateway, gateway, hosted, section, settings, worker
from gateway.matrix import ANY, LOSSES, NAMES, SCENARIOS, calling, expected, outcome, through
from gateway.phones import ACCESS_KEY, Phones, dialled_in, store_with_keys
from gateway.rooms import Rooms
from ports import own_port

FULL = bool(os.environ.get("DRAGOMAN_FULL"))
DIALECTS = tuple(NAMES)
STEPS = range(len(DIALECTS)) if FULL else (0, 3)
"""Each caller meets the agent this many columns to the right: every row and column, some cells."""
CELLS = [
    (front, DIALECTS[(number + step) % len(DIALECTS)])
    for number, front in enumerate(DIALECTS)
    for step in STEPS
]
XIAOYI, LITE = "xiaoyi", "lite"
ARRIVALS = (XIAOYI, LITE)
"""The dialects whose agents have no section at the gateway: they arrive by themselves."""
NO_STRANGERS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of all links: agents and phones have them from the environment."""
    monkeypatch.setenv("DRAGOMAN_XIAOYI_AK", ACCESS_KEY)
    monkeypatch.setenv("DRAGOMAN_XIAOYI_SK", SECRET)


def teller() -> Agent:
    """An agent that stops in the middle until it is let go, for streams that are resumed."""
    agent = worker(default=False)
    gates: dict[str, asyncio.Event] = {}

    @agent.skill("halves")
    async def halves(turn: Turn) -> AsyncIterator[str]:
        yield "first "
        await turn.say("half of it")
        gates.setdefault("all", asyncio.Event())
        await gates["all"].wait()
        yield "second"

    @agent.skill("let-go")
    async def let_go(turn: Turn) -> str:
        gates.setdefault("all", asyncio.Event()).set()
        gates.pop("all")
        return "gone"

    @agent.skill("data")
    async def data(turn: Turn) -> Data:
        values = [part.value for part in turn.parts if isinstance(part, Data)]
        return Data({"got": values[-1]})  # the first one names the skill

    @agent.skill("picky", input_modes=["text/plain", "application/json"])
    async def picky(turn: Turn) -> str:
        return "seen"

    @agent.skill("name")
    async def name(turn: Turn) -> str:
        return turn.skill

    @agent.skill(ANY, default=True, may_reply=True)
    async def by_what_is_said(turn: Turn) -> AsyncIterator[Any]:
        assert isinstance(turn.data, dict)
        done = agent.skills[str(turn.data["do"])].function(turn)
        if isinstance(done, AsyncIterator):
            async for piece in done:
                yield piece
        elif (made := await done) is not None:  # else it was a direct reply
            yield made

    return agent


class Ways(NamedTuple):
    """The agent, a gateway in front of it, their ports for gRPC, and the phones and rooms in which
    agents are called by their names."""

    url: str
    grpc_port: int
    door: Gateway
    door_grpc: int
    phones: Phones
    rooms: Rooms

    def call(self, front: str, name: str) -> AbstractAsyncContextManager[RemoteAgent]:
        """A caller that speaks this dialect with an agent of the gateway."""
        match front:
            case "xiaoyi":
                return self.phones.call(name)
            case "lite":
                return self.rooms.call(name)
        at, port = self.door.at(name), self.door_grpc
        return calling(at, front, agent=name, to=name, grpc_port=port)


def name_of(dialect: str) -> str:
    """What the agent that is called in a dialect is called at the gateway."""
    return "via-" + dialect.replace(".", "-")


@asynccontextmanager
async def ways(
    folder: Path,
    *,
    on_phones: Sequence[str] = (),
    in_rooms: Sequence[str] = (),
    strangers: Mapping[str, Mapping[str, Any]] = NO_STRANGERS,
) -> AsyncIterator[Ways]:
    """One agent, and a gateway that has it once for each dialect behind, and the agents of
    others. Some agents are also called by phones, and some in rooms."""
    port, door_port = own_port(), own_port()
    behind = settings(folder, name="worker", grpc_port=port)
    store = await store_with_keys(folder, name_of(XIAOYI))
    arrivals = [name_of(each) for each in ARRIVALS]
    async with AsyncExitStack() as stack:
        phones, rooms = Phones(stack, on_phones), Rooms()
        url = await stack.enter_async_context(served(teller(), behind))
        sections = {
            name_of(each): section(folder, url, each, port) | phones.link(name_of(each))
            for each in DIALECTS
            if each not in ARRIVALS
        } | {name: {**at, **phones.link(name)} for name, at in strangers.items()}
        channels = rooms.meeting() | rooms.of(name for name in in_rooms if name in sections)
        in_front = settings(folder, grpc_port=door_port, store=store, channels=channels)
        door = await stack.enter_async_context(gateway(sections, in_front))
        for each in DIALECTS:
            if each not in ARRIVALS:
                assert door.upstream(name_of(each)).dialect == each
        await stack.enter_async_context(dialled_in(folder, door, teller(), name_of(XIAOYI)))
        await stack.enter_async_context(rooms.met(folder, door, teller(), name_of(LITE)))
        # Another gateway takes the agents that arrived to phones and rooms.
        taken = [name for name in arrivals if name in (*on_phones, *in_rooms)]
        if taken:
            relayed = {name: {"url": door.at(name)} | phones.link(name) for name in taken}
            channels = rooms.of(name for name in in_rooms if name in taken)
            own = settings(folder, channels=channels)
            await stack.enter_async_context(gateway(relayed, own))
        if "worker" in (*on_phones, *in_rooms):
            agents = hosted({"worker": phones.link("worker")})
            own = settings(folder, agents=agents, channels=rooms.of(("worker",)))
            await stack.enter_async_context(served(teller(), own))
        await phones.connected()
        yield Ways(url, port, door, door_port, phones, rooms)


def wrong(found: dict[tuple[str, ...], Any]) -> list[str]:
    return [
        f"{scenario} over {' -> '.join(dialects)}: {given} is not {meant}"
        for (scenario, *dialects), given in found.items()
        if given != (meant := expected(scenario, *dialects))
    ]


@pytest.mark.slow
async def test_each_dialect_alone_loses_what_is_declared(tmp_path: Path) -> None:
    found: dict[tuple[str, ...], Any] = {}
    async with ways(tmp_path, on_phones=["worker"], in_rooms=["worker"]) as way:
        for dialect in DIALECTS:
            match dialect:
                case "xiaoyi":
                    call = way.phones.call("worker")
                case "lite":
                    call = way.rooms.call("worker")
                case _:
                    call = calling(way.url, dialect, to="worker", grpc_port=way.grpc_port)
            async with call as caller:
                for scenario in SCENARIOS:
                    found[scenario, dialect] = await outcome(scenario, caller)
    assert wrong(found) == [], "\n".join(wrong(found))


@pytest.mark.slow
async def test_every_dialect_in_front_of_every_dialect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[tuple[str, ...], Any] = {}
    on_phones = [name_of(back) for front, back in CELLS if front == XIAOYI]
    in_rooms = [name_of(back) for front, back in CELLS if front == LITE]
    async with ways(tmp_path, on_phones=on_phones, in_rooms=in_rooms) as way:
        for front, back in CELLS:
            async with way.call(front, name_of(back)) as caller:
                for scenario in SCENARIOS:
                    found[scenario, *through(front, back)] = await outcome(scenario, caller)
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
