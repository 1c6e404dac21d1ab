"""JSON-RPC 2.0: the form of requests and responses, and the check of bytes that are neither.

JSON itself is checked here for every wire: it must be UTF-8, not too deep (`nesting`), without NaN
and lone surrogates; of duplicate keys the last one counts (msgspec does the last three).
"""

from __future__ import annotations

from typing import Literal, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.core.errors import Malformed, PeerMisbehaved, Unparseable
from dragoman.core.model import Json
from dragoman.core.nesting import too_deep, unfit
from dragoman.core.session import Fault, Id

NO_PARAMS = Raw(b"{}")
NULL = Raw(b"null")


@final
class Request(Struct, frozen=True, gc=False):
    """A call. Without an `id` it is a notification, which has no answer."""

    method: str
    jsonrpc: Literal["2.0"]
    id: Id | UnsetType = UNSET
    params: Raw = NO_PARAMS


class Error(Struct, frozen=True, gc=False, omit_defaults=True):
    """The error object of a response."""

    code: int
    message: str | None = ""
    data: Json = None


class RequestOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A request as we write it."""

    id: Id
    method: str
    params: object


class NotificationOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A notification as we write it."""

    method: str
    params: object


class ResultOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The response to a call that succeeded."""

    id: Id
    result: object


class FailureOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The response to a call that failed."""

    id: Id
    error: Error


class Response(Struct, frozen=True, gc=False):
    """A response of either kind as it is read: peers leave out unused members, or send null."""

    id: Id = None
    result: Raw = NULL
    error: Error | None = None


encode = msgspec.json.Encoder().encode
_read_request = msgspec.json.Decoder(Request).decode
_read_response = msgspec.json.Decoder(Response).decode
_read_anything = msgspec.json.Decoder().decode


def request_in(body: bytes) -> Request | Fault:
    """Returns the request in `body`, or the fault to answer with, under the caller's id if it has
    one."""
    try:
        check(body)
        return _read_request(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        return _refusal(body, exc)
    except Unparseable as exc:
        return Fault(None, exc)


def id_in(request: Request | Fault) -> Id:
    """Returns the id for the answer to a request; null for a request that has none."""
    return None if request.id is UNSET else request.id


def response_in(body: bytes) -> Response:
    """Returns the response in `body`. Raises `PeerMisbehaved` if there is none."""
    try:
        check_answer(body)
        return _read_response(body)
    except (msgspec.DecodeError, RecursionError, Unparseable) as exc:
        raise PeerMisbehaved(f"This is not a JSON-RPC response: {exc}") from None


def _refuse_bad_utf8(body: bytes) -> None:
    """Raises `Unparseable` for a body that is not UTF-8, because msgspec does not check the parts
    that it skips."""
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        raise Unparseable(f"This is not UTF-8 (byte {exc.start})") from None


def bare_type(content_type: str) -> str:
    """Returns the media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def check(body: bytes) -> None:
    """Raises `Unparseable` for JSON that msgspec accepts although it is too deep, has too many
    objects, or has invalid UTF-8 in skipped parts."""
    if not body.isascii():
        _refuse_bad_utf8(body)
    if why := unfit(body):
        raise Unparseable(f"This {why}")


def check_answer(body: bytes) -> None:
    """Checks an answer, which may be a long list, so only its depth is limited."""
    if not body.isascii():
        _refuse_bad_utf8(body)
    if why := too_deep(body):
        raise Unparseable(f"This {why}")


def _refusal(body: bytes, exc: Exception) -> Fault:
    """Tells a body that is not JSON from one that is not a request, and finds the id for the
    answer."""
    try:
        found = _read_anything(body)
    except (msgspec.DecodeError, RecursionError) as worse:
        # One case is a number beyond any range: it is valid JSON, but cannot be stored.
        return Fault(None, Unparseable(str(worse)))
    if not isinstance(found, dict):
        what = "Batches are not supported" if isinstance(found, list) else str(exc)
        return Fault(None, Malformed(what))
    id = found.get("id")
    return Fault(id if type(id) in (str, int, float) else None, Malformed(str(exc)))


class _JsonRpc(Struct):
    jsonrpc: str


_read_jsonrpc = msgspec.json.Decoder(_JsonRpc).decode


def is_jsonrpc(body: bytes) -> bool:
    """Returns whether this is a message of JSON-RPC, which a server of A2A answers with whatever it
    is sent."""
    try:
        _read_jsonrpc(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
