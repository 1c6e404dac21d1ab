"""Telegram: the real client library against a Bot API server of ours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.net.chat import Channel, Cursor, channel_from, parse_chat_address
from dragoman.settings.chat import TelegramSettings
from net.chat.bot_api import TEAM, BotApi
from net.chat.contract import ChannelContract, ChatService, hearing
from ports import own_port

pytestmark = pytest.mark.slow  # the import of its library alone takes several seconds

PERSON = {"id": 7, "is_bot": False, "first_name": "Pat", "username": "pat"}


class OnBotApi(ChatService):
    """Bots of one server, all in one group."""

    room = "@team"
    keyed = False

    def __init__(self, server: BotApi, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.patch = server, monkeypatch
        for name in ("ann", "bob", "cas"):
            monkeypatch.setenv(f"BOT_{name}", server.bot(name))

    async def member(self, name: str, cursor: Cursor) -> Channel:
        return channel_from(self.settings(name), cursor)

    def settings(self, name: str) -> TelegramSettings:
        return TelegramSettings(
            api=self.server.url, token=Secret(env=f"BOT_{name}"), messages_per_second=1000.0
        )

    async def cut(self) -> None:
        await self.server.stop()
        await self.server.start()


@pytest.fixture
async def service(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OnBotApi]:
    server = BotApi()
    await server.start()
    yield OnBotApi(server, monkeypatch)
    await server.stop()


class TestTelegram(ChannelContract):
    elsewhere = "-42"


async def test_edits_are_ignored_and_mentions_replies_and_private_chats_are_known(
    service: OnBotApi,
) -> None:
    async with service.joined("ann") as ann, hearing(ann) as ear:
        asked = await ann.say(str(TEAM), "Which city?")
        first = service.server.say(
            PERSON, "Kyoto", reply_to_message=service.server.messages[int(asked)]
        )
        service.server.tell(PERSON, {"edited_message": {**first, "text": "Osaka"}})
        text = "🏯 @ann_bot hello"
        service.server.say(PERSON, text, entities=[{"type": "mention", "offset": 3, "length": 8}])
        service.server.say(
            PERSON, "@annabel", entities=[{"type": "mention", "offset": 0, "length": 8}]
        )
        service.server.say(
            PERSON, "just us", chat={"id": 7, "type": "private", "first_name": "Pat"}
        )
        service.server.say(PERSON, "elsewhere", chat={"id": -9, "type": "group", "title": "Other"})
        service.server.say(PERSON, new_chat_title="a new title")
        service.server.say(PERSON, "end")
        await ear.until("Kyoto", text, "@annabel", "just us", "end")
        assert [each.mentioned for each in ear.heard] == [True, True, False, False, False]
        assert [each.direct for each in ear.heard] == [False, False, False, True, False]
        assert ear.heard[0].reply_to == asked
        assert {each.sender for each in ear.heard} == {"7"}
        assert {each.sender_name for each in ear.heard} == {"pat"}
        assert not any(each.from_bot for each in ear.heard)


async def test_a_photo_has_a_caption_and_is_taken_in_its_largest_size(service: OnBotApi) -> None:
    sizes = [
        {"file_id": id, "file_unique_id": id, "width": size, "height": size, "file_size": size}
        for id, size in (("small", 1), ("large", 3))
    ]
    service.server.files |= {"small": b"s", "large": b"lll"}
    async with service.joined("ann") as ann, hearing(ann) as ear:
        service.server.say(PERSON, caption="look", photo=sizes)
        await ear.until("look")
        (file,) = ear.heard[0].files
        assert file.media_type == "image/jpeg"
        assert await ann.fetch_file(file, 3) == b"lll"


async def test_a_server_that_asks_for_a_pause_is_obeyed(service: OnBotApi) -> None:
    async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
        service.server.retry_after = 1
        await ann.say(str(TEAM), "patience")
        assert time.monotonic() - service.server.refused[0] >= 1.0
        await ear.until("patience")
        assert ear.texts == ["patience"]


async def test_a_group_that_becomes_a_supergroup_stays_the_same_room(service: OnBotApi) -> None:
    async with service.joined("ann") as ann, service.joined("bob") as bob, hearing(bob) as ear:
        await ann.say(str(TEAM), "before")
        await ear.until("before")
        service.server.say(PERSON, migrate_to_chat_id=-2002)
        service.server.migrated = -2002
        await ann.say(str(TEAM), "after")
        await ear.until("after")
        assert {each.room for each in ear.heard} == {str(TEAM)}


async def test_a_token_that_is_wrong_is_told_from_a_server_that_does_not_answer(
    service: OnBotApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_TELEGRAM_TOKEN", "1:wrong")
    for api, error in (
        (service.server.url, ConfigError),
        (f"http://127.0.0.1:{own_port()}", PeerUnreachable),
    ):
        channel = channel_from(TelegramSettings(api=api))
        with pytest.raises(error):
            await channel.connect()
        await channel.close()
    monkeypatch.setenv("DRAGOMAN_TELEGRAM_TOKEN", "nonsense")
    with pytest.raises(ConfigError, match="token"):
        channel_from(TelegramSettings())
    monkeypatch.delenv("DRAGOMAN_TELEGRAM_TOKEN")
    with pytest.raises(ConfigError, match="DRAGOMAN_TELEGRAM_TOKEN"):
        channel_from(TelegramSettings())


async def test_a_bot_that_is_in_no_such_chat_is_told_what_to_do(service: OnBotApi) -> None:
    async with service.joined("ann") as ann:
        with pytest.raises(ConfigError, match="add the bot"):
            await ann.join("@elsewhere")


def test_an_address_names_a_chat() -> None:
    assert parse_chat_address("lite+telegram://-1001").settings == TelegramSettings(
        rooms=("-1001",)
    )
    assert parse_chat_address("lite+telegram://@team?agent=desk").room == "@team"
