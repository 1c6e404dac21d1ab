"""What all parts of the store contract have in common."""

from __future__ import annotations

from pathlib import Path

from dragoman.store.interface import Store

from .fixture import HandClock, StoreFixture


class StoreTests:
    """The base of every part of the contract, which tests some methods of a store."""

    durable = True
    """Whether tasks survive the process. A subclass for a store in memory sets it to False."""

    async def make(self, folder: Path, clock: HandClock) -> Store:
        """Creates the store under test, without opening it. A subclass has to override it."""
        raise NotImplementedError

    def fixture(self, folder: Path) -> StoreFixture:
        """Returns a context manager that opens a store in a folder and closes it at the end."""
        return StoreFixture(self.make, folder)
