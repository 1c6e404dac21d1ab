"""The errors of A2A and their codes in each binding, as one table."""

from __future__ import annotations

from msgspec import Struct

from .check import Broken

NOT_FOUND = "TASK_NOT_FOUND"
NOT_CANCELABLE = "TASK_NOT_CANCELABLE"
NO_PUSH = "PUSH_NOTIFICATION_NOT_SUPPORTED"
UNSUPPORTED = "UNSUPPORTED_OPERATION"
NO_TYPE = "CONTENT_TYPE_NOT_SUPPORTED"
NO_EXTENDED = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
NEEDS_EXTENSION = "EXTENSION_SUPPORT_REQUIRED"
NO_VERSION = "VERSION_NOT_SUPPORTED"
BAD_PARAMS = "INVALID_PARAMS"
DOMAIN = "a2a-protocol.org"
ANY = "any error"
"""Any error; the specification says only that the call must fail."""


class ExpectedRefusal(Struct, frozen=True):
    """An error with everything that the agent said about it."""

    code: int | None = None
    """The code of JSON-RPC."""
    status: int = 0
    """The status of HTTP."""
    grpc: str = ""
    """The status of gRPC, by name."""
    message: str = ""
    reason: str = ""
    domain: str = ""

    @property
    def unauthenticated(self) -> bool:
        """Returns whether the agent asks for credentials, or for other ones."""
        return self.status == 401 or self.code == -31401 or self.grpc == "UNAUTHENTICATED"

    def __str__(self) -> str:
        told = self.code if self.code is not None else self.grpc or self.status
        return f"{told} {self.reason} {self.message}".strip()


class ErrorSpelling(Struct, frozen=True):
    """The right spellings of one kind of error."""

    codes: tuple[int, ...]
    statuses: tuple[int, ...]
    """The statuses of HTTP; 1.0.0 and 1.0.1 differ, and both are accepted."""
    grpc: tuple[str, ...]


_STATE = ("FAILED_PRECONDITION", "UNIMPLEMENTED")
TABLE: dict[str, ErrorSpelling] = {
    NOT_FOUND: ErrorSpelling((-32001,), (404,), ("NOT_FOUND",)),
    NOT_CANCELABLE: ErrorSpelling((-32002,), (400, 409), ("FAILED_PRECONDITION",)),
    NO_PUSH: ErrorSpelling((-32003,), (400,), _STATE),
    UNSUPPORTED: ErrorSpelling((-32004,), (400,), _STATE),
    NO_TYPE: ErrorSpelling((-32005,), (400, 415), ("INVALID_ARGUMENT",)),
    NO_EXTENDED: ErrorSpelling((-32007,), (400,), ("FAILED_PRECONDITION",)),
    NEEDS_EXTENSION: ErrorSpelling((-32008,), (400,), ("FAILED_PRECONDITION",)),
    NO_VERSION: ErrorSpelling((-32009,), (400,), _STATE),
    BAD_PARAMS: ErrorSpelling((-32602,), (400,), ("INVALID_ARGUMENT",)),
}
OWN = frozenset(TABLE) - {BAD_PARAMS}
"""The errors of A2A itself, which carry an ErrorInfo with their name."""


def expect(refusal: ExpectedRefusal | None, *kinds: str, version: str, binding: str) -> None:
    """Raises `Broken` unless the refusal is one of these."""
    wanted = " or ".join(kinds)
    if refusal is None:
        raise Broken(f"accepted; expected {wanted}")
    if refusal.status >= 500 and binding != "grpc" and refusal.status != 501:
        raise Broken(f"a server error ({refusal}); expected {wanted}")
    if ANY in kinds or any(_is(refusal, TABLE[kind], kind, version, binding) for kind in kinds):
        return
    raise Broken(f"answered {refusal}; expected {wanted}")


def explained(refusal: ExpectedRefusal | None, kind: str) -> None:
    """Raises `Broken` unless the refusal carries an ErrorInfo that names this kind (1.0 §9.5)."""
    if refusal is None:
        raise Broken("accepted")
    if refusal.reason != kind:
        raise Broken(f"no reason: {refusal}")
    if refusal.domain != DOMAIN:
        raise Broken("the domain is another")


def _is(
    refusal: ExpectedRefusal, right: ErrorSpelling, kind: str, version: str, binding: str
) -> bool:
    if binding == "jsonrpc":
        return refusal.code in right.codes
    if version != "1.0":  # outside JSON-RPC, 0.3 defines only the obvious statuses
        plain = refusal.status in right.statuses or refusal.grpc in right.grpc
        return plain if kind == NOT_FOUND else True
    spelled = refusal.status in right.statuses if binding == "rest" else refusal.grpc in right.grpc
    # Several errors share 400; the reason tells them apart where the agent gives one.
    return spelled and (kind not in OWN or not refusal.reason or refusal.reason == kind)
