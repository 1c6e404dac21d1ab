"""What all chapters of the contract have in common."""

from __future__ import annotations

from pathlib import Path

from dragoman.store.interface import Store

from .fixture import Bench, HandClock


class Chapter:
    """Tests of one side of a store."""

    durable = True
    """Whether tasks outlive the process."""

    async def make(self, folder: Path, clock: HandClock) -> Store:
        """Says the subclass."""
        raise NotImplementedError

    def bench(self, folder: Path) -> Bench:
        """An open store to work with, as a context manager."""
        return Bench(self.make, folder)
