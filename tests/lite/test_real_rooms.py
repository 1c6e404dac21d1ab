"""Two agents and a person in a room of a real server: Matrix with files, and IRC without."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import State
from dragoman.client import connect
from dragoman.core.events import ArtifactChunk, Stamped, StateChanged
from dragoman.core.extensions import PROGRESS
from dragoman.core.model import Blob
from dragoman.gateway.configuration import registered
from dragoman.net.chat import channel_from
from dragoman.settings import ChannelSettings, Server, Settings
from dragoman.settings.chat import IrcSettings
from dragoman.testing.served import served
from lite.room import Member, desk, joined
from lite.test_room_agents import appears
from net.chat.ngircd import NEEDS_NGIRCD, Ngircd
from net.chat.synapse import NAME, Synapse
from net.chat.test_matrix import NEEDS_SYNAPSE, OnSynapse
from server.two_agents import desk as office
from server.two_agents import serving
from waiting import until, within


class Town(ABC):
    """A chat service with a room."""

    files = True
    room = ""

    @abstractmethod
    def settings(self, name: str) -> ChannelSettings:
        """How somebody of this name takes part."""

    @abstractmethod
    def mention(self, name: str) -> str:
        """What stands before a text that is for somebody."""

    @asynccontextmanager
    async def agent(self, name: str) -> AsyncIterator[None]:
        """An agent that lives in the room."""
        channels = {"town": replace(self.settings(name), rooms=(self.room,))}
        server = Server(store="memory:", allow_private=True)
        async with served(desk(), Settings(server=server, channels=channels)):
            yield

    @asynccontextmanager
    async def person(self, name: str) -> AsyncIterator[Member]:
        async with joined(channel_from(self.settings(name)), self.room) as found:
            yield found


class Irc(Town):
    files = False
    room = "#town"

    def __init__(self, server: Ngircd) -> None:
        self._server = server

    def settings(self, name: str) -> ChannelSettings:
        return IrcSettings(
            host="127.0.0.1", port=self._server.port, tls=False, nick=name, messages_per_second=100
        )

    def mention(self, name: str) -> str:
        return f"{name}: "


class Matrix(Town):
    def __init__(self, service: OnSynapse) -> None:
        self._service, self.room = service, service.room

    def settings(self, name: str) -> ChannelSettings:
        return self._service.settings(name)

    def mention(self, name: str) -> str:
        return f"@{name}-{self._service.suffix}:{NAME} "


@pytest.fixture
def irc(tmp_path: Path) -> Iterator[Town]:
    server = Ngircd(tmp_path)
    server.start()
    yield Irc(server)
    server.stop()


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    server = Synapse(Path(tmp_path_factory.mktemp("synapse")))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def matrix(synapse: Synapse, monkeypatch: pytest.MonkeyPatch) -> Town:
    return Matrix(OnSynapse(synapse, monkeypatch))


async def both_introduced(anna: Member) -> bool:
    """Whether both agents answer. A channel that is slow is joined after the start."""

    def shown() -> bool:
        return len({each.sender for each in anna.heard if each.text.startswith("[A2A:card")}) == 2

    await anna.say("[A2A:discover]")
    return bool(await within(10, shown))


async def conversation(town: Town) -> None:
    """Discover, card, task, status, question, result and cancel; a file where there are files."""
    async with AsyncExitStack() as stack:
        anna = await stack.enter_async_context(town.person("anna"))
        for name in ("alpha", "beta"):
            await stack.enter_async_context(town.agent(name))
        await until(partial(both_introduced, anna))
        alpha, beta = town.mention("alpha"), town.mention("beta")
        await anna.say(f"{alpha}[A2A:task id=t1] tour")
        await anna.hears("ack", task="t1")
        assert (await anna.hears_state("input-required", "t1")).body == "Which city?"
        assert any(each.params.get("progress") == "40%" for each in anna.of_type("status"))
        await anna.say(f"{alpha}[A2A:task id=t1] Kyoto")
        result = await anna.hears("result", task="t1")
        assert result.params["state"] == "completed"
        assert "There it is." in result.body
        if town.files:
            assert result.attachments == ("plan.md",)
            assert await anna.fetch("plan.md") == b"Three days in Kyoto"
            await anna.post("minutes.md", b"hello")
            await anna.say(f"{beta}[A2A:task id=t2]\nfiles\n[附件: minutes.md]")
            await anna.hears("result", task="t2")
            assert await anna.fetch("minutes.md") == b"HELLO"
        else:
            assert "plan.md" in result.body  # the text says that it cannot be posted
        await anna.say(f"{beta}[A2A:task id=t3] wait")
        await anna.hears_state("working", "t3")
        await anna.say("[A2A:cancel task=t3]")
        await anna.hears_state("cancelled", "t3")
        await anna.say(f"{beta}hello there")
        await anna.hears_text("HELLO THERE")


async def streamed(town: Town) -> None:
    """An A2A 1.0 client streams a task to an agent in the room, through a gateway."""
    channel = replace(town.settings("gate"), rooms=(town.room,), agents=())
    async with (
        town.agent("alpha"),
        serving(
            {"office": office("hi")},
            several=True,
            registers=registered(Settings(server=Server(allow_private=True))),
            channels={"town": channel},
        ) as gate,
    ):
        await appears(gate.url, "desk")
        address = f"{gate.url}/agents/desk"
        async with connect(address, dialect="a2a-1.0", allow_private=True) as agent:
            first = [each async for each in agent.stream("tour") if isinstance(each, Stamped)]
            changes = [each.event for each in first if isinstance(each.event, StateChanged)]
            assert any(PROGRESS in (each.metadata or {}) for each in changes)
            assert changes[-1].state is State.INPUT_REQUIRED
            task_id = first[-1].task_id
            rest = [
                each.event
                async for each in agent.stream("Kyoto", task=task_id)
                if isinstance(each, Stamped)
            ]
            chunks = [each for each in rest if isinstance(each, ArtifactChunk)]
            parts = [part for each in chunks for part in each.artifact.parts]
            if town.files:
                (plan,) = [part for part in parts if isinstance(part, Blob)]
                assert (plan.filename, plan.content) == ("plan.md", b"Three days in Kyoto")
            last = rest[-1]
            assert isinstance(last, StateChanged)
            assert last.state is State.COMPLETED


@NEEDS_NGIRCD
@pytest.mark.slow  # starts processes
async def test_a_conversation_on_irc(irc: Town) -> None:
    await conversation(irc)


@NEEDS_NGIRCD
@pytest.mark.slow  # starts processes
async def test_an_a2a_client_streams_to_an_agent_on_irc(irc: Town) -> None:
    await streamed(irc)


@NEEDS_SYNAPSE
async def test_a_conversation_on_matrix(matrix: Town) -> None:
    await conversation(matrix)


@NEEDS_SYNAPSE
async def test_an_a2a_client_streams_to_an_agent_on_matrix(matrix: Town) -> None:
    await streamed(matrix)
