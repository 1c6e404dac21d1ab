"""`Skill`: a function of an author, and the way in which it is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal

from msgspec import Struct

from .parameters import Params


class Shape(Enum):
    """The kinds of functions that a skill can be."""

    COROUTINE = "async function"
    GENERATOR = "async generator"
    PLAIN = "function in a thread"
    PLAIN_GENERATOR = "generator in a thread"

    @property
    def threaded(self) -> bool:
        """Returns whether a function of this kind holds a thread while it runs."""
        return self in (Shape.PLAIN, Shape.PLAIN_GENERATOR)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Shape:
        """Returns the kind of a function."""
        if inspect.isasyncgenfunction(function):
            return cls.GENERATOR
        if inspect.iscoroutinefunction(function):
            return cls.COROUTINE
        return cls.PLAIN_GENERATOR if inspect.isgeneratorfunction(function) else cls.PLAIN


class Skill(Struct, frozen=True, kw_only=True):
    """A skill: a function of the author, and the way in which it is run."""

    id: str
    """The id by which callers choose the skill."""
    name: str
    description: str
    function: Callable[..., Any]
    params: Params
    shape: Shape
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    """The media types that it reads; empty means those of the agent."""
    output_modes: tuple[str, ...] = ()
    may_reply: bool = False
    """Whether it may answer with a message instead of a task."""
    join: float = 0.0
    """The seconds for which chunks are joined into one event; 0 joins nothing."""
    on_crash: Literal["resume", "fail"] = "resume"
    """What happens to a task whose process died: it runs again, or it fails."""
    max_attempts: int = 10
    timeout: float = 3600.0
    """The seconds of work after which a run is ended."""
    max_runs: int = 0
    """How many of its tasks may run at a time, in all processes on one store; further ones wait.
    0: as many as the settings allow."""
    cancel_grace: float = 10.0
    """The seconds that a canceled run has to end by itself."""
    scopes: tuple[str, ...] = ()
    """The scopes that a caller needs to use the skill, beside those of the agent."""
    extended: bool = False
    """Whether the skill is only on the extended card, for callers that may use it."""
    anonymous: bool = False
    """Whether callers without credentials may use the skill of an agent that otherwise requires
    them."""
