"""Proves a store of your own: subclass `StoreContract`, say how to make it, run pytest.

    from dragoman.testing.stores import StoreContract

    class TestMyStore(StoreContract):
        async def make(self, folder, clock):
            return MyStore(folder / "tasks.db", clock)

The tests are coroutines: `asyncio_mode = "auto"` of pytest-asyncio runs them.
"""

from .contract import StoreContract
from .fixture import Bench, HandClock

__all__ = ["Bench", "HandClock", "StoreContract"]
