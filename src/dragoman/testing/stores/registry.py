"""Contract: a name in the registry belongs to one agent, sources have precedence, and changes are
reported."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman.core.errors import Conflict, TooMany
from dragoman.store.registry import MOST_OF_OWNER, REMEMBERED, AgentHealth, RegistryEntry, Source

from .base import StoreTests
from .fixture import START

HOUR = 3_600_000


def _entry(
    name: str, source: Source = Source.TOKEN, owner: str = "ann", **more: Any
) -> RegistryEntry:
    return RegistryEntry(
        name=name,
        source=source,
        owner=owner,
        addresses=(f"https://{name}.example",),
        card='{"name": "One"}',
        tags=("fast",),
        **more,
    )


class RegistryTests(StoreTests):
    """Tests of `Store.registry`."""

    async def test_an_entry_is_found_as_it_was_put(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            assert await fixture.store.registry.find("one") is None
            kept = await fixture.store.registry.put(_entry("one", until=START + HOUR))
            assert (kept.added_at, kept.seen_at) == (START, START)
            await fixture.store.registry.put(_entry("two"))
            if self.durable:
                await fixture.reopen()
            registry = fixture.store.registry
            assert await registry.find("one") == kept
            assert [each.name for each in await registry.all()] == ["one", "two"]

    async def test_an_owner_changes_its_entry_and_nobody_else_does(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            registry = fixture.store.registry
            first = await registry.put(_entry("one"))
            fixture.clock.tick(5)
            changed = await registry.put(replace(_entry("one"), tags=("slow",)))
            assert (changed.tags, changed.added_at) == (("slow",), first.added_at)
            with pytest.raises(Conflict):
                await registry.put(_entry("one", owner="bob"))
            assert not await registry.renew("one", Source.TOKEN, "bob", START + HOUR)
            assert not await registry.remove("one", Source.TOKEN, "bob")
            assert not await registry.remove("one", Source.CLI, "ann")
            assert await registry.find("one") == changed

    async def test_a_source_of_higher_precedence_takes_a_name(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            registry = fixture.store.registry
            for source in (Source.LINK, Source.TOKEN, Source.CLI, Source.FILE):
                await registry.put(_entry("one", source, owner=f"of {source}"))
                for other in Source:
                    if other.rank >= source.rank:
                        with pytest.raises(Conflict):
                            await registry.put(_entry("one", other, owner="another"))
            found = await registry.find("one")
            assert found is not None
            assert found.source is Source.FILE

    async def test_a_removed_name_is_free_again(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            registry = fixture.store.registry
            await registry.put(_entry("one"))
            assert await registry.remove("one", Source.TOKEN, "ann")
            assert not await registry.remove("one", Source.TOKEN, "ann")
            assert await registry.find("one") is None
            assert await registry.all() == []
            fixture.clock.tick(7)
            assert (await registry.put(_entry("one", owner="bob"))).added_at == START + 7

    async def test_every_change_is_news(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            registry = fixture.store.registry
            assert await registry.news(0) == []
            for name in ("one", "two"):
                await registry.put(_entry(name, until=START + HOUR))
            first = await registry.news(0)
            assert [each.name for each in first] == ["one", "two"]
            seen = first[-1].revision
            assert await registry.news(seen) == []
            await registry.renew("one", Source.TOKEN, "ann", START + 2 * HOUR)
            await registry.note("two", AgentHealth.DOWN, START + 9)
            await registry.remove("one", Source.TOKEN, "ann")
            await registry.note("one", AgentHealth.UP, START)
            if self.durable:
                await fixture.reopen()
                registry = fixture.store.registry
            two, one = await registry.news(seen)
            assert (two.name, two.health, two.seen_at) == ("two", AgentHealth.DOWN, START + 9)
            assert (one.name, one.removed_at) == ("one", START)
            assert one.until == START + 2 * HOUR
            latest = one.revision
            assert (await registry.put(_entry("three"))).revision > latest

    async def test_a_lease_that_is_over_is_dropped_later(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            registry = fixture.store.registry
            await registry.put(_entry("brief", until=START + 10))
            await registry.put(_entry("renewed", until=START + 10))
            await registry.put(_entry("forever"))
            await registry.renew("renewed", Source.TOKEN, "ann", START + HOUR)
            assert await registry.drop_expired(START + 9) == []
            assert await registry.drop_expired(START + 10) == ["brief"]
            assert [each.name for each in await registry.all()] == ["forever", "renewed"]
            latest = (await registry.news(0))[-1]
            assert latest.name == "brief"
            fixture.clock.tick(REMEMBERED + 1)
            await registry.drop_expired(0)
            # The latest change is remembered, so that its revision is not used again.
            assert [each.name for each in await registry.news(0)][-1] == "brief"
            new = await registry.put(_entry("new"))
            assert new.revision > latest.revision
            await registry.drop_expired(0)
            names = {each.name for each in await registry.news(0)}
            assert names == {"forever", "renewed", "new"}

    async def test_one_owner_may_have_so_many(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            registry = fixture.store.registry
            for number in range(MOST_OF_OWNER):
                await registry.put(_entry(f"agent-{number}"))
            with pytest.raises(TooMany):
                await registry.put(_entry("one-more"))
            await registry.put(_entry("agent-7"))
            await registry.put(_entry("of-another", owner="bob"))
            await registry.put(_entry("of-the-operator", Source.CLI))
            await registry.remove("agent-9", Source.TOKEN, "ann")
            await registry.put(_entry("one-more"))
