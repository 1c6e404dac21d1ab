"""Spans: what a tracer is told of the work. `observability.tracing` sets the tracer of the process;
without one, nothing is measured and nothing is done.

    if spans.tracer is not None:
        with spans.tracer.span("step outline", parent=trace):
            ...
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Literal, Protocol

Kind = Literal["server", "client", "internal"]
Value = str | int | float | bool
About = Mapping[str, Value]
"""The attributes of a span."""
NOTHING: About = {}


class Span(Protocol):
    """One piece of work."""

    @property
    def traceparent(self) -> str:
        """The span as a W3C traceparent, by which work elsewhere becomes a child of it."""

    def set(self, **attributes: Value) -> None:
        """Adds attributes."""

    def fail(self, failure: BaseException | str) -> None:
        """Says that the work failed: with this exception, or without one for this reason."""

    def end(self, error: BaseException | None = None) -> None:
        """Ends the span. Only the first end counts."""


class Tracer(Protocol):
    """Makes spans."""

    def start(
        self, name: str, kind: Kind = "internal", parent: str = "", about: About = NOTHING
    ) -> Span:
        """Returns a span that its caller ends. `parent` is a W3C traceparent; by default the parent
        is the span in whose block this is called."""

    def span(
        self, name: str, kind: Kind = "internal", parent: str = "", about: About = NOTHING
    ) -> AbstractContextManager[Span]:
        """Returns a span around a block. Spans that begin in the block are its children."""

    def current(self) -> str:
        """Returns the traceparent of the span around us, or an empty text."""

    def remember(self, task: str, traceparent: str) -> None:
        """Remembers the span of a task, for work that is done for it later."""

    def recall(self, task: str) -> str:
        """Returns the span of a task, or an empty text if it is not known here."""


tracer: Tracer | None = None
"""The tracer of the process, if it has one."""
