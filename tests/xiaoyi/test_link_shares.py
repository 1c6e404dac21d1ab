"""Every key and every agent has a share of the links; who is above it is asked to come later."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from waiting import until
from xiaoyi.links import AGENT, Gateway, gateway
from xiaoyi.strangers import signed


@asynccontextmanager
async def crowd(door: Gateway, agents: list[str]) -> AsyncIterator[list[ClientConnection]]:
    """Raw links of these agents, with one pair of keys."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(link(door, agent)) for agent in agents]


def link(door: Gateway, agent: str) -> Any:
    # Each handshake has a time of its own: a signature counts once.
    headers = door.headers(agent=agent, off=-next(_offsets))
    return connect(door.link_url, additional_headers=headers)


_offsets = itertools.cycle(range(1, 250))


@pytest.mark.parametrize(
    ("limits", "agents"),
    [
        ({"links_per_agent": 2}, [AGENT, AGENT, AGENT]),
        ({"links_per_key": 2}, [AGENT, "ag-2", "ag-3"]),
        ({"links": 2}, [AGENT, "ag-2", "ag-3"]),
    ],
)
async def test_a_link_above_a_share_is_asked_to_come_later(
    limits: dict[str, int], agents: list[str]
) -> None:
    """A 401 or 403 would end an honest agent for good."""
    async with asyncio.timeout(240), gateway(AGENT, "ag-2", "ag-3", **limits) as door:
        async with crowd(door, agents[:2]):
            with pytest.raises(InvalidStatus) as refused:
                await link(door, agents[2])
            assert refused.value.response.status_code == 503
            assert int(refused.value.response.headers["retry-after"]) > 0
            # Another key is not concerned by the share of this one.
            if "links" not in limits:
                key, secret = await door.service.ring.add(["other"])
                headers = signed(key.access_key, secret, "other")
                async with connect(door.link_url, additional_headers=headers):
                    pass
        await until(lambda: not door.service.links.open)
        async with link(door, agents[2]):
            pass  # there is room again
