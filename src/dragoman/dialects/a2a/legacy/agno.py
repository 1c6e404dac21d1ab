"""agno (2 and 3): JSON-RPC of 0.3 at the paths of 0.3's REST, on both sides.

Its client posts the envelope of `message/send` to `/v1/message:send`. It reads the answer from the
agent's messages in the history, never from artifacts or the status, and takes a task in a stream
for the end of it. So such callers get the results as a message too, and no task at the beginning.

Its server has one path for each method as well. Its card is of 0.3 and names the path of streams as
its JSON-RPC address. In a stream, text arrives as messages of the task. Tasks are found only with
their context and a database behind the agent, so there is no method that gets one.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core.card import Interface
from dragoman.core.events import ArtifactChunk, Opened, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import ENDS_STREAM
from dragoman.core.model import AnyPart, Artifact, Message, Role, State, Task
from dragoman.core.operations import CancelTask, SendMessage
from dragoman.core.session import Call, Frame, Id, Result, Signal, Update

from ..jsonrpc import RpcCallee, RpcCaller
from ..v0_3 import V0_3

STREAM_PATH = "/v1/message:stream"
PATHS = {"/v1/message:send", STREAM_PATH}
"""Where its clients post envelopes."""


class _Envelope(Struct, frozen=True, gc=False):
    """The members by which an envelope is told from the body of a REST request."""

    jsonrpc: str
    method: str


_read_envelope = msgspec.json.Decoder(_Envelope).decode


def is_envelope(path: str, body: bytes) -> bool:
    """Returns whether a REST request has the envelope of JSON-RPC as its body."""
    if path not in PATHS:
        return False
    try:
        _read_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class AgnoCallee(RpcCallee):
    """The callee's side of one exchange with its client."""

    def _answer(self, answer: Result) -> Frame:
        if isinstance(answer.value, Task):
            answer = replace(answer, value=with_spoken_results(answer.value))
        return super()._answer(answer)

    def _update(self, update: Update) -> Frame:
        entry = update.entry
        if isinstance(entry, Stamped):
            state = State.SUBMITTED if isinstance(entry.event, Opened) else None
            if isinstance(entry.event, Snapshot) and entry.event.task.state not in ENDS_STREAM:
                state = entry.event.task.state
            if state is not None:
                update = replace(update, entry=replace(entry, event=StateChanged(state=state)))
        return super()._update(update)


def with_spoken_results(task: Task) -> Task:
    """Returns the task with its results and its last status as a message of the agent."""
    parts: list[AnyPart] = [part for artifact in task.artifacts for part in artifact.parts]
    if task.status.message is not None:
        parts += task.status.message.parts
    if not parts:
        return task
    spoken = Message(
        message_id=f"{task.id}-results",
        role=Role.AGENT,
        parts=tuple(parts),
        context_id=task.context_id,
        task_id=task.id,
    )
    # Its reader joins all messages of the agent, and a status message may be among them already.
    asked = tuple(message for message in task.history if message.role is not Role.AGENT)
    return replace(task, history=(*asked, spoken))


AGNO = replace(
    V0_3,
    dialect="agno",
    methods={
        name: V0_3.methods[name] for name in ("message/send", "message/stream", "tasks/cancel")
    },
    events_in=None,
)
_SERVER_PATHS: dict[tuple[type, bool], str] = {
    (SendMessage, False): "/v1/message:send",
    (SendMessage, True): STREAM_PATH,
    (CancelTask, False): "/v1/tasks:cancel",
}


def interface_in(interface: Interface) -> Interface:
    """Returns the interface of an agno server as it is called, and any other one as it is."""
    if interface.binding != "JSONRPC" or not interface.url.endswith(STREAM_PATH):
        return interface
    return replace(interface, url=interface.url.removesuffix(STREAM_PATH), version=AGNO.dialect)


class AgnoCaller(RpcCaller):
    """The caller's side of one exchange with its server."""

    def __init__(self) -> None:
        super().__init__(AGNO)
        self._begun: set[str] = set()
        """The messages of which a piece has arrived."""

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, at the path of its method."""
        if isinstance(signal, Call) and isinstance(signal.op, SendMessage):
            # A task that runs in the background could not be asked for again.
            signal = replace(signal, op=replace(signal.op, wait=True))
        frames = super().send(signal)
        if not isinstance(signal, Call):
            return frames
        path = _SERVER_PATHS.get((type(signal.op), signal.stream), "")
        return [replace(frame, target=f"POST {path}") for frame in frames]

    def _signals_of(self, id: Id, event: tuple[Stamped | Message, bool]) -> Iterable[Signal]:
        entry, _ = event
        if isinstance(entry, Message) and entry.task_id:
            event = self._chunk_of(entry), False
        return super()._signals_of(id, event)

    def _chunk_of(self, message: Message) -> Stamped:
        """Returns a piece of an answer, which has the same message id as the pieces before it."""
        chunk = ArtifactChunk(
            artifact=Artifact(artifact_id=message.message_id, parts=message.parts),
            append=message.message_id in self._begun,
            metadata=message.metadata,
        )
        self._begun.add(message.message_id)
        return Stamped(message.task_id, message.context_id, 0, 0, chunk)
