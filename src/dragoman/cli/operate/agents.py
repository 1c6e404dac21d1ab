"""`dragoman agents`: the registry of a gateway, over HTTP or in its store."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from cyclopts import App, Parameter

from dragoman.client import connect
from dragoman.client.addresses import dialects_of
from dragoman.client.registry import TOKEN, RegistryClient
from dragoman.core.errors import ConfigError, DragomanError
from dragoman.gateway.registry import told
from dragoman.server.agent_names import checked, slug
from dragoman.store import Store
from dragoman.store.clock import wall_clock
from dragoman.store.registry import RegistryEntry, Source

from ..store_access import AsJson, StoreUrl, opened, shown_time
from ..waiting import Wait

agents = App(name="agents", help="List, find, add and remove the agents of a gateway.")

R = TypeVar("R")
Url = Annotated[
    str,
    Parameter(
        name="--url",
        help=f"The address of a running gateway; ${TOKEN} is the token. [default: use the store]",
    ),
]
Name = Annotated[str, Parameter(help="The name of the agent at the gateway.")]


@agents.command
def add(
    name: Name,
    address: Annotated[str, Parameter(help="The address of the agent, in any dialect.")],
    /,
    *,
    tag: Annotated[tuple[str, ...], Parameter(help="A tag to find it by.")] = (),
    lease: Annotated[
        float | None, Parameter(help="Seconds after which it is gone. [default: it stays]")
    ] = None,
    as_json: AsJson = False,
    url: Url = "",
    store: StoreUrl = None,
) -> None:
    """Add an agent to a gateway. A running gateway serves it within a second."""
    checked(name)
    dialects_of(address)
    if url:
        found = _asked(url, lambda way: way.register(name, address, tags=list(tag), lease=lease))
    else:
        until = wall_clock() + int(lease * 1000) if lease is not None else 0
        entry = RegistryEntry(
            name=name, source=Source.CLI, addresses=(address,), tags=tag, until=until
        )
        found = _fields(opened(store, lambda kept: kept.registry.put(entry)))
    print(msgspec.json.encode(found).decode() if as_json else f"{name} is registered.")


@agents.command
def discover(
    *cards: Annotated[str, Parameter(help="The addresses of agents, or of their cards.")],
    tag: Annotated[tuple[str, ...], Parameter(help="A tag to find them by.")] = (),
    url: Url = "",
    store: StoreUrl = None,
) -> None:
    """Add the agents of a list of addresses, under the names on their cards. The gateway reads the
    cards again from time to time. A name that is registered already is left alone, and an address
    without a card does not keep the others out; the exit code is 1 then."""
    failed = False
    for address in cards:
        try:
            name = slug(asyncio.run(_title(address)))
            known = _is_registered(name, url, store)
        except DragomanError as exc:
            print(f"{address}: {exc.message}", file=sys.stderr)
            failed = True
            continue
        if known:
            print(f"{name} is registered already.")
            continue
        add(name, address, tag=tag, url=url, store=store)
    if failed:
        raise SystemExit(1)


def _is_registered(name: str, url: str, store: str | None) -> bool:
    if url:
        return _asked(url, lambda way: way.find(name)) is not None
    entry = opened(store, lambda kept: kept.registry.find(name))
    return entry is not None and not entry.removed_at


async def _title(address: str) -> str:
    """Returns the name on the card at an address."""
    async with Wait(address).limited(), connect(address) as agent:
        return agent.card.name


@agents.command(name="list")
def listed(*, as_json: AsJson = False, url: Url = "", store: StoreUrl = None) -> None:
    """List all agents of a gateway."""
    if url:
        _print(_asked(url, lambda way: way.search()), as_json=as_json)
    else:
        _print([_fields(each) for each in opened(store, _all)], as_json=as_json)


@agents.command
def show(name: Name, /, *, as_json: AsJson = False, url: Url = "", store: StoreUrl = None) -> None:
    """Show one agent: its source, its health, and the end of its lease."""
    if url:
        found = _asked(url, lambda way: way.find(name))
    else:
        entry = opened(store, lambda kept: kept.registry.find(name))
        found = _fields(entry) if entry is not None else None
    if found is None:
        raise ConfigError(f"There is no agent called {name}.")
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    for key, value in found.items():
        print(f"{key:12}{_shown(key, value)}")


@agents.command
def remove(name: Name, /, *, url: Url = "", store: StoreUrl = None) -> None:
    """Remove an agent that was added or has registered itself."""

    async def gone(kept: Store) -> bool:
        entry = await kept.registry.find(name)
        if entry is None or entry.source is Source.FILE:
            return False
        return await kept.registry.remove(name, entry.source, entry.owner)

    if not (_asked(url, lambda way: way.remove(name)) if url else opened(store, gone)):
        raise ConfigError(
            f"There is no agent called {name} that could be removed. One of the settings file goes "
            "when its section does."
        )
    print(f"{name} is removed.")


@agents.command
def search(
    text: Annotated[str, Parameter(help="Words that its card has.")] = "",
    /,
    *,
    skill: Annotated[str, Parameter(help="The id of a skill.")] = "",
    tag: Annotated[str, Parameter(help="A tag of the agent or of a skill.")] = "",
    mode: Annotated[str, Parameter(help="A media type that it takes or gives.")] = "",
    as_json: AsJson = False,
    url: Url = "",
    store: StoreUrl = None,
) -> None:
    """Find agents by skill, tag, media type and text. Without --url, the search covers only the
    registered names, tags and addresses."""
    if url:
        wanted = {"q": text, "skill": skill, "tag": tag, "mode": mode}
        _print(_asked(url, lambda way: way.search(**wanted)), as_json=as_json)
        return
    if skill or mode:
        raise ConfigError("The cards of agents are with the gateway: add --url ADDRESS.")
    found = [
        each
        for each in opened(store, _all)
        if (not tag or tag.casefold() in map(str.casefold, each.tags))
        and all(word in _words(each) for word in text.casefold().split())
    ]
    _print([_fields(each) for each in found], as_json=as_json)


async def _all(kept: Store) -> list[RegistryEntry]:
    return await kept.registry.all()


def _words(entry: RegistryEntry) -> str:
    return " ".join((entry.name, *entry.tags, *entry.addresses)).casefold()


def _fields(entry: RegistryEntry) -> dict[str, Any]:
    found = {"name": entry.name, "addresses": list(entry.addresses), **told(entry, wall_clock())}
    return {**found, "owner": entry.owner} if entry.owner else found


def _asked(url: str, ask: Callable[[RegistryClient], Awaitable[R]]) -> R:
    """Asks a running gateway."""

    async def main() -> R:
        way = RegistryClient(url, os.environ.get(TOKEN, ""))
        try:
            async with Wait(url, document=True).limited():
                return await ask(way)
        finally:
            await way.close()

    return asyncio.run(main())


def _print(found: list[dict[str, Any]], *, as_json: bool) -> None:
    if not found and not as_json:
        print("No agents were found.")
    for each in found:
        if as_json:
            print(msgspec.json.encode(each).decode())
            continue
        where = each.get("url") or ", ".join(each.get("addresses", ()))
        known = "  ".join(str(each.get(key, "")) for key in ("source", "health"))
        print(f"{each['name']:20}  {known}  {where}")


def _shown(key: str, value: Any) -> str:
    if key in ("lastSeen", "addedAt", "leaseUntil"):
        return shown_time(int(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
