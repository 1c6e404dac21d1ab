"""IAT on a WebSocket, where both sides make calls: the answers to our calls are for the caller
session."""

from __future__ import annotations

from dragoman.core.session import Duplex, Frame, Session

from .callee import IatSocketCallee
from .caller import IatCaller
from .wire import EnvelopeReader


class IatDuplex(Duplex):
    """A host or an agent on one WebSocket."""

    def __init__(self, caller: IatCaller, callee: IatSocketCallee) -> None:
        self.caller: IatCaller = caller
        self.callee: IatSocketCallee = callee
        self._read = caller.read = callee.read = EnvelopeReader()

    def whose(self, frame: Frame) -> Session | None:
        """Returns the caller session if it expects the frame. A hub may send every message to every
        agent, including our own."""
        self._read(frame.body)
        if self.caller.echoes(frame):
            return None
        return self.caller if self.caller.expects(frame) else self.callee
