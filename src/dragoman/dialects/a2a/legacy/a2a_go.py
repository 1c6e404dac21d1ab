"""The community a2a-go (a2aserver/a2a-go of April 2025), both sides: a variant of 0.1.

It has its own names for states (pending, processing) and none for a task that waits, which is sent
as processing, with the state in the metadata (dialects §4.5). In a stream only the first event is a
JSON-RPC response; the others are bare and have names. It never sends the history. If a request
cannot be read, it answers with an HTTP error. Its JSON-RPC version is "2.0" or "0". Our stream
closes after the last event; the original leaves that to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from dragoman.core.errors import (
    BadParams,
    ContentTypeUnsupported,
    Malformed,
    UnknownMethod,
    Unparseable,
)
from dragoman.core.events import Snapshot, Stamped, StateChanged
from dragoman.core.lifecycle import FINAL
from dragoman.core.model import Hook, Json, Message, State, Task
from dragoman.core.operations import AnyOperation, GetHook, SendMessage, SetHook, Watch
from dragoman.core.session import Call, End, Fault, Frame, Id, Result, Session, Signal, Update

from ... import jsonrpc
from ...jsonrpc import NO_PARAMS
from .. import errors, extensions
from ..callee import NOTHING
from ..jsonrpc import JSON_TYPES, NO_CONTENT, RpcCaller
from ..members import Bag
from ..scalars import Wrong, seq_in
from ..version import RpcMethod, Version
from .bare_stream import BareStreamCaller
from .v0_1 import V0_1, EventEncoder, calls, wire
from .v0_1.convert import STATES_OUT, Flavour, task_out

STATES = {
    **STATES_OUT,
    State.SUBMITTED: "pending",
    State.WORKING: "processing",
    State.INPUT_REQUIRED: "processing",
    State.AUTH_REQUIRED: "processing",
}
HINT = "a2aState"
GO = Flavour(STATES, beside=True, history=False, hint=HINT)
RPC_RESULT, STATUS, ARTIFACT = "rpc_result", "task_status_update", "task_artifact_update"
WRONG_TYPE = ContentTypeUnsupported("Expected application/json")
RESUBSCRIBED = {"status": "resubscription initiated"}


def send_in(params: wire.SendParams) -> SendMessage:
    """Reads a send, and creates an id for callers that send none."""
    return calls.named_send_in(params, calls.id_in(params.id) if params.id else "")


def config_out(hook: Hook, op: SetHook | GetHook) -> wire.PushConfig:
    return calls.hook_out(hook)


def config_in(raw: Raw) -> Hook:
    return calls.hook_in(_read_config(raw), "")


def got_in(raw: Raw) -> Task:
    task = calls.got_in(raw)
    state, metadata = take_hint(task.metadata, task.state)
    return replace(task, status=replace(task.status, state=state), metadata=metadata)


def event_in(raw: Raw, seq: int) -> tuple[Stamped | Message, bool]:
    entry, last = calls.event_in(raw, seq)
    if isinstance(entry, Stamped) and isinstance(entry.event, StateChanged):
        state, metadata = take_hint(entry.event.metadata, entry.event.state)
        entry = replace(entry, event=replace(entry.event, state=state, metadata=metadata))
    return entry, last


def take_hint(metadata: Bag, state: State) -> tuple[State, Bag]:
    """Returns the state in the metadata, for which there is no name, and the rest of the
    metadata."""
    hint = (metadata or {}).get(HINT)
    if not metadata or not isinstance(hint, str) or hint not in set(State):
        return state, metadata
    return State(hint), {key: value for key, value in metadata.items() if key != HINT} or None


_read_config = msgspec.json.Decoder(wire.PushConfig).decode


def _methods() -> dict[str, RpcMethod]:
    found = calls.methods(GO)
    for name in ("tasks/send", "tasks/sendSubscribe"):
        found[name] = replace(found[name], op_in=send_in)
    for name in ("tasks/send", "tasks/get", "tasks/cancel"):
        found[name] = replace(found[name], result_in=got_in)
    for name in ("tasks/pushNotification/set", "tasks/pushNotification/get"):
        found[name] = replace(found[name], result_out=config_out, result_in=config_in)
    del found["tasks/stream"]
    return found


A2A_GO = Version(
    name="",
    dialect="a2a-go",
    extensions_header="x-a2a-extensions",
    methods=_methods(),
    event_out=lambda entry, notes: EventEncoder(GO).event_out(entry, notes),
    event_in=event_in,
    spellings=errors.SPELLINGS
    | {cls: replace(errors.SPELLINGS[cls], rpc=400) for cls in (Unparseable, Malformed)},
    details=V0_1.details,
)


class OldRequest(Struct, frozen=True, gc=False):
    """A request of the JSON-RPC version "0"."""

    method: str
    jsonrpc: Literal["0"]
    id: Id | UnsetType = UNSET
    params: Raw = NO_PARAMS


_read_old = msgspec.json.Decoder(OldRequest).decode


def request_in(body: bytes) -> jsonrpc.Request | OldRequest | Fault:
    found = jsonrpc.request_in(body)
    if isinstance(found, Fault) and type(found.error) is Malformed:
        with suppress(msgspec.DecodeError):
            return _read_old(body)
    return found


class GoCallee(Session):
    """The callee's side of one exchange."""

    dialect = A2A_GO.dialect
    tenant = ""
    extensions_header = A2A_GO.extensions_header
    extensions: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._encoder = EventEncoder(GO)
        self._request: tuple[RpcMethod, AnyOperation] | None = None
        self._silent = False
        self._begun = False

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields one `Call` or one `Fault`."""
        self.extensions = extensions.extensions_in(frame.headers)
        if jsonrpc.bare_type(frame.headers.get("content-type", "")) not in JSON_TYPES:
            # The original accepts any content type, but then any web page could send a request (as
            # in `jsonrpc`).
            return (Fault(jsonrpc.id_in(jsonrpc.request_in(frame.body)), WRONG_TYPE),)
        request = request_in(frame.body)
        if isinstance(request, Fault):
            return (request,)
        id = None if request.id is UNSET else request.id
        method = A2A_GO.methods.get(request.method)
        if method is None:
            return (Fault(id, UnknownMethod(f"There is no method {request.method[:80]!r}")),)
        self._silent = request.id is UNSET and not method.stream
        given = request.params
        try:
            op = method.op_in(method.decode(given if given != jsonrpc.NULL else NO_PARAMS))
        except (msgspec.DecodeError, Wrong) as exc:
            return (Fault(id, BadParams(str(exc).replace(" | null`", "`"))),)
        self._request = method, op
        return (Call(id, op, method.stream, self._silent),)

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the frames of a signal; a stream begins with a JSON-RPC response."""
        match signal:
            case Update():
                return self._update(signal)
            case Result() if not self._silent and self._request is not None:
                method, op = self._request
                result = method.result_out(signal.value, op)
                return (Frame(jsonrpc.encode(jsonrpc.ResultOut(signal.id, result)), status=200),)
            case Result():
                return (NO_CONTENT,)
            case Fault():
                return (self._failure(signal),)
        return ()

    def _update(self, update: Update) -> Iterable[Frame]:
        entry = update.entry
        mark = str(entry.seq) if isinstance(entry, Stamped) else ""
        event = self._encoder.event_out(entry, False)
        frames: list[Frame] = []
        if not self._begun:
            self._begun = True
            watching = self._request is not None and isinstance(self._request[1], Watch)
            task = None if watching else calls.task_of(entry)
            result: object = task_out(task, GO) if task is not None else RESUBSCRIBED
            body = jsonrpc.encode(jsonrpc.ResultOut(update.id, result))
            if task is not None:  # the event would contain nothing else
                return (Frame(body, "", NOTHING, 200, mark, RPC_RESULT),)
            frames.append(Frame(body, "", NOTHING, 200, "", RPC_RESULT))
        name = STATUS
        if isinstance(event, wire.ArtifactUpdate):
            name, event = ARTIFACT, replace(event, final=event.artifact.last_chunk)
        frames.append(Frame(jsonrpc.encode(event), "", NOTHING, 200, mark, name))
        return frames

    def _failure(self, fault: Fault) -> Frame:
        error = fault.error
        spelling = errors.spelling_of(error, A2A_GO.spellings)
        status = 415 if error is WRONG_TYPE else spelling.rpc
        message = errors.message_out(error, spelling)
        body = jsonrpc.Error(spelling.code, message, A2A_GO.details(error))
        return Frame(jsonrpc.encode(jsonrpc.FailureOut(fault.id, body)), "", NOTHING, status)


class BareEvent(Struct, frozen=True, gc=False):
    """The members of an event that tell it from a response."""

    jsonrpc: str | None = None
    status: Json = None
    artifact: Json = None


_read_bare = msgspec.json.Decoder(BareEvent).decode


class GoCaller(BareStreamCaller):
    """The caller's side of one exchange."""

    def __init__(self) -> None:
        super().__init__(A2A_GO)

    def _receive_event(self, call: Call, frame: Frame) -> Iterable[Signal]:
        found = _read_bare(frame.body)
        if found.jsonrpc is None and (found.status is not None or found.artifact is not None):
            return self._signals(call.id, *event_in(Raw(frame.body), seq_in(frame.mark)))
        response = jsonrpc.response_in(frame.body)
        if response.error is not None:
            return RpcCaller.receive(self, frame)
        if _read_bare(response.result).status == RESUBSCRIBED["status"]:
            return ()
        task = got_in(response.result)
        begin = Snapshot(task=task)
        entry = Stamped(task.id, task.context_id, seq_in(frame.mark), task.status.at, begin)
        return self._signals(call.id, entry, task.state in FINAL)

    def _signals(self, id: Id, entry: Stamped | Message, last: bool) -> Iterable[Signal]:
        if not last:
            return (Update(id, entry),)
        del self._open[id]
        return (Update(id, entry), End(id))
