"""The chat rooms of a server, from `[channels.NAME]`: its agents live there, and agents that are
met there are served here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.core.errors import ConfigError
from dragoman.engine import Engine
from dragoman.gateway.arrivals.dial_ins import DialIns
from dragoman.gateway.arrivals.room_agents import RoomAgents
from dragoman.gateway.registry import OFFLINE, Registry
from dragoman.lite.heard_message import Resident
from dragoman.lite.known_agents import KnownAgents, owner_of
from dragoman.lite.rooms import ChatRooms
from dragoman.net.chat import Cursor, FileCursor, MemoryCursor, channel_from
from dragoman.security.server_secret import folder_of
from dragoman.settings import ChannelSettings, Settings
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.store.registry import Source
from dragoman.store.sessions import SentMarks

from ..agent_mount import Shared
from ..agent_names import slug, title_slug
from .links import GuestMounts

if TYPE_CHECKING:
    from dragoman.agent import Agent

    from ..app import App


def room_services(
    app: App, shared: Shared, store: Store, registry: Registry | None
) -> list[ChatRooms]:
    """Returns one service for each channel of the settings."""
    found = []
    for name, settings in shared.settings.channels.items():
        residents = _residents(app, name, settings)
        meets = registry is not None if settings.meet is None else settings.meet
        rooms = ChatRooms(
            name,
            settings,
            channel_from(settings, _cursor(shared.settings.server.store, name)),
            SentMarks(store.sessions, wall_clock, "lite", name),
            residents=residents,
            files=shared.files,
            discover=settings.discover and meets,
        )
        rooms.met.known = KnownAgents(store.registry, name, title_slug)
        if meets:
            mounts = app if app.several else GuestMounts(app)
            dial_ins = DialIns(
                *(mounts, app.agent_at, registry), offline=OFFLINE, source=Source.ROOM
            )
            rooms.beside.append(dial_ins.close)
            if registry is not None:
                registry.arrivals[owner_of(name, "")] = partial(_same, dial_ins)
            RoomAgents(rooms, dial_ins)
        found.append(rooms)
    return found


def _same(dial_ins: DialIns) -> DialIns:
    return dial_ins


def _residents(
    app: App, channel: str, settings: ChannelSettings
) -> Callable[[], Sequence[Resident]]:
    """Returns a function that returns the agents that live in the rooms of a channel."""
    own = {name or slug(mount.agent.name): name for name, mount in app.mounts.items()}
    wanted = tuple(own) if settings.agents is None else settings.agents
    unknown = [name for name in wanted if name not in own]
    if unknown:
        known = ", ".join(own) or "none"
        raise ConfigError(
            f"[channels.{channel}] agents: there is no agent {unknown[0]!r}; there are: {known}."
        )

    def residents() -> list[Resident]:
        found = []
        for name in wanted:
            mount = app.mounts.get(own[name])
            if mount is None:
                continue  # it was removed
            engine = mount.peer if isinstance(mount.peer, Engine) else None
            found.append(
                Resident(
                    name=name,
                    peer=mount.server.peer,
                    card=mount.agent.card,
                    store=engine.store if engine is not None else None,
                    kept_as=engine.name if engine is not None else "",
                )
            )
        return found

    return residents


def _cursor(store: str, channel: str) -> Cursor:
    """Returns where the position in a channel is noted: beside the store, if that is on this
    machine. Otherwise what was said while the server was down is not heard."""
    folder = folder_of(store)
    if folder is None:
        return MemoryCursor()
    prefix = f"{Path(store).name}." if store.startswith("sqlite:") else ""
    return FileCursor(folder / f"{prefix}{channel}.cursor")


def run_in_rooms(agent: Agent, settings: Settings, name: str, channel: ChannelSettings) -> None:
    """Runs an agent that is reached only in chat rooms, until it is told to stop. No port is
    opened. Raises the error with which the channel ended."""
    from ..portless import run_without_port

    # The settings may name other channels; this agent lives in one of them.
    run_without_port(agent, replace(settings, channels={name: channel}, agents={}), _ends)


def _ends(app: App) -> tuple[asyncio.Future[Any], dict[str, str]]:
    rooms = app.service(ChatRooms)
    assert rooms.ended is not None  # noqa: S101  it has started
    return rooms.ended, {"channel": rooms.channel_name, "rooms": ",".join(rooms.settings.rooms)}
