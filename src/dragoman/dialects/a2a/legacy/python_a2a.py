"""The server of python-a2a (0.5 of 2025), for the caller's side: a variant of 0.1.

Its card names 0.3, but it does not implement 0.3. Each method has a path of its own, and both kinds
of stream share one. A stream consists of bare tasks, with the JSON-RPC id as the event id; the last
event is named `complete`. It has no webhooks. The requests of its clients are handled in `detect`;
this module is about its servers.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from dragoman.core.errors import TaskNotFound
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.operations import GetHook, SetHook
from dragoman.core.session import Call, End, Frame, Signal, Update

from ..jsonrpc import RpcCaller
from .bare_stream import BareStreamCaller
from .v0_1 import V0_1
from .v0_1.calls import got_in

PYTHON_A2A = replace(
    V0_1,
    dialect="python-a2a",
    methods={
        name: method
        for name, method in V0_1.methods.items()
        if method.op not in (SetHook, GetHook) and name != "tasks/stream"
    },
    meanings={**V0_1.meanings, -32000: TaskNotFound},
)
STREAMS = "tasks/stream"
"""The path of both kinds of stream."""
LAST = "complete"


class _BareEvent(msgspec.Struct, frozen=True, gc=False):
    """The members of an event that tell a bare task from a response."""

    jsonrpc: str | None = None


_read_bare = msgspec.json.Decoder(_BareEvent).decode


class PythonCaller(BareStreamCaller):
    """The caller's side of one exchange."""

    def __init__(self) -> None:
        super().__init__(PYTHON_A2A)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, at the path of its method."""
        frames = super().send(signal)
        if not isinstance(signal, Call):
            return frames
        row = PYTHON_A2A.find_method(signal.op, stream=signal.stream)
        path = STREAMS if signal.stream or row is None else row[0]
        return [replace(frame, target=f"POST /{path}") for frame in frames]

    def _receive_event(self, call: Call, frame: Frame) -> Iterable[Signal]:
        if _read_bare(frame.body).jsonrpc is not None:
            return RpcCaller.receive(self, replace(frame, mark=""))
        task = got_in(msgspec.Raw(frame.body))
        snapshot = Snapshot(task=task)
        update = Update(call.id, Stamped(task.id, task.context_id, 0, task.status.at, snapshot))
        if frame.name != LAST and task.state not in FINAL:
            return (update,)
        del self._open[call.id]
        return (update, End(call.id))
