"""Keeps programs from talking to each other without end, and one sender from using up the patience
of all.

Two programs that answer every message of each other never stop by themselves. Therefore what we say
outside of tasks is counted: after `MAX_OWN_PER_SENDER` messages of ours because of one sender, or
`MAX_OF_PROGRAMS` of all programs together, we are silent in a room until a person speaks or a new
task begins. Many channels do not tell programs from people, so what each sender asks for without a
task has a rate as well, and who keeps exceeding it waits longer each time.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

MAX_OWN_PER_SENDER = 6
"""The messages outside of tasks that we say in a room in a row because of one sender. Two agents
that both count say at most twice as many."""
MAX_OF_PROGRAMS = 12
"""The messages of all programs together after which we are silent."""
MAX_ROOMS = 10_000
REQUEST_BURST, REQUEST_INTERVAL_SECONDS = 20, 5.0
"""The requests of one sender that are answered at once, and the time in which one more is."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 30.0, 3600.0
"""How long a sender that exceeds its rate is not answered; each time twice as long."""
REQUESTS_AFTER_PAUSE = 3
CALM_SECONDS = 600.0
"""After so much time beyond a pause without a request, a sender begins anew."""
MAX_SENDERS = 10_000


class _Count(Struct):
    """What was said outside of tasks in one room."""

    own: int = 0
    by_sender: dict[str, int] = {}
    """Our messages because of each sender."""
    programs: dict[str, int] = {}
    """The messages of each program."""


class LoopGuard:
    """Counts the messages of programs in all rooms of a channel."""

    def __init__(self) -> None:
        self._rooms: OrderedDict[str, _Count] = OrderedDict()

    def note_program(self, room: str, sender: str) -> None:
        """A program has said something outside of a task."""
        programs = self._count(room).programs
        # One program alone does not silence us for all others.
        programs[sender] = min(programs.get(sender, 0) + 1, MAX_OWN_PER_SENDER)

    def reset(self, room: str) -> None:
        """A person has said something, or a task has begun."""
        self._rooms.pop(room, None)

    def allows(self, room: str, sender: str) -> bool:
        """Returns whether we may say one more message outside of a task because of a sender."""
        count = self._rooms.get(room)
        if count is None:
            return True
        total = count.own + sum(count.programs.values())
        return count.by_sender.get(sender, 0) < MAX_OWN_PER_SENDER and total < MAX_OF_PROGRAMS

    def note_own(self, room: str, sender: str) -> None:
        """We say something outside of a task."""
        count = self._count(room)
        count.own += 1
        count.by_sender[sender] = count.by_sender.get(sender, 0) + 1

    def may_say(self, room: str, sender: str) -> bool:
        """Returns whether we may say one more message outside of a task, and counts it."""
        allowed = self.allows(room, sender)
        if allowed:
            self.note_own(room, sender)
        return allowed

    def _count(self, room: str) -> _Count:
        count = self._rooms.setdefault(room, _Count())
        self._rooms.move_to_end(room)
        if len(self._rooms) > MAX_ROOMS:
            self._rooms.popitem(last=False)
        for counts in (count.by_sender, count.programs):
            if len(counts) > MAX_OF_PROGRAMS:  # more cannot matter
                del counts[next(iter(counts))]
        return count


class _Rate(Struct):
    """How often one sender has asked."""

    left: float
    at: float
    pause: float = 0.0
    until: float = 0.0
    """When the pause ends."""


class SenderPace:
    """The rate of what each sender asks for, with growing pauses for those that exceed it."""

    def __init__(self, burst: int = REQUEST_BURST) -> None:
        self._burst = burst
        self._rates: OrderedDict[str, _Rate] = OrderedDict()

    def admit(self, sender: str, now: float) -> float | None:
        """Returns 0 if a request may be answered, and counts it. Returns the seconds of the pause
        that begins with this request, or None during a pause. `now` is in seconds."""
        rate = self._rates.get(sender)
        if rate is None or now - max(rate.at, rate.until) > CALM_SECONDS:
            rate = self._rates[sender] = _Rate(self._burst, now)
        self._rates.move_to_end(sender)
        if len(self._rates) > MAX_SENDERS:
            self._rates.popitem(last=False)
        if now < rate.until:
            rate.at = now
            return None
        if rate.until:
            rate.left, rate.at, rate.until = REQUESTS_AFTER_PAUSE, now, 0.0
        rate.left = min(self._burst, rate.left + (now - rate.at) / REQUEST_INTERVAL_SECONDS)
        rate.at = now
        if rate.left >= 1:
            rate.left -= 1
            return 0.0
        rate.pause = min(max(2 * rate.pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        rate.until = now + rate.pause
        return rate.pause
