"""The delays between two attempts to dial. The defaults are those of the XiaoYi source document: 2
seconds at first, then twice as long each time up to 60 seconds, 50 times, and from the beginning
after a link that was open for 10 seconds."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST, MOST = 2.0, 60.0
"""The first pause, and the longest one, in seconds."""
TRIES = 50
STABLE = 10.0
"""The seconds after which a link counts as stable."""
JITTER = 0.1
"""The fraction by which a pause may be shorter, so that not all agents dial at once when a server
comes back."""


class ReconnectPolicy:
    """Counts the attempts of one link. It reads no clock."""

    def __init__(
        self,
        *,
        first: float = FIRST,
        tries: int | None = TRIES,
        jitter: float = JITTER,
        drawn: Callable[[], float] | None = None,
    ) -> None:
        """`first` is the first pause in seconds, `tries` None stands for no end of them, and
        `drawn` returns a number from 0 to 1."""
        self._first, self._most, self._jitter = first, tries, jitter
        self._drawn = drawn or random.random
        self.tries = 0
        """The number of attempts since the last stable link."""

    def next_pause(self, held: float) -> float | None:
        """Returns the seconds to wait before the next attempt, or None if there is none left.
        `held` is the time for which the link was open; 0 if it could not be opened."""
        if held >= STABLE:
            self.tries = 0
        if self._most is not None and self.tries >= self._most:
            return None
        pause = min(MOST, self._first * 2.0 ** min(self.tries, 10))
        self.tries += 1
        return pause * (1 - self._jitter * self._drawn())
