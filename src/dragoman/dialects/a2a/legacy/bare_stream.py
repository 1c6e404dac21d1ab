"""Callers of peers whose streams do not consist of JSON-RPC responses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from dragoman.core.errors import PeerMisbehaved, Unparseable
from dragoman.core.session import Call, Frame, Signal

from ... import jsonrpc
from ..jsonrpc import RpcCaller
from ..scalars import Wrong
from ..version import Version


class BareStreamCaller(RpcCaller):
    """The caller's side of one exchange. Its peers do not know the A2A-Version header, either."""

    def __init__(self, version: Version) -> None:
        super().__init__(version)
        del self._headers["a2a-version"]

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a whole response, or of one event of a stream."""
        streams = [call for call, method in self._open.values() if method.stream]
        if not streams or not frame.body:
            return super().receive(frame)
        (call,) = streams
        try:
            jsonrpc.check_answer(frame.body)
            return self._receive_event(call, frame)
        except (ValueError, RecursionError, Wrong, PeerMisbehaved, Unparseable) as exc:
            return (self._fault(call.id, PeerMisbehaved(str(exc))),)

    @abstractmethod
    def _receive_event(self, call: Call, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of one event of a stream, which may still be a JSON-RPC response."""
