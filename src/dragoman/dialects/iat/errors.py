"""The spelling of errors in IAT: `{"error": {"code", "message", "details"}}` in a response.

The requirement does not define errors. A code is the name of one of our errors, except for those
that dialects §2.6 names. An error of another vendor may have a word of its own as its code, or be a
plain text.
"""

from __future__ import annotations

from dragoman.core import errors
from dragoman.core.errors import (
    DragomanError,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    errors_in,
)
from dragoman.core.model import Json
from dragoman.dialects.refusals import explained


class TtlExceeded(Forbidden):
    """The message went through too many hands."""


class ToolNotAllowed(Forbidden):
    """This tool was not offered."""


class ApprovalTimeout(Forbidden):
    """Nobody approved in time."""


NAMED: dict[type[DragomanError], str] = {
    errors.Unauthenticated: "unauthorized",
    errors.Malformed: "bad_envelope",
    errors.Unparseable: "bad_json",
    errors.UnknownMethod: "unknown_action",
    errors.PeerUnreachable: "unreachable",
}
CODES = {cls: NAMED.get(cls) or cls().reason for cls in errors_in(__name__)}
MEANINGS = {code: cls for cls, code in CODES.items()}

# Only errors of HTTP itself have a status of their own: real hosts look only at the body.
STATUSES: dict[type[DragomanError], int] = {
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.TooMany: 429,
    errors.StoreUnavailable: 503,
}

MAX_CODE_CHARACTERS = 100
"""The length of the code of another agent, which becomes the reason of a failed task."""
_ON_THE_WAY: dict[int, type[DragomanError]] = {
    502: errors.PeerUnreachable,
    504: errors.PeerUnreachable,
}
"""The statuses with which a proxy answers for a server that it cannot reach."""


def code_for(error: DragomanError) -> str:
    """Returns the code of an error: the word of another agent, or that of its nearest base class
    that has one."""
    if isinstance(error, PeerRefused) and error.word:
        return error.word
    return next(CODES[cls] for cls in type(error).__mro__ if cls in CODES)


def status_for(error: DragomanError) -> int:
    """Returns the HTTP status of an error."""
    return next((STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES), 200)


def error_out(error: DragomanError) -> dict[str, Json]:
    """Returns the error object of an error."""
    body: dict[str, Json] = {"code": code_for(error), "message": error.message}
    return {**body, "details": dict(error.public)} if error.public else body


def error_in(body: Json) -> DragomanError:
    """Returns the error in a response: an object of ours, or any text."""
    if not isinstance(body, dict):
        return PeerRefused(body if isinstance(body, str) else "")
    code, message, details = body.get("code"), body.get("message"), body.get("details")
    word = code[:MAX_CODE_CHARACTERS] if isinstance(code, str) else ""
    error = MEANINGS.get(word, PeerRefused)(message if isinstance(message, str) else word)
    if isinstance(details, dict):
        error.public = {key: str(value) for key, value in details.items()}
    if isinstance(error, PeerRefused) and word and word not in MEANINGS:
        error.word = word
        error.public = {**error.public, "code": word}  # for dialects whose codes are numbers
    return error


def error_for(status: int, body: bytes = b"") -> DragomanError:
    """Returns the error for a status whose body is no envelope, but may explain it."""
    found = {status: cls for cls, status in STATUSES.items()} | _ON_THE_WAY
    error = found.get(status, PeerMisbehaved)(f"The other side answered with status {status}")
    return explained(error, body)
