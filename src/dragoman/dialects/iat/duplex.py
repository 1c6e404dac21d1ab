"""IAT on a WebSocket, where both sides ask: what answers a call of ours is for the caller."""

from __future__ import annotations

from dragoman.core.session import Duplex, Frame, Session

from .callee import IatSocketCallee
from .caller import IatCaller
from .wire import EnvelopeReader


class IatDuplex(Duplex):
    """A host or an agent on one WebSocket."""

    def __init__(self, caller: IatCaller, callee: IatSocketCallee, name: str) -> None:
        self.caller: IatCaller = caller
        self.callee: IatSocketCallee = callee
        self.name = name
        self._read = caller.read = callee.read = EnvelopeReader()

    def whose(self, frame: Frame) -> Session | None:
        """The caller's if it expects it. A hub may tell everyone everything, us included."""
        self._read(frame.body)
        if self.caller.echoes(frame):
            return None
        return self.caller if self.caller.expects(frame) else self.callee
