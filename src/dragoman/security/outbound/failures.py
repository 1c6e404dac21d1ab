"""Explains why another machine could not be reached, in words for the person who typed its
address."""

from __future__ import annotations

import httpcore2

from .address_scopes import Unreachable

FAILURES = (
    *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException),
    *(httpcore2.UnsupportedProtocol, OSError),
)
"""The exceptions of a connection. This module is the border: no other module knows the errors of
httpcore2."""
NOT_SENT = (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout)
"""Failures before anything was sent."""
_SLOW = (TimeoutError, httpcore2.TimeoutException)


def unreachable(exc: Exception) -> Unreachable:
    """Returns our own error for a failed connection."""
    if isinstance(exc, _SLOW):
        found = Unreachable("timeout")
    elif isinstance(exc, httpcore2.ConnectError):
        found = Unreachable("no connection")
    else:
        found = Unreachable("broken connection")
    found.failure = exc
    return found


def was_sent(exc: Exception) -> bool:
    """Returns whether the other side may have received something before the connection failed."""
    if isinstance(exc, Unreachable):
        return exc.failure is not None and was_sent(exc.failure)
    return not isinstance(exc, NOT_SENT)


def explained(exc: Exception, origin: str, name: str = "") -> str:
    """Returns what went wrong on the way to an origin, and what to do about it.

    `name` is the name of the other side in the sentence; by default it is the origin.
    """
    who, said = name or origin, str(exc)
    if isinstance(exc, Unreachable):
        if exc.failure is None:
            return f"{who} cannot be reached: {exc}"
        return explained(exc.failure, origin, name)
    scheme, _, host = origin.partition("://")
    if "verify failed" in said:
        why = said.rpartition("verify failed: ")[2].partition(" (_ssl")[0]
        return (
            f"{who} has a certificate that cannot be verified: {why}. "
            "Trust its authority with --ca FILE, or ca= in Python."
        )
    if "[SSL" in said and isinstance(exc, httpcore2.ConnectError):
        why = said.partition("] ")[2].partition(" (_ssl")[0] or said
        return f"{who} does not speak TLS as we do ({why}). Perhaps it is http://{host}"
    if isinstance(exc, NOT_SENT):
        return f"{who} cannot be reached: {_why_no_connection(exc)}"
    if isinstance(exc, _SLOW):
        return f"{who} did not answer in time"
    if scheme == "http" and "without sending" in said:
        return f"{who} closed the connection without an answer. Perhaps it is https://{host}"
    return f"The connection to {origin} broke: {said or type(exc).__name__}"


def _why_no_connection(exc: BaseException) -> str:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "nobody listens there"
        cause = cause.__cause__ or cause.__context__
    if isinstance(exc, httpcore2.TimeoutException):
        return "there was no connection in time"
    return str(exc) or type(exc).__name__


def is_web_page(body: bytes) -> bool:
    """Returns whether this is HTML, which a wrong address often answers with."""
    return body[:256].lstrip()[:1] == b"<"
