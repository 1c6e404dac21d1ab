"""When a link that broke is dialled again, as the source document says: after 2 seconds, then twice
as long each time up to 60, 50 times, and from the beginning after a link that held for 10."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST, MOST = 2.0, 60.0
"""The first pause, and the longest one, in seconds."""
TRIES = 50
STABLE = 10.0
"""The seconds after which a link counts as stable."""
JITTER = 0.1
"""The part of a pause by which it may be shorter, so that a server that comes back is not dialled
by everyone at once."""


class ReconnectPolicy:
    """Counts the tries of one link. It reads no clock."""

    def __init__(
        self,
        *,
        tries: int = TRIES,
        jitter: float = JITTER,
        drawn: Callable[[], float] | None = None,
    ) -> None:
        """`drawn` returns a number from 0 to 1."""
        self._most, self._jitter = tries, jitter
        self._drawn = drawn or random.random
        self.tries = 0
        """The tries since the last stable link."""

    def next_pause(self, held: float) -> float | None:
        """The seconds to wait before the next try, or None if there is none left. `held` is how
        long the link was open; 0 if it could not be opened."""
        if held >= STABLE:
            self.tries = 0
        if self.tries >= self._most:
            return None
        pause = min(MOST, FIRST * 2.0 ** min(self.tries, 10))
        self.tries += 1
        return pause * (1 - self._jitter * self._drawn())
