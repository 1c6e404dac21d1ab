"""A2A over gRPC, any version, the side that asks. One rpc is one exchange, and no I/O.

    caller = GrpcCaller("1.0", extensions=(CURSOR,), tenant="acme")
    (frame,) = caller.send(Call(None, op, stream=False))

`frame.target` is the path of the rpc ("/lf.a2a.v1.A2AService/GetTask"), `frame.body` the request's
bytes (the transport's serializers are the identity), `frame.headers` the metadata to send. An
operation that the version has no rpc for gives no frame. Whether the rpc is unary or a stream is
the `stream` of the call. What comes back is handed to `receive` as one frame each:

    Frame(body, status=0)                       a response, or one message of a stream
    Frame(b"", status=0)                        a stream that has ended
    failed(code, text, details)                 the rpc failed: the number of its status code, its
                                                text, and `grpc-status-details-bin` of its trailers

and gives `Result`, `Update` (with `End` after the last that can come) or `Fault`. An event's seq is
known where the server has the cursor extension and `CURSOR` is among the extensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dragoman.core import errors as e
from dragoman.core.operations import AnyOperation, Invoke
from dragoman.core.session import Call, End, Fault, Frame, Result, Session, Signal, Update

from .. import errors
from ..proto import Proto, reader
from ..scalars import Wrong
from ..stream_end import Ending
from ..v0_3 import grpc as old
from ..v1_0 import grpc as new
from .callee import CODES, NAMES_0_3, VERSIONS
from .decode import event_in
from .methods import METHODS
from .service import Rpc, RpcService

__all__ = ["GrpcCaller", "error_in", "failed"]

SERVICES: dict[str, RpcService] = {each.version: each for each in (new.SERVICE, old.SERVICE)}
_RPCS: dict[tuple[str, type[AnyOperation], bool], tuple[str, Rpc]] = {
    (service.name, rpc.op, rpc.stream): (f"/{service.name}/{name}", rpc)
    for service in (*SERVICES.values(), METHODS)
    # They are reversed, so that the first of two names for the same operation is kept.
    for name, rpc in reversed(list(service.rpcs.items()))
}


class GrpcCaller(Session):
    """The caller's side of one exchange, in one version ("1.0" or "0.3")."""

    def __init__(
        self, version: str = "1.0", extensions: Iterable[str] = (), tenant: str = ""
    ) -> None:
        self._service = SERVICES[version]
        self._tenant = tenant
        self._open: tuple[Call, Rpc] | None = None
        self._ending = Ending()
        self._headers = {"a2a-version": version}
        if uris := ", ".join(extensions):
            self._headers[VERSIONS[version].extensions_header] = uris

    def send(self, signal: Signal) -> Iterable[Frame]:
        """Returns the request for a `Call`, or no frame if this version cannot express it."""
        if not isinstance(signal, Call):
            return ()
        own = isinstance(signal.op, Invoke)
        service = METHODS if own else self._service
        found = _RPCS.get((service.name, type(signal.op), signal.stream))
        if found is None:
            return ()
        path, rpc = found
        try:
            fields = rpc.op_out(signal.op)
        except Wrong as wrong:
            raise e.BadParams(str(wrong)) from None
        headers = {**self._headers, "a2a-version": METHODS.version} if own else self._headers
        if self._tenant and service.tenants:
            fields = {**fields, "tenant": self._tenant}
        if not signal.silent:  # gRPC has no notifications: the answer is ignored
            self._open, self._ending = (signal, rpc), Ending()
        return (Frame(rpc.write_request(fields), path, headers),)

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Returns the signals of a response, of one message of a stream, of its end or of a
        failure."""
        if self._open is None:
            return ()
        call, rpc = self._open
        if frame.status:
            text = frame.headers.get("grpc-message", "")
            error = error_in(frame.status, text, frame.body)
            return self._done(Fault(call.id, errors.refine(error, call.op)))
        try:
            if not call.stream:
                return self._done(Result(call.id, rpc.answer_in(rpc.read_response(frame.body))))
            if not frame.body:
                return self._done(End(call.id))
            service = self._service
            entry, last = event_in(service.words, service.read_step(frame.body))
        except Wrong as wrong:
            return self._done(Fault(call.id, e.PeerMisbehaved(str(wrong))))
        except e.DragomanError as error:
            return self._done(Fault(call.id, error))
        if not self._ending.is_last(entry, last):
            return (Update(call.id, entry),)
        return (Update(call.id, entry), *self._done(End(call.id)))

    def _done(self, signal: Signal) -> Iterable[Signal]:
        self._open = None
        return (signal,)


def failed(code: int, text: str = "", details: bytes = b"") -> Frame:
    """Returns the frame for an rpc that failed."""
    return Frame(details, "", {"grpc-message": text}, code or CODES["INTERNAL"])


# Errors

_MEANINGS: dict[int, type[e.DragomanError]] = {
    CODES[name]: cls
    for name, cls in {
        "INVALID_ARGUMENT": e.BadParams,
        "DEADLINE_EXCEEDED": e.AgentTimedOut,
        "NOT_FOUND": e.TaskNotFound,
        "ALREADY_EXISTS": e.Conflict,
        "PERMISSION_DENIED": e.Forbidden,
        "RESOURCE_EXHAUSTED": e.TooMany,
        "FAILED_PRECONDITION": e.Unsupported,
        "UNIMPLEMENTED": e.UnknownMethod,
        "UNAVAILABLE": e.StoreUnavailable,
        "UNAUTHENTICATED": e.Unauthenticated,
    }.items()
}
"""The errors by status code, for a failure without further information."""
_REASONS = {spelling.reason: spelling.code for spelling in errors.SPELLINGS.values()}
_NAMES = {name: code for code, name in NAMES_0_3.items()}
_NAMED = re.compile(r"(\w+Error): (.*)", re.DOTALL).fullmatch
_TOO_LARGE = re.compile(r"larger than max|too large").search
"""The text that tells a message that is too large from too many calls: gRPC has one code for both,
and only the second may be retried."""

_read_status = reader("google.rpc.Status")
_read_info = reader("google.rpc.ErrorInfo")


def error_in(code: int, text: str, details: bytes = b"") -> e.DragomanError:
    """Returns the error with which an rpc failed: 1.0 has it in the details, 0.3 at the beginning
    of the text, and some servers of 0.3 have both."""
    info = _info_in(details)
    data = [{"@type": errors.INFO, "metadata": dict(info.metadata)}] if info else None
    if (named := _NAMED(text)) and named[1] in _NAMES:
        return errors.error_in(_NAMES[named[1]], named[2], data)
    if info and info.reason in _REASONS:
        return errors.error_in(_REASONS[info.reason], text, data)
    cls = _MEANINGS.get(code)
    if cls is None:
        return e.PeerRefused(text or f"The rpc failed with status {code}", code=code)
    return (e.TooLarge if cls is e.TooMany and _TOO_LARGE(text) else cls)(text)


def _info_in(details: bytes) -> Proto | None:
    if not details:
        return None
    try:
        for detail in _read_status(details).details:
            if detail.type_url == errors.INFO:
                return _read_info(detail.value)
    except Wrong:  # other servers put something else there
        pass
    return None
