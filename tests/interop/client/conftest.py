"""The servers are started once for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interop.client.servers import Started


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """Each server when it is asked for."""
    started = Started(tmp_path_factory.mktemp("servers"))
    yield started
    started.stop()
