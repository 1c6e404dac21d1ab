"""The canonical model of tasks, which every dialect translates to and from.

All values are frozen. Times are whole milliseconds since the epoch (UTC). `gc=False` is safe here
because JSON-shaped data cannot form cycles; it keeps the collector out of the hot path.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

Json = Any
"""Any JSON value. This is the only place where `Any` stands for data."""


class State(StrEnum):
    """The state of a task; `lifecycle.NEXT` says which states may follow. Code that runs for each
    event or call keeps the members that it needs under a name of its own: in Python 3.11, to look
    one up takes longer than to call a function."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    """Only peers that cannot tell the state report it; our own tasks are never in it."""


class Role(StrEnum):
    """The side that sent a message."""

    USER = "user"
    AGENT = "agent"


class Part(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One piece of content: `Text`, `Blob`, `Link` or `Data`."""

    filename: str = ""
    media_type: str = ""
    metadata: dict[str, Json] | None = None


class Text(Part, frozen=True, gc=False, omit_defaults=True, tag="text"):
    """A piece of text."""

    text: str


class Blob(Part, frozen=True, gc=False, omit_defaults=True, tag="blob"):
    """A file whose content is carried along."""

    content: bytes


class Link(Part, frozen=True, gc=False, omit_defaults=True, tag="link"):
    """A file that lies at another address."""

    url: str


class Data(Part, frozen=True, gc=False, omit_defaults=True, tag="data"):
    """A JSON value; `None` is a value too."""

    value: Json


AnyPart = Text | Blob | Link | Data
File = Blob | Link


class Message(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A message from one side to the other."""

    message_id: str
    """The id that its sender gave it."""
    role: Role
    parts: tuple[AnyPart, ...]
    context_id: str = ""
    """The conversation it belongs to; empty begins a new one."""
    task_id: str = ""
    """The task it continues or answers; empty opens a new one."""
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] = ()
    """The URIs of the extensions that it uses."""
    references: tuple[str, ...] = ()
    """The ids of other tasks that it refers to."""

    @property
    def text(self) -> str:
        """Returns all text parts, joined by line ends."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def data(self) -> Json:
        """Returns the value of the first data part, or None."""
        return first_data(self.parts)

    @property
    def files(self) -> tuple[File, ...]:
        """Returns the parts that are files."""
        return files_in(self.parts)


def first_data(parts: Iterable[AnyPart]) -> Json:
    """Returns the value of the first data part, or None."""
    return next((part.value for part in parts if isinstance(part, Data)), None)


def files_in(parts: Iterable[AnyPart]) -> tuple[File, ...]:
    """Returns those of the parts that are files: `Blob` (carried along) or `Link` (elsewhere)."""
    return tuple(part for part in parts if isinstance(part, Blob | Link))


def from_caller(message: Message) -> Message:
    """Returns the message with the role of the user, whichever role it claims: a caller must not
    be able to add messages in the name of the agent."""
    return message if message.role is _USER else replace(message, role=_USER)


# In Python 3.11, accessing a member of an enum costs ten times as much as a global variable.
_USER = Role.USER


class Artifact(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A result that a task has made."""

    artifact_id: str
    """Its id, which is unique within the task."""
    parts: tuple[AnyPart, ...]
    name: str = ""
    description: str = ""
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Returns all text parts, joined without separators: chunks of one artifact are one
        text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Status(Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of a task, the time since when it holds, and what the agent said with it."""

    state: State
    at: int = 0
    message: Message | None = None

    @property
    def text(self) -> str:
        """Returns the text of the message: a question, or why the task failed. It is empty if the
        agent said nothing."""
        return self.message.text if self.message is not None else ""


class Task(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A piece of work with an id, a state and results."""

    id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Json] | None = None
    usage: dict[str, Json] | None = None
    """The usage that the run reported (`turn.usage`). Work is opaque in A2A, so only IAT shows
    it."""

    @property
    def state(self) -> State:
        """Returns `task.status.state`."""
        return self.status.state

    @property
    def answer(self) -> Message | None:
        """Returns the message that holds the answer of a completed task without artifacts.

        Many agents answer in the message of the final status. Others answer while they work and
        then complete the task without a message; then the answer is the last message of the agent
        after the last one of its caller.
        """
        if self.state is not State.COMPLETED:
            return None
        if any(isinstance(part, Text | Data) for made in self.artifacts for part in made.parts):
            return None
        if self.status.message is not None and self.status.message.parts:
            return self.status.message
        for message in reversed(self.history):
            if message.role is Role.USER:
                return None
            if message.parts:
                return message
        return None

    @property
    def text(self) -> str:
        """Returns the text of all artifacts or, if there is none, of the `answer`."""
        made = "\n".join(filter(None, (artifact.text for artifact in self.artifacts)))
        if made:
            return made
        answer = self.answer
        return answer.text if answer is not None else ""

    @property
    def parts(self) -> tuple[AnyPart, ...]:
        """Returns the parts of all artifacts and of the `answer`, if there is one."""
        made = tuple(part for artifact in self.artifacts for part in artifact.parts)
        answer = self.answer
        return (*made, *answer.parts) if answer is not None else made

    @property
    def data(self) -> Json:
        """Returns the value of the first data part of the result, or None."""
        return first_data(self.parts)

    @property
    def files(self) -> tuple[File, ...]:
        """Returns the files of the result: `Blob` with its content, or `Link` with an address."""
        return files_in(self.parts)


class Hook(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A webhook: the address that is notified of the events of a task, and how we authenticate
    there."""

    hook_id: str
    task_id: str
    url: str
    token: str = ""
    """The token that the receiver expects with every call."""
    scheme: str = ""
    """The scheme of the Authorization header, such as Bearer."""
    credentials: str = ""
    """The credentials that follow the scheme."""
    dialect: str = ""
    """The dialect in which the webhook was registered, and in which it is called."""
    other_schemes: tuple[str, ...] = ()
    """Further schemes that the receiver accepts, in its order of preference. Only A2A before 1.0
    names any."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """Returns every scheme that the receiver accepts, in its order of preference."""
        return (self.scheme, *self.other_schemes) if self.scheme else self.other_schemes
