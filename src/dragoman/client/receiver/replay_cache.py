"""Which calls were heard: a bounded memory, filled only by calls that proved themselves."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum


class SeenCall(Enum):
    """The state of a call that was seen."""

    NEW = "new"
    UNDER_WAY = "under way"
    BEFORE = "before"


class ReplayCache:
    """Remembers the last `most` names of calls. Strangers cannot push anything out of it."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._told: OrderedDict[str, None] = OrderedDict()
        self._open: set[str] = set()

    def begin(self, id: str) -> SeenCall:
        """Notes that a call is under way, if it is a new one."""
        if id in self._open:
            return SeenCall.UNDER_WAY
        if id in self._told:
            self._told.move_to_end(id)
            return SeenCall.BEFORE
        self._open.add(id)
        return SeenCall.NEW

    def end(self, id: str, *, told: bool) -> None:
        """Records the outcome of a call: one that was handled is not handled again, one that failed
        may come again."""
        self._open.discard(id)
        if told:
            self._told[id] = None
            if len(self._told) > self._most:
                self._told.popitem(last=False)

    def __len__(self) -> int:
        return len(self._told) + len(self._open)
