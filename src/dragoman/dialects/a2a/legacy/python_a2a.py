"""The server of python-a2a (0.5 of 2025), on the side that asks: 0.1 with ways of its own.

Its card says 0.3, but there is nothing of 0.3 behind it. Each method has a path of its own, and
both kinds of stream share one. A stream is told as bare tasks, under the JSON-RPC id in the place
of an event id; the last one is called `complete`. It has no webhooks. What its own clients ask of
us is in `older`; this is what its servers want to be asked.
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
"""The path of both kinds."""
LAST = "complete"


class _BareEvent(msgspec.Struct, frozen=True, gc=False):
    """Enough of an event to tell a bare task from a response."""

    jsonrpc: str | None = None


_read_bare = msgspec.json.Decoder(_BareEvent).decode


class PythonCaller(BareStreamCaller):
    """One exchange, on the side that asks."""

    def __init__(self) -> None:
        super().__init__(PYTHON_A2A)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """The request for a `Call`, at the path of its method."""
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
