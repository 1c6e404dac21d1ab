"""Budgets in memory. The process is alone here, so this serves only to keep the promise."""

from __future__ import annotations

from collections.abc import Callable, Set

from ..clock import Clock
from ..limits.budgets import BudgetAsk, BudgetGrant, fill, grant_of_quota, grant_of_rate
from ..task_row import Scope


class MemoryBudgets:
    """Implements `BudgetStore`."""

    def __init__(
        self,
        clock: Clock,
        alive: Callable[[], Set[str]],
        count_unfinished: Callable[[Scope], int],
    ) -> None:
        """`alive` returns the workers."""
        self._clock, self._alive, self._count_unfinished = clock, alive, count_unfinished
        self._rates: dict[tuple[str, str], tuple[float, int]] = {}
        self._held: dict[tuple[str, str], dict[str, int]] = {}

    async def alone(self) -> bool:
        return len(self._alive()) <= 1

    async def exchange(self, worker: str, asks: list[BudgetAsk]) -> list[BudgetGrant]:
        return [self._one(worker, ask) for ask in asks]

    def _one(self, worker: str, ask: BudgetAsk) -> BudgetGrant:
        place, now = (ask.kind, ask.owner), self._clock()
        if ask.per_minute:
            left = fill(ask, *self._rates.get(place, (float(ask.size), now)), now)
            grant = grant_of_rate(ask, left)
            self._rates[place] = (left - grant.units, now)
            return grant
        alive = self._alive()
        held = {name: n for name, n in self._held.get(place, {}).items() if name in alive}
        others = sum(n for name, n in held.items() if name != worker)
        unfinished = self._count_unfinished(ask.scope) if ask.scope is not None else 0
        grant = grant_of_quota(ask, others, unfinished)
        self._held[place] = held | {worker: ask.held + grant.units}
        return grant
