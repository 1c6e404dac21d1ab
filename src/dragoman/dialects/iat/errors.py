"""How IAT tells errors: `{"error": {"code", "message", "details"}}` in a response.

The requirement has no error form. A code is the name of an error of ours, but for those that
dialects §2.6 names; foreign ones are heard as plain words too.
"""

from __future__ import annotations

from collections.abc import Iterator

from dragoman.core import errors
from dragoman.core.errors import DragomanError, Forbidden, PeerMisbehaved, PeerRefused
from dragoman.core.model import Json


class TtlExceeded(Forbidden):
    """The message went through too many hands."""


class ToolNotAllowed(Forbidden):
    """This tool was not offered."""


class ApprovalTimeout(Forbidden):
    """Nobody approved in time."""


def _tree(cls: type[DragomanError]) -> Iterator[type[DragomanError]]:
    yield cls
    for child in cls.__subclasses__():
        if child.__module__ in (errors.__name__, __name__):
            yield from _tree(child)


NAMED: dict[type[DragomanError], str] = {
    errors.Unauthenticated: "unauthorized",
    errors.Malformed: "bad_envelope",
    errors.Unparseable: "bad_json",
    errors.UnknownMethod: "unknown_action",
    errors.PeerUnreachable: "unreachable",
}
CODES = {cls: NAMED.get(cls) or cls().reason for cls in _tree(DragomanError)}
MEANINGS = {code: cls for cls, code in CODES.items()}

# Only what HTTP itself refuses has a status of its own: real hosts look at nothing but the body.
STATUSES: dict[type[DragomanError], int] = {
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.TooLarge: 413,
    errors.TooSlow: 408,
    errors.TooMany: 429,
    errors.StoreUnavailable: 503,
}

_ON_THE_WAY: dict[int, type[DragomanError]] = {
    502: errors.PeerUnreachable,
    504: errors.PeerUnreachable,
}
"""What a proxy answers for whoever is not there."""


def code_for(error: DragomanError) -> str:
    """The code of an error, or of the nearest it is one of."""
    return next(CODES[cls] for cls in type(error).__mro__ if cls in CODES)


def status_for(error: DragomanError) -> int:
    """HTTP's status for an error."""
    return next((STATUSES[cls] for cls in type(error).__mro__ if cls in STATUSES), 200)


def error_out(error: DragomanError) -> dict[str, Json]:
    """What is told of an error."""
    body: dict[str, Json] = {"code": code_for(error), "message": error.message}
    return {**body, "details": dict(error.public)} if error.public else body


def error_in(body: Json) -> DragomanError:
    """The error that was told: an object of ours, or whatever words there are."""
    if not isinstance(body, dict):
        return PeerRefused(body if isinstance(body, str) else "")
    code, message, details = body.get("code"), body.get("message"), body.get("details")
    cls = MEANINGS.get(code, PeerRefused) if isinstance(code, str) else PeerRefused
    error = cls(message if isinstance(message, str) else "")
    if isinstance(details, dict):
        error.public = {key: str(value) for key, value in details.items()}
    return error


def error_for(status: int) -> DragomanError:
    """The error that a status alone tells."""
    found = {status: cls for cls, status in STATUSES.items()} | _ON_THE_WAY
    return found.get(status, PeerMisbehaved)(f"The other side answered with status {status}")
