"""Contract: what processes report of their links and of themselves counts until it is too old."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dragoman.store.link_status import REMEMBERED as LINK_REMEMBERED
from dragoman.store.link_status import LinkState, LinkStatus
from dragoman.store.replicas import LEASE, REMEMBERED, ReplicaReport, ReplicaState

from .base import StoreTests
from .fixture import AGENT, START

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
            fixture.clock.tick(LINK_REMEMBERED - 1)
            await statuses.put([other])
            assert len(await statuses.all()) == 2
            fixture.clock.tick(1)
            await statuses.put([])
            if self.durable:
                await fixture.reopen()
            (left,) = await fixture.store.link_status.all()
            assert left.agent_id == "ag-2"


_ONE = ReplicaReport(
    id="r-1", host="here", pid=7, version="1.0", agents=(AGENT,), started_at=START, running=3
)


class ReplicaTests(StoreTests):
    """Tests of `Store.replicas`."""

    async def test_a_replica_is_alive_until_it_does_not_report_any_more(
        self, tmp_path: Path
    ) -> None:
        async with self.fixture(tmp_path) as fixture:
            replicas = fixture.store.replicas
            assert await replicas.all() == []
            other = replace(_ONE, id="r-2", started_at=START - 1)
            await replicas.put(_ONE)
            await replicas.put(other)
            assert await replicas.all() == [other, _ONE]
            fixture.clock.tick(LEASE - 1)
            await replicas.put(replace(_ONE, running=4))
            fixture.clock.tick(1)
            lost, alive = await replicas.all()
            assert (lost.id, lost.state, lost.silent) == ("r-2", ReplicaState.LOST, LEASE)
            assert (alive.id, alive.state, alive.running) == ("r-1", ReplicaState.ALIVE, 4)
            fixture.clock.tick(REMEMBERED - LEASE)
            await replicas.put(_ONE)
            assert [each.id for each in await replicas.all()] == ["r-1"]

    async def test_a_replica_that_stops_is_not_lost(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            replicas = fixture.store.replicas
            await replicas.put(_ONE)
            await replicas.put(replace(_ONE, stopping=True))
            assert [each.state for each in await replicas.all()] == [ReplicaState.STOPPING]
            fixture.clock.tick(LEASE)
            assert await replicas.all() == []
