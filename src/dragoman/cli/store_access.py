"""Opens the store of a server from another process, for commands that manage tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import Parameter

from dragoman import settings as config
from dragoman.core.errors import ConfigError
from dragoman.store import Store, open_store

AsJson = Annotated[bool, Parameter(name=("--json", "-j"), help="Print one JSON object per line.")]
StoreUrl = Annotated[str | None, Parameter(name="--store", help="Where tasks are stored.")]

R = TypeVar("R")


def settings_of(url: str | None) -> config.Settings:
    """Returns the settings, with the store that is given, if there is one."""
    return config.load({"store": url}, os.environ)


def place_of(url: str | None) -> str:
    """Returns the URL of the store: the one given, or that of the settings."""
    return settings_of(url).server.store


def opened(url: str | None, work: Callable[[Store], Awaitable[R]], *, create: bool = False) -> R:
    """Runs a function with the store of these settings. With `create`, a store that does not exist
    is created."""
    place = place_of(url)
    check_place(place, create=create)

    async def main() -> R:
        store = open_store(place)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


def check_place(place: str, *, create: bool) -> None:
    """Raises `ConfigError` if there is no store at a URL, unless it may be created."""
    scheme, _, rest = place.partition(":")
    if scheme == "memory":
        raise ConfigError("A store in memory lives in its server alone; there is nothing to open.")
    slashes = {"sqlite": "///", "file": "//"}.get(scheme)
    if not create and slashes is not None and not Path(rest.removeprefix(slashes)).exists():
        # A typing mistake must not create an empty store.
        raise ConfigError(
            f"There is no store {place}. Go where the agent is served, or name it with --store."
        )


def has_link_keys(place: str) -> bool:
    """Returns whether agents may dial in to the server of this store, because it has keys."""
    try:
        keys = opened(place, lambda kept: kept.link_keys.all())
    except ConfigError:
        return False  # there is no such store yet, or its server has to open it to say why not
    return any(not each.revoked_at for each in keys)


def shown_time(millis: int) -> str:
    """Returns a time for people, or an empty text for none."""
    if not millis:
        return ""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(" ", "seconds")
