"""The callee's side of A2A over gRPC, in any version. One rpc is one exchange.

The path of a call names the version (a2a-wire §15.4); the a2a-version metadata must not contradict
it. The target of a frame is that path, its body is the protobuf message without the framing of
gRPC. The frame of an error has the status code of gRPC, the text for people as the header
`grpc-message`, and a google.rpc.Status as its body, for `grpc-status-details-bin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from dragoman.core import errors as e
from dragoman.core.events import Stamped
from dragoman.core.extensions import CURSOR
from dragoman.core.model import Json
from dragoman.core.operations import Operation
from dragoman.core.session import Call, Fault, Frame, Result, Signal, Update

from .. import errors, v0_3, v1_0
from ..callee import NOTHING, A2ACallee
from ..jsonrpc import SUPPORTED, version_in
from ..proto import Proto, writer
from ..scalars import Wrong
from ..v0_3 import grpc as old
from ..v1_0 import grpc as new
from ..version import Version
from .methods import METHODS as METHODS
from .service import Rpc, RpcService

SERVICES = (new.SERVICE, old.SERVICE, METHODS)
VERSIONS: dict[str, Version] = {
    each.name: replace(each, dialect=f"{each.dialect}-grpc") for each in (v1_0.V1_0, v0_3.V0_3)
}
RPCS: dict[str, tuple[RpcService, Rpc]] = {
    f"/{service.name}/{name}": (service, found)
    for service in SERVICES
    for name, found in service.rpcs.items()
}

# Errors


CODES = {
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}
"""The status codes of gRPC that we use, by the names in `errors.SPELLINGS`."""
CODES_0_3 = {
    # The SDKs of 0.3 use these codes; the specification defines none (a2a-wire §12.1).
    **dict.fromkeys((-32002, -32003, -32004, -32005, -32007), "UNIMPLEMENTED"),
}
MOST_TEXT = 400
"""The maximum number of characters of an error's text. It is in the trailers up to three times, and
clients accept no more than 8 KiB of them."""
NAMES_0_3 = {
    -32700: "JSONParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
    -32001: "TaskNotFoundError",
    -32002: "TaskNotCancelableError",
    -32003: "PushNotificationNotSupportedError",
    -32004: "UnsupportedOperationError",
    -32005: "ContentTypeNotSupportedError",
    -32006: "InvalidAgentResponseError",
    -32007: "AuthenticatedExtendedCardNotConfiguredError",
    -32008: "ExtensionSupportRequiredError",
    -32009: "VersionNotSupportedError",
}
"""The names that clients of 0.3 look for at the beginning of the text (a2a-wire §12.4)."""


PUBLIC_CARD_RPCS = frozenset(
    f"/{old.SERVICE.name}/{name}" for name in ("GetAgentCard", "GetExtendedAgentCard")
)
"""The rpcs that answer with the public card where there is no extended one: 0.3 has one rpc for
cards, and its name asks for any. Over JSON-RPC and REST that is an error (0.3 §7.10)."""

_write_status = writer("google.rpc.Status")
_write_info = writer("google.rpc.ErrorInfo")
_write_bad_request = writer("google.rpc.BadRequest")


def failure_1_0(error: e.DragomanError) -> Frame:
    """Returns a google.rpc.Status with the same details as over JSON-RPC (1.0 §10.6)."""
    spelling = errors.spelling_of(error)
    code, text = CODES[spelling.grpc], errors.message_out(error, spelling)[:MOST_TEXT]
    return _failure(error, code, text)


def _failure(error: e.DragomanError, code: int, text: str) -> Frame:
    details = [
        {"type_url": detail["@type"], "value": _DETAILS[detail["@type"]](detail)}
        for detail in errors.details_1_0(error)
    ]
    status = _write_status({"code": code, "message": text, "details": details})
    return Frame(status, "", {"grpc-message": text}, code)


_DETAILS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    errors.INFO: lambda detail: _write_info(
        {key: value for key, value in detail.items() if key != "@type"}
    ),
    errors.BAD_REQUEST: lambda detail: _write_bad_request(
        {
            "field_violations": [
                {"field": each["field"], "description": each["description"][:MOST_TEXT]}
                for each in detail["fieldViolations"]
            ]
        }
    ),
}


def failure_0_3(error: e.DragomanError) -> Frame:
    """Returns a code, and a text that begins with the error's name, if 0.3 has one for it. 0.3
    defines no details; a2a-go and @a2a-js/sdk read those of 1.0."""
    spelling = errors.spelling_of(error, errors.SPELLINGS_0_3)
    name = NAMES_0_3.get(spelling.code)
    text = errors.message_out(error, spelling)
    text = f"{name}: {text}" if name else text
    code = CODES[CODES_0_3.get(spelling.code, spelling.grpc)]
    return _failure(error, code, text[:MOST_TEXT])


FAILURES = {"1.0": failure_1_0, "0.3": failure_0_3}


class GrpcCallee(A2ACallee):
    """The callee's side of one rpc."""

    _version = VERSIONS[v1_0.V1_0.name]
    _service: RpcService = new.SERVICE
    _rpc: Rpc | None = None
    _request: Proto = None

    @property
    def tenant(self) -> str:
        """The tenant that the caller named in its request; only 1.0 has it."""
        return getattr(self._request, "tenant", "")

    @cached_property
    def _wants_cursor(self) -> bool:
        return CURSOR in self.extensions

    def receive(self, frame: Frame) -> Iterable[Signal]:
        """Yields one `Call` or one `Fault`."""
        self._headers = headers = frame.headers
        found = RPCS.get(frame.target)
        if found is None:
            return (Fault(None, e.UnknownMethod(f"There is no rpc {frame.target[:120]!r}")),)
        self._service, self._rpc = service, rpc = found
        self._version = VERSIONS[service.version]
        header = headers.get("a2a-version", "")
        named = version_in(header) if header else self._version
        if named is None or named.name != service.version:
            what = f"Version {header[:20]!r} does not go with {service.name} here"
            return (Fault(None, e.VersionUnsupported(what, supported=SUPPORTED)),)
        try:
            self._request = request = rpc.read(frame.body)
            op: Operation[Any] = rpc.op_in(request)
        except Wrong as wrong:
            return (Fault(None, e.BadParams(str(wrong))),)
        return (Call(None, op, rpc.stream),)  # type: ignore[arg-type]  # any operation is one

    def notes(self) -> Iterable[Mapping[str, Json]]:
        """Returns how the request was interpreted where it was ambiguous."""
        if self._rpc is None or self._rpc.notes is None:
            return ()
        return self._rpc.notes(self._request)

    def _answer(self, answer: Result) -> Frame:
        if self._rpc is None:
            raise AssertionError("an answer before a call")
        return Frame(self._rpc.write(self._rpc.answer_out(answer.value)), "", NOTHING, 0)

    def _update(self, update: Update) -> Frame:
        entry, service = update.entry, self._service
        if not isinstance(entry, Stamped):
            return Frame(service.step(service.words.sent_out(entry)), "", NOTHING, 0)
        member, fields = service.words.event_out(entry, notes=self._notes)
        if self._wants_cursor:
            fields["metadata"] = {**(fields.get("metadata") or {}), CURSOR: entry.seq}
        return Frame(service.step({member: fields}), "", NOTHING, 0, str(entry.seq))

    def _failure(self, fault: Fault) -> Frame:
        return FAILURES[self._service.version](fault.error)
