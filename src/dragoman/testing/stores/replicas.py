"""Contract: the replicas of a store are those that report themselves, and lost ones are seen."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dragoman.store.replicas import LEASE, REMEMBERED, ReplicaReport, ReplicaState

from .base import StoreTests
from .fixture import AGENT, START

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
