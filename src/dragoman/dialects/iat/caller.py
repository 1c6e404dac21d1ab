"""The caller's side of IAT: the host. One session is an HTTP exchange or a WebSocket.

It speaks one form and understands both. An agent that does not know the nested form answers
`ignored`, or an error without an id (dialects §2.6); the message is then sent again in the flat
form (`repeated`). In the flat form, `execute` is `execute_task`, and its `query` is `content`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from dragoman.core import session as signals
from dragoman.core.card import Tool
from dragoman.core.dialect import CallerIdentity
from dragoman.core.errors import DragomanError, PeerMisbehaved, VersionUnsupported
from dragoman.core.events import Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Json, Message, State, Status, Task
from dragoman.core.operations import CancelTask, GetTask, Invoke, Resolve, SendMessage, Watch
from dragoman.core.peer import Context
from dragoman.core.session import CallerConversation, CallerSession, Frame, Id, Signal

from ..jsonrpc import is_jsonrpc
from . import errors
from .decode import entry_in, is_call_error, task_in
from .events import ASK_OF, DONE, THEIRS, Payload, question_in
from .requests import introduction_in, introduction_out, operation_out, resolve_out, tools_out
from .wire import (
    ERROR,
    IGNORED,
    MOST_TTL,
    SESSION_HEADER,
    TTL,
    Envelope,
    EnvelopeReader,
    Kind,
    answer_in,
    envelope_out,
    id_out,
)


class OpenCall(Struct):
    """A call that has not been answered yet."""

    id: Id
    envelope: Envelope
    op: object
    stream: bool = False
    events: int = 0


class IatState(Struct):
    """The state of a conversation that outlasts one exchange."""

    me: str = "host"
    to: str = ""
    """The name of the agent to which the messages are addressed."""
    token: str = ""
    """The session token of the other side, which every message carries."""
    given: str = ""
    """The session token that the other side got from us when it registered. Messages carry it as
    long as there is none of the other side; the first one, which may be read by anybody at the
    address that it named, does not."""
    flat: bool = False
    """Whether the other side knows only the flat form."""


class IatCaller(CallerSession):
    """The caller's side of one conversation."""

    def __init__(
        self,
        *,
        state: IatState | None = None,
        me: str = "host",
        to: str = "",
        flat: bool = False,
        greeting: str = "HELO",
        now: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.state = state or IatState(me, to, "", "", flat)
        self.hears_posts = False
        """Whether the other side may acknowledge an `execute`, and post its events to us."""
        self.acknowledged = False
        """Whether it has done so."""
        self._ttl, self._trace, self._cursor, self._key, self._deadline = TTL, "", "", "", ""
        self._tools: tuple[Tool, ...] = ()
        """The tools that an `execute` allows."""
        self._greeting = greeting
        """The greeting: `HELO` from a host, `register` from an agent that joins one."""
        self._now = now
        self._new_id = new_id
        self._open: dict[str, OpenCall] = {}
        self._repeated: tuple[Frame, ...] = ()
        self.read: Callable[[bytes], Envelope] = EnvelopeReader()

    def using(self, ctx: Context) -> None:
        """Sets the context of the next call: tools, trace, position in the stream and remaining
        hops."""
        self._tools = tuple(t if isinstance(t, Tool) else Tool(name=t) for t in ctx.tools)
        self._trace = ctx.trace
        self._cursor = "" if ctx.cursor is None else str(ctx.cursor)
        self._key = ctx.idempotency_key
        self._deadline = "" if ctx.deadline is None else f"{ctx.deadline:.3f}"
        self._ttl = max(0, min(MOST_TTL - ctx.hops, MOST_TTL)) if ctx.hops else TTL

    def repeated(self) -> Iterable[Frame]:
        """Returns the frames to send again in the flat form."""
        frames, self._repeated = self._repeated, ()
        return frames

    def abandon(self, id: Id) -> None:
        """Forgets a call whose answer nobody waits for any more."""
        self._open = {name: each for name, each in self._open.items() if each.id != id}

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, `Introduction` or `Ping`, or no frame if IAT cannot
        express it."""
        match signal:
            case signals.Call(op=Resolve() as op):
                parent, payload = resolve_out(op)
                return self._ask(signal, Kind.RESPONSE, "", payload, op, parent)
            case signals.Call(op=op):
                found = operation_out(op)
                if found is None:
                    return ()
                action, payload = found
                if action == "execute":
                    payload |= self._allowed()
                    if not signal.stream and not signal.silent:
                        # On a WebSocket every caller gets a stream by default.
                        payload["stream"] = False
                kind = Kind.NOTIFICATION if signal.silent else Kind.REQUEST
                return self._ask(signal, kind, action, payload, op)
            case signals.Introduction():
                action = self._greeting if signal.card is not None else "grant_tool"
                payload = introduction_out(signal)
                if signal.card is None:
                    payload = {"tool": tools_out(signal.tools)[0]} if signal.tools else {}
                return self._ask(signal, Kind.REQUEST, action, payload, signal)
            case signals.Ping():
                return self._ask(signal, Kind.REQUEST, "pulse", {}, signal)
            case _:
                return ()

    def _allowed(self) -> Payload:
        payload: Payload = {}
        if self._tools:
            payload["allowed_tools"] = [tool.name for tool in self._tools]
            payload["tools"] = tools_out(self._tools)
        return payload

    def _ask(
        self,
        signal: signals.Call | signals.Introduction | signals.Ping,
        kind: Kind,
        action: str,
        payload: Payload,
        op: object,
        parent: str = "",
    ) -> Iterable[Frame]:
        id = signal.id
        msg_id = self._new_id() if id is None else id_out(id)
        given = "" if isinstance(signal, signals.Introduction) else self.state.given
        if isinstance(op, CancelTask | GetTask | Watch):
            # An agent that names no tasks knows them by the `execute`, whose id we then use.
            parent = op.task_id
        envelope = Envelope(
            kind=kind,
            action=action,
            payload=payload,
            id=msg_id,
            parent=parent,
            sender=self.state.me,
            to=self.state.to,
            at=self._now(),
            trace=self._trace or msg_id,
            ttl=self._ttl,
            token=self.state.token or given,
            cursor=self._cursor,
            key=self._key,
            deadline=self._deadline,
        )
        if self.state.flat:
            envelope = _flatten(envelope)
        streams = isinstance(signal, signals.Call) and signal.stream
        if not (isinstance(signal, signals.Call) and signal.silent):
            # In the flat form, an answer to a question has the id of the question, and so has the
            # response to that answer.
            name = parent if envelope.flat and kind is Kind.RESPONSE else envelope.id
            self._open[name] = OpenCall(id, envelope, op, streams)
        return (self._frame(envelope, streams),)

    def _frame(self, envelope: Envelope, stream: bool) -> Frame:
        accept = "text/event-stream, application/json" if stream else "application/json"
        headers = {"content-type": "application/json", "accept": accept}
        if self.state.token:
            # The token is in the envelope too. In a header it is seen before a large body is read.
            headers[SESSION_HEADER] = self.state.token
        return Frame(envelope_out(envelope), "POST", headers)

    def expects(self, frame: Frame) -> bool:
        """Returns whether an envelope belongs to a call of this side."""
        envelope = self._envelope(frame)
        if envelope is None:
            return False
        if envelope.parent not in self._open:
            return envelope.action == IGNORED and self._find_nested() is not None
        return envelope.kind is not Kind.REQUEST or envelope.action in ASK_OF

    def echoes(self, frame: Frame) -> bool:
        """Returns whether this is our own request that came back: a hub may send every message to
        every agent."""
        envelope = self._envelope(frame)
        return envelope is not None and envelope.kind is Kind.REQUEST and envelope.id in self._open

    def _envelope(self, frame: Frame) -> Envelope | None:
        """Returns the envelope in a frame, if a call of ours waits for one."""
        try:
            return self.read(frame.body) if self._open else None
        except DragomanError:
            return None

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a whole response, or of one envelope of a stream."""
        status = frame.status or 200
        try:
            envelope = answer_in(frame.body, self.read)
        except PeerMisbehaved as error:
            if status < 300:
                return self._acknowledged(frame.body, error)
            reason = errors.error_for(status, frame.body) if status >= 400 else error
            return (self._fault(self._find(""), reason),)
        found = self._find(envelope.parent)
        if found is None and envelope.action == IGNORED:
            found = self._find_nested()  # they do not return our ids, but answer in order
        if found is None:
            return (signals.Fault(None, PeerMisbehaved("This answers nothing that was asked")),)
        unseen = envelope.fault and envelope.flat and not envelope.id and not found.envelope.flat
        if envelope.action == IGNORED or unseen:
            return self._again(found)
        try:
            return self._read_answer(found, envelope)
        except DragomanError as error:
            return (self._fault(found, error),)
        except (msgspec.ValidationError, RecursionError) as exc:
            return (self._fault(found, PeerMisbehaved(str(exc))),)

    def _read_answer(self, found: OpenCall, envelope: Envelope) -> Iterable[Signal]:
        payload, over = envelope.payload, envelope.kind is Kind.RESPONSE
        action = {"task_result": DONE}.get(envelope.action, envelope.action)
        if over and (is_call_error(action, payload) or (envelope.fault and action != DONE)):
            raise errors.error_in(
                payload.get(ERROR, payload.get("message", payload.get("content")))
            )
        if over and isinstance(found.op, signals.Introduction):
            token = payload.get("session_token")
            self.state.token = token if isinstance(token, str) else self.state.token
        if over and isinstance(found.op, signals.Introduction | signals.Ping):
            answer = _introduction_or_welcome(found, envelope)
            if isinstance(answer, signals.Introduction):
                self.state.to = self.state.to or answer.who
            return (self._done(found, answer),)
        if over and isinstance(found.op, Invoke):
            return (self._done(found, signals.Result(found.id, payload.get("result"))),)
        if not found.stream:
            if not over:
                return ()  # events for a caller that waits only for the end
            return (
                self._done(
                    found,
                    signals.Result(found.id, task_in(payload, found.envelope.id, envelope.at)),
                ),
            )
        if envelope.kind is Kind.REQUEST and "question" not in payload:
            task_id, question = question_in(envelope.id)
            ours = bool(task_id) and task_id == payload.get("task_id")
            payload = {**payload, "question": question if ours else THEIRS + envelope.id}
        found.events += 1
        entry = entry_in(
            envelope.kind, action, payload, found.envelope.id, found.events, envelope.at
        )
        if not over:
            return (signals.Update(found.id, entry),)
        if self.hears_posts and _goes_on(entry):
            self.acknowledged = True
            return (signals.Update(found.id, entry),)
        return (signals.Update(found.id, entry), self._done(found, signals.End(found.id)))

    def _again(self, found: OpenCall) -> Iterable[Signal]:
        """Prepares the call to be sent again in the flat form, once, because the other side does
        not know the nested form."""
        if found.envelope.flat:
            return (self._fault(found, VersionUnsupported("The agent ignores both forms")),)
        self.state.flat = True
        found.envelope = _flatten(found.envelope)
        self._repeated = (*self._repeated, self._frame(found.envelope, found.stream))
        return ()

    def _acknowledged(self, body: bytes, error: PeerMisbehaved) -> Iterable[Signal]:
        """Handles a success without an envelope. It acknowledges what needs no result: an answer, a
        greeting, a heartbeat, a `terminate`. The requirement does not say how."""
        found = self._find("")
        if found is None:
            return ()
        if is_jsonrpc(body):
            return (self._fault(found, PeerMisbehaved("The other side speaks JSON-RPC, not IAT")),)
        match found.op:
            case Resolve() | signals.Introduction() | signals.Ping():
                return (self._done(found, signals.Result(found.id, None)),)
            case CancelTask(task_id=task_id):
                ended = Task(id=task_id, context_id="", status=Status(State.CANCELED, self._now()))
                return (self._done(found, signals.Result(found.id, ended)),)
            case SendMessage() if found.stream and self.hears_posts:
                self.acknowledged = True
                found.events += 1
                entry = Stamped(
                    found.envelope.id,
                    "",
                    found.events,
                    self._now(),
                    StateChanged(state=State.SUBMITTED),
                )
                return (signals.Update(found.id, entry),)
        if body:
            return (self._fault(found, error),)
        return (self._fault(found, PeerMisbehaved("The other side sent no result")),)

    def _find(self, parent: str) -> OpenCall | None:
        """Returns the call that an answer is for. Peers lose ids, so if only one call is open, it
        is that one."""
        if parent in self._open:
            return self._open[parent]
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def _find_nested(self) -> OpenCall | None:
        """Returns the first open call that was sent in the nested form."""
        return next((each for each in self._open.values() if not each.envelope.flat), None)

    def _done(
        self, found: OpenCall, signal: signals.Result | signals.End | signals.Introduction
    ) -> Signal:
        self._open = {name: each for name, each in self._open.items() if each is not found}
        return signal

    def _fault(self, found: OpenCall | None, error: DragomanError) -> signals.Fault:
        if found is None:
            return signals.Fault(None, error)
        self._open = {name: each for name, each in self._open.items() if each is not found}
        return signals.Fault(found.id, error)


def _goes_on(entry: Stamped | Message) -> bool:
    """Returns whether a response only acknowledges an `execute`."""
    return (
        isinstance(entry, Stamped)
        and isinstance(entry.event, StateChanged)
        and entry.event.state not in FINAL
    )


class IatConversation(CallerConversation):
    """All exchanges of a caller with one agent."""

    def __init__(self, identity: CallerIdentity) -> None:
        self._identity = identity
        self._state = IatState(identity.me, identity.to, given=identity.token)

    @property
    def recognized(self) -> bool:
        """Whether there is a session token."""
        return bool(self._state.token)

    @property
    def token(self) -> str:
        """The session token; empty if there is none."""
        return self._state.token

    def begin(self) -> IatCaller:
        """Returns a session for one exchange or one WebSocket."""
        greeting = "register" if self._identity.joins else "HELO"
        now, new_id = self._identity.now, self._identity.new_id
        return IatCaller(state=self._state, greeting=greeting, now=now, new_id=new_id)

    def forget(self) -> None:
        """Drops the token."""
        self._state.token = ""

    def name_peer(self, name: str) -> None:
        """Sets the name that messages have in `to`."""
        self._state.to = self._state.to or name


def _introduction_or_welcome(
    found: OpenCall, envelope: Envelope
) -> signals.Result | signals.Introduction:
    """Decodes the answer to an introduction: a card with tools is the other side's introduction,
    anything else is a welcome and is returned unchanged."""
    payload = envelope.payload
    if (
        isinstance(found.op, signals.Introduction)
        and found.op.card is not None
        and "tools" in payload
    ):
        return introduction_in(found.id, envelope)
    welcome: Json = {key: value for key, value in payload.items() if key != "action"}
    return signals.Result(found.id, welcome)


def _flatten(envelope: Envelope) -> Envelope:
    """Returns the payload in the flat form, with the names that real agents know."""
    if envelope.action != "execute":
        return msgspec.structs.replace(envelope, flat=True)
    payload = {"content": envelope.payload.get("query", ""), **envelope.payload}
    payload.pop("query", None)
    return msgspec.structs.replace(envelope, flat=True, action="execute_task", payload=payload)
