"""Anything that can be asked, and on whose behalf."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from .card import Tool
from .events import Stamped
from .model import Message
from .operations import Operation, R, Streamed


class Context(Struct, frozen=True, gc=False, kw_only=True):
    """On whose behalf, and how, something is asked. Made once per request by `admit`."""

    tenant: str = ""
    principal: str = "anonymous"
    tenants: tuple[str, ...] = ("",)
    """All tenants the principal belongs to; `tenant` is the one it acts in."""
    scopes: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    """The security schemes that vouch for the principal; none: nobody does."""
    dialect: str = ""
    extensions: tuple[str, ...] = ()
    tools: tuple[Tool | str, ...] = ()
    """What the caller runs for the agent; a bare name takes and gives anything."""
    cursor: int | None = None
    """The seq of the last event the caller has; the stream goes on behind it."""
    idempotency_key: str = ""
    deadline: float | None = None
    """Seconds of work after which the caller wants no result any more."""
    trace: str = ""
    """The W3C traceparent this call belongs to."""
    hops: int = 0
    """How many agents asked each other before this call."""
    base: str = ""
    """The address that the caller typed, as far as it is known. Only the extended card needs it."""


HOPS, DEADLINE = "dragoman-hops", "dragoman-deadline"
"""Headers (and gRPC metadata) in which these two of a context travel. Others ignore them."""
ANYONE = Context()
"""Whoever calls when no authentication is set up."""


class Tap:
    """Live events past a reader that waits for its next batch.

    A reader that can take events without waiting sets `sink`; while it waits, it is not woken for
    each of them. How a stream ends it learns from its last batch, as ever.
    """

    __slots__ = ("after", "sink")

    def __init__(self, after: int = 0) -> None:
        self.after = after
        """The seq of the last event the reader has."""
        self.sink: Callable[[Sequence[Stamped]], None] | None = None


class Batch(Struct, frozen=True, gc=False):
    """What of a stream is ready. An empty one says only that the stream is alive."""

    entries: Sequence[Stamped | Message]
    last: bool
    tap: Tap | None = None


class Peer(Protocol):
    """Anything that can be asked: the local engine, a remote agent, a router, middleware."""

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer, or a `DragomanError`."""

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step from the first to the last; raises before the first if it cannot be done."""
