"""The chat rooms of a server, from `[channels.NAME]`: its agents live there, and agents that are
met there are served here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.core.errors import ConfigError
from dragoman.engine import Engine
from dragoman.gateway.registry import Registry
from dragoman.lite.rooms import ChatRooms
from dragoman.lite.said import Resident
from dragoman.net.chat import Cursor, FileCursor, MemoryCursor, channel_from
from dragoman.security.server_secret import folder_of
from dragoman.settings import ChannelSettings
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.store.sent_marks import SentMarks

from .agent_mount import Shared
from .agent_names import slug

if TYPE_CHECKING:
    from .app import App


def room_services(
    app: App, shared: Shared, store: Store, registry: Registry | None
) -> list[ChatRooms]:
    """Returns one service for each channel of the settings."""
    found = []
    for name, settings in shared.settings.channels.items():
        residents = _residents(app, name, settings)
        rooms = ChatRooms(
            name,
            settings,
            channel_from(settings, _cursor(shared.settings.server.store, name)),
            SentMarks(store.sessions, wall_clock, "lite", name),
            residents=residents,
            files=shared.files,
        )
        found.append(rooms)
    return found


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
