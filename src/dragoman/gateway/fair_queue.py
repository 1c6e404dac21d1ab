"""A queue in front of something with few places, which is fair between principals.

Theory. A call that waits is served in turn with the calls of other principals, first come first
served only among calls of the same one. A queue that is full refuses the newest call of the
principal with the most calls in it, and not simply the one that comes last: one principal that
fills the queue must not lock out the others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

from dragoman.core.errors import DragomanError, TooMany

T = TypeVar("T")


class _Waiter(Generic[T]):
    __slots__ = ("choosy", "future", "place")

    def __init__(self, place: Callable[[], T | None], choosy: bool) -> None:
        self.place, self.choosy = place, choosy
        self.future: asyncio.Future[T] = asyncio.get_running_loop().create_future()


class FairQueue(Generic[T]):
    """Waits for places of the type `T`."""

    def __init__(
        self, most: int, seconds: float, give_back: Callable[[T], None], busy: Callable[[], TooMany]
    ) -> None:
        """At most `most` calls wait, each for at most `seconds`; all others get the error `busy`.
        `give_back` is called for a place whose call has gone away in the meantime."""
        self._most, self._seconds = most, seconds
        self._give_back, self._busy = give_back, busy
        self._waiting: OrderedDict[str, deque[_Waiter[T]]] = OrderedDict()
        """By principal, in the order in which they are served."""
        self.count = 0
        """The number of calls that wait."""

    async def enter(
        self, principal: str, place: Callable[[], T | None], *, choosy: bool = False
    ) -> T:
        """Returns a place. `place` takes one, or returns None if there is none at the moment; what
        it raises is raised. A `choosy` call may find no place where others would."""
        if not self.count:
            found = place()
            if found is not None:
                return found
        waiter = _Waiter(place, choosy)
        self._add(principal, waiter)
        self.serve()
        try:
            async with asyncio.timeout(self._seconds):
                return await waiter.future
        except TimeoutError:
            self._abandon(principal, waiter)
            raise self._busy() from None
        except asyncio.CancelledError:
            self._abandon(principal, waiter)
            raise

    def serve(self) -> None:
        """Gives free places to those who wait, to one call of each principal in turn."""
        served = self.count > 0
        while served:
            served = False
            for principal in tuple(self._waiting):
                found = self._serve(principal)
                if found is None:
                    return
                served = served or found

    def _serve(self, principal: str) -> bool | None:
        """Returns whether a call of this principal got a place; None if nobody else will."""
        for waiter in tuple(self._waiting[principal]):
            if waiter.future.done():
                continue  # it has been canceled, and leaves by itself
            try:
                place = waiter.place()
            except DragomanError as exc:
                self._remove(principal, waiter)
                waiter.future.set_exception(exc)
                continue
            if place is not None:
                if principal in self._waiting:
                    self._waiting.move_to_end(principal)
                self._remove(principal, waiter)
                waiter.future.set_result(place)
                return True
            if not waiter.choosy:
                return None
        return False

    def _add(self, principal: str, waiter: _Waiter[T]) -> None:
        own = len(self._waiting.get(principal, ()))
        if self.count >= self._most:
            longest = max(self._waiting, key=lambda each: len(self._waiting[each]), default="")
            if len(self._waiting.get(longest, ())) <= own + 1:
                raise self._busy()
            newest = self._waiting[longest][-1]
            self._remove(longest, newest)
            if not newest.future.done():
                newest.future.set_exception(self._busy())
        self._waiting.setdefault(principal, deque()).append(waiter)
        self.count += 1

    def _remove(self, principal: str, waiter: _Waiter[T]) -> None:
        line = self._waiting[principal]
        line.remove(waiter)
        self.count -= 1
        if not line:
            del self._waiting[principal]

    def _abandon(self, principal: str, waiter: _Waiter[T]) -> None:
        """Takes a call out of the queue that does not wait any longer."""
        future = waiter.future
        if waiter in self._waiting.get(principal, ()):
            self._remove(principal, waiter)
        elif future.done() and not future.cancelled() and future.exception() is None:
            self._give_back(future.result())
