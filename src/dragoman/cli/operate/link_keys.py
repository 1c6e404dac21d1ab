"""`dragoman xiaoyi keys`: the keys of agents that dial in."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from dragoman.core.errors import ConfigError
from dragoman.security.server_secret import secret_for
from dragoman.store import Store
from dragoman.store.link_keys import LinkKey
from dragoman.xiaoyi.keys import KeyRing

from ..store_access import AsJson, StoreUrl, opened, place_of, shown_time

keys = App(name="keys", help="Make, list and revoke the keys of agents that dial in.")


@keys.command
def add(
    *,
    agent_id: Annotated[
        tuple[str, ...],
        Parameter(help="The agent that may dial in with the keys; repeatable.", negative=""),
    ],
    as_json: AsJson = False,
    store: StoreUrl = None,
) -> None:
    """Make a pair of keys, and print both. The secret key is not shown again.

    A running server takes the keys at once, if its store can be shared.
    """
    place = place_of(store)

    async def made(kept: Store) -> tuple[LinkKey, str]:
        return await KeyRing(kept.link_keys, secret_for(place, os.environ)).add(agent_id)

    key, secret = opened(store, made, create=True)
    if as_json:
        fields = {"ak": key.access_key, "sk": secret, "agentIds": list(key.agent_ids)}
        print(msgspec.json.encode(fields).decode())
        return
    print(f"ak  {key.access_key}")
    print(f"sk  {secret}")
    print("The secret key is not shown again. The agent has both from its environment:")
    print("  DRAGOMAN_XIAOYI_AK, DRAGOMAN_XIAOYI_SK")


@keys.command(name="list")
def listed(*, as_json: AsJson = False, store: StoreUrl = None) -> None:
    """List all keys: for which agents, since when, and whether they are revoked."""

    async def found(kept: Store) -> list[LinkKey]:
        return await kept.link_keys.all()

    pairs = opened(store, found)
    if not pairs and not as_json:
        print("There are no keys.")
    for each in pairs:
        if as_json:
            fields: dict[str, object] = {"ak": each.access_key, "agentIds": list(each.agent_ids)}
            fields |= {"addedAt": each.added_at, "revokedAt": each.revoked_at or None}
            print(msgspec.json.encode(fields).decode())
            continue
        state = f"revoked {shown_time(each.revoked_at)}" if each.revoked_at else "valid"
        about = f"{', '.join(each.agent_ids)}  added {shown_time(each.added_at)}  {state}"
        print(f"{each.access_key}  {about}")


@keys.command
def revoke(
    ak: Annotated[str, Parameter(help="The access key.")],
    /,
    *,
    store: StoreUrl = None,
) -> None:
    """Revoke keys. Agents cannot dial in with them any more, and their open links are closed."""
    if not opened(store, lambda kept: kept.link_keys.revoke(ak)):
        raise ConfigError("There is no valid key of this access key.")
    print(f"{ak} is revoked.")
