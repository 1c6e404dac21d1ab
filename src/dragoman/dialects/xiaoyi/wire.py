"""The frames of the XiaoYi link, as they are read and written.

A server sends requests: JSON-RPC with the ids of the session, the task and the phone beside it. An
agent sends messages with a `msgType`; the `msgDetail` of an `agent_response` is a JSON-RPC response
inside a string. Real implementations differ in what they leave out (dialects §3.2-3.3), so nearly
everything that is read is optional, and what is written is a superset that all of them understand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.core.errors import Malformed, Unparseable
from dragoman.core.model import Json
from dragoman.core.session import Id

from ..jsonrpc import check, check_answer
from . import PATH as PATH

T = TypeVar("T")
INIT, HEARTBEAT, RESPONSE, DATA = "clawd_bot_init", "heartbeat", "agent_response", "data"
"""The values of `msgType`. With `data` a server wraps a request, as an agent does its responses."""
STREAM, CANCEL, CLEAR = "message/stream", "tasks/cancel", "clearContext"
RESUBSCRIBE = "tasks/resubscribe"
"""Our own method, which has the agent send a task again, after a server has lost it. Only agents
that announced it (`signing.EXTENSIONS`) get it."""
ALIASES = {"clear": CLEAR, "cancel": CANCEL, "message/send": STREAM}
"""Older names of methods, and the `action` of frames that have no method."""
STATUS, ARTIFACT = "status-update", "artifact-update"
MAX_HOP_COUNT = 1_000
"""The highest number of hops that is told apart."""


class PartIn(Struct, frozen=True, gc=False, rename="camel"):
    """A part of any kind."""

    kind: str | None = None
    type: str | None = None
    """The name of the kind in A2A 0.1."""
    text: str | None = None
    reasoning_text: str | None = None
    data: Json | UnsetType = UNSET
    file: FileIn | None = None


class FileIn(Struct, frozen=True, gc=False, rename="camel"):
    """A file, with its content, its address, or its id in the platform's storage."""

    name: str | None = None
    mime_type: str | None = None
    bytes: str | None = None
    uri: str | None = None
    file_id: str | None = None


class MessageIn(Struct, frozen=True, gc=False, rename="camel"):
    """The message of a request, or of a status."""

    message_id: str | None = None
    role: str | None = None
    parts: tuple[PartIn, ...] | None = None


class ParamsIn(Struct, frozen=True, gc=False, rename="camel"):
    """The params of a request."""

    id: Id = None
    session_id: str | None = None
    agent_login_session_id: str | None = None
    message: MessageIn | None = None


class RequestIn(Struct, frozen=True, gc=False, rename="camel"):
    """A request of the server, in the form of the source document or of any of its variants."""

    id: Id = None
    method: str | None = None
    action: str | None = None
    agent_id: str | None = None
    device_id: str | None = None
    conversation_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    params: ParamsIn | None = None
    msg_type: str | None = None
    msg_detail: str | None = None
    hops: Json = 0

    @property
    def name(self) -> str:
        """The requested method."""
        said = self.method or self.action or ""
        return ALIASES.get(said, said)

    @property
    def session(self) -> str:
        """The session. On real phones the one in `params` is stable, while the one at the top level
        changes with every start of the app."""
        inner = self.params.session_id if self.params is not None else None
        return inner or self.session_id or ""

    @property
    def hop_count(self) -> int:
        """The agents that have called each other before this request; only our own servers tell.
        Too many of them are as many as end a loop."""
        hops = self.hops
        return min(max(hops, 0), MAX_HOP_COUNT) if isinstance(hops, int) else 0

    @property
    def task(self) -> str:
        """The server's name for the task."""
        inner = self.params.id if self.params is not None else None
        return word(inner) or self.task_id or word(self.id)


class EnvelopeIn(Struct, frozen=True, gc=False, rename="camel"):
    """A message of an agent."""

    msg_type: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    task_id: str | None = None
    msg_detail: str | None = None


class ErrorIn(Struct, frozen=True, gc=False):
    """An error. Its code is a word in the source document, and a number elsewhere."""

    code: str | int | float | None = None
    message: str | None = None


class StatusIn(Struct, frozen=True, gc=False):
    """The status of a task."""

    state: str | None = None
    message: MessageIn | None = None


class ArtifactIn(Struct, frozen=True, gc=False, rename="camel"):
    """An artifact, or a piece of one."""

    artifact_id: str | None = None
    parts: tuple[PartIn, ...] | None = None


class ResultIn(Struct, frozen=True, gc=False, rename="camel"):
    """An event of a task, or the answer to a request."""

    id: Id = None
    task_id: str | None = None
    kind: str | None = None
    append: bool | None = None
    last_chunk: bool | None = None
    final: bool | None = None
    is_final: bool | None = None
    status: StatusIn | None = None
    artifact: ArtifactIn | None = None


class ResponseIn(Struct, frozen=True, gc=False):
    """The JSON-RPC response inside `msgDetail`."""

    id: Id = None
    result: ResultIn | None = None
    error: ErrorIn | None = None

    @property
    def failure(self) -> ErrorIn | None:
        """The error. Some agents send `"code": 0` beside a result, which is not an error."""
        none = self.error is None or self.error.code in (0, "0")
        return None if none else self.error


class Part(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A part, as we write it."""

    kind: str
    text: str | UnsetType = UNSET
    reasoning_text: str | UnsetType = UNSET
    data: Json | UnsetType = UNSET
    file: File | UnsetType = UNSET


class File(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A file, as we write it."""

    name: str = ""
    mime_type: str = ""
    bytes: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    file_id: str | UnsetType = UNSET


class Message(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A message, as we write it."""

    role: str
    parts: tuple[Part, ...]
    kind: str = ""
    message_id: str = ""


class Params(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """The params of a request, as we write them."""

    id: str
    session_id: str
    message: Message
    agent_login_session_id: str = ""


class Request(
    Struct,
    frozen=True,
    gc=False,
    omit_defaults=True,
    rename="camel",
    tag_field="jsonrpc",
    tag="2.0",
):
    """A request, as we write it. The session and the task are at the top level and in the params,
    and every request has a message, because real agents look for them in different places."""

    id: str
    method: str
    agent_id: str
    session_id: str
    task_id: str
    params: Params
    device_id: str = ""
    conversation_id: str = ""
    hops: int = 0
    """The agents that have called each other before, only for agents that announced it."""


class Envelope(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A message of an agent, as we write it."""

    msg_type: str
    agent_id: str
    session_id: str | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    msg_detail: str | UnsetType = UNSET


class Status(Struct, frozen=True, gc=False, omit_defaults=True):
    """A status, as we write it."""

    state: str
    message: Message | None = None


class Artifact(Struct, frozen=True, gc=False, rename="camel"):
    """An artifact, as we write it."""

    artifact_id: str
    parts: tuple[Part, ...]


class StatusUpdate(Struct, frozen=True, gc=False, rename="camel", tag_field="kind", tag=STATUS):
    """A change of the state, as we write it."""

    task_id: str
    final: bool
    status: Status


class ArtifactUpdate(Struct, frozen=True, gc=False, rename="camel", tag_field="kind", tag=ARTIFACT):
    """A piece of the answer, as we write it."""

    task_id: str
    append: bool
    last_chunk: bool
    final: bool
    artifact: Artifact


class Answer(Struct, frozen=True, gc=False, omit_defaults=True):
    """The answer to `tasks/cancel` or `clearContext`, as we write it."""

    status: Status
    id: str = ""


class Error(Struct, frozen=True, gc=False):
    """An error, as we write it."""

    code: str
    message: str


encode = msgspec.json.Encoder().encode
_read_request = msgspec.json.Decoder(RequestIn).decode
_read_envelope = msgspec.json.Decoder(EnvelopeIn).decode
_read_response = msgspec.json.Decoder(ResponseIn).decode
_read_raw = msgspec.json.Decoder(dict[str, Raw]).decode


def request_in(body: bytes) -> RequestIn:
    """Reads the request in a frame. A request that is wrapped in `msgDetail` is unwrapped, and
    belongs to the session of its envelope if it names none. Raises `Unparseable` or `Malformed`."""
    read = _decoded(_read_request, body)
    if read.msg_type == DATA and read.msg_detail is not None:
        inner = _decoded(_read_request, read.msg_detail.encode())
        session = inner.session_id or read.session_id
        return msgspec.structs.replace(
            inner, session_id=session, agent_id=inner.agent_id or read.agent_id
        )
    if read.msg_type is None and not read.name:
        raise Malformed("Expected a method")
    return read


def id_in(body: bytes) -> Id:
    """Returns the id of a request that cannot be read otherwise, if it has one."""
    try:
        found = msgspec.json.decode(_read_raw(body).get("id", b"null"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if type(found) in (str, int, float) else None


def envelope_in(body: bytes) -> EnvelopeIn:
    """Reads the message of an agent. Raises `Unparseable` or `Malformed`."""
    return _decoded(_read_envelope, body)


def response_in(detail: str) -> ResponseIn:
    """Reads the response inside `msgDetail`. Raises `Unparseable` or `Malformed`. Its depth is
    checked separately, because it is only a string in the frame around it."""
    body = detail.encode()
    check_answer(body)
    return _decoded(_read_response, body)


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    check(body)
    try:
        return decode(body)
    except msgspec.ValidationError as exc:
        raise Malformed(str(exc).replace(" | null`", "`")) from None
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Unparseable(str(exc)) from None


def word(id: Id) -> str:
    """Returns an id as text, or an empty text if there is none. Most agents require the ids of
    requests to be strings, and the servers of other vendors send numbers."""
    if isinstance(id, str):
        return id
    return "" if id is None else encode(id).decode()
