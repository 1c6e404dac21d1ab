"""A caller and a callee of one dialect, joined without I/O (h11's ConnectionPair)."""

from __future__ import annotations

from msgspec.structs import replace

from dragoman.core.dialect import Dialect, Wire
from dragoman.core.extensions import CURSOR
from dragoman.core.session import End, Fault, Frame, Session, Signal
from dragoman.dialects import DIALECTS
from dragoman.dialects.a2a.grpc.caller import failed

LINK = DIALECTS["xiaoyi"]
"""The dialect in which callers can only send, cancel and clear, and one event may be several frames
and signals. What every other dialect keeps, `xiaoyi/test_contract.py` tests for it in its terms."""
ROOM = DIALECTS["lite"]
"""The dialect of chat rooms, which have no streams: most events are told with the result. See
`lite/test_contract.py`."""
PAIRS = [each for each in DIALECTS.values() if each.callee is not None and each not in (LINK, ROOM)]
"""The dialects with both sides."""
CODECS = [each for each in PAIRS if each.wire is not Wire.GRPC]
"""Those whose frames are text."""


class Pair:
    """What one side says, the other hears."""

    def __init__(self, dialect: Dialect) -> None:
        # gRPC tells the place of an event only to callers that ask for it.
        self._grpc = dialect.wire is Wire.GRPC
        self.caller: Session = dialect.caller((CURSOR,) if self._grpc else ())
        assert dialect.callee is not None
        self.callee: Session = dialect.callee()

    def caller_says(self, signal: Signal) -> list[Signal]:
        """What the callee hears of it."""
        return [heard for frame in self.caller.send(signal) for heard in self._heard(frame)]

    def _heard(self, frame: Frame) -> list[Signal]:
        # A wire adds an address, where the frame does not say it, and takes away nothing.
        target = frame.target
        if not self._grpc and " " not in target:
            target = f"{target} /"
        return list(self.callee.receive(replace(frame, target=target)))

    def callee_says(self, signal: Signal) -> list[Signal]:
        """What the caller hears of it, but for `End`: some dialects tell it with the last event,
        others only by closing."""
        frames = self.callee.send(signal)
        if self._grpc and isinstance(signal, Fault):  # told in the trailers
            frames = [failed(f.status or 0, f.headers["grpc-message"], f.body) for f in frames]
        return [
            heard
            for frame in frames
            for heard in self.caller.receive(frame)
            if not isinstance(heard, End)
        ]
