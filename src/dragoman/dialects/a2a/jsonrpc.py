"""A2A over JSON-RPC, in any version, for both sides. An exchange is one request and its answer.

The callee serves all versions at one URL and tells them apart as described in a2a-wire §15.4: the
name of the method determines the version, and the A2A-Version header must not contradict it. A
PascalCase method without the header is treated as 1.0, although the specification would have it be
0.3 (D1), because real clients forget the header.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct

from dragoman.core.errors import (
    BadParams,
    ContentTypeUnsupported,
    DragomanError,
    Malformed,
    PeerMisbehaved,
    UnknownMethod,
    VersionUnsupported,
)
from dragoman.core.events import Stamped
from dragoman.core.model import Message
from dragoman.core.operations import AnyOperation
from dragoman.core.session import (
    Call,
    End,
    Fault,
    Frame,
    Id,
    Result,
    Session,
    Signal,
    Steps,
    Update,
)

from .. import jsonrpc
from . import errors
from .callee import NOTHING, A2ACallee
from .legacy.detect import LOOKS, shared_method
from .legacy.v0_1 import V0_1
from .scalars import Wrong, seq_in
from .stream_end import Ending
from .v0_3 import V0_3
from .v1_0 import V1_0
from .version import OWN, RpcMethod, Version, own_method

NO_CONTENT = Frame(b"", "", NOTHING, 204)
"""The answer to a notification that was executed (JSON-RPC §4.1). One that fails is answered under
the id null, because most callers that send no id have forgotten it and should see the error."""
EVENT_STREAM: Mapping[str, str] = {"content-type": "text/event-stream"}
JSON_TYPES = frozenset({"application/json", "application/a2a+json"})
ACCEPT = {False: "application/json", True: "text/event-stream, application/json"}
"""The Accept header of a caller. A stream that fails at once may be answered in plain JSON
(a2a-wire §11.3)."""
VERSIONS = (V1_0, V0_3)
HEADERS = {"1.0": V1_0, "0.3": V0_3, "0.2": V0_3, "0.1": V0_1}
"""The versions by header. 0.2 is the same as 0.3 on this wire (a2a-wire §8). 0.1 has no header, but
our own caller sends one, and it cannot mean anything else."""
SUPPORTED = ", ".join(version.name for version in VERSIONS)

_METHODS: dict[str, tuple[Version, RpcMethod]] = {
    # The names that 0.1 shares with 0.3 belong to 0.3, unless `LOOKS` finds otherwise.
    name: (version, method)
    for version in (V0_1, *VERSIONS)
    for name, method in version.methods.items()
}
_UNSUPPORTED: dict[str, tuple[Version, type[DragomanError]]] = {
    name: (version, error) for version in VERSIONS for name, error in version.refused.items()
}


class RpcCallee(A2ACallee):
    """The callee's side of one JSON-RPC exchange."""

    _version: Version = V0_3
    _request: tuple[RpcMethod, AnyOperation] | None = None
    _tenant = ""
    _silent = _streams = False
    _wrong_type: DragomanError | None = None

    @property
    def tenant(self) -> str:
        """The tenant that the caller named in its params; only 1.0 has it."""
        return self._tenant

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields one `Call` or one `Fault`."""
        self._headers = headers = frame.headers
        header = headers.get("a2a-version")
        content_type = headers.get("content-type", "")
        if content_type not in JSON_TYPES and jsonrpc.bare_type(content_type) not in JSON_TYPES:
            self._wrong_type = ContentTypeUnsupported("Expected application/json")
            id = jsonrpc.id_in(jsonrpc.request_in(frame.body))
            return (self._refuse(id, self._wrong_type, "", header),)
        request = jsonrpc.request_in(frame.body)
        # `type` is compared, because an `isinstance` that fails costs a search in the metaclass of
        # a Struct.
        if type(request) is not jsonrpc.Request:
            return (self._refuse(request.id, request.error, "", header),)
        self._silent = silent = request.id is UNSET
        id = jsonrpc.id_in(request)
        name = request.method
        found = _METHODS.get(name) or self._find_own(name, header)
        if found is None or (header and version_in(header) is not found[0]):
            found = shared_method(header, name)
            if found is None:
                return (self._refuse(id, self._mismatch(name, header), name, header),)
        self._version, method = found
        self._streams = method.stream
        if silent and method.stream:
            return (Fault(id, Malformed("A stream needs an id")),)
        try:
            given = request.params
            given = given if given != jsonrpc.NULL else jsonrpc.NO_PARAMS
            params = method.decode(given)
            if (not header or found[0] is V0_1) and (look := LOOKS.get(name)) is not None:
                self._version, method = look(params, method, request.id)
                if method is not found[1]:
                    params = method.decode(given)
            op = method.op_in(params)
        except (msgspec.DecodeError, Wrong) as exc:
            # The message of msgspec adds that null is allowed too, which is true for most optional
            # members but does not help anyone.
            return (Fault(id, BadParams(str(exc).replace(" | null`", "`"))),)
        # The params are not kept: they hold the files of a message once more, in base64.
        self._request = method, op
        self._tenant = getattr(params, "tenant", None) or ""
        return (Call(id, op, method.stream, silent),)

    def _find_own(self, name: str, header: str | None) -> tuple[Version, RpcMethod] | None:
        """Returns a method of the agent's own, which belongs to no version: without a header it is
        0.3 (1.0 §3.6.2)."""
        if OWN(name) is None or name in _UNSUPPORTED:
            return None
        version = version_in(header) if header else V0_3
        return (version, own_method(name)) if version is not None else None

    def _mismatch(self, name: str, header: str | None) -> DragomanError:
        """Returns why this caller may not use this method."""
        known = _METHODS.get(name) or _UNSUPPORTED.get(name)
        version = version_in(header) if header else None
        if header and (version is None or (known and known[0] is not version)):
            what = f"Version {header[:20]!r} does not go with {name[:80]!r} here"
            return VersionUnsupported(what, supported=SUPPORTED)
        if name in _UNSUPPORTED:
            return _UNSUPPORTED[name][1]()
        return UnknownMethod(f"There is no method {name[:80]!r}")

    def _refuse(self, id: Id, error: DragomanError, name: str, header: str | None) -> Fault:
        """Returns a fault, in the version that the caller names or else the one that the method
        suggests (D1).

        A caller with an unknown version is answered in 1.0, because only 1.0 has an error for it.
        """
        guess = V1_0 if name and "/" not in name else V0_3
        self._version = version_in(header) or V1_0 if header else guess
        return Fault(id, error)

    def _update(self, update: Update) -> Frame:
        entry = update.entry
        step = self._version.event_out(entry, self._notes)
        mark = str(entry.seq) if isinstance(entry, Stamped) else ""
        return Frame(jsonrpc.encode(jsonrpc.ResultOut(update.id, step)), "", NOTHING, 200, mark)

    def _answer(self, answer: Result) -> Frame:
        if self._silent or self._request is None:
            return NO_CONTENT
        method, op = self._request
        result = method.result_out(answer.value, op)
        return Frame(jsonrpc.encode(jsonrpc.ResultOut(answer.id, result)), "", NOTHING, 200)

    def _failure(self, fault: Fault) -> Frame:
        version, error = self._version, fault.error
        spelling = errors.spelling_of(error, version.spellings)
        # Wrong content in a message is a JSON-RPC error; a wrong Content-Type is an error of HTTP.
        status = 415 if error is self._wrong_type else spelling.rpc
        message = version.words.get(type(error)) or errors.message_out(error, spelling)
        body = jsonrpc.Error(spelling.code, message, version.details(error))
        # Clients of 0.3 read only events from a streaming method (D10), and so does a2a-go, which
        # says so.
        only_events = self._headers.get("accept", "").strip() == "text/event-stream"
        as_event = self._streams and status == 200 and (version.refuses_in_stream or only_events)
        headers = EVENT_STREAM if as_event else NOTHING
        return Frame(jsonrpc.encode(jsonrpc.FailureOut(fault.id, body)), "", headers, status)


def version_in(header: str) -> Version | None:
    """Returns the version that a header names. Patch versions do not count in negotiation (1.0
    §3.6)."""
    return HEADERS.get(header) or HEADERS.get(".".join(header.strip().split(".")[:2]))


class RpcCaller(Session):
    """The caller's side of one exchange, in one version."""

    def __init__(
        self, version: Version = V1_0, extensions: Iterable[str] = (), tenant: str = ""
    ) -> None:
        self._version = version
        self._tenant = tenant
        self._open: dict[Id, tuple[Call, RpcMethod]] = {}
        self._ending = Ending()
        self._stream: Call | None = None
        self._headers = {"content-type": "application/json", "a2a-version": version.name}
        if uris := ", ".join(extensions):
            self._headers[version.extensions_header] = uris

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, or no frame if this version cannot express it."""
        if not isinstance(signal, Call):
            return ()
        row = self._version.find_method(signal.op, stream=signal.stream)
        if row is None:
            return ()
        name, method = row
        params = method.op_out(signal.op)
        if self._tenant and hasattr(params, "tenant"):  # 1.0 §3.1: every request names it
            params = msgspec.structs.replace(params, tenant=self._tenant)
        if signal.silent:
            request: Struct = jsonrpc.NotificationOut(name, params)
        else:
            request = jsonrpc.RequestOut(signal.id, name, params)
            self._open[signal.id] = signal, method
            self._ending = Ending()
            self._stream = signal if signal.stream else None
        headers = {**self._headers, "accept": ACCEPT[signal.stream]}
        return (Frame(jsonrpc.encode(request), "POST", headers),)

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a whole response, or of one event of a stream."""
        body = frame.body
        status = frame.status or 200
        if not body and status < 300:
            return ()
        try:
            response = jsonrpc.response_in(body)
        except PeerMisbehaved as error:
            found = self._find(None)
            reason = errors.error_for(status, body) if status >= 400 else error
            return (self._fault(found[0].id if found else None, reason),)
        found = self._find(response.id)
        if found is None and response.id is None and (refusal := response.error) is not None:
            return (Fault(None, self._refusal(refusal)),)  # the fault of a notification
        if status >= 400 and response.error is None:
            return (self._fault(found[0].id if found else None, errors.error_for(status, body)),)
        if found is None:
            return (Fault(response.id, PeerMisbehaved("This answers nothing that was asked")),)
        call, method = found
        try:
            result = response.result
            if response.error is not None or result == jsonrpc.NULL:
                result = self._result(response, status, method)
            if call.stream:
                event = self._version.event_in(result, seq_in(frame.mark))
                return self._signals_of(call.id, event)
            value = method.result_in(result)
        except DragomanError as error:
            return (self._fault(call.id, error),)
        except (msgspec.DecodeError, Wrong) as exc:
            return (self._fault(call.id, PeerMisbehaved(str(exc))),)
        del self._open[call.id]
        return (Result(call.id, value),)

    def receive_events(self, frames: Sequence[Frame]) -> Steps:
        """Returns the events of a stream: all at once, or one by one if any of them is unusual."""
        read, call = self._version.events_in, self._stream
        if read is not None and call is not None and call.id in self._open and frames:
            found = read(frames, call.id)
            if found is not None:
                entries, last = found
                self._ending.begun = True
                if last:
                    del self._open[call.id]
                return entries, last, None
        return super().receive_events(frames)

    def _signals_of(self, id: Id, event: tuple[Stamped | Message, bool]) -> Iterable[Signal]:
        entry, last = event
        if not self._ending.is_last(entry, last):
            return (Update(id, entry),)
        del self._open[id]
        return (Update(id, entry), End(id))

    def _find(self, id: Id) -> tuple[Call, RpcMethod] | None:
        """Returns the call that an answer is for. Peers lose or change ids, so if only one call is
        open, it is that one."""
        found = self._open.get(id)
        if found is not None:
            return found
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def _fault(self, id: Id, error: DragomanError) -> Fault:
        self._open.pop(id, None)
        return Fault(id, error)

    def _refusal(self, refusal: jsonrpc.Error) -> DragomanError:
        return errors.error_in(
            refusal.code, refusal.message or "", refusal.data, self._version.meanings
        )

    def _result(self, response: jsonrpc.Response, status: int, method: RpcMethod) -> Raw:
        if response.error is not None:
            raise self._refusal(response.error)
        if response.result != jsonrpc.NULL or (method.null and status < 400):
            return response.result
        raise errors.error_for(status) if status >= 400 else PeerMisbehaved("There is no result")
