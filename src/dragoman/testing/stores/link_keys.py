"""Contract: a pair of keys is found as it was added, once, and stays known when it is revoked."""
# ruff: noqa: S101 (this is a test suite, only it ships)

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.core.errors import Conflict
from dragoman.store.link_keys import LinkKey

from .base import StoreTests
from .fixture import START


def _pair(access_key: str, *agent_ids: str) -> LinkKey:
    return LinkKey(access_key=access_key, agent_ids=agent_ids or ("agent-1",), sealed="sealed.1.x")


class LinkKeyTests(StoreTests):
    """Tests of `Store.link_keys`."""

    async def test_a_pair_of_keys_is_found_as_it_was_added(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            keys = fixture.store.link_keys
            assert await keys.find("ak-1") is None
            assert await keys.all() == []
            later = await keys.add(_pair("ak/2", "agent-1", "agent-2"))
            assert later.added_at == START
            fixture.clock.tick(5)
            second = await keys.add(_pair("ak-1"))
            with pytest.raises(Conflict):
                await keys.add(_pair("ak-1", "another"))
            if self.durable:
                await fixture.reopen()
                keys = fixture.store.link_keys
            assert await keys.find("ak/2") == later
            assert await keys.all() == [later, second]

    async def test_a_revoked_pair_of_keys_stays_known_as_revoked(self, tmp_path: Path) -> None:
        async with self.fixture(tmp_path) as fixture:
            keys = fixture.store.link_keys
            await keys.add(_pair("ak-1"))
            fixture.clock.tick(7)
            assert await keys.revoke("ak-1")
            assert not await keys.revoke("ak-1")
            assert not await keys.revoke("ak-2")
            if self.durable:
                await fixture.reopen()
                keys = fixture.store.link_keys
            found = await keys.find("ak-1")
            assert found is not None
            assert found.revoked_at == START + 7
            with pytest.raises(Conflict):
                await keys.add(_pair("ak-1"))
