"""`dragoman outbox`: pending deliveries to webhooks, and dead letters."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from cyclopts import App, Parameter

from dragoman.core.errors import ConfigError
from dragoman.store import Store
from dragoman.store.interface import Delivery

from ..store_access import AsJson, StoreUrl, opened, shown_time

outbox = App(name="outbox", help="Show webhook deliveries, and redeliver dead letters.")

MOST = 1_000_000

AgentName = Annotated[
    str | None, Parameter(name="--agent", help="Only deliveries of this agent. [default: all]")
]
Id = Annotated[int, Parameter(help="The number that `list` shows.")]


@outbox.command(name="list")
def listed(
    *,
    dead: Annotated[bool, Parameter(help="List only dead letters.")] = False,
    limit: Annotated[int, Parameter(help="List at most this many of each kind.")] = 100,
    agent: AgentName = None,
    as_json: AsJson = False,
    store: StoreUrl = None,
) -> None:
    """List dead letters and pending deliveries, oldest first."""

    async def look(found: Store) -> list[Delivery]:
        waiting = [] if dead else await found.outbox(dead=False, limit=limit, agent=agent)
        return await found.outbox(dead=True, limit=limit, agent=agent) + waiting

    deliveries = opened(store, look)
    if not deliveries and not as_json:
        print("There are no dead letters." if dead else "No deliveries are pending.")
    for one in deliveries:
        if as_json:
            print(msgspec.json.encode(_fields(one)).decode())
            continue
        print(f"{one.id}  {_state(one)}  {one.hook.task_id}#{one.seq}  {_shown(one.hook.url)}")


@outbox.command
def show(id: Id, /, *, as_json: AsJson = False, store: StoreUrl = None) -> None:
    """Show one delivery: its address, its attempts and their results."""
    one = opened(store, lambda found: _find(found, id))
    if one is None:
        raise ConfigError(f"There is no delivery {id} in the outbox.")
    if as_json:
        print(msgspec.json.encode(_fields(one)).decode())
        return
    for name, value in _fields(one).items():
        if value != "":
            print(f"{name.replace('_', ' '):<12} {value}")


@outbox.command
def redeliver(
    *ids: Id,
    every: Annotated[bool, Parameter(name="--all", help="Redeliver all dead letters.")] = False,
    agent: AgentName = None,
    store: StoreUrl = None,
) -> None:
    """Redeliver dead letters, starting again with the first attempt."""
    if bool(ids) == every:
        raise ConfigError(
            "Which ones? Give the numbers that `dragoman outbox list` shows, or --all."
        )

    async def work(found: Store) -> tuple[list[int], list[int]]:
        chosen = list(ids) or [
            one.id for one in await found.outbox(dead=True, limit=MOST, agent=agent)
        ]
        done = [id for id in chosen if await found.redeliver(id)]
        return done, [id for id in chosen if id not in done]

    done, missing = opened(store, work)
    print(f"{len(done)} on the way again." if done else "Nothing to do.")
    if missing:
        raise ConfigError(f"No dead letters: {', '.join(map(str, missing))}.")


async def _find(store: Store, id: int) -> Delivery | None:
    for dead in (True, False):
        for one in await store.outbox(dead=dead, limit=MOST):
            if one.id == id:
                return one
    return None


def _fields(one: Delivery) -> dict[str, int | str]:
    return {
        "id": one.id,
        "task": one.hook.task_id,
        "event": one.seq,
        "webhook": one.hook.hook_id,
        "url": _shown(one.hook.url),
        "dialect": one.hook.dialect,
        "agent": one.scope.agent,
        "owner": f"{one.scope.tenant}/{one.scope.principal}".lstrip("/"),
        "state": _state(one),
        "tries": one.attempt,
        "last_answer": one.status or one.error or "none",
        "next_try": "" if one.dead_at else shown_time(one.due_at) or "after the one before it",
        "given_up": shown_time(one.dead_at),
    }


def _state(one: Delivery) -> str:
    if one.dead_at:
        return f"given up ({one.status or one.error})"
    return f"tried {one.attempt}x ({one.status or one.error})" if one.attempt else "waits"


def _shown(url: str) -> str:
    """Returns an address without the parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}{'?...' if parts.query else ''}"
