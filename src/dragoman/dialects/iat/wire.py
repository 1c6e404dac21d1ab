"""The envelope of IAT in its two forms: nested, as in the requirement, and flat, as real hosts send
it.

The nested form has `header`, `metadata` and `payload`; its times are seconds and its ttl counts
hops. The flat form has all members at the top level; its times and its ttl are milliseconds, and an
answer has the id of the message that it answers (dialects §2.1). Both forms are accepted
everywhere, whatever was sent before.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import count

import msgspec
from msgspec import Struct

from dragoman.core.errors import DragomanError, Malformed, PeerMisbehaved, Unparseable
from dragoman.core.model import Json
from dragoman.core.peer import DEADLINE
from dragoman.core.session import Id

from ..jsonrpc import check

TTL = 3
"""The remaining hops of an envelope that has no ttl."""
MOST_TTL = 16
"""The largest ttl that is accepted."""
_BESIDE = ("code", "details")
_ABOUT = frozenset(("message", *_BESIDE))
"""The members of our error objects."""
_LATEST_SECONDS = 10**11
_LATEST_MILLIS = 10**16


class Kind(StrEnum):
    """The kind of an envelope."""

    REQUEST = "request"
    RESPONSE = "response"
    NOTIFICATION = "notification"
    CHUNK = "chunk"


SESSION_HEADER = "x-iat-token"
"""The header of a session token, over HTTP."""
ERROR = "error"
"""An action, which is also a type in the flat form."""
IGNORED = "ignored"
"""The action with which a real agent answers what it does not understand (dialects §2.6)."""
KINDS = {**{kind.value: kind for kind in Kind}, "stream_chunk": Kind.CHUNK, ERROR: Kind.RESPONSE}
FLAT_KINDS = {Kind.CHUNK: "stream_chunk"}

Word = str | int | None
"""An id. The requirement has strings; some peers send numbers."""


class Envelope(Struct, frozen=True, gc=False, kw_only=True):
    """A message, independent of its form."""

    kind: Kind
    action: str = ""
    payload: dict[str, Json] = {}
    id: str = ""
    parent: str = ""
    """The id of the message that this one answers or belongs to."""
    sender: str = ""
    to: str = ""
    at: int = 0
    """The time in milliseconds."""
    trace: str = ""
    ttl: int = TTL
    """The remaining hops, including this one."""
    token: str = ""
    cursor: str = ""
    """The seq of the last event that the sender has. The frames of a WebSocket have no headers, so
    this and the following fields are in the metadata, under the names of the headers."""
    key: str = ""
    """The idempotency key."""
    deadline: str = ""
    """The seconds of work after which the sender does not want the result any more."""
    flat: bool = False
    fault: bool = False
    """Whether the envelope was received as an error. An error is never answered with an error."""


class HeaderIn(Struct, frozen=True, gc=False, rename={"sender": "from"}):
    """The `header` as it is read."""

    msg_id: Word = ""
    parent_id: Word = ""
    type: str = ""
    sender: str | None = ""
    to: str | None = ""
    timestamp: float | None = 0
    action: str | None = ""


HEADERS = {"cursor": "last-event-id", "key": "idempotency-key", "deadline": DEADLINE}
"""The members of the metadata that have the names of HTTP headers."""


class MetadataIn(Struct, frozen=True, gc=False, rename=HEADERS):
    """The `metadata` as it is read."""

    trace_id: str | None = ""
    ttl: int | None = None
    auth_token: str | None = ""
    cursor: Word = None
    key: str | None = ""
    deadline: str | float | None = None


class TraceIn(Struct, frozen=True, gc=False, rename="camel"):
    """The `trace` of the flat form."""

    trace_id: str | None = ""


class EnvelopeIn(Struct, frozen=True, gc=False, rename={"sender": "from", "stream_id": "streamId"}):
    """An envelope of either form, as it is read."""

    header: HeaderIn | None = None
    metadata: MetadataIn | None = None
    payload: Json = None
    id: Word = ""
    type: str = ""
    sender: str | None = ""
    to: str | None = ""
    action: str | None = ""
    timestamp: float | None = 0
    trace: TraceIn | None = None
    stream_id: Word = ""


class Header(Struct, frozen=True, gc=False, rename={"sender": "from"}):
    """The `header` as we write it."""

    msg_id: str
    parent_id: str
    type: str
    sender: str
    to: str
    timestamp: int


class Metadata(Struct, frozen=True, gc=False, omit_defaults=True, rename=HEADERS):
    """The `metadata` as we write it."""

    trace_id: str
    ttl: int | None = None
    auth_token: str = ""
    cursor: str = ""
    key: str = ""
    deadline: str = ""


class Nested(Struct, frozen=True, gc=False):
    """The nested form, as we write it."""

    header: Header
    metadata: Metadata
    payload: dict[str, Json]


class Flat(
    Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename={"sender": "from", "stream_id": "streamId"},
):
    """The flat form, as we write it."""

    id: str
    type: str
    sender: str
    to: str
    action: str
    payload: dict[str, Json]
    trace: dict[str, str]
    metadata: dict[str, Json]
    timestamp: int
    stream_id: str = ""


encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(EnvelopeIn).decode


def envelope_in(body: bytes) -> Envelope:
    """Returns the envelope in `body`. Raises `Unparseable` or `Malformed` if there is none."""
    check(body)
    try:
        read = _read(body)
    except msgspec.ValidationError as exc:
        raise Malformed(str(exc).replace(" | null`", "`")) from None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Unparseable(str(exc)) from None
    payload = read.payload
    if not isinstance(payload, dict):
        payload = {} if payload is None else {"content": payload}
    flat = read.header is None
    header = read.header or HeaderIn(
        read.id, read.stream_id, read.type, read.sender, read.to, read.timestamp
    )
    kind = KINDS.get(header.type)
    if kind is None:
        what = "an envelope" if not header.type else f"a type: {header.type[:40]!r}"
        raise Malformed(f"This is not {what}; expected header.type request, response, ...")
    metadata = read.metadata or MetadataIn()
    trace = read.trace.trace_id if flat and read.trace is not None else metadata.trace_id
    own, parent = _id_in(header.msg_id), _id_in(header.parent_id)
    if flat and kind is not Kind.REQUEST:
        parent = own  # an answer has the id of the message that it answers
    hops = TTL if flat or metadata.ttl is None else metadata.ttl
    named = payload.get("action")
    action = named if isinstance(named, str) else read.action or header.action or ""
    if flat and kind is Kind.RESPONSE:
        payload = _whole_error(payload)
    return Envelope(
        kind=kind,
        action=action,
        payload=payload,
        id=own,
        parent=parent,
        sender=header.sender or "",
        to=header.to or "",
        at=millis(header.timestamp or 0),
        trace=trace or "",
        ttl=max(0, min(hops, MOST_TTL)),
        token=bare_token(metadata.auth_token or ""),
        cursor=_id_in(metadata.cursor),
        key=metadata.key or "",
        deadline="" if metadata.deadline is None else str(metadata.deadline),
        flat=flat,
        fault=kind is Kind.RESPONSE and (header.type == ERROR or action in (ERROR, IGNORED)),
    )


class EnvelopeReader:
    """Decodes a frame only once, although several sessions read it."""

    def __init__(self) -> None:
        self._body: bytes | None = None
        self._said: Envelope | None = None

    def __call__(self, body: bytes) -> Envelope:
        """Returns the envelope in `body`, as `envelope_in` does."""
        if body is not self._body or self._said is None:
            self._said = envelope_in(body)
            self._body = body
        return self._said


def answer_in(body: bytes, read: Callable[[bytes], Envelope] = envelope_in) -> Envelope:
    """Returns the envelope of an answer. Raises `PeerMisbehaved` if there is none."""
    try:
        return read(body)
    except DragomanError as exc:
        raise PeerMisbehaved(f"This is not an IAT envelope: {exc.message}") from None


def envelope_out(envelope: Envelope) -> bytes:
    """Writes an envelope in its form. A chunk has no action."""
    if envelope.flat:
        return encode(_flat(envelope))
    action, payload = envelope.action, envelope.payload
    bearer = f"bearer {envelope.token}" if envelope.token else ""
    if action:
        payload = {"action": action, **payload}
    return encode(
        Nested(
            Header(
                *(envelope.id, envelope.parent, envelope.kind.value),
                *(envelope.sender, envelope.to, envelope.at // 1000),
            ),
            Metadata(
                *(envelope.trace, envelope.ttl, bearer),
                *(envelope.cursor, envelope.key, envelope.deadline),
            ),
            payload,
        )
    )


def _flat(envelope: Envelope) -> Flat:
    asking = envelope.kind is Kind.REQUEST or not envelope.parent
    metadata: dict[str, Json] = {"auth_token": f"bearer {envelope.token}"} if envelope.token else {}
    if envelope.cursor or envelope.key or envelope.deadline:
        fields = {name: getattr(envelope, field) for field, name in HEADERS.items()}
        metadata |= {name: value for name, value in fields.items() if value}
    payload = _plain_error(envelope.payload) if envelope.kind is Kind.RESPONSE else envelope.payload
    return Flat(
        envelope.id if asking else envelope.parent,
        FLAT_KINDS.get(envelope.kind, envelope.kind.value),
        *(envelope.sender, envelope.to, envelope.action, payload),
        {"traceId": envelope.trace} if envelope.trace else {},
        *(metadata, envelope.at),
        envelope.parent if envelope.kind in (Kind.REQUEST, Kind.CHUNK) else "",
    )


def _plain_error(payload: dict[str, Json]) -> dict[str, Json]:
    """Returns a payload whose `error` is a string, as flat peers expect it (dialects §2.6); our
    code and details are beside it."""
    error = payload.get(ERROR)
    if not isinstance(error, dict) or not error.keys() <= _ABOUT:
        return payload
    words = isinstance(error.get("code"), str) and isinstance(error.get("message"), str)
    if not words or not payload.keys().isdisjoint(_BESIDE):
        return payload  # it is not our error, or the names beside it are taken
    beside = {key: error[key] for key in _BESIDE if key in error}
    return {**payload, ERROR: error["message"], **beside}


def _whole_error(payload: dict[str, Json]) -> dict[str, Json]:
    """Returns the error object that `_plain_error` took apart. A text without a code stays a
    text."""
    words, code = payload.get(ERROR), payload.get("code")
    if not isinstance(words, str) or not isinstance(code, str):
        return payload
    rest = {key: value for key, value in payload.items() if key not in _BESIDE}
    error = {"code": code, "message": words}
    return {
        **rest,
        ERROR: {**error, "details": payload["details"]} if "details" in payload else error,
    }


def millis(time: float) -> int:
    """Returns a time in milliseconds. Real hosts send seconds, milliseconds or nanoseconds."""
    if time > _LATEST_MILLIS:
        return int(time) // 1_000_000
    return int(time) if time > _LATEST_SECONDS else int(time * 1000)


def bare_token(value: str) -> str:
    """Returns a token without its scheme."""
    if not value:
        return ""
    scheme, _, token = value.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else value.strip()


def _id_in(id: Word) -> str:
    return id if isinstance(id, str) else "" if id is None else str(id)


def id_out(id: Id) -> str:
    """Returns the id of a call as text: unchanged, or as JSON."""
    return id if isinstance(id, str) else encode(id).decode()


def message_ids() -> Callable[[], str]:
    """Returns what counts the envelopes of a session that talks to nobody."""
    numbers = count(1)
    return lambda: f"m{next(numbers)}"
