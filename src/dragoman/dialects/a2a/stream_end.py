"""Determines where a stream ends, for its reader."""

from __future__ import annotations

from dragoman.core.events import Stamped
from dragoman.core.model import Message


class Ending:
    """Decides for one stream whether an event is its last."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False
        """Whether there was an event."""

    def is_last(self, entry: Stamped | Message, last: bool) -> bool:
        """Returns whether no event can follow; `last` is the answer for the event alone.

        A message is the direct reply and ends the stream (1.0 §3.1.2), unless something came before
        it: some agents send messages in the stream of a task, and continue.
        """
        begun, self.begun = self.begun, True
        return last and not (begun and type(entry) is Message)
