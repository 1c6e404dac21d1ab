"""Rooms on this machine, in one process."""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path

import pytest

from dragoman.core.errors import ConfigError
from dragoman.net.chat import Channel, Cursor, channel_from, parse_chat_address
from dragoman.net.chat.loopback import LoopbackChannel
from dragoman.settings.chat import LoopbackSettings
from net.chat.contract import ChannelContract, ChatService, hearing


class InProcess(ChatService):
    """A hub of this process."""

    room = "team"

    def __init__(self) -> None:
        self.hub = f"test-{secrets.token_hex(4)}"

    async def member(self, name: str, cursor: Cursor) -> Channel:
        return channel_from(LoopbackSettings(hub=self.hub, user=name, shared=False), cursor)

    async def cut(self) -> None:
        """There are no connections in one process."""


class Shared(ChatService):
    """A hub behind a socket, which the first member serves."""

    room = "team"

    def __init__(self) -> None:
        self.hub = f"test-{secrets.token_hex(4)}"
        self.members: list[LoopbackChannel] = []

    async def member(self, name: str, cursor: Cursor) -> Channel:
        made = LoopbackChannel(LoopbackSettings(hub=self.hub, user=name), cursor)
        self.members.append(made)
        return made

    async def cut(self) -> None:
        for each in self.members:
            if each._server is not None:
                await each._server.close()
                each._server = None


class TestLoopbackInOneProcess(ChannelContract):
    @pytest.fixture
    def service(self) -> ChatService:
        return InProcess()


class TestLoopbackOverASocket(ChannelContract):
    @pytest.fixture
    def service(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChatService:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        return Shared()


@pytest.mark.slow  # starts processes
async def test_another_process_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    service = Shared()
    script = f"""
import asyncio
from dragoman.net.chat import channel_from, parse_chat_address

async def main():
    address = parse_chat_address("lite+loopback://bob@{service.hub}/team")
    channel = channel_from(address.settings)
    await channel.connect()
    room = await channel.join(address.room)
    await channel.say(room, "I am here")
    async for message in channel.hear():
        await channel.say(room, message.text.upper(), reply_to=message.id)
        break
    await channel.close()

asyncio.run(main())
"""
    async with service.joined("ann") as ann, hearing(ann) as ear:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        await ear.until("I am here")
        await ann.say("team", "louder, please")
        await ear.until("LOUDER, PLEASE")
        assert await process.wait() == 0


async def test_two_in_a_room_are_among_themselves_and_a_person_is_no_bot() -> None:
    service = InProcess()
    async with service.joined("ann") as ann, hearing(ann) as ear:
        bob = channel_from(LoopbackSettings(hub=service.hub, user="bob", shared=False, person=True))
        await bob.connect()
        room = await bob.join("team")
        await bob.say(room, "@ann, are we alone?")
        await ear.until("@ann, are we alone?")
        heard = ear.heard[-1]
        assert heard.direct
        assert heard.mentioned
        assert not heard.from_bot
        async with service.joined("cas") as cas:
            await cas.say(room, "@anna is somebody else")
            await ear.until("@anna is somebody else")
            heard = ear.heard[-1]
            assert heard.from_bot
            assert not heard.direct
            assert not heard.mentioned
        await bob.close()


async def test_two_members_of_one_name_are_refused() -> None:
    service = InProcess()
    async with service.joined("ann"):
        with pytest.raises(ConfigError, match="ann"):
            async with service.joined("ann"):
                pass


def test_an_address_names_a_hub_a_room_and_fields_of_the_settings() -> None:
    found = parse_chat_address("lite+loopback://office/team?user=me&person=true&agent=desk")
    assert found.settings == LoopbackSettings(hub="office", user="me", person=True, rooms=("team",))
    assert found.room == "team"
    assert found.query == {"agent": "desk"}
