"""What comes back when a skill asks, and how a skill says it will not or could not."""

from __future__ import annotations

import hashlib

from dragoman.core.errors import AgentError
from dragoman.core.model import Blob, File, Json, Link, Message
from dragoman.core.questions import first_data

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
        """The reason the author gave."""
        return self._reason


class Answer(str):
    """What the caller answered: its text, and the whole message behind it."""

    __slots__ = ("data", "message")
    message: Message
    data: Json

    @classmethod
    def of(cls, message: Message, value: Json = None) -> Answer:
        """The answer a message holds; `value` is what came as data."""
        data = value if value is not None else first_data(message.parts)
        text = message.text or (data if isinstance(data, str) else "")
        answer = cls(text)
        answer.message, answer.data = message, data
        return answer

    @property
    def files(self) -> tuple[File, ...]:
        """The files that came with it."""
        return tuple(p for p in self.message.parts if isinstance(p, Blob | Link))


def bound(name: str, details: Json) -> str:
    """The name of an approval with the mark of what it is for, so that it is for nothing else."""
    if details is None:
        return name
    return f"{name}@{hashlib.sha256(json_of(details)).hexdigest()[:12]}"
