"""The endpoints for requests of real hosts that are not envelopes: `{"content": "..."}` (dialects
§2.3).

`/a2a` answers with `{"result": "..."}`, and accepts envelopes too. `/a2a/stream` answers with
events `{"type": "chunk", "text": "..."}` until the stream closes, and accepts GET as well. Such a
caller reads only `result` and `text`, and cannot answer questions; therefore failures and questions
are written there, too, and so are the names of files and the values of data, whose `parts` stand
beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from dragoman.core.errors import BadParams, DragomanError, Unparseable
from dragoman.core.events import ArtifactChunk, Ask, Asked, Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL, WAITING
from dragoman.core.model import Json, Message, Role, State, Task, Text
from dragoman.core.operations import SendMessage
from dragoman.core.session import Call, Fault, Frame, Result, Signal, Update

from ..jsonrpc import check
from . import errors
from .callee import JSON_TYPES, NOTHING, IatCallee
from .events import Payload, lines_out, parts_out, result_out, summary_out
from .wire import Envelope, Kind, encode

_MOST_FIELDS = 16
EVENT_STREAM = {"content-type": "text/event-stream"}
NO_RESULT: Payload = {"text": ""}


class PlainRequest(Struct, frozen=True, gc=False):
    """A body that is not an envelope."""

    content: str
    system: str | None = None
    params: Json = None
    header: None = None
    type: None = None


_read = msgspec.json.Decoder(PlainRequest).decode


class PlainCallee(IatCallee):
    """The callee's side of an exchange with a host that posts content, or envelopes."""

    follows_questions = False  # the caller cannot answer a question
    streams = False
    _plain = False

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields one `Call`, or the signals of an envelope."""
        content_type = frame.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if content_type not in JSON_TYPES:
                raise msgspec.DecodeError
            check(frame.body)
            request = _read(frame.body)
        except (msgspec.DecodeError, RecursionError, Unparseable):
            return super().receive(frame)
        return (self._interpret_plain(request),)

    def _interpret_plain(self, request: PlainRequest) -> Call:
        self._answer_plainly()
        message = Message(message_id="1", role=Role.USER, parts=(Text(request.content),))
        context = ({"kind": "system", "text": request.system},) if request.system else ()
        params = request.params if isinstance(request.params, dict) and request.params else None
        op = SendMessage(message=message, context=context, metadata=params)
        return Call("", op, self.streams)

    def _answer_plainly(self) -> None:
        self._plain = True
        # It has no field for the receiver, so every request to this address is for us.
        self._last = Envelope(kind=Kind.REQUEST, to=self._me, flat=True)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns `{"result": ...}`, with `error` for a failure, or the answer to an envelope."""
        if not self._plain:
            return super().send(signal)
        match signal:
            case Result(value=Task() as task):
                body = _result(task)
                return (_frame(_outcome(task.state, "result", body, task.status.text)),)
            case Result(value=Message() as message):
                return (_frame({"result": lines_out(message.parts), **parts_out(message.parts)}),)
            case Fault(error=error):
                body = {"result": error.message, **_refusal(error)}
                return (_frame(body, errors.status_for(error)),)
            case _:
                return ()


class PlainStream(PlainCallee):
    """The callee's side of an exchange that is answered with a stream."""

    streams = True
    _has_text = False
    """Whether text was sent already, from which the final message has to be separated."""

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields one `Call`, or the signals of an envelope, which is answered with a stream too.
        The content of a GET is in its query."""
        verb, _, where = frame.target.partition(" ")
        if verb == "GET":
            try:
                return (self._interpret_plain(_query_in(where.partition("?")[2])),)
            except BadParams as error:
                self._answer_plainly()
                return (Fault("", error),)
        headers = {**frame.headers, "accept": "text/event-stream"}
        return super().receive(msgspec.structs.replace(frame, headers=headers))

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns chunks of text, including failures and questions, so that the caller does not
        wait for nothing. A refusal with the status of a success is a stream too, of one event."""
        frames = self._frames(signal)
        if not isinstance(signal, Fault):
            return frames
        return [
            msgspec.structs.replace(frame, headers=EVENT_STREAM) if frame.status == 200 else frame
            for frame in frames
        ]

    def _frames(self, signal: Signal) -> Iterable[Frame]:
        if not self._plain:
            return super().send(signal)
        match signal:
            case Update(entry=Message() as message):
                body = {"text": lines_out(message.parts), **parts_out(message.parts)}
                return (_frame({"type": "chunk", **body}),)
            case Update(entry=Stamped(event=event, seq=seq)):
                body = self._step(event)
                return (_frame(body, mark=str(seq)),) if body is not None else ()
            case Fault(error=error):
                body = {
                    "type": "chunk",
                    "text": self._on_new_line(error.message),
                    **_refusal(error),
                }
                return (_frame(body, errors.status_for(error)),)
            case _:
                return ()

    def _step(self, event: object) -> Json:
        match event:
            case ArtifactChunk(artifact=artifact):
                more = parts_out(artifact.parts)
                text = summary_out(artifact.parts)
                # A file or a value is a line of its own, after the text so far.
                text = self._on_new_line(text) if more else text
                self._has_text = self._has_text or bool(text)
                return {"type": "chunk", "text": text, **more}
            case Snapshot(task=task):
                return self._state_out(task.state, _result(task), task.status.text)
            case Asked(kind=kind, message=message):
                auth = kind is Ask.CREDENTIALS
                state = State.AUTH_REQUIRED if auth else State.INPUT_REQUIRED
                return self._state_out(state, NO_RESULT, message.text)
            case StateChanged(state=State.COMPLETED, message=Message(parts=parts)):
                if self._has_text:  # its final message counts if there was nothing else
                    return None
                result = {"text": lines_out(parts), **parts_out(parts)}
                return self._state_out(State.COMPLETED, result, "")
            case StateChanged(state=state, message=message):
                return self._state_out(state, NO_RESULT, message.text if message else "")
            case _:
                return None

    def _state_out(self, state: State, result: Payload, last: str) -> Json:
        """Returns the text for a change of state, if it needs one."""
        body = result
        if state is not State.COMPLETED and (state in FINAL or state in WAITING):
            body = _outcome(state, "text", result, last)
            body["text"] = self._on_new_line(body["text"])
        self._has_text = self._has_text or bool(body["text"])
        return {"type": "chunk", **body} if body["text"] else None

    def _on_new_line(self, words: str) -> str:
        return f"\n{words}" if self._has_text else words


def _query_in(query: str) -> PlainRequest:
    """Returns the request in `?content=...&system=...`."""
    try:
        found = parse_qs(query, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadParams("The query is not readable", field="content") from None
    if "content" not in found:
        raise BadParams("There is no ?content=", field="content")
    return PlainRequest(found["content"][0], found.get("system", [None])[0])


def _result(task: Task) -> Payload:
    """Returns the result of a task: `text`, and `parts` if there is more than text."""
    found = result_out(task)
    return {"text": found.pop("result_summary"), **found}


def _outcome(state: State, key: str, result: Payload, last: str) -> Payload:
    """Returns the answer for a caller that reads only one member: the text, and how the task
    ended."""
    more = {name: value for name, value in result.items() if name != "text"}
    text = result["text"]
    if state is State.COMPLETED:
        return {key: text or last, **more}
    if state in FINAL:
        last = last or f"The task is {state.value}"
    words = "\n".join(filter(None, (text, last)))
    body: Payload = {key: words, **more, "status": state.value}
    return {**body, "error": last} if state in FINAL else body


def _refusal(error: DragomanError) -> dict[str, Json]:
    return {"error": error.message, "code": errors.code_for(error)}


def _frame(body: Json, status: int = 200, mark: str = "") -> Frame:
    return Frame(encode(body), "", NOTHING, status, mark)
