"""Discord: the real client library against a REST API and a gateway of ours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.net.chat import Channel, Cursor, channel_from, parse_chat_address
from dragoman.settings.chat import DiscordSettings
from net.chat.contract import ChannelContract, ChatService, hearing
from net.chat.discord_service import TEAM, DiscordService, user
from ports import own_port
from waiting import until

PAT = user(7, "pat")


class OnDiscord(ChatService):
    """Bots that read one channel."""

    room = str(TEAM)

    def __init__(self, server: DiscordService, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        for name in ("ann", "bob", "cas"):
            monkeypatch.setenv(f"BOT_{name}", server.bot(name))

    async def member(self, name: str, cursor: Cursor) -> Channel:
        settings = DiscordSettings(
            api=f"{self.server.url}/api",
            gateway=self.server.gateway,
            token=Secret(env=f"BOT_{name}"),
            messages_per_second=1000.0,
        )
        return channel_from(settings, cursor)

    async def cut(self) -> None:
        await self.server.cut()


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OnDiscord]:
    monkeypatch.setattr("discord.http.Route.BASE", "")  # and back again after the test
    monkeypatch.setattr("discord.gateway.DiscordWebSocket.DEFAULT_GATEWAY", "")
    server = DiscordService()
    await server.start()
    yield OnDiscord(server, monkeypatch)
    await server.stop()


class TestDiscord(ChannelContract):
    elsewhere = "42"


async def test_edits_are_ignored_and_mentions_bots_and_private_messages_are_known(
    service: OnDiscord,
) -> None:
    async with service.joined("ann") as ann, hearing(ann) as ear:
        await until(lambda: service.server.sockets)
        first = await service.server.say(PAT, "Kyoto")
        await service.server.tell("MESSAGE_UPDATE", {**first, "content": "Osaka"})
        await service.server.say(PAT, f"<@{ann.me}> hello")
        await service.server.say({**user(8, "robot"), "bot": True}, "beep")
        await service.server.say(PAT, "pinned something", type=6)
        await service.server.say(PAT, "elsewhere", channel_id="902")
        private = await service.server.say(PAT, "never mind")
        del private["guild_id"]
        direct = {**private, "id": str(int(private["id"]) + 1), "content": "just us"}
        await service.server.tell("MESSAGE_CREATE", {**direct, "channel_id": "903"})
        await ear.until("Kyoto", f"<@{ann.me}> hello", "beep", "never mind", "just us")
        assert [each.mentioned for each in ear.heard] == [False, True, False, False, False]
        assert [each.from_bot for each in ear.heard] == [False, False, True, False, False]
        assert [each.direct for each in ear.heard] == [False, False, False, False, True]
        assert ear.heard[0].sender == "7"
        assert ear.heard[0].sender_name == "Pat"


async def test_a_server_that_asks_for_a_pause_is_obeyed(service: OnDiscord) -> None:
    async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
        service.server.limited = 1.0
        began = time.monotonic()
        await ann.say(str(TEAM), "patience")
        assert time.monotonic() - began >= 1.0
        await ear.until("patience")
        assert ear.texts == ["patience"]


async def test_a_token_that_is_wrong_is_told_from_a_server_that_does_not_answer(
    service: OnDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_DISCORD_TOKEN", "wrong")
    for api, error in (
        (f"{service.server.url}/api", ConfigError),
        (f"http://127.0.0.1:{own_port()}/api", PeerUnreachable),
    ):
        channel = channel_from(DiscordSettings(api=api))
        with pytest.raises(error):
            await channel.connect()
        await channel.close()
    monkeypatch.delenv("DRAGOMAN_DISCORD_TOKEN")
    with pytest.raises(ConfigError, match="DRAGOMAN_DISCORD_TOKEN"):
        channel_from(DiscordSettings())


async def test_a_channel_that_the_bot_may_not_read_is_told_with_what_to_do(
    service: OnDiscord,
) -> None:
    async with service.joined("ann") as ann:
        with pytest.raises(ConfigError, match="let the bot read it"):
            await ann.join("42")
        with pytest.raises(ConfigError, match="by its id"):
            await ann.join("team")


def test_an_address_names_a_channel() -> None:
    assert parse_chat_address("lite+discord://901").settings == DiscordSettings(rooms=("901",))
