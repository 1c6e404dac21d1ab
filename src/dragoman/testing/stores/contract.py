"""The contract as one class, made of its parts."""

from __future__ import annotations

from pathlib import Path

from dragoman.store.interface import Store

from .agents import AgentTests
from .callers import CallerTests
from .durability import DurabilityTests
from .fixture import HandClock
from .hooks import HookTests
from .limits import BudgetTests, FairClaimTests
from .link_keys import LinkKeyTests
from .registry import RegistryTests
from .reports import LinkStatusTests, ReplicaTests
from .runs import RunTests
from .sessions import SessionTests
from .transfer import TransferTests
from .workers import WorkerTests
from .writing import WritingTests


class StoreContract(
    WritingTests,
    CallerTests,
    WorkerTests,
    FairClaimTests,
    RunTests,
    HookTests,
    DurabilityTests,
    SessionTests,
    AgentTests,
    RegistryTests,
    LinkKeyTests,
    LinkStatusTests,
    BudgetTests,
    ReplicaTests,
    TransferTests,
):
    """Tests every promise of `Store`. Subclass it and override `make`."""

    async def make(self, folder: Path, clock: HandClock) -> Store:
        """Makes a store that keeps everything in `folder`, not opened yet."""
        raise NotImplementedError
