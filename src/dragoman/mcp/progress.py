"""The events of a task as MCP progress."""

from __future__ import annotations

import math

from msgspec import Struct

from dragoman.core.events import ArtifactChunk, Stamped, StateChanged
from dragoman.core.extensions import PROGRESS

MOST_CHARS = 2000
"""The number of characters of one message."""
LEAST = 1e-6
"""What a step without a fraction adds between two with one."""


class ProgressStep(Struct, frozen=True):
    """What one notification says."""

    progress: float
    total: float | None
    message: str | None


class ProgressCount:
    """Makes numbers that only grow, as MCP wants them.

    A skill that tells a fraction counts from where we are to one more. All others just count. What
    comes after the whole is counted without a total, until a fraction begins another one.
    """

    def __init__(self) -> None:
        self._at = 0.0
        self._base: float | None = None

    def step(self, entry: Stamped) -> ProgressStep | None:
        """Returns what to tell about an event, or None for one that tells nothing."""
        match entry.event:
            case StateChanged(message=message, metadata=metadata):
                fraction = _fraction((metadata or {}).get(PROGRESS))
                text = message.text if message is not None else ""
            case ArtifactChunk(artifact=artifact):
                fraction, text = None, artifact.text
            case _:
                return None
        if fraction is None and not text:
            return None
        if self._base is not None and self._at + LEAST > self._base + 1:
            self._base = None
        if fraction is not None and self._base is None:
            self._base = self._at
        if self._base is None:
            self._at += 1
            return ProgressStep(self._at, None, text[:MOST_CHARS])
        least = self._at + LEAST
        reached = self._base + fraction if fraction is not None else least
        self._at = max(reached, least)
        return ProgressStep(self._at, self._base + 1, text[:MOST_CHARS] or None)


def _fraction(said: object) -> float | None:
    """Returns the fraction in the metadata of an event, which an agent elsewhere may have written:
    at most a whole, and no number that is none."""
    fraction = said.get("fraction") if isinstance(said, dict) else None
    if not isinstance(fraction, int | float) or math.isnan(fraction):
        return None
    return min(max(float(fraction), 0.0), 1.0)
