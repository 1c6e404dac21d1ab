"""The spelling of our errors in A2A: one table, which is searched along the MRO, and its inverse
for the caller.

Codes -320xx are those of the specification (1.0 §5.4). An error without such a code, but with an
HTTP status, has the code -31000 minus the status, which is outside of the range that JSON-RPC
reserves; a2a-go does the same for 401 and 403. A peer that does not know these codes still has the
message and, in most cases, the HTTP status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.core import errors as e
from dragoman.core.model import Json
from dragoman.core.operations import AnyOperation, Invoke, SendMessage, SetHook
from dragoman.dialects.refusals import explained, explanation_in

DOMAIN = "a2a-protocol.org"
INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


class Spelling(Struct, frozen=True, gc=False):
    """One error on the wire."""

    code: int
    reason: str
    http: int
    """The status over REST (1.0.1 §5.4)."""
    grpc: str = "FAILED_PRECONDITION"
    """The google.rpc.Code: gRPC's own, and `status` in the REST body (§11.6)."""
    rpc: int = 200
    """The status over JSON-RPC, where an error is a successful response unless it is an error of
    HTTP itself."""


S = Spelling
SPELLINGS: dict[type[e.DragomanError], Spelling] = {
    e.DragomanError: S(-32603, "INTERNAL_ERROR", 500, "INTERNAL"),
    e.Malformed: S(-32600, "INVALID_REQUEST", 400, "INVALID_ARGUMENT"),
    e.CallError: S(-32600, "INVALID_REQUEST", 400, "INVALID_ARGUMENT"),
    e.Unparseable: S(-32700, "PARSE_ERROR", 400, "INVALID_ARGUMENT"),
    e.UnknownMethod: S(-32601, "METHOD_NOT_FOUND", 404, "UNIMPLEMENTED"),
    e.BadParams: S(-32602, "INVALID_PARAMS", 400, "INVALID_ARGUMENT"),
    e.TaskNotFound: S(-32001, "TASK_NOT_FOUND", 404, "NOT_FOUND"),
    # a2a-wire §12.5: this is the answer for a missing webhook in 1.0 and 0.3.
    e.HookNotFound: S(-32001, "TASK_NOT_FOUND", 404, "NOT_FOUND"),
    e.NotCancelable: S(-32002, "TASK_NOT_CANCELABLE", 400),
    e.PushUnsupported: S(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", 400),
    e.Unsupported: S(-32004, "UNSUPPORTED_OPERATION", 400),
    e.TaskFinished: S(-32004, "UNSUPPORTED_OPERATION", 400),
    e.ContentTypeUnsupported: S(-32005, "CONTENT_TYPE_NOT_SUPPORTED", 400, "INVALID_ARGUMENT"),
    e.AgentMisbehaved: S(-32006, "INVALID_AGENT_RESPONSE", 500, "INTERNAL"),
    e.PeerMisbehaved: S(-32006, "INVALID_AGENT_RESPONSE", 500, "INTERNAL"),
    e.CardUntrusted: S(-32006, "INVALID_AGENT_RESPONSE", 500, "INTERNAL"),
    e.NoExtendedCard: S(-32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400),
    # 1.0 §3.1.11: an agent that does not declare an extended card does not support the operation.
    e.ExtendedCardOff: S(-32004, "UNSUPPORTED_OPERATION", 400),
    e.ExtensionRequired: S(-32008, "EXTENSION_SUPPORT_REQUIRED", 400),
    e.VersionUnsupported: S(-32009, "VERSION_NOT_SUPPORTED", 400),
    e.Unauthenticated: S(-31401, "UNAUTHENTICATED", 401, "UNAUTHENTICATED", 401),
    e.Forbidden: S(-31403, "UNAUTHORIZED", 403, "PERMISSION_DENIED", 403),
    e.TooSlow: S(-31408, "REQUEST_TIMEOUT", 408, "DEADLINE_EXCEEDED", 408),
    e.Conflict: S(-31409, "CONFLICT", 409, "ALREADY_EXISTS"),
    e.TooLarge: S(-31413, "REQUEST_TOO_LARGE", 413, "RESOURCE_EXHAUSTED", 413),
    e.TooMany: S(-31429, "TOO_MANY_REQUESTS", 429, "RESOURCE_EXHAUSTED", 429),
    e.StoreUnavailable: S(-31503, "UNAVAILABLE", 503, "UNAVAILABLE", 503),
    e.PeerUnreachable: S(-31503, "UNAVAILABLE", 503, "UNAVAILABLE", 503),
    e.AgentTimedOut: S(-31504, "AGENT_TIMED_OUT", 504, "DEADLINE_EXCEEDED"),
}
# The messages of the specifications' error tables (a2a-wire §12.1), the same in all versions.
WORDS = {
    "PARSE_ERROR": "Invalid JSON payload",
    "INVALID_REQUEST": "Request payload validation error",
    "METHOD_NOT_FOUND": "Method not found",
    "INVALID_PARAMS": "Invalid parameters",
    "INTERNAL_ERROR": "Internal error",
    "TASK_NOT_FOUND": "Task not found",
    "TASK_NOT_CANCELABLE": "Task cannot be canceled",
    "PUSH_NOTIFICATION_NOT_SUPPORTED": "Push Notification is not supported",
    "UNSUPPORTED_OPERATION": "This operation is not supported",
    "CONTENT_TYPE_NOT_SUPPORTED": "Incompatible content types",
    "INVALID_AGENT_RESPONSE": "Invalid agent response",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": "Authenticated Extended Card is not configured",
    "EXTENSION_SUPPORT_REQUIRED": "Extension support required",
    "VERSION_NOT_SUPPORTED": "Version not supported",
    # In no table, but gRPC has no challenge header: the words alone say what is missing.
    "UNAUTHENTICATED": "Authentication required",
}
# 0.3 defines no status; its Python SDK has these (a2a-wire §12.1), and other readers use the body.
_STATUSES_0_3: dict[type[e.DragomanError], int] = {
    e.BadParams: 422,
    e.NotCancelable: 409,
    e.Unsupported: 501,
    e.PushUnsupported: 501,
    e.TaskFinished: 501,
    e.ContentTypeUnsupported: 415,
    e.AgentMisbehaved: 502,
    e.PeerMisbehaved: 502,
    e.CardUntrusted: 502,
    e.NoExtendedCard: 404,
}
SPELLINGS_0_3 = SPELLINGS | {
    cls: replace(SPELLINGS[cls], http=status) for cls, status in _STATUSES_0_3.items()
}
# 0.3 §8 has only one error for both.
SPELLINGS_0_3[e.ExtendedCardOff] = SPELLINGS_0_3[e.NoExtendedCard]

MEANINGS: dict[int, type[e.DragomanError]] = {
    spelling.code: cls for cls, spelling in reversed(SPELLINGS.items())
}
"""The errors by code; if several errors share a code, it means the first one."""
# PeerRefused is better: it is their failure, not ours.
del MEANINGS[SPELLINGS[e.DragomanError].code]

_STATUSES = {
    spelling.http: cls for cls, spelling in reversed(SPELLINGS.items()) if spelling.rpc != 200
}


def spelling_of(
    error: e.DragomanError,
    table: Mapping[type[e.DragomanError], Spelling] = SPELLINGS,
) -> Spelling:
    """Returns the spelling of an error; every error is at least a DragomanError."""
    return next(table[cls] for cls in type(error).__mro__ if cls in table)


def message_out(error: e.DragomanError, spelling: Spelling) -> str:
    """Returns the message of the specification's table, which clients and people look for, followed
    by our own message."""
    words, ours = WORDS.get(spelling.reason, ""), error.message
    return ours if ours.startswith(words) else f"{words}: {ours}"


def error_in(
    code: int,
    message: str,
    data: Json,
    meanings: Mapping[int, type[e.DragomanError]] = MEANINGS,
) -> e.DragomanError:
    """Returns the error that a peer answered with."""
    cls = meanings.get(code)
    error = cls(message) if cls is not None else e.PeerRefused(message, code=code)
    error.public = _public_in(data)
    error.code, error.data = code, data
    return error


def error_for(status: int, body: bytes = b"") -> e.DragomanError:
    """Returns the error for an HTTP status whose body is not of A2A, but may explain it."""
    cls = _STATUSES.get(status)
    if cls is not None:
        return explained(cls(), body)
    refusal = e.PeerRefused(f"The other side answered with HTTP status {status}", code=status)
    return explained(refusal, body)


def details_1_0(error: e.DragomanError, spelling: Spelling | None = None) -> Json:
    """Returns `error.data` and the REST details of 1.0 (§9.5, §11.6): a list of google.rpc
    messages. The spelling is that of 1.0 unless given: 0.3 spells some errors otherwise."""
    info: dict[str, Json] = {
        "@type": INFO,
        "reason": (spelling or spelling_of(error)).reason,
        "domain": DOMAIN,
    }
    if error.public:
        info["metadata"] = _public_out(error)
    if not isinstance(error, e.BadParams):
        return [info]
    field, description = _violation(error)
    return [
        info,
        {
            "@type": BAD_REQUEST,
            "fieldViolations": [{"field": field, "description": description}],
        },
    ]


def details_0_3(error: e.DragomanError) -> Json:
    """Returns `error.data` of 0.3, which may be anything: the public details themselves."""
    return _public_out(error) or None


_MISSING = re.compile(
    r"Object missing required field `(?P<name>.*?)`(?: - at `\$\.?(?P<path>.*)`)?"
)
_PATH = re.compile(r"(?P<what>.*) - at `\$\.?(?P<path>.*)`", re.DOTALL)


def _violation(error: e.BadParams) -> tuple[str, str]:
    """Returns the wrong field and the problem, from the path in the message (`Wrong`, msgspec)."""
    if missing := _MISSING.fullmatch(error.message):
        return ".".join(filter(None, (missing["path"], missing["name"]))), error.message
    if found := _PATH.fullmatch(error.message):
        return found["path"], found["what"]
    return error.public.get("field", ""), error.message


def _public_out(error: e.DragomanError) -> dict[str, str]:
    return {_camel(key): value for key, value in error.public.items()}


def _public_in(data: Json) -> dict[str, str]:
    if isinstance(data, list):
        data = _info(data).get("metadata")
    if not isinstance(data, dict):
        return {}
    return {_snake(key): value for key, value in data.items() if isinstance(value, str)}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda hump: "_" + hump[0].lower(), name)


# REST


class _Status(Struct, frozen=True):
    """The google.rpc.Status of 1.0 §11.6, and the flat members that the SDKs of 0.3 use instead."""

    code: int | None = None
    status: str | None = None
    message: str | None = None
    details: Json = None
    # 0.3
    type: str | None = None
    data: Json = None


class _ErrorBody(_Status, frozen=True):
    error: _Status | None = None


_read_body = msgspec.json.Decoder(_ErrorBody).decode


def body_1_0(error: e.DragomanError, spelling: Spelling, status: int) -> dict[str, Json]:
    """Returns the REST body of 1.0 (§11.6): google.rpc.Status."""
    return {
        "error": {
            "code": status,
            "status": spelling.grpc,
            "message": message_out(error, spelling),
            "details": details_1_0(error, spelling),
        }
    }


def body_0_3(error: e.DragomanError, spelling: Spelling, status: int) -> Json:
    """Returns the REST body of 0.3, which defines none: it has what each of its SDKs looks for
    (D5). a2a-go looks for `error` as in 1.0."""
    body = {
        "code": spelling.code,
        "message": message_out(error, spelling),
        "type": _names_0_3[spelling.code],
        **body_1_0(error, spelling, status),
    }
    data = details_0_3(error)
    return body if data is None else body | {"data": data}


def body_in(body: bytes, status: int) -> e.DragomanError | None:
    """Returns the error in a REST body of any version, or None if it contains none."""
    try:
        read = _read_body(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if status == 404:
            return _missing("", explanation_in(body))
        return error_for(status, body) if status >= 400 else None
    found = read.error or read
    message = found.message or ""
    reason = str(_info(found.details).get("reason"))
    code = _CODES.get(reason) or (found.code if (found.code or 0) < 0 else None)
    code = code or _codes_by_name.get(found.type or "")
    if code is not None:
        return error_in(code, message, found.details if found.details else found.data)
    if status < 400 and read.error is None:
        return None
    if status == 404:
        return _missing(message, explanation_in(body))
    if not message:
        return error_for(status, body)
    error = _MEANINGS_0_3.get(status, type(error_for(status)))
    if error is e.PeerRefused:
        return e.PeerRefused(message, code=status)
    return error(message)


_NO_TASK = re.compile(r"(?i)\btask\b.*\b(not found|not exist|unknown)|\b(no such|unknown) task\b")
_NO_CARD = re.compile(r"(?i)\bcard\b.*\bnot (configured|found)")


def _missing(message: str, explanation: str) -> e.DragomanError:
    """Returns the error for a 404 without a code, for which the Python SDK of 0.3 sends only a
    message. Other words explain it, if there is no message.

    Every web server answers 404 for an unknown path, so only a message about a task means a missing
    task.
    """
    if _NO_TASK.search(message):
        return e.TaskNotFound(message)
    if _NO_CARD.search(message):
        return e.NoExtendedCard(message)
    nothing = "The other side has nothing at this address (HTTP 404)"
    return e.UnknownMethod(message or (f"{nothing}: {explanation}" if explanation else nothing))


def refine(error: e.DragomanError, op: AnyOperation) -> e.DragomanError:
    """Returns the error as an answer to this operation: it cannot be a missing task if the
    operation names none."""
    if not isinstance(error, e.TaskNotFound) or _names_task(op):
        return error
    return e.UnknownMethod(error.message)


def _names_task(op: AnyOperation) -> bool:
    if isinstance(op, SendMessage):
        return bool(op.message.task_id or op.message.references)
    return hasattr(op, "task_id") or isinstance(op, SetHook | Invoke)


_CODES = {s.reason: s.code for s in SPELLINGS.values()}
_names_0_3 = {
    code: "".join(word.title() for word in reason.split("_")) + "Error"
    for reason, code in _CODES.items()
} | {
    -32700: "JSONParseError",
    -32603: "InternalError",
    -32007: "AuthenticatedExtendedCardNotConfiguredError",
}
"""The names of errors in the SDKs of 0.3."""
_codes_by_name = {name: code for code, name in _names_0_3.items()}
# The Python SDK of 0.3 sends only these beside a message.
_MEANINGS_0_3 = {status: cls for cls, status in reversed(_STATUSES_0_3.items())} | {
    400: e.Malformed,
}


def _info(details: Json) -> dict[str, Json]:
    found = details if isinstance(details, list) else ()
    infos = (item for item in found if isinstance(item, dict) and item.get("@type") == INFO)
    return next(infos, {})
