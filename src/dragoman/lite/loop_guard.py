"""Keeps programs from talking to each other without end.

Two programs that answer every message of each other never stop by themselves. Therefore what we say
outside of tasks is counted in every room: after `OWN` messages of ours, or `ALL` of all programs
together, we are silent there until a person speaks or a new task begins.
"""

from __future__ import annotations

from collections import OrderedDict

OWN = 6
"""The messages outside of tasks that we say in a room in a row. Two agents that both count say at
most twice as many."""
ALL = 12
"""The messages of all programs together after which we are silent."""
MOST_ROOMS = 10_000


class LoopGuard:
    """Counts the messages of programs in all rooms of a channel."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def note_program(self, room: str) -> None:
        """A program has said something outside of a task."""
        own, all_ = self._rooms.get(room, (0, 0))
        self._keep(room, own, all_ + 1)

    def reset(self, room: str) -> None:
        """A person has said something, or a task has begun."""
        self._rooms.pop(room, None)

    def allows(self, room: str) -> bool:
        """Returns whether we may say one more message outside of a task."""
        own, all_ = self._rooms.get(room, (0, 0))
        return own < OWN and all_ < ALL

    def note_own(self, room: str) -> None:
        """We say something outside of a task."""
        own, all_ = self._rooms.get(room, (0, 0))
        self._keep(room, own + 1, all_ + 1)

    def may_say(self, room: str) -> bool:
        """Returns whether we may say one more message outside of a task, and counts it."""
        allowed = self.allows(room)
        if allowed:
            self.note_own(room)
        return allowed

    def _keep(self, room: str, own: int, all_: int) -> None:
        self._rooms[room] = own, all_
        self._rooms.move_to_end(room)
        if len(self._rooms) > MOST_ROOMS:
            self._rooms.popitem(last=False)
