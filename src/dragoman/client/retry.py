"""What an error says about trying again, here or elsewhere, and how long to wait before."""

from __future__ import annotations

import asyncio
import random
from time import monotonic
from typing import Any

from dragoman.core.errors import (
    DragomanError,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TooMany,
    UnknownMethod,
    Unsupported,
    VersionUnsupported,
)
from dragoman.core.operations import (
    CancelTask,
    DeleteHook,
    GetExtendedCard,
    GetHook,
    GetTask,
    ListHooks,
    ListTasks,
    Operation,
)

from .limits import ClientLimits

READS = (GetTask, ListTasks, GetHook, ListHooks, GetExtendedCard, DeleteHook, CancelTask)
"""What may be asked twice."""
_NOT_HERE = frozenset({404, 405, 406, 415, 421, 426, 501, 505})
"""HTTP statuses that say: not here, or not so."""
_PASSING = frozenset({500, 502, 504})
"""HTTP statuses of something in between that cannot reach the agent for now."""


def interface_unusable(exc: DragomanError, op: Operation[Any]) -> bool:
    """Whether this says that the interface is wrong, and surely nothing was done."""
    match exc:
        case PeerUnreachable():
            return not exc.sent
        case UnknownMethod() | VersionUnsupported():
            return True
        case PeerRefused():
            return exc.code in _NOT_HERE
        case Unsupported():
            return type(exc) is Unsupported and not exc.code  # our own: the dialect lacks it
        case PeerMisbehaved():
            return isinstance(op, READS)
    return False


def not_executed(exc: DragomanError) -> bool:
    """Whether what was asked was surely not done, and may be later."""
    return isinstance(exc, TooMany) or (isinstance(exc, PeerUnreachable) and not exc.sent)


def is_transient(exc: DragomanError) -> bool:
    """Whether this may be over soon."""
    return exc.retry or (isinstance(exc, PeerRefused) and exc.code in _PASSING)


class Pauses:
    """How long to wait before the next try: twice as long each time, with jitter."""

    def __init__(self, limits: ClientLimits) -> None:
        self._limits = limits
        self.count = 0

    async def wait(self, exc: DragomanError | None = None) -> None:
        """Waits; as long as the other side asks for, within reason."""
        limits = self._limits
        pause = min(limits.backoff * 2 ** min(self.count, 20), limits.backoff_most)
        said = exc.public.get("retry_after", "") if exc is not None else ""
        least = min(float(said), limits.backoff_most) if said.isdecimal() else 0.0
        self.count += 1
        await asyncio.sleep(max(least, pause * random.uniform(0.5, 1.0)))


class Patience:
    """When to give up a stream that had begun: no sign of life for so long, in spite of some tries.

    It runs from the first failure, not from the last event: a task may be silent for hours before
    its connection breaks. And time alone does not tell: a machine that stood still has not tried.
    """

    LEAST = 3
    """Failures in a row."""

    def __init__(self, limits: ClientLimits) -> None:
        self._seconds = limits.patience
        self._since = 0.0
        self._failures = 0

    def heard(self) -> None:
        """There is life."""
        self._failures = 0

    def failed(self) -> bool:
        """Another failure; whether it is the last."""
        if not self._failures:
            self._since = monotonic()
        self._failures += 1
        return self._failures >= self.LEAST and monotonic() - self._since > self._seconds
