"""Explains why another machine could not be reached, in words for the person who typed its
address."""

from __future__ import annotations

from .address_scopes import Unreachable


class ConnectionFailed(Exception):
    """A connection could not be opened, or did not carry an exchange to its end."""


class ConnectError(ConnectionFailed):
    """The connection was refused, or its TLS failed."""


class ReadError(ConnectionFailed):
    """The connection was lost."""


class LocalProtocolError(ConnectionFailed):
    """The request is not one that HTTP can carry."""


class RemoteProtocolError(ConnectionFailed):
    """The response is not one of HTTP."""


class ConnectionTimeout(ConnectionFailed):
    """Something took too long."""


class ConnectTimeout(ConnectionTimeout):
    """The connection was not open in time."""


class PoolTimeout(ConnectionTimeout):
    """No connection became free in time."""


class ReadTimeout(ConnectionTimeout):
    """The other side was silent for too long."""


class WriteTimeout(ConnectionTimeout):
    """The other side did not take what was sent."""


FAILURES = (ConnectionFailed, OSError)
"""The exceptions of a connection."""
NOT_SENT = (ConnectError, ConnectTimeout, PoolTimeout)
"""Failures before anything was sent."""
_SLOW = (TimeoutError, ConnectionTimeout)


def unreachable(exc: Exception) -> Unreachable:
    """Returns our own error for a failed connection."""
    if isinstance(exc, _SLOW):
        found = Unreachable("timeout")
    elif isinstance(exc, ConnectError):
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


def explained(exc: Exception, origin: str, name: str = "", *, known: bool = False) -> str:
    """Returns what went wrong on the way to an origin, and what to do about it.

    `name` is the name of the other side in the sentence; by default it is the origin. An origin
    that is `known` has answered before, so its scheme is right.
    """
    who, said = name or origin, str(exc)
    if isinstance(exc, Unreachable):
        if exc.failure is None:
            return f"{who} cannot be reached: {exc}"
        return explained(exc.failure, origin, name, known=known)
    scheme, _, host = origin.partition("://")
    if "verify failed" in said:
        why = said.rpartition("verify failed: ")[2].partition(" (_ssl")[0]
        return (
            f"{who} has a certificate that cannot be verified: {why}. "
            "Trust its authority with --ca FILE, or ca= in Python."
        )
    if "[SSL" in said and isinstance(exc, ConnectError):
        why = said.partition("] ")[2].partition(" (_ssl")[0] or said
        return f"{who} does not speak TLS as we do ({why}). Perhaps it is http://{host}"
    if isinstance(exc, NOT_SENT):
        return f"{who} cannot be reached: {_why_no_connection(exc)}"
    if isinstance(exc, _SLOW):
        return f"{who} did not answer in time"
    if scheme == "http" and "without sending" in said:
        hint = "" if known else f". Perhaps it is https://{host}"
        return f"{who} closed the connection without an answer{hint}"
    return f"The connection to {origin} broke: {said or type(exc).__name__}"


def _why_no_connection(exc: BaseException) -> str:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "nobody listens there"
        cause = cause.__cause__ or cause.__context__
    if isinstance(exc, ConnectionTimeout) and not exc.args:
        return "there was no connection in time"
    return str(exc) or type(exc).__name__


def is_web_page(body: bytes) -> bool:
    """Returns whether this is HTML, which a wrong address often answers with."""
    return body[:256].lstrip()[:1] == b"<"
