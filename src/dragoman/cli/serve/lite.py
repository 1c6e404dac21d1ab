"""`dragoman lite`: agents in chat rooms."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from msgspec.structs import replace

from dragoman import settings as config
from dragoman.core.errors import ConfigError
from dragoman.lite.known_agents import MetAgent, known_agents
from dragoman.net.chat import is_chat_address, parse_chat_address
from dragoman.server.agent_loader import load_agent
from dragoman.server.services.rooms import run_in_rooms
from dragoman.settings import AnyChannelSettings, ChannelSettings
from dragoman.store import Store

from ..json_output import show
from ..store_access import AsJson, StoreUrl, opened, shown_time
from .server_flags import ConfigFile, LogFormat, LogLevel, StoreFlag, set_up_json_log

lite = App(name="lite", help="A2A-Lite: agents that live in chat rooms, and those met there.")

_SERVER = {"matrix": "homeserver", "irc": "host", "loopback": "hub"}
"""What `--server` is called in the settings of each kind; `api` where nothing else is said."""


@lite.command
def serve(
    file: Annotated[str, Parameter(help="Python file with the agent, or FILE:NAME.")],
    /,
    *,
    channel: Annotated[
        str,
        Parameter(
            help="Where the agent lives: a kind (matrix, irc, telegram, discord, stdio, loopback), "
            "the NAME of a [channels.NAME] in the settings, or an address such as "
            "lite+irc://NICK@HOST/#ROOM."
        ),
    ],
    server: Annotated[
        str, Parameter(help="The server of the channel: a homeserver, an IRC host, or a hub.")
    ] = "",
    user: Annotated[str, Parameter(help="The account or nick of the agent.")] = "",
    room: Annotated[
        tuple[str, ...], Parameter(help="A room to join; repeatable.", negative="")
    ] = (),
    allow: Annotated[
        tuple[str, ...],
        Parameter(help="Only this sender may use the agent; repeatable.", negative=""),
    ] = (),
    operator: Annotated[
        tuple[str, ...],
        Parameter(help="A sender that may cancel all tasks; repeatable.", negative=""),
    ] = (),
    store: StoreFlag = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config_file: ConfigFile = None,
) -> None:
    """Put the agent in a Python file into chat rooms, and answer there until Ctrl-C.

    No port is opened. Passwords and tokens are in the environment: DRAGOMAN_MATRIX_TOKEN or
    DRAGOMAN_MATRIX_PASSWORD, DRAGOMAN_IRC_PASSWORD, DRAGOMAN_TELEGRAM_TOKEN,
    DRAGOMAN_DISCORD_TOKEN.
    """
    settings = config.load(
        {"store": store, "log_level": log_level, "log_format": log_format}, os.environ, config_file
    )
    set_up_json_log(settings)
    name, found = _channel(settings, channel, server, user)
    rooms = room or found.rooms
    found = replace(
        found,
        rooms=rooms,
        agents=None,
        allow=allow or found.allow,
        operators=operator or found.operators,
    )
    run_in_rooms(load_agent(file), settings, name, found)


def _channel(
    settings: config.Settings, channel: str, server: str, user: str
) -> tuple[str, ChannelSettings]:
    """Returns the settings of the channel that is meant, and its name."""
    if is_chat_address(channel):
        found = parse_chat_address(channel).settings
        return _kind(found), found
    if channel in settings.channels:
        return channel, settings.channels[channel]
    fields: dict[str, object] = {"kind": channel}
    if server:
        key = _SERVER.get(channel, "api")
        fields[key] = server
        if channel == "irc":
            host, _, port = server.partition(":")
            fields["host"] = host
            if port.isdigit():
                fields["port"] = int(port)
    if user:
        fields["nick" if channel == "irc" else "user"] = user
    try:
        return channel, msgspec.convert(fields, AnyChannelSettings)
    except msgspec.ValidationError as exc:
        if "Invalid value" in str(exc):
            known = ", ".join(settings.channels) or "none"
            raise ConfigError(
                f"There is no channel {channel!r}: it is no kind, no address, and no "
                f"[channels.NAME] of the settings ({known})."
            ) from None
        missing = "homeserver" if channel == "matrix" else "host"
        hint = " Give --server." if missing in str(exc) else ""
        raise ConfigError(f"--channel {channel}: {str(exc).split(' - at')[0]}.{hint}") from None


def _kind(found: ChannelSettings) -> str:
    return str(found.__struct_config__.tag)


@lite.command
def agents(*, as_json: AsJson = False, store: StoreUrl = None) -> None:
    """List the agents that were met in chat rooms: where, and what they can do."""

    async def found(kept: Store) -> list[MetAgent]:
        return await known_agents(kept.registry)

    met = opened(store, found)
    if not met and not as_json:
        print("No agents were met yet.")
    for each in met:
        skills = [skill.id for skill in each.card.skills]
        if as_json:
            show(
                {
                    "name": each.name,
                    "channel": each.channel,
                    "room": each.room,
                    "sender": each.sender,
                    "supported": each.card.supported,
                    "card": msgspec.to_builtins(each.card),
                    "seenAt": each.seen_at,
                }
            )
            continue
        can = ", ".join(skills) or "skills unknown"
        if not each.card.supported:
            can = f"not supported: it speaks {each.card.protocol or 'an unknown version'}"
        about = f"{each.card.agent.name or each.sender} ({can})"
        where = f"{each.sender} in {each.room or 'a room'} of {each.channel}"
        print(f"{each.name}  {about}  {where}  seen {shown_time(each.seen_at)}")
