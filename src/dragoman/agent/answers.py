"""The answer to a question of a skill, and the exceptions by which a skill refuses or fails."""

from __future__ import annotations

import hashlib

from dragoman.core.errors import AgentError, DragomanError
from dragoman.core.model import File, Json, Message

from .parts import json_of


class Rejected(AgentError):
    """The agent does not take this task."""


class Failed(AgentError):
    """The agent could not do it."""

    def __init__(self, message: str = "", *, reason: str = "failed", **public: str) -> None:
        super().__init__(message, **public)
        self._reason = reason

    @property
    def reason(self) -> str:
        """Returns the reason that the author gave."""
        return self._reason


class Canceled(Failed):
    """The agent elsewhere that did the work has canceled it, although nobody asked here."""


class CallRefused(AgentError):
    """The agent refuses the call: its caller gets `error` if there is no task yet, else the task
    fails with it."""

    def __init__(self, error: DragomanError) -> None:
        super().__init__(error.message)
        self.error = error


class Answer(str):
    """The answer of the caller: a text, with the whole message behind it."""

    __slots__ = ("data", "message")
    message: Message
    data: Json

    @classmethod
    def of(cls, message: Message, value: Json = None) -> Answer:
        """Makes the answer that a message holds. `value` is the answer as data, if there is any."""
        data = value if value is not None else message.data
        text = message.text or (data if isinstance(data, str) else "")
        answer = cls(text)
        answer.message, answer.data = message, data
        return answer

    @property
    def files(self) -> tuple[File, ...]:
        """Returns the files that came with the answer."""
        return self.message.files


def approval_name(name: str, details: Json) -> str:
    """Returns the name of an approval with a digest of its details, so that it counts for nothing
    else."""
    if details is None:
        return name
    return f"{name}@{hashlib.sha256(json_of(details)).hexdigest()[:12]}"
