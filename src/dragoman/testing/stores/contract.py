"""The contract as one class, put together from its chapters."""

from __future__ import annotations

from pathlib import Path

from dragoman.store.interface import Store

from .agents import AgentChapter
from .callers import CallerChapter
from .durability import KeepingChapter
from .fixture import HandClock
from .hooks import HookChapter
from .runs import RunChapter
from .sessions import SessionChapter
from .workers import WorkerChapter
from .writing import WritingChapter


class StoreContract(
    WritingChapter,
    CallerChapter,
    WorkerChapter,
    RunChapter,
    HookChapter,
    KeepingChapter,
    SessionChapter,
    AgentChapter,
):
    """Every promise of `Store`. Subclass it and say how to make a store."""

    async def make(self, folder: Path, clock: HandClock) -> Store:
        """A store that keeps what it has in `folder`, not opened yet."""
        raise NotImplementedError
