"""Budgets that the processes of a store share: how often a caller may call, and what it may have at
a time.

Theory. A process never asks the store about a single call. It takes a few units of a caller's
budget at once, uses them up by itself, and gives back what it does not use. Units that were taken
are gone from the budget, so all processes together never use more than there is. There are two
kinds of budgets:

- A *rate* is a bucket that fills evenly. A process that dies takes along the units that it held, at
  most an eighth of what was left; the bucket fills again.
- A *quota* is a number of places. The store knows how many each worker holds, so the places of a
  dead worker are free again.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from ..task_row import Scope

PART = 8
"""A process gets at most one of so many parts of what is left, so that others find something."""

FORGET = 600_000
"""Milliseconds after which a bucket that nobody asked for is dropped: it is full by then."""
CLEAN = 60_000
"""Milliseconds between two clean-ups by one process."""


class BudgetAsk(Struct, frozen=True, kw_only=True):
    """What a process gives back of one budget, and what it wants of it."""

    kind: str
    owner: str
    size: int
    """The units of the whole budget."""
    scope: Scope | None = None
    """If given, the unfinished tasks of this caller take places too."""
    per_minute: int = 0
    """The units that become free in a minute; 0: it is a quota."""
    want: int = 0
    back: float = 0.0
    """Units of a rate that are given back; a negative number was used without having been taken."""
    held: int = 0
    """The places of a quota that this process has, whether it uses them or not."""


class BudgetGrant(Struct, frozen=True, gc=False):
    """The answer to one ask."""

    units: int
    wait: float = 0.0
    """The seconds until there will be a unit again, if there is none left; for a quota nobody
    knows, and it is 1."""


class BudgetStore(Protocol):
    """The part of a store that keeps shared budgets."""

    async def alone(self) -> bool:
        """Returns whether no more than one worker is alive, so that nothing has to be shared."""

    async def exchange(self, worker: str, asks: list[BudgetAsk]) -> list[BudgetGrant]:
        """Gives back and takes units of several budgets at once."""


def fill(ask: BudgetAsk, left: float, since: int, now: int) -> float:
    """Returns the units of a rate that are left, after what was given back. `since` is the time in
    milliseconds for which `left` holds. A clock that was set back adds nothing."""
    grown = left + max(0, now - since) * ask.per_minute / 60_000
    return min(float(ask.size), grown + ask.back)


def grant_of_rate(ask: BudgetAsk, left: float) -> BudgetGrant:
    """Returns what a process gets of the units that are left."""
    if left < 1.0:
        return BudgetGrant(0, (1.0 - left) * 60.0 / ask.per_minute)
    return BudgetGrant(_part(ask.want, int(left)))


def grant_of_quota(ask: BudgetAsk, others: int, unfinished: int) -> BudgetGrant:
    """Returns what a process gets of the places that nobody has: neither other workers, nor itself,
    nor the caller's tasks."""
    free = ask.size - others - unfinished - ask.held
    return BudgetGrant(_part(ask.want, free)) if free >= 1 else BudgetGrant(0, 1.0)


def _part(want: int, left: int) -> int:
    return min(want, max(1, left // PART)) if want else 0
