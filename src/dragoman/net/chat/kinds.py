"""The kinds of channels, in one table: settings and addresses become channels here.

    channel_from(settings, cursor)                 for `[channels.NAME] kind = "matrix"`
    parse_chat_address("lite+matrix://host/#room")  for an address that somebody types

| address | room |
|---|---|
| `lite+loopback://HUB/ROOM` | a room of a hub on this machine |
| `lite+stdio://ROOM` | a name; all of them are standard input and output |
| `lite+irc://NICK@HOST:PORT/ROOM`, `lite+ircs://` with TLS | `#ROOM`, or `@NICK` for one person |
| `lite+matrix://USER@HOMESERVER/ROOM`, `lite+matrix+http://` without TLS | `#alias` or `!id` |
| `lite+telegram://CHAT` | the id of a chat, or `@name` |
| `lite+discord://CHANNEL` | the id of a channel |

A room may stand in the path or, with its `#`, in the fragment. Fields of the settings may follow as
a query (`?user=me`), except secrets, which are always taken from the environment. The rest of the
query is left to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Struct

from dragoman.core.auth_schemes import Secret
from dragoman.core.errors import ConfigError
from dragoman.settings.chat import (
    ChannelSettings,
    DiscordSettings,
    IrcSettings,
    LoopbackSettings,
    MatrixSettings,
    StdioSettings,
    TelegramSettings,
)

from .channel import Channel, Cursor

EXTRAS = {"nio": "matrix", "irc": "irc", "aiogram": "telegram", "discord": "discord"}
"""The packages that channels need, each with the extra that installs it."""


def channel_from(settings: ChannelSettings, cursor: Cursor | None = None) -> Channel:
    """Returns the channel for these settings; `cursor` notes how far it has heard. Raises
    `ConfigError` if the package that it needs is not installed."""
    try:
        module, name = _KINDS[type(settings)]
        kind = getattr(import_module(f".{module}", __package__), name)
        return cast(Channel, kind(settings, cursor))
    except ModuleNotFoundError as exc:
        package = (exc.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        install = f"pip install 'dragoman[{EXTRAS[package]}]'"
        raise ConfigError(
            f"A channel of the kind {EXTRAS[package]} needs more; install it with: {install}"
        ) from exc


class ChatAddress(Struct, frozen=True):
    """What an address of a room says."""

    settings: ChannelSettings
    room: str
    query: Mapping[str, str]
    """What is not a field of the settings."""


def is_chat_address(address: str) -> bool:
    """Returns whether an address names a room of one of our channels."""
    found = _SCHEME.match(address)
    return found is not None and found[1].lower() in _SCHEMES


def parse_chat_address(address: str) -> ChatAddress:
    """Returns the channel and the room that an address names. Raises `ConfigError` if it names
    none."""
    found = _SCHEME.match(address)
    scheme = found[1].lower() if found else ""
    if found is None or scheme not in _SCHEMES:
        known = ", ".join(f"lite+{each}://" for each in _SCHEMES)
        raise ConfigError(f"An address of a room begins with {known}: {address!r}")
    try:
        parts = urlsplit(address[found.end(1) + 1 :])
        if parts.fragment:  # `/#room?user=me`: people write the query last, wherever the room is
            fragment, mark, query = parts.fragment.partition("?")
            parts = parts._replace(fragment=fragment, query=query if mark else parts.query)
        port = parts.port or 0
    except ValueError as exc:
        raise ConfigError(f"This is not an address: {exc}: {address!r}") from None
    kind, fields, room = _SCHEMES[scheme](parts, port)
    known_fields = {each.name for each in msgspec.structs.fields(kind) if not _is_secret(each)}
    rest: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        (fields if key in known_fields else rest)[key] = value
    fields["rooms"] = (room,) if room else ()
    try:
        settings = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"{exc}: {address!r}") from None
    return ChatAddress(settings, room, rest)


def _is_secret(field: msgspec.structs.FieldInfo) -> bool:
    return bool(field.type == Secret | None)


def _room(parts: SplitResult) -> str:
    path = unquote(parts.path.strip("/"))
    return f"#{unquote(parts.fragment)}" if parts.fragment and not path else path


_Found = tuple[type[ChannelSettings], dict[str, Any], str]


def _loopback_address(parts: SplitResult, _: int) -> _Found:
    user = {"user": unquote(parts.username)} if parts.username else {}
    return LoopbackSettings, {"hub": parts.hostname or "local", **user}, _room(parts)


def _irc_address(parts: SplitResult, port: int, *, tls: bool = False) -> _Found:
    nick = {"nick": unquote(parts.username)} if parts.username else {}
    fields = {"host": parts.hostname or "", "port": port, "tls": tls, **nick}
    return IrcSettings, fields, _room(parts)


def _matrix_address(parts: SplitResult, _: int, *, scheme: str = "https") -> _Found:
    host = parts.netloc.rpartition("@")[2]
    user = {"user": unquote(parts.username)} if parts.username else {}
    return MatrixSettings, {"homeserver": f"{scheme}://{host}", **user}, _room(parts)


def _telegram_address(parts: SplitResult, _: int) -> _Found:
    return TelegramSettings, {}, unquote(parts.netloc) or _room(parts)


def _discord_address(parts: SplitResult, _: int) -> _Found:
    return DiscordSettings, {}, unquote(parts.netloc) or _room(parts)


def _stdio_address(parts: SplitResult, _: int) -> _Found:
    return StdioSettings, {}, unquote(parts.netloc) or _room(parts) or "room"


_SCHEME = re.compile(r"[a-z][a-z0-9]*\+([a-z+]+)(?=:)", re.IGNORECASE)
_SCHEMES: dict[str, Callable[[SplitResult, int], _Found]] = {
    "loopback": _loopback_address,
    "stdio": _stdio_address,
    "irc": _irc_address,
    "ircs": partial(_irc_address, tls=True),
    "matrix": _matrix_address,
    "matrix+http": partial(_matrix_address, scheme="http"),
    "telegram": _telegram_address,
    "discord": _discord_address,
}


_KINDS: dict[type[ChannelSettings], tuple[str, str]] = {
    LoopbackSettings: ("loopback", "LoopbackChannel"),
    StdioSettings: ("stdio", "StdioChannel"),
    IrcSettings: ("irc", "IrcChannel"),
    MatrixSettings: ("matrix", "MatrixChannel"),
    TelegramSettings: ("telegram", "TelegramChannel"),
    DiscordSettings: ("discord_bot", "DiscordChannel"),
}
"""The module of each kind, which is imported when it is needed, and the class in it."""
CHAT_SCHEMES = tuple(_SCHEMES)
"""The kinds of addresses of rooms."""
