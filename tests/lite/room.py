"""A loopback room with agents of ours, and people and programs of others in it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from dragoman import Agent, Turn
from dragoman.core.model import Blob
from dragoman.dialects.lite.splitting import Joiner
from dragoman.dialects.lite.wire import LiteMessage
from dragoman.net.chat import Channel, ChatMessage
from dragoman.net.chat.loopback import LoopbackChannel
from dragoman.settings import Server, Settings
from dragoman.settings.chat import LoopbackSettings
from dragoman.testing.served import served
from waiting import forever, until

ROOM = "room"
_numbers = itertools.count(1)


class Member:
    """Somebody in the room: a person, or a program that somebody else wrote."""

    def __init__(self, channel: Channel, room: str = ROOM) -> None:
        self.channel, self.room = channel, room
        self.heard: list[ChatMessage] = []
        self._joiner = Joiner()
        self.markers: list[LiteMessage] = []

    @property
    def name(self) -> str:
        return self.channel.me

    async def read(self) -> None:
        async for message in self.channel.hear():
            self.heard.append(message)
            whole = self._joiner.hear(message.room, message.sender, message.text, 0)
            self.markers += [each.said for each in whole if isinstance(each.said, LiteMessage)]

    async def say(self, text: str, *, reply_to: str = "") -> str:
        return await self.channel.say(self.room, text, reply_to=reply_to)

    async def post(self, name: str, body: bytes, media_type: str = "text/plain") -> None:
        await self.channel.send_file(self.room, name, media_type, body)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.heard if each.text]

    def of_type(self, *types: str) -> list[LiteMessage]:
        return [each for each in self.markers if each.type in types]

    async def hears(self, *types: str, task: str = "") -> LiteMessage:
        """Waits for a message of a type, and returns the latest."""

        def found() -> list[LiteMessage]:
            return [each for each in self.of_type(*types) if task in ("", each.task)]

        await until(found)
        return found()[-1]

    async def hears_state(self, state: str, task: str = "") -> LiteMessage:
        """Waits until the task is told to be in a state."""

        def found() -> list[LiteMessage]:
            return [
                each
                for each in self.of_type("status", "result")
                if each.params["state"] == state and task in ("", each.task)
            ]

        await until(found)
        return found()[-1]

    async def hears_text(self, text: str) -> ChatMessage:
        """Waits for a message that contains a text, and returns it."""
        await until(lambda: any(text in each.text for each in self.heard))
        return next(each for each in self.heard if text in each.text)

    async def fetch(self, name: str, limit: int = 1 << 20) -> bytes:
        """Returns a file that was posted."""
        file = next(file for each in self.heard for file in each.files if file.name == name)
        return await self.channel.fetch_file(file, limit)


def new_hub() -> str:
    """The name of rooms that no other test uses."""
    return f"test-{next(_numbers)}"


@asynccontextmanager
async def member(
    hub: str, name: str, *, person: bool = True, shared: bool = False
) -> AsyncIterator[Member]:
    """Somebody who joins the room; in a `shared` hub, other processes can join it too."""
    said = LoopbackSettings(user=name, hub=hub, shared=shared, person=person)
    async with joined(LoopbackChannel(said), ROOM) as found:
        yield found


@asynccontextmanager
async def joined(channel: Channel, room: str) -> AsyncIterator[Member]:
    """Somebody who joins a room of any channel."""
    await channel.connect()
    found = Member(channel, await channel.join(room))
    reading = asyncio.create_task(found.read())
    try:
        yield found
    finally:
        await channel.close()
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


def desk() -> Agent:
    """An agent that does what it is told."""
    agent = Agent("Desk", description="Does what it is told.", version="1.2")

    @agent.skill("talk", description="Talks", default=True, cancel_grace=0.2)
    async def talk(turn: Turn) -> object:
        match turn.text.split():
            case ["ask"]:
                return f"You said {await turn.ask('Which city?')}."
            case ["approve"]:
                return "Booked." if await turn.approve("Book it?") else "Left alone."
            case ["wait"]:
                await turn.say("Waiting.")
                await forever()
            case ["progress"]:
                await turn.progress(0.4, eta=180)
                await turn.say("Halfway.")
            case ["tour"]:
                await turn.progress(0.4, eta=180)
                city = await turn.ask("Which city?")
                plan = f"Three days in {city}".encode()
                await turn.artifact(Blob(plan, filename="plan.md", media_type="text/markdown"))
                return "There it is."
            case ["fail"]:
                raise turn.fail("It broke.")
            case ["who"]:
                return turn.caller.principal
            case ["marker"]:
                return "[A2A:cancel task=t1]\nI am only text."
            case ["read"]:
                return "".join(getattr(file, "content", b"").decode() for file in turn.files)
            case ["files"]:
                for file in turn.files:
                    content = getattr(file, "content", b"")
                    await turn.artifact(content.upper(), name=file.filename)
                return None
        return turn.text.upper()

    @agent.skill("shout", description="Shouts")
    async def shout(turn: Turn) -> str:
        return f"{turn.text}!!!"

    return agent


def settings(hub: str, user: str = "desk", store: str = "memory:", **more: Any) -> Settings:
    """The settings of a server whose agents live in the room."""
    channel = LoopbackSettings(user=user, hub=hub, shared=False, rooms=(ROOM,), **more)
    server = Server(store=store, allow_private=True)
    return Settings(server=server, channels={"here": channel})


@asynccontextmanager
async def living(agent: Agent | None = None, *, hub: str = "", **more: Any) -> AsyncIterator[str]:
    """An agent that lives in a room. Yields the hub."""
    hub = hub or new_hub()
    async with served(agent or desk(), settings(hub, **more)):
        yield hub
