"""`dragoman outbox`: what is on its way to webhooks, and what was given up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from cyclopts import App, Parameter

from .. import settings as config
from ..errors import ConfigError
from ..store import Store, open_store
from ..store.base import Delivery

outbox = App(name="outbox", help="Look at what webhooks are told, and tell it again.")

MOST = 1_000_000

StoreUrl = Annotated[str | None, Parameter(name="--store", help="Where tasks live.")]
Id = Annotated[int, Parameter(help="The number that `list` shows.")]

R = TypeVar("R")


@outbox.command(name="list")
def listed(
    *,
    dead: Annotated[bool, Parameter(help="Only what was given up.", negative=())] = False,
    limit: Annotated[int, Parameter(help="Lines at most, of each kind.")] = 100,
    store: StoreUrl = None,
) -> None:
    """List what was given up and what is on its way, oldest first."""

    async def look(found: Store) -> list[Delivery]:
        waiting = [] if dead else await found.outbox(dead=False, limit=limit)
        return await found.outbox(dead=True, limit=limit) + waiting

    deliveries = opened(store, look)
    if not deliveries:
        print("Nothing was given up." if dead else "Nothing is on its way.")
    for one in deliveries:
        print(f"{one.id}  {_state(one)}  {one.hook.task_id}#{one.seq}  {_shown(one.hook.url)}")


@outbox.command
def show(id: Id, /, *, store: StoreUrl = None) -> None:
    """Show one delivery: where to, how often it was tried, and how that ended."""
    one = opened(store, lambda found: _find(found, id))
    if one is None:
        raise ConfigError(f"There is no delivery {id} in the outbox.")
    for name, value in (
        ("id", one.id),
        ("task", one.hook.task_id),
        ("event", one.seq),
        ("webhook", one.hook.hook_id),
        ("url", _shown(one.hook.url)),
        ("dialect", one.hook.dialect),
        ("owner", f"{one.scope.tenant}/{one.scope.principal}".lstrip("/")),
        ("state", _state(one)),
        ("tries", one.attempt),
        ("last answer", one.status or one.error or "none"),
        ("next try", "" if one.dead_at else shown_time(one.due_at) or "after the one before it"),
        ("given up", shown_time(one.dead_at)),
    ):
        if value != "":
            print(f"{name:<12} {value}")


@outbox.command
def redeliver(
    *ids: Id,
    every: Annotated[
        bool, Parameter(name="--all", help="Everything that was given up.", negative=())
    ] = False,
    store: StoreUrl = None,
) -> None:
    """Try dead letters again, from their first attempt on."""
    if bool(ids) == every:
        raise ConfigError(
            "Which ones? Give the numbers that `dragoman outbox list` shows, or --all."
        )

    async def work(found: Store) -> tuple[list[int], list[int]]:
        chosen = list(ids) or [one.id for one in await found.outbox(dead=True, limit=MOST)]
        done = [id for id in chosen if await found.redeliver(id)]
        return done, [id for id in chosen if id not in done]

    done, missing = opened(store, work)
    print(f"{len(done)} on the way again." if done else "Nothing to do.")
    if missing:
        raise ConfigError(f"No dead letters: {', '.join(map(str, missing))}.")


def place_of(url: str | None) -> str:
    """The URL of the store: the one given, else that of the settings."""
    return config.load({"store": url}, os.environ).server.store


def opened(url: str | None, work: Callable[[Store], Awaitable[R]]) -> R:
    """Does something with the store of these settings."""
    place = place_of(url)
    scheme, _, rest = place.partition(":")
    if scheme == "memory":
        raise ConfigError("A store in memory lives in its server alone; there is nothing to open.")
    slashes = {"sqlite": "///", "file": "//"}.get(scheme)
    if slashes is not None and not Path(rest.removeprefix(slashes)).exists():
        # A typing mistake must not make an empty store.
        raise ConfigError(f"There is no store {place}.")

    async def main() -> R:
        store = open_store(place)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(main())


async def _find(store: Store, id: int) -> Delivery | None:
    for dead in (True, False):
        for one in await store.outbox(dead=dead, limit=MOST):
            if one.id == id:
                return one
    return None


def _state(one: Delivery) -> str:
    if one.dead_at:
        return f"given up ({one.status or one.error})"
    return f"tried {one.attempt}x ({one.status or one.error})" if one.attempt else "waits"


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}{'?...' if parts.query else ''}"


def shown_time(millis: int) -> str:
    """A time for people; empty for none."""
    if not millis:
        return ""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(" ", "seconds")
