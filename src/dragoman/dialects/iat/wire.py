"""The envelope in its two forms: nested, as the requirement has it, and flat, as real hosts send.

Nested has `header`, `metadata` and `payload`; its times are seconds and its ttl counts hops. Flat
has all of it at the top; its times and its ttl are milliseconds, and an answer has the id of what
it answers (dialects §2.1). Both are heard everywhere, whatever was spoken before.
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
"""Hops that an envelope has left if it does not say."""
MOST_TTL = 16
"""Hops that are believed."""
_BESIDE = ("code", "details")
_ABOUT = frozenset(("message", *_BESIDE))
"""The members of an error of ours."""
_LATEST_SECONDS = 10**11
_LATEST_MILLIS = 10**16


class Kind(StrEnum):
    """What an envelope is."""

    REQUEST = "request"
    RESPONSE = "response"
    NOTIFICATION = "notification"
    CHUNK = "chunk"


SESSION_HEADER = "x-iat-token"
"""The header of a session token, over HTTP."""
ERROR = "error"
"""An action, and in the flat form a type too."""
IGNORED = "ignored"
"""The action with which a real agent answers what it does not understand (dialects §2.6)."""
KINDS = {**{kind.value: kind for kind in Kind}, "stream_chunk": Kind.CHUNK, ERROR: Kind.RESPONSE}
FLAT_KINDS = {Kind.CHUNK: "stream_chunk"}

Word = str | int | None
"""An id. The requirement has strings; some send numbers."""


class Envelope(Struct, frozen=True, gc=False, kw_only=True):
    """A message, free of its form."""

    kind: Kind
    action: str = ""
    payload: dict[str, Json] = {}
    id: str = ""
    parent: str = ""
    """What it answers, or belongs to."""
    sender: str = ""
    to: str = ""
    at: int = 0
    """Milliseconds."""
    trace: str = ""
    ttl: int = TTL
    """Hops left, this one included."""
    token: str = ""
    cursor: str = ""
    """The seq of the last event the sender has. Frames of a WebSocket have no headers, so this and
    what follows has a place in the metadata, under the name of its header."""
    key: str = ""
    """The idempotency key."""
    deadline: str = ""
    """Seconds of work after which the sender wants no result any more."""
    flat: bool = False
    fault: bool = False
    """Whether it was heard as an error. Nobody answers an error with an error."""


class HeaderIn(Struct, frozen=True, gc=False, rename={"sender": "from"}):
    """`header`, as it is heard."""

    msg_id: Word = ""
    parent_id: Word = ""
    type: str = ""
    sender: str | None = ""
    to: str | None = ""
    timestamp: float | None = 0
    action: str | None = ""


HEADERS = {"cursor": "last-event-id", "key": "idempotency-key", "deadline": DEADLINE}
"""Members of the metadata that are called like headers of HTTP."""


class MetadataIn(Struct, frozen=True, gc=False, rename=HEADERS):
    """`metadata`, as it is heard."""

    trace_id: str | None = ""
    ttl: int | None = None
    auth_token: str | None = ""
    cursor: Word = None
    key: str | None = ""
    deadline: str | float | None = None


class TraceIn(Struct, frozen=True, gc=False, rename="camel"):
    """`trace` of the flat form."""

    trace_id: str | None = ""


class EnvelopeIn(Struct, frozen=True, gc=False, rename={"sender": "from", "stream_id": "streamId"}):
    """Either form."""

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
    """`header`, as we write it."""

    msg_id: str
    parent_id: str
    type: str
    sender: str
    to: str
    timestamp: int


class Metadata(Struct, frozen=True, gc=False, omit_defaults=True, rename=HEADERS):
    """`metadata`, as we write it."""

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
    """The envelope in `body`; `Unparseable` or `Malformed` says why there is none."""
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
        parent = own  # an answer has the id of what it answers
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
    """Reads a frame once, though several sessions look at it."""

    def __init__(self) -> None:
        self._body: bytes | None = None
        self._said: Envelope | None = None

    def __call__(self, body: bytes) -> Envelope:
        """The envelope in `body`, as `envelope_in` has it."""
        if body is not self._body or self._said is None:
            self._said = envelope_in(body)
            self._body = body
        return self._said


def answer_in(body: bytes, read: Callable[[bytes], Envelope] = envelope_in) -> Envelope:
    """The same of an answer: `PeerMisbehaved` says why there is none."""
    try:
        return read(body)
    except DragomanError as exc:
        raise PeerMisbehaved(f"This is not an IAT envelope: {exc.message}") from None


def envelope_out(envelope: Envelope) -> bytes:
    """An envelope in its form. What is told without an action has none (chunks)."""
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
    """Flat peers read `error` as a string (dialects §2.6): our code and details stand beside it."""
    error = payload.get(ERROR)
    if not isinstance(error, dict) or not error.keys() <= _ABOUT:
        return payload
    words = isinstance(error.get("code"), str) and isinstance(error.get("message"), str)
    if not words or not payload.keys().isdisjoint(_BESIDE):
        return payload  # it is another's, or the places beside it are taken
    beside = {key: error[key] for key in _BESIDE if key in error}
    return {**payload, ERROR: error["message"], **beside}


def _whole_error(payload: dict[str, Json]) -> dict[str, Json]:
    """The error that `_plain_error` took apart. Words without a code stay words."""
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
    """A time as milliseconds: real hosts send seconds, milliseconds, and those times a million."""
    if time > _LATEST_MILLIS:
        return int(time) // 1_000_000
    return int(time) if time > _LATEST_SECONDS else int(time * 1000)


def bare_token(value: str) -> str:
    """A token without the word before it."""
    if not value:
        return ""
    scheme, _, token = value.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else value.strip()


def _id_in(id: Word) -> str:
    return id if isinstance(id, str) else "" if id is None else str(id)


def id_out(id: Id) -> str:
    """How a call's id is written: as it is, or as JSON has it."""
    return id if isinstance(id, str) else encode(id).decode()


def message_ids() -> Callable[[], str]:
    """Ids for the envelopes of one session, where nobody gives it better ones."""
    numbers = count(1)
    return lambda: f"m{next(numbers)}"
