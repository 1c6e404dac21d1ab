"""Contract: the status of a link is the one that was reported last, and is dropped after a day."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dragoman.store.link_status import REMEMBERED, LinkState, LinkStatus

from .base import StoreTests
from .fixture import START

_OPEN = LinkStatus(
    side="agent",
    agent_id="ag-1",
    server="wss://one.example/openclaw/v1/ws/link",
    host="here",
    state=LinkState.OPEN,
    links=1,
    since=START - 10,
    opened=3,
    failures=2,
    latency=0.25,
    last_error="cut",
    failed_at=START - 20,
)


class LinkStatusTests(StoreTests):
    """Tests of `Store.link_status`."""

    async def test_the_status_of_a_link_is_the_one_that_was_reported_last(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.link_status.all() == []
            others = [
                replace(_OPEN, side="server", server="http://127.0.0.1:8420"),
                replace(_OPEN, server="wss://two.example/'\"/"),
                replace(_OPEN, host="there"),
            ]
            await fixture.store.link_status.put([*others, _OPEN])
            fixture.clock.tick(5)
            down = replace(_OPEN, state=LinkState.DOWN, links=0, since=START + 5)
            await fixture.store.link_status.put([down])
            if self.durable:
                await fixture.reopen()
            first = [replace(each, reported_at=START) for each in others]
            expected = [replace(down, reported_at=START + 5), first[2], first[1], first[0]]
            assert await fixture.store.link_status.all() == expected

    async def test_a_status_that_is_not_renewed_is_dropped_after_a_day(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            statuses = fixture.store.link_status
            other = replace(_OPEN, agent_id="ag-2")
            await statuses.put([_OPEN, other])
            fixture.clock.tick(REMEMBERED - 1)
            await statuses.put([other])
            assert len(await statuses.all()) == 2
            fixture.clock.tick(1)
            await statuses.put([])
            if self.durable:
                await fixture.reopen()
            (left,) = await fixture.store.link_status.all()
            assert left.agent_id == "ag-2"
