"""What a task is: the canonical words every dialect translates to and from.

All values are frozen. Times are whole milliseconds since the epoch (UTC). `gc=False` is safe here
because JSON-shaped data cannot form cycles; it keeps the collector out of the hot path.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

Json = Any
"""Any JSON value. The only place `Any` stands for data."""


class State(StrEnum):
    """Where a task is in its life; `lifecycle.NEXT` says what may follow."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    UNKNOWN = "unknown"
    """Only heard from peers that cannot say; our own tasks are never in it."""


class Role(StrEnum):
    """Who said a message."""

    USER = "user"
    AGENT = "agent"


class Part(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="kind"):
    """One piece of content: `Text`, `Blob`, `Link` or `Data`."""

    filename: str = ""
    media_type: str = ""
    metadata: dict[str, Json] | None = None


class Text(Part, frozen=True, gc=False, omit_defaults=True, tag="text"):
    """Words."""

    text: str


class Blob(Part, frozen=True, gc=False, omit_defaults=True, tag="blob"):
    """A file carried along."""

    content: bytes


class Link(Part, frozen=True, gc=False, omit_defaults=True, tag="link"):
    """A file that lies elsewhere."""

    url: str


class Data(Part, frozen=True, gc=False, omit_defaults=True, tag="data"):
    """A JSON value; `None` is a value too."""

    value: Json


AnyPart = Text | Blob | Link | Data
File = Blob | Link


class Message(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Something one side said to the other."""

    message_id: str
    role: Role
    parts: tuple[AnyPart, ...]
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] = ()
    references: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All its text parts, joined by line ends."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Text):
            return self.parts[0].text
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))


def from_caller(message: Message) -> Message:
    """The message as its caller's words, whichever role it claims: a caller that says `agent`
    must not put words into the agent's mouth."""
    return message if message.role is _USER else replace(message, role=_USER)


# In Python 3.11 naming a member costs as much as looking one up ten times.
_USER = Role.USER


class Artifact(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Something a task made."""

    artifact_id: str
    parts: tuple[AnyPart, ...]
    name: str = ""
    description: str = ""
    metadata: dict[str, Json] | None = None
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All its text, joined without separators: chunks of one artifact are one text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))


class Status(Struct, frozen=True, gc=False, omit_defaults=True):
    """The state of a task, since when, and what the agent said with it."""

    state: State
    at: int = 0
    message: Message | None = None


class Task(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A piece of work with an id, a state and results."""

    id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...] = ()
    history: tuple[Message, ...] = ()
    metadata: dict[str, Json] | None = None
    usage: dict[str, Json] | None = None
    """What its run says it used (`turn.usage`). Work is opaque in A2A, so only IAT tells it."""

    @property
    def state(self) -> State:
        """Short for `task.status.state`."""
        return self.status.state

    @property
    def answer(self) -> Message | None:
        """The message that holds the answer of a completed task whose artifacts hold none.

        Many agents answer in the status message. Others say it while they work and then complete
        the task without a word: then it is the agent's last message behind its caller's last one.
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
        """The text of all artifacts, else of the `answer`: what most callers came for."""
        made = "\n".join(filter(None, (artifact.text for artifact in self.artifacts)))
        if made:
            return made
        answer = self.answer
        return answer.text if answer is not None else ""


class Hook(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A webhook: where to tell what happens to a task, and how to prove who tells it."""

    hook_id: str
    task_id: str
    url: str
    token: str = ""
    """What the receiver wants to hear back with every call."""
    scheme: str = ""
    """Of the Authorization header, such as Bearer,"""
    credentials: str = ""
    """and what follows it."""
    dialect: str = ""
    """In which it was registered, and is told."""
    other_schemes: tuple[str, ...] = ()
    """Further schemes that the receiver accepts, in its order. Only A2A before 1.0 names any."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """Every scheme that the receiver accepts, in its order."""
        return (self.scheme, *self.other_schemes) if self.scheme else self.other_schemes
