"""JSON-RPC 2.0: what a request and a response are, and which bytes are neither.

JSON itself is checked here for every wire: UTF-8, not too deep (`nesting`), no NaN, no lone
surrogates, and of duplicate keys the last counts (the last three by msgspec).
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
    """A call. Without `id` it is a notification and wants no answer."""

    method: str
    jsonrpc: Literal["2.0"]
    id: Id | UnsetType = UNSET
    params: Raw = NO_PARAMS


class Error(Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a call failed."""

    code: int
    message: str | None = ""
    data: Json = None


class RequestOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A request as we write it."""

    id: Id
    method: str
    params: object


class NotificationOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A request that wants no answer, as we write it."""

    method: str
    params: object


class ResultOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The response to a call that worked."""

    id: Id
    result: object


class FailureOut(Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The response to a call that failed."""

    id: Id
    error: Error


class Response(Struct, frozen=True, gc=False):
    """Either response, as it is heard: peers leave out or null what they do not use."""

    id: Id = None
    result: Raw = NULL
    error: Error | None = None


encode = msgspec.json.Encoder().encode
_read_request = msgspec.json.Decoder(Request).decode
_read_response = msgspec.json.Decoder(Response).decode
_read_anything = msgspec.json.Decoder().decode


def request_in(body: bytes) -> Request | Fault:
    """The request in `body`, or the fault to answer with, under the caller's id if it has one."""
    try:
        check(body)
        return _read_request(body)
    except (msgspec.DecodeError, RecursionError) as exc:
        return _refusal(body, exc)
    except Unparseable as exc:
        return Fault(None, exc)


def id_in(request: Request | Fault) -> Id:
    """The id to answer a request under; null for one that has none."""
    return None if request.id is UNSET else request.id


def response_in(body: bytes) -> Response:
    """The response in `body`, or `PeerMisbehaved`."""
    try:
        check_answer(body)
        return _read_response(body)
    except (msgspec.DecodeError, RecursionError, Unparseable) as exc:
        raise PeerMisbehaved(f"This is not a JSON-RPC response: {exc}") from None


def _refuse_bad_utf8(body: bytes) -> None:
    """msgspec does not look into what it skips, and a body is UTF-8 or it is not."""
    try:
        body.decode()
    except UnicodeDecodeError as exc:
        raise Unparseable(f"This is not UTF-8 (byte {exc.start})") from None


def bare_type(content_type: str) -> str:
    """The media type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def check(body: bytes) -> None:
    """Raises `Unparseable` for what msgspec lets through: too deep, too bushy, and bad UTF-8 in
    what it skips."""
    if not body.isascii():
        _refuse_bad_utf8(body)
    if why := unfit(body):
        raise Unparseable(f"This {why}")


def check_answer(body: bytes) -> None:
    """The same for what we asked for, which may be a long list: only as deep as anything else."""
    if not body.isascii():
        _refuse_bad_utf8(body)
    if why := too_deep(body):
        raise Unparseable(f"This {why}")


def _refusal(body: bytes, exc: Exception) -> Fault:
    """Tells "no JSON" from "no request", and finds the id to answer under."""
    try:
        found = _read_anything(body)
    except (msgspec.DecodeError, RecursionError) as worse:
        # Among them numbers beyond any range: valid JSON, but nothing we could keep.
        return Fault(None, Unparseable(str(worse)))
    if not isinstance(found, dict):
        what = "Batches are not supported" if isinstance(found, list) else str(exc)
        return Fault(None, Malformed(what))
    id = found.get("id")
    return Fault(id if type(id) in (str, int, float) else None, Malformed(str(exc)))
