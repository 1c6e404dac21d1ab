"""The retry policy: which errors allow a retry, here or at another interface, and the delays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
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
"""The operations that may be repeated."""
_NOT_HERE = frozenset({404, 405, 406, 415, 421, 426, 501, 505})
"""HTTP statuses of an address that does not serve the dialect."""
_PASSING = frozenset({500, 502, 504})
"""HTTP statuses of a proxy that cannot reach the agent at the moment."""


def interface_unusable(exc: DragomanError, op: Operation[Any]) -> bool:
    """Returns whether the interface is unusable, and the call certainly had no effect."""
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
    """Returns whether the call certainly had no effect, and may succeed later."""
    return isinstance(exc, TooMany) or (isinstance(exc, PeerUnreachable) and not exc.sent)


def is_transient(exc: DragomanError) -> bool:
    """Returns whether the error may be temporary."""
    return exc.retry or (isinstance(exc, PeerRefused) and exc.code in _PASSING)


class Pauses:
    """Exponential backoff with jitter."""

    def __init__(
        self, limits: ClientLimits, on_retry: Callable[[DragomanError], object] | None = None
    ) -> None:
        """`on_retry` is called with the error before each delay."""
        self._limits = limits
        self._on_retry = on_retry
        self._since = 0.0
        self.count = 0

    @property
    def over(self) -> bool:
        """Whether there were as many retries as allowed, or no success for the whole patience."""
        if not self.count:
            return self._limits.retries == 0
        late = monotonic() - self._since > self._limits.patience
        return late or self.count >= self._limits.retries

    async def wait(self, exc: DragomanError | None = None) -> None:
        """Waits before the next attempt; a Retry-After is respected up to the longest delay."""
        limits = self._limits
        pause = min(limits.backoff * 2 ** min(self.count, 20), limits.backoff_most)
        said = exc.public.get("retry_after", "") if exc is not None else ""
        if exc is not None and self._on_retry is not None:
            self._on_retry(exc)
        if not self.count:
            self._since = monotonic()
        least = min(float(said), limits.backoff_most) if said.isdecimal() else 0.0
        self.count += 1
        await asyncio.sleep(max(least, pause * random.uniform(0.5, 1.0)))


class Patience:
    """Decides when to give up a stream: after some time without a response, and after some
    attempts.

    The time runs from the first failure, not from the last event, because a task may send nothing
    for hours before its connection breaks. Time alone is not enough, because a machine that was
    suspended has made no attempts.
    """

    def __init__(self, limits: ClientLimits) -> None:
        self._seconds, self._least = limits.patience, limits.attempts
        self._since = 0.0
        self._failures = 0

    def heard(self) -> None:
        """Notes a response, which resets the count."""
        self._failures = 0

    def failed(self) -> bool:
        """Notes a failure, and returns whether to give up."""
        if not self._failures:
            self._since = monotonic()
        self._failures += 1
        return self._failures >= self._least and monotonic() - self._since > self._seconds
