"""The open question of a task."""

from __future__ import annotations

from msgspec import Struct

from dragoman.core.events import Ask


class OpenQuestion(Struct, frozen=True, gc=False):
    """The open question of a task, as stored in its row."""

    key: str = ""
    """The name of the question; empty while no question is open."""
    kind: Ask | None = None
    expires_at: int = 0


NO_QUESTION = OpenQuestion()
