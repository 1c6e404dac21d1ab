"""A caller and a callee of one dialect, joined without I/O (h11's ConnectionPair)."""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.session import End, Frame, Session, Signal
from dragoman.dialects import DIALECTS

CODECS = [
    each for each in DIALECTS.values() if each.callee is not None and each.wire is not Wire.GRPC
]
"""The dialects with both sides, whose frames are text."""


class Pair:
    """What one side says, the other hears."""

    def __init__(self, dialect: Dialect) -> None:
        self.caller: Session = dialect.caller()
        assert dialect.callee is not None
        self.callee: Session = dialect.callee()

    def caller_says(self, signal: Signal) -> list[Signal]:
        """What the callee hears of it."""
        return [heard for frame in self.caller.send(signal) for heard in self._heard(frame)]

    def _heard(self, frame: Frame) -> list[Signal]:
        # A wire adds an address, where the frame does not say it, and takes away nothing.
        target = frame.target if " " in frame.target else f"{frame.target} /"
        return list(self.callee.receive(replace(frame, target=target)))

    def callee_says(self, signal: Signal) -> list[Signal]:
        """What the caller hears of it, but for `End`: some dialects tell it with the last event,
        others only by closing."""
        return [
            heard
            for frame in self.callee.send(signal)
            for heard in self.caller.receive(frame)
            if not isinstance(heard, End)
        ]
