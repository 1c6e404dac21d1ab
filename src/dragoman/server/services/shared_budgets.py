"""Shares the rates and quotas of callers among the processes of one store.

Theory. Every process holds a *share* of the budget of each caller that it serves: a few units that
the store has given it (`store/limits/budgets.py`). A call takes a unit of the share, which costs no
more than a look into a dict. The next units are asked for before the share is used up, and what is
ready to be asked for is one exchange with the store, so many callers cost one round trip. A call
waits only if the share is empty. A caller whose budget is used up is refused without asking, until
there can be a unit again. Units that nobody has used for a while are given back.

A process that is alone does not share: its meters count by themselves, as exactly as one bucket
can. It looks every second whether it is still alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from dragoman.core.errors import DragomanError
from dragoman.core.log import Logger
from dragoman.net.service import Service
from dragoman.security.rate_limits import STREAMS, TASKS, Meter, TokenBucket, name_of, too_many
from dragoman.store.limits.budgets import BudgetAsk, BudgetGrant, BudgetStore
from dragoman.store.task_row import Scope

log = Logger("rates")

LOOK = 1.0
"""Seconds between two checks for other processes, and for units that nobody uses."""
ALONE = 60
"""How often in a row no other process is found until this one counts by itself again."""
IDLE = 2
"""After so many checks units that nobody used are given back."""
STOCK = 32
"""A share is at least one of so many parts of the whole budget, so that a caller that comes now and
then does not wait each time."""
AHEAD = 4
"""The next units are asked for when one of so many parts of the last ones is left."""
LEAVING = 2.0
"""The seconds for which a process that stops waits until it has given back what it held."""
SOON = 0.05
"""Seconds after which the store is told of places that new tasks may not need any more."""
PAUSE = 0.02
"""The shortest time in seconds for which a caller is refused without asking the store."""

_REFUSALS = {STREAMS: ("open streams", 1.0), TASKS: ("live tasks", 5.0)}
"""What a caller has too many of, and the seconds after which it may try again."""


def _none() -> int:
    return 0


class _Share:
    """What this process has of one budget."""

    __slots__ = (
        "alone",
        "answered",
        "back",
        "closed_until",
        "free_at",
        "granted",
        "idle",
        "in_use",
        "kind",
        "owner",
        "per_minute",
        "scope",
        "size",
        "told",
        "units",
        "used",
        "waiting",
        "wanted",
    )

    def __init__(self, kind: str, owner: str, size: int, per_minute: int) -> None:
        self.kind, self.owner, self.size, self.per_minute = kind, owner, size, per_minute
        self.scope: Scope | None = None
        self.in_use: Callable[[], int] = _none
        """Counts the places of a quota that are in use here, beside the units."""
        self.units = self.used = self.granted = self.waiting = self.idle = 0
        self.told = 0
        """The places of a quota that the store believes to be held here."""
        self.back = self.closed_until = self.free_at = 0.0
        self.wanted = False
        self.answered: asyncio.Future[None] | None = None
        """The exchange that this share waits for."""
        self.alone: TokenBucket | None = None
        """Counts while the store cannot be asked."""

    def take(self) -> None:
        """Takes one of its units."""
        self.units -= 1
        self.used += 1
        self.idle = 0

    def refuse(self, now: float) -> None:
        """Raises `TooMany` if the budget was found to be used up a moment ago."""
        if now < self.closed_until:
            what, seconds = _REFUSALS.get(self.kind, ("calls", self.free_at - now))
            raise too_many(what, seconds)

    def ask(self) -> BudgetAsk:
        """Returns what to ask the store for."""
        want = 0
        if self.wanted or self.waiting:
            soon = 2 * self.used if self.per_minute else 0
            want = max(1, self.waiting, soon, self.size // STOCK)
        back, self.back = self.back, 0.0
        self.used, self.wanted = 0, False
        return BudgetAsk(
            kind=self.kind,
            owner=self.owner,
            size=self.size,
            per_minute=self.per_minute,
            want=want,
            back=back,
            held=self.in_use() + self.units,
            scope=self.scope,
        )

    @property
    def is_told(self) -> bool:
        """Whether the store knows how many places of a quota are held here."""
        return bool(self.per_minute) or self.told == self.in_use() + self.units

    def receive(self, ask: BudgetAsk, grant: BudgetGrant, now: float) -> None:
        """Takes what the store has given."""
        self.units += grant.units
        self.told = ask.held + grant.units
        if ask.want:
            self.granted = grant.units
        if grant.wait and not grant.units:
            self.free_at = now + grant.wait
            # Another process may give something back before.
            self.closed_until = now + max(PAUSE, min(grant.wait, 1.0 if self.per_minute else PAUSE))

    def count_alone(self, want: int, now: float) -> BudgetGrant:
        """Returns what this process may use while the store cannot be asked: as much as if there
        were no other."""
        if not self.per_minute:
            free = self.size - self.in_use() - self.units
            return BudgetGrant(min(want, free)) if free > 0 else BudgetGrant(0, 1.0)
        if self.alone is None:
            self.alone = TokenBucket(self.size, self.per_minute / 60.0, now)
        units, wait = 0, 0.0
        while units < want and not (wait := self.alone.take(now)):
            units += 1
        return BudgetGrant(units, 0.0 if units else wait)


class SharedBudgets(Service):
    """Implements `Sharing`, for the meters of a server."""

    name = "rates"

    def __init__(
        self,
        meters: Sequence[Meter],
        store: BudgetStore,
        worker: Callable[[], str],
        *,
        never_alone: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`worker` returns the id of the worker that this process is in the store."""
        self.active = never_alone
        self._never_alone = never_alone
        self._meters = {meter.kind: meter for meter in meters}
        self._store, self._worker, self._clock = store, worker, clock
        self._known_as = ""
        self._shares: dict[tuple[str, str], _Share] = {}
        self._pending: dict[_Share, None] = {}
        self._exchanging: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._times_alone = 0
        self._fails = False
        self._ask_again_at = 0.0
        """The store could not be asked a moment ago, and is not asked before this time."""
        for meter in meters:
            meter.sharing = self

    async def start(self) -> None:
        """Starts to look for other processes."""
        await self._look()
        self._looking = asyncio.get_running_loop().create_task(self._keep_looking())

    async def drain(self) -> None:
        """Gives back what is not in use."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
            self._give_back(0)
            if self._exchanging is not None:
                await asyncio.wait([self._exchanging], timeout=LEAVING)

    @property
    def held(self) -> int:
        """The units that this process holds and nobody uses."""
        return sum(share.units for share in self._shares.values())

    @property
    def exchanging(self) -> bool:
        """Whether the store is being asked."""
        return self._exchanging is not None

    # Taking.

    def take_call(self, kind: str, owner: str, most: int) -> Awaitable[None] | None:
        """Counts one of a caller's calls."""
        return self._take(self._share(kind, name_of((owner,)), most, most))

    def take_place(
        self, kind: str, owner: str, most: int, in_use: Callable[[], int], scope: Scope | None
    ) -> Awaitable[None] | None:
        """Takes a place of a caller's quota."""
        share = self._share(kind, owner, most)
        share.in_use, share.scope = in_use, scope
        return self._take(share)

    def free_place(self, kind: str, owner: str) -> None:
        """Gives back a place of a caller's quota that is not in use any more."""
        share = self._shares.get((kind, owner))
        if share is None:
            return
        share.idle = 0
        if share.waiting or share.units < share.size // STOCK:
            share.units += 1
        else:
            self._ask(share)

    def _share(self, kind: str, owner: str, size: int, per_minute: int = 0) -> _Share:
        share = self._shares.get((kind, owner))
        if share is None:
            share = self._shares[kind, owner] = _Share(kind, owner, size, per_minute)
        return share

    def _take(self, share: _Share) -> Awaitable[None] | None:
        if share.units >= 1:
            share.take()
            if share.granted >= AHEAD and share.units <= share.granted // AHEAD:
                share.wanted = True
                self._ask(share)
            return None
        share.refuse(self._clock())
        return self._take_later(share)

    async def _take_later(self, share: _Share) -> None:
        share.waiting += 1
        try:
            while share.units < 1:
                await asyncio.shield(self._ask(share))
                if share.units < 1:
                    share.refuse(self._clock())
        finally:
            share.waiting -= 1
        share.take()

    # Exchanging.

    def _ask(self, share: _Share) -> asyncio.Future[None]:
        """Returns what is done when the store has answered."""
        if share.answered is None:
            share.answered = asyncio.get_running_loop().create_future()
            self._pending[share] = None
            if self._exchanging is None:
                self._exchanging = asyncio.get_running_loop().create_task(self._exchange())
        return share.answered

    async def _exchange(self) -> None:
        try:
            while self._pending:
                shares, self._pending = list(self._pending), {}
                answered = [share.answered for share in shares]
                for share in shares:  # what is missing from now on needs another exchange
                    share.answered = None
                asks = [share.ask() for share in shares]
                try:
                    grants = await self._answers(shares, asks)
                except BaseException:  # a mistake here must not leave callers waiting
                    for future in filter(None, answered):
                        future.cancel()
                    raise
                now = self._clock()
                for share, ask, grant in zip(shares, asks, grants, strict=True):
                    share.receive(ask, grant, now)
                    if share.scope is not None and ask.held:
                        # New tasks are soon in the store, and need no place beside it.
                        asyncio.get_running_loop().call_later(SOON, self._tell, share)
                for future in filter(None, answered):
                    if not future.done():
                        future.set_result(None)
        finally:
            self._exchanging = None

    async def _answers(
        self, shares: Sequence[_Share], asks: list[BudgetAsk]
    ) -> Sequence[BudgetGrant]:
        self._known_as = self._worker()
        both = zip(shares, asks, strict=True)
        if self._clock() < self._ask_again_at:
            return [share.count_alone(ask.want, self._clock()) for share, ask in both]
        try:
            grants = await self._store.exchange(self._known_as, asks)
        except DragomanError as exc:
            if not self._fails:
                log.warning(
                    "Rates are counted in this process alone: the store cannot be asked",
                    reason=exc.reason,
                )
            self._fails = True
            now = self._clock()
            self._ask_again_at = now + LOOK
            return [share.count_alone(ask.want, now) for share, ask in both]
        if self._fails:
            self._fails = False
            for share in self._shares.values():
                share.alone = None
        return grants

    # Looking.

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            await self._look()

    async def _look(self) -> None:
        if not self._never_alone:
            try:
                alone = await self._store.alone()
            except DragomanError:
                return
            self._times_alone = self._times_alone + 1 if alone else 0
            if not alone and not self.active:
                self._begin()
            elif self.active and self._times_alone >= ALONE:
                self._end()
        if self.active:
            self._give_back(IDLE)

    def _begin(self) -> None:
        """Shares from now on. What was used alone is missing in the shared budgets."""
        self.active = True
        for kind, meter in self._meters.items():
            most = meter.rates.calls_per_minute
            for owner, used in meter.hand_over().items():
                share = self._share(kind, name_of((owner,)), most, most)
                share.back -= used
                self._ask(share)
            for who in meter.streams:
                share = self._share(STREAMS, name_of(who), meter.rates.streams)
                share.in_use = meter.count_streams(who)
                self._ask(share)

    def _end(self) -> None:
        """Counts alone from now on."""
        if any(share.waiting for share in self._shares.values()):
            return
        self.active = False
        for (kind, owner), share in self._shares.items():
            if share.per_minute:
                self._meters[kind].take_over(owner, share.units)
        self._shares.clear()

    def _give_back(self, after: int) -> None:
        renewed = self._known_as not in ("", self._worker())
        for place, share in list(self._shares.items()):
            share.idle += 1
            if not share.is_told or (renewed and share.in_use()):
                self._ask(share)  # a renewed worker holds nothing in the store yet
            if share.idle < after or share.waiting or share.answered is not None:
                continue
            if share.units:
                if share.per_minute:
                    share.back += share.units
                share.units = 0
                self._ask(share)
            elif not share.in_use() and not share.back:
                del self._shares[place]

    def _tell(self, share: _Share) -> None:
        if not share.is_told:
            self._ask(share)
