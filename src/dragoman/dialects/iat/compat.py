"""What real hosts post to an agent that is not an envelope: `{"content": "..."}` (dialects §2.3).

`/a2a` is answered with `{"result": "..."}`, and hears envelopes too; `/a2a/stream` with events
`{"type": "chunk", "text": "..."}` until the stream closes. Such a caller can answer no questions.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from dragoman.errors import DragomanError, Unparseable
from dragoman.events import ArtifactChunk, Asked, Snapshot, Stamped, StateChanged
from dragoman.lifecycle import FINAL
from dragoman.model import Json, Message, Role, State, Task, Text
from dragoman.ops import SendMessage
from dragoman.session import Answer, Call, Fault, Frame, Signal, Update

from ..jsonrpc import check
from . import errors
from .callee import JSON_TYPES, NOTHING, IatCallee
from .wire import Envelope, Kind, encode
from .words import Teller


class Posted(Struct, frozen=True, gc=False):
    """A body that is no envelope."""

    content: str
    system: str | None = None
    params: Json = None
    header: None = None
    type: None = None


_read = msgspec.json.Decoder(Posted).decode


class PlainCallee(IatCallee):
    """An exchange with a host that posts content, or envelopes."""

    streams = False
    _plain = False

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """One `Call`, or whatever an envelope means."""
        content_type = frame.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if content_type not in JSON_TYPES:
                raise msgspec.DecodeError
            check(frame.body)
            said = _read(frame.body)
        except (msgspec.DecodeError, RecursionError, Unparseable):
            return super().receive(frame)
        self._plain = True
        self._last = Envelope(kind=Kind.REQUEST, flat=True)
        message = Message(message_id="1", role=Role.USER, parts=(Text(said.content),))
        context = ({"kind": "system", "text": said.system},) if said.system else ()
        params = said.params if isinstance(said.params, dict) and said.params else None
        op = SendMessage(message=message, context=context, metadata=params)
        return (Call("", op, self.streams),)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """`{"result": ...}` or `{"error": ...}`; else what an envelope says."""
        if not self._plain:
            return super().send(signal)
        match signal:
            case Answer(value=Task() as task):
                told = Teller(full=False).task(task)
                if "error" in told:
                    return (_frame({"error": told["error"]["message"]}),)
                return (_frame({"result": told["result_summary"]}),)
            case Answer(value=Message() as message):
                return (_frame({"result": message.text}),)
            case Fault(error=error):
                return (_frame(self._refusal(error), errors.status_for(error)),)
            case _:
                return ()

    def _refusal(self, error: DragomanError) -> Json:
        return {"error": error.message, "code": errors.code_for(error)}


class PlainStream(PlainCallee):
    """The same, told as it comes."""

    streams = True

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """As above; envelopes are told as streams too."""
        headers = {**frame.headers, "accept": "text/event-stream"}
        return super().receive(msgspec.structs.replace(frame, headers=headers))

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Chunks of text; how a task fails, and what it asks, so that nobody waits for nothing."""
        if not self._plain:
            return super().send(signal)
        match signal:
            case Update(entry=Message() as message):
                return (_frame({"type": "chunk", "text": message.text}),)
            case Update(entry=Stamped(event=event, seq=seq)):
                told = _told(event)
                return (_frame(told, mark=str(seq)),) if told is not None else ()
            case Fault(error=error):
                told = {"type": "error", **self._refusal(error)}
                return (_frame(told, errors.status_for(error)),)
            case _:
                return ()


def _told(event: object) -> Json:
    match event:
        case ArtifactChunk(artifact=artifact):
            return {"type": "chunk", "text": artifact.text}
        case Snapshot(task=task) if task.text:
            return {"type": "chunk", "text": task.text}
        case Asked(message=message):
            return {"type": "error", "error": f"The agent asks: {message.text}"}
        case StateChanged(state=state, message=message) if (
            state in FINAL and state is not State.COMPLETED
        ):
            return {"type": "error", "error": message.text if message else state.value}
        case _:
            return None


def _frame(told: Json, status: int = 200, mark: str = "") -> Frame:
    return Frame(encode(told), "", NOTHING, status, mark)
