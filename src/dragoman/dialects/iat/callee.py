"""The callee's side of IAT: the sub-agent. One session is an HTTP exchange or a WebSocket.

A request or a notification is a call; a response is the answer to a question that a run asked with
a request of ours. A stream consists of chunks, notifications and requests whose parent is the
`execute`, and ends with the response to it: `done`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec
from msgspec import Struct

from dragoman.core import session as signals
from dragoman.core.card import Tool
from dragoman.core.errors import (
    BadParams,
    ContentTypeUnsupported,
    DragomanError,
    Malformed,
    UnknownMethod,
)
from dragoman.core.events import Stamped
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Data, Json, Message, Task
from dragoman.core.operations import CancelTask, Invoke, SendMessage
from dragoman.core.session import Frame, Id, Session, Signal

from ..jsonrpc import bare_type
from . import errors
from .events import ASK_OF, DONE, NOTE_OF, STATUS, EventBody, IatEventEncoder
from .requests import (
    ALIASES,
    CALLS,
    NO_OFFER,
    grant_in,
    introduction_in,
    introduction_out,
    offer_in,
    resolve_in,
    status_in,
)
from .wire import ERROR, Envelope, Kind, envelope_in, envelope_out, id_out

JSON_TYPES = frozenset(("application/json", ""))
NOTHING: Mapping[str, str] = {}
NO_CONTENT = Frame(b"", "", NOTHING, 204)
"""The answer to a notification."""
WRONG_TYPE = ContentTypeUnsupported("Expected application/json")
NO_ENVELOPE = Envelope(kind=Kind.REQUEST)


class OpenRequest(Struct):
    """A call that has not been answered yet."""

    envelope: Envelope
    encoder: IatEventEncoder
    op: object = None
    task_id: str = ""


class IatCallee(Session):
    """The callee's side of one conversation."""

    follows_questions = True
    extensions: tuple[str, ...] = ()
    _nested_name = "iat"

    def __init__(
        self,
        me: str,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self._me = me
        self._now = now
        self._new_id = new_id
        self._calls: dict[str, OpenRequest] = {}
        self._last = NO_ENVELOPE
        self._silent = False
        self._offer = NO_OFFER
        self.read: Callable[[bytes], Envelope] = envelope_in
        self.is_open: Callable[[str], bool] = _no_call
        """Returns whether an envelope of this id is a call of ours that has not ended."""
        self.is_another: Callable[[str], bool] = _nobody
        """Returns whether another agent of this server has this name."""
        self.known: tuple[Tool, ...] = ()
        """The tools that the caller described in its introduction; a call may allow them."""
        self.granted: tuple[Tool, ...] = ()
        """The tools that the caller has granted since; they are allowed unless a call restricts
        them."""
        self.token = ""
        """The token that authenticates our answers to a host that we have joined."""

    @property
    def dialect(self) -> str:
        """The form of IAT that the caller speaks."""
        return "iat-flat" if self._last.flat else self._nested_name

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the latest call."""
        return self._offer.tools(self.known, self.granted)

    @property
    def heard(self) -> Envelope:
        """The latest envelope, with its sender and its token."""
        return self._last

    @cached_property
    def _fallback(self) -> IatEventEncoder:
        return IatEventEncoder(full=False)

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields a `Call`, `Introduction`, `Ping` or `Fault`. A `terminate` of everything yields
        many calls."""
        self._silent = False
        self._last = NO_ENVELOPE
        content_type = frame.headers.get("content-type", "")
        if content_type not in JSON_TYPES and bare_type(content_type) not in JSON_TYPES:
            # Otherwise any web page could send it.
            return (signals.Fault(None, WRONG_TYPE),)
        try:
            envelope = self.read(frame.body)
        except DragomanError as error:
            return (signals.Fault(None, error),)
        if envelope.parent and self.is_open(envelope.parent):
            return self._posted(frame, envelope)
        return self.take(envelope, stream=self._hears_streams(frame, envelope))

    def _posted(self, frame: Frame, envelope: Envelope) -> Iterable[Signal]:
        """Returns an event of a call of ours. Only a request is answered."""
        self._last = envelope
        posted = signals.Posted(envelope.id if envelope.kind is Kind.REQUEST else None, frame)
        if posted.id == "":
            return (self._refuse("", Malformed("A request needs a msg_id")),)
        self._open(posted.id, envelope, posted)
        return (posted,)

    def _hears_streams(self, frame: Frame, envelope: Envelope) -> bool:
        """Returns whether the caller can receive a stream."""
        return "text/event-stream" in frame.headers.get("accept", "")

    def take(self, envelope: Envelope, *, stream: bool) -> Iterable[Signal]:
        """Yields the signals of an envelope; `stream` says whether the caller can receive a
        stream."""
        self._last = envelope
        self._silent = envelope.kind is Kind.NOTIFICATION
        self._offer = NO_OFFER
        id = None if self._silent else envelope.id
        if envelope.kind in (Kind.REQUEST, Kind.NOTIFICATION):
            if envelope.ttl <= 0:
                return (self._refuse(id, errors.TtlExceeded()),)
            if envelope.kind is Kind.REQUEST and not envelope.id:
                return (self._refuse("", Malformed("A request needs a msg_id")),)
            if envelope.to and envelope.to != self._me and self.is_another(envelope.to):
                what = f"This is {self._me}, and the message is for {envelope.to[:80]}"
                return (self._refuse(id, BadParams(what, field="header.to")),)
        try:
            return self._interpret(id, envelope, stream)
        except DragomanError as error:
            return (self._refuse(id, error),)
        except (msgspec.ValidationError, RecursionError) as exc:
            what = str(exc).replace(" | null`", "`").replace("`$", "`$.payload")
            return (self._refuse(id, BadParams(what)),)

    def _interpret(self, id: Id, envelope: Envelope, stream: bool) -> Iterable[Signal]:
        action = ALIASES.get(envelope.action, envelope.action)
        if envelope.kind is Kind.RESPONSE:
            return (self._call(id, envelope, resolve_in(envelope), stream=False),)
        if envelope.kind is Kind.CHUNK:
            raise UnknownMethod("There is nothing that this chunk belongs to")
        if action == "terminate" and "task_id" not in envelope.payload:
            return self._terminate(id, envelope)
        if action in CALLS:
            op_in, streams = CALLS[action]
            # A caller that wants a single answer instead of a stream sets `stream` to false.
            stream = (
                stream
                and streams
                and not self._silent
                and envelope.payload.get("stream") is not False
            )
            if action == "watch" and not stream:
                op_in = status_in  # one answer can hold nothing more
            return (self._call(id, envelope, op_in(envelope), stream=stream),)
        if action in ("register", "HELO", "grant_tool"):
            introduction = (grant_in if action == "grant_tool" else introduction_in)(id, envelope)
            self._open(id, envelope, introduction)
            return (introduction,)
        if action == "pulse":
            self._open(id, envelope, signals.Ping(id))
            return (signals.Ping(id),)
        if action in ASK_OF or action in NOTE_OF:
            raise BadParams(
                f"There is no open execute that this {action} belongs to",
                field="header.parent_id",
            )
        raise UnknownMethod(f"There is no action {envelope.action[:80]!r}")

    def _terminate(self, id: Id, envelope: Envelope) -> Iterable[Signal]:
        """Cancels the task that the parent of the envelope opened, or all open tasks of this
        conversation."""
        which = [
            call.task_id
            for name, call in self._calls.items()
            if call.task_id and envelope.parent in ("", envelope.id, name)
        ]
        if not which:
            raise BadParams("There is no task to terminate", field="payload.task_id")
        first, *others = which
        return (
            self._call(id, envelope, CancelTask(task_id=first), stream=False),
            *(signals.Call(None, CancelTask(task_id=each), silent=True) for each in others),
        )

    def _call(self, id: Id, envelope: Envelope, op: object, *, stream: bool) -> signals.Call:
        # The tools are read here, where an error can still be reported; the driver uses them later.
        self._offer = offer_in(envelope)
        self._open(id, envelope, op)
        return signals.Call(id, op, stream, self._silent)  # type: ignore[arg-type]  # from the tables

    def _open(self, id: Id, envelope: Envelope, op: object) -> None:
        if id is not None:
            encoder = IatEventEncoder(full=envelope.payload.get("detail") == "full")
            self._calls[id_out(id)] = OpenRequest(envelope, encoder, op)

    def _refuse(self, id: Id, error: DragomanError) -> signals.Fault:
        self._open(id, self._last, None)
        return signals.Fault(id, error)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the frame for a signal; `End` has none, because the `done` before it ends the
        stream."""
        match signal:
            case signals.Update(id=id, entry=entry):
                return (self._update(id_out(id), entry),)
            case signals.Result(id=id, value=value):
                return (self._answer(id, value),)
            case signals.Fault(id=id, error=error):
                return (self._failure(id, error),)
            case signals.End(id=id):
                self._calls.pop(id_out(id), None)
                return ()
            case _:
                return ()

    def _find_call(self, id: str) -> OpenRequest:
        # An update without an open call here is sent all the same.
        return self._calls.get(id) or OpenRequest(self._last, self._fallback)

    def _update(self, id: str, entry: Stamped | Message) -> Frame:
        call = self._find_call(id)
        mark = ""
        if isinstance(entry, Stamped):
            call.task_id, mark = entry.task_id, str(entry.seq or "")
        return self._frame(call, id, call.encoder.event_out(entry), mark=mark)

    def _answer(self, id: Id, value: object) -> Frame:
        if id is None:
            return NO_CONTENT
        call = self._calls.pop(id_out(id), None) or OpenRequest(self._last, self._fallback)
        if call.envelope.kind is Kind.RESPONSE and call.envelope.payload.get("detail") != "full":
            return NO_CONTENT  # an answer has no answer, but our own caller waits for one
        return self._frame(call, id_out(id), _answer_body(call, value))

    def _failure(self, id: Id, error: DragomanError) -> Frame:
        status = errors.status_for(error)
        if error is WRONG_TYPE:
            status = 415
        elif status == 200 and id is None:
            if self._silent:
                return NO_CONTENT
            status = 400 if isinstance(error, Malformed) else 200
        call = self._calls.pop(id_out(id), None) or OpenRequest(self._last, self._fallback)
        # Otherwise two sides that do not understand each other would never stop.
        if call.envelope.fault:
            return NO_CONTENT if status == 200 else Frame(b"", "", NOTHING, status)
        body = EventBody(Kind.RESPONSE, ERROR, {ERROR: errors.error_out(error)})
        return self._frame(call, "" if id is None else id_out(id), body, status=status)

    def _frame(
        self, call: OpenRequest, id: str, body: EventBody, *, mark: str = "", status: int = 200
    ) -> Frame:
        to = call.envelope
        if body.action == DONE and to.action == "execute_task":
            # The older action `execute_task` is answered with the older names of the result.
            body = body._replace(action="task_result")
            body.payload["result"] = body.payload.pop("result_summary", "")
        at = body.payload.get("at")
        encoded = envelope_out(
            Envelope(
                kind=body.kind,
                action=body.action,
                payload=body.payload,
                id=body.id or self._new_id(),
                parent=id,
                sender=to.to or self._me,
                to=to.sender,
                at=at if isinstance(at, int) else self._now(),
                trace=to.trace,
                ttl=to.ttl,
                token=self.token,
                flat=to.flat,
            )
        )
        return Frame(encoded, "", NOTHING, status, mark, body.kind.value)


class IatSocketCallee(IatCallee):
    """The callee's side on a WebSocket, where every caller can receive a stream."""

    _nested_name = "iat-ws"

    def _hears_streams(self, frame: Frame, envelope: Envelope) -> bool:
        """Returns whether the caller gets every event. A caller that does not wait (R01) gets only
        the id of the task, at once."""
        return envelope.payload.get("wait") is not False


def _no_call(id: str) -> bool:
    return False


def _nobody(name: str) -> bool:
    return False


def _answer_body(call: OpenRequest, value: object) -> EventBody:
    """Returns the response to a call."""
    op, encoder = call.op, call.encoder
    if isinstance(value, Task):
        return _task_answer(call, value)
    if isinstance(op, signals.Introduction):
        action = "grant_tool_ack" if op.card is None else call.envelope.action
        payload = introduction_out(value) if isinstance(value, signals.Introduction) else value
        return EventBody(Kind.RESPONSE, action, payload)  # type: ignore[arg-type]  # the driver's own dict
    if isinstance(op, signals.Ping):
        return EventBody(Kind.RESPONSE, "pulse", value if isinstance(value, dict) else {"ok": True})
    if isinstance(op, signals.Posted) and isinstance(value, dict):
        return EventBody(Kind.RESPONSE, call.envelope.action, value)
    if isinstance(op, Invoke):
        return EventBody(Kind.RESPONSE, "call_tool", {"result": value})
    if isinstance(value, Message):
        return EventBody(Kind.RESPONSE, DONE, encoder.reply_out(value))
    return EventBody(Kind.RESPONSE, STATUS, {"result": value})


def _task_answer(call: OpenRequest, value: Task) -> EventBody:
    payload = call.encoder.task(value)
    if call.envelope.action == "call_tool":
        if "error" not in payload:
            payload["result"] = _result(value)
        return EventBody(Kind.RESPONSE, "call_tool", payload)
    over = isinstance(call.op, SendMessage) and value.state in FINAL
    if over:
        payload["usage_stats"] = value.usage or {}
    return EventBody(Kind.RESPONSE, DONE if over else STATUS, payload)


def _result(task: Task) -> Json:
    """Returns the result of a tool: its data if there is any, and otherwise its text."""
    for artifact in task.artifacts:
        for part in artifact.parts:
            if isinstance(part, Data):
                return part.value
    return task.text
