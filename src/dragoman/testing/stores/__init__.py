"""Tests for a store of your own: subclass `StoreContract`, write `make`, and run pytest.

    from dragoman.testing.stores import StoreContract

    class TestMyStore(StoreContract):
        async def make(self, folder, clock):
            return MyStore(folder / "tasks.db", clock)

The tests are coroutines: `asyncio_mode = "auto"` of pytest-asyncio runs them.
"""

from .contract import StoreContract
from .fixture import HandClock, StoreFixture

__all__ = ["HandClock", "StoreContract", "StoreFixture"]
