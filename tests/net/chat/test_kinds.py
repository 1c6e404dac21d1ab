"""The table of kinds: settings and addresses become channels."""

from __future__ import annotations

import sys

import pytest

from dragoman.core.errors import ConfigError
from dragoman.net.chat import channel_from, is_chat_address, parse_chat_address
from dragoman.settings.chat import (
    ChannelSettings,
    DiscordSettings,
    IrcSettings,
    MatrixSettings,
    TelegramSettings,
)


@pytest.mark.parametrize(
    ("settings", "package", "module", "extra"),
    [
        (IrcSettings(host="h"), "irc", "irc", "irc"),
        (MatrixSettings(homeserver="https://h"), "nio", "matrix", "matrix"),
        (TelegramSettings(), "aiogram", "telegram", "telegram"),
        (DiscordSettings(), "discord", "discord_bot", "discord"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_package_that_is_missing_is_told_with_its_extra(
    settings: ChannelSettings,
    package: str,
    module: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [*sys.modules]:
        if name.startswith(f"dragoman.net.chat.{module}"):
            monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'dragoman\[{extra}\]'"):
        channel_from(settings)


@pytest.mark.parametrize(
    "address",
    ["https://example.org", "lite+xmpp://x", "a2a+grpc://x", "matrix://x", "nonsense", ""],
)
def test_an_address_of_something_else_is_told_what_one_looks_like(address: str) -> None:
    assert not is_chat_address(address)
    with pytest.raises(ConfigError, match=r"lite\+matrix://"):
        parse_chat_address(address)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("lite+irc://host:nonsense/team", "not an address"),
        ("lite+irc://host/team?tls=perhaps", "tls"),
        ("lite+loopback://hub/team?messages_per_second=many", "messages_per_second"),
    ],
)
def test_an_address_with_a_mistake_is_refused_with_words(address: str, words: str) -> None:
    assert is_chat_address(address)
    with pytest.raises(ConfigError, match=words):
        parse_chat_address(address)


def test_an_address_never_carries_a_secret_into_the_settings() -> None:
    found = parse_chat_address("lite+matrix://h/%23team:h?token=hunter2&password=hunter2")
    assert isinstance(found.settings, MatrixSettings)
    assert found.settings.token is None
    assert found.room == "#team:h"
