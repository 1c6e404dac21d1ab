"""What real hosts send to an agent that is not an envelope: `{"content": "..."}` (dialects §2.3).

`/a2a` is answered with `{"result": "..."}`, and hears envelopes too; `/a2a/stream` with events
`{"type": "chunk", "text": "..."}` until the stream closes, and may be asked with GET. Such a caller
reads nothing but `result` and `text`, and can answer no questions: so failures and questions are
told there, too.
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
from .wire import Envelope, Kind, encode

_MOST_FIELDS = 16


class PlainRequest(Struct, frozen=True, gc=False):
    """A body that is no envelope."""

    content: str
    system: str | None = None
    params: Json = None
    header: None = None
    type: None = None


_read = msgspec.json.Decoder(PlainRequest).decode


class PlainCallee(IatCallee):
    """An exchange with a host that posts content, or envelopes."""

    follows_questions = False  # nobody is there who could answer
    streams = False
    _plain = False

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """One `Call`, or whatever an envelope means."""
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
        # It has no place for a name; what comes to this address is for us.
        self._last = Envelope(kind=Kind.REQUEST, to=self._me, flat=True)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """`{"result": ...}`, with `error` beside it for a failure; else what an envelope says."""
        if not self._plain:
            return super().send(signal)
        match signal:
            case Result(value=Task() as task):
                last = task.status.message.text if task.status.message else ""
                return (_frame(_outcome(task.state, "result", task.text, last)),)
            case Result(value=Message() as message):
                return (_frame({"result": message.text}),)
            case Fault(error=error):
                body = {"result": error.message, **_refusal(error)}
                return (_frame(body, errors.status_for(error)),)
            case _:
                return ()


class PlainStream(PlainCallee):
    """The same, told as it comes."""

    streams = True
    _has_text = False
    """Whether there are words already, from which the last ones have to be kept apart."""

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """As above; envelopes are told as streams too. What GET asks stands in its query."""
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
        """Chunks of text; how a task fails, and what it asks, so that nobody waits for nothing."""
        if not self._plain:
            return super().send(signal)
        match signal:
            case Update(entry=Message() as message):
                return (_frame({"type": "chunk", "text": message.text}),)
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
                self._has_text = self._has_text or bool(artifact.text)
                return {"type": "chunk", "text": artifact.text}
            case Snapshot(task=task):
                last = task.status.message.text if task.status.message else ""
                return self._state_out(task.state, task.text, last)
            case Asked(kind=kind, message=message):
                auth = kind is Ask.CREDENTIALS
                state = State.AUTH_REQUIRED if auth else State.INPUT_REQUIRED
                return self._state_out(state, "", message.text)
            case StateChanged(state=state, message=message):
                return self._state_out(state, "", message.text if message else "")
            case _:
                return None

    def _state_out(self, state: State, text: str, last: str) -> Json:
        """How it stands with a task, if that is worth a word."""
        if state is State.COMPLETED:  # its last words count if there were no others
            body: dict[str, Json] = {"text": text or ("" if self._has_text else last)}
        elif state in FINAL or state in WAITING:
            body = _outcome(state, "text", text, last)
            body["text"] = self._on_new_line(body["text"])
        else:
            body = {"text": text}
        self._has_text = self._has_text or bool(body["text"])
        return {"type": "chunk", **body} if body["text"] else None

    def _on_new_line(self, words: str) -> str:
        return f"\n{words}" if self._has_text else words


def _query_in(query: str) -> PlainRequest:
    """What `?content=...&system=...` asks."""
    try:
        found = parse_qs(query, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadParams("The query is not readable", field="content") from None
    if "content" not in found:
        raise BadParams("There is no ?content=", field="content")
    return PlainRequest(found["content"][0], found.get("system", [None])[0])


def _outcome(state: State, key: str, text: str, last: str) -> dict[str, Json]:
    """What a caller is told that looks at one member only: the text, and how it ended."""
    if state is State.COMPLETED:
        return {key: text or last}
    if state in FINAL:
        last = last or f"The task is {state.value}"
    words = "\n".join(filter(None, (text, last)))
    body: dict[str, Json] = {key: words, "status": state.value}
    return {**body, "error": last} if state in FINAL else body


def _refusal(error: DragomanError) -> dict[str, Json]:
    return {"error": error.message, "code": errors.code_for(error)}


def _frame(body: Json, status: int = 200, mark: str = "") -> Frame:
    return Frame(encode(body), "", NOTHING, status, mark)
