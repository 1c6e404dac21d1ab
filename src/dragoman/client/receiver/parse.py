"""Parses the body of a webhook of any version of A2A, which its members reveal.

A sender does not say which version it speaks, and the official SDKs differ from the specification
and from each other (a2a-wire §13.6): 1.0 wraps the event, 0.2 and 0.3 name its type in `kind`, 0.1
does neither. The shape therefore decides. A body that fits two versions means the same in both.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dragoman.core.errors import BadParams, Unparseable
from dragoman.core.events import Snapshot, Stamped
from dragoman.core.model import Json, Message, Task
from dragoman.dialects import jsonrpc
from dragoman.dialects.a2a import REST_0_3, V0_1, V0_3, V1_0
from dragoman.dialects.a2a.legacy.a2a_go import A2A_GO
from dragoman.dialects.a2a.scalars import Wrong
from dragoman.dialects.a2a.version import Version

from .notice import Notice

LONGEST_SEQ = 18

Present = Raw | UnsetType


class MessageMarks(Struct, frozen=True):
    """The members of a wrapped message that tell its version."""

    content: Present = UNSET


class StatusMarks(Struct, frozen=True):
    """The members of a status that tell its version."""

    state: Json = None


class Marks(Struct, frozen=True, rename="camel"):
    """The members that tell versions apart."""

    kind: Json = None
    session_id: Present = UNSET
    context_id: Present = UNSET
    parts: Present = UNSET
    content: Present = UNSET
    id: Json = None
    status: StatusMarks | None = None
    task: Present = UNSET
    message: MessageMarks | None = None
    msg: Present = UNSET
    status_update: Present = UNSET
    artifact_update: Present = UNSET

    @property
    def state(self) -> str:
        """Returns the word for the task's state."""
        said = self.status.state if self.status is not None else None
        return said if isinstance(said, str) else ""

    @property
    def wrapped(self) -> bool:
        """Returns whether one member holds the event, and its name says what it is."""
        wrappers = (self.task, self.msg, self.status_update, self.artifact_update)
        return self.message is not None or any(each is not UNSET for each in wrappers)


_read_marks = msgspec.json.Decoder(Marks).decode

_VERSIONS: tuple[tuple[Callable[[Marks], bool], Version], ...] = (
    # REST of 0.3 is the JSON of another protobuf: its messages have `content`.
    (lambda m: m.msg is not UNSET or m.content is not UNSET, REST_0_3.version),
    (lambda m: m.message is not None and m.message.content is not UNSET, REST_0_3.version),
    (lambda m: m.wrapped, V1_0),
    (lambda m: isinstance(m.kind, str), V0_3),
    (lambda m: m.state.startswith("TASK_STATE_"), V1_0),
    (lambda m: m.state in ("pending", "processing"), A2A_GO),
    (lambda m: m.context_id is not UNSET or m.parts is not UNSET, V0_3),
    (lambda m: True, V0_1),
)
"""The readers by version; the first whose mark is there reads the body."""


def entry_in(body: bytes, seq: int = 0) -> Stamped | Message:
    """Decodes a body. Raises `Unparseable` or `BadParams` if it is no event of any version."""
    jsonrpc.check_answer(body)
    try:
        marks = _read_marks(body)
        version = next(version for marked, version in _VERSIONS if marked(marks))
        # A task of 0.1 has the shape of its status event, which is sent in streams only.
        if version in (V0_1, A2A_GO) and marks.id is not None and marks.status is not None:
            return _snapshot(version.methods["tasks/get"].result_in(Raw(body)), seq)
        entry, _ = version.event_in(Raw(body), seq)
    except msgspec.ValidationError as exc:
        raise BadParams(f"This is no event of a task: {exc}") from None
    except msgspec.DecodeError:
        raise Unparseable() from None
    except (Wrong, RecursionError) as exc:
        raise BadParams(f"This is no event of a task: {exc}") from None
    if not entry.task_id and isinstance(entry, Stamped):
        raise BadParams("This is no event of a task: it names none")
    return entry


def _snapshot(task: object, seq: int) -> Stamped:
    if not isinstance(task, Task):
        raise Wrong("Expected a task")
    return Stamped(task.id, task.context_id, seq, task.status.at, Snapshot(task=task))


def read(body: bytes, id: str = "", *, signed: bool = False) -> Notice:
    """Returns the notice in the body of a verified call."""
    return Notice(entry=entry_in(body, _seq(id)), id=id, signed=signed)


def _seq(id: str) -> int:
    """Returns the event's number in the log, which is the last part of our own delivery ids."""
    said = id.rpartition(".")[2] if "." in id else ""
    return int(said) if said.isascii() and said.isdigit() and len(said) <= LONGEST_SEQ else 0
