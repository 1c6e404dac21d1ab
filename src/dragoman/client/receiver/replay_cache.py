"""A bounded memory of the calls that were handled. Only verified calls enter it."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum


class SeenCall(Enum):
    """The state of a call that was seen."""

    NEW = "new"
    UNDER_WAY = "under way"
    BEFORE = "before"


class ReplayCache:
    """Remembers the last `most` ids of calls. A caller without a valid proof cannot evict any."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._told: OrderedDict[str, None] = OrderedDict()
        self._open: set[str] = set()

    def begin(self, id: str) -> SeenCall:
        """Marks a new call as under way, and returns the state in which the call was before."""
        if id in self._open:
            return SeenCall.UNDER_WAY
        if id in self._told:
            self._told.move_to_end(id)
            return SeenCall.BEFORE
        self._open.add(id)
        return SeenCall.NEW

    def end(self, id: str, *, told: bool) -> None:
        """Records the outcome of a call. One that was handled is not handled again; one that failed
        may be repeated."""
        self._open.discard(id)
        if told:
            self._told[id] = None
            if len(self._told) > self._most:
                self._told.popitem(last=False)

    def __len__(self) -> int:
        return len(self._told) + len(self._open)
