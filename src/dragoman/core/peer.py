"""`Peer`, the interface of everything that answers operations, and `Context`, which says on whose
behalf an operation is requested."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from .card import Tool
from .events import Stamped
from .model import Message
from .operations import Operation, R, Streamed


class BearerToken(Struct, frozen=True, gc=False):
    """A bearer token. `repr` shows nothing of it."""

    secret: str

    def __repr__(self) -> str:
        return "BearerToken()"


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Context(Struct, frozen=True, gc=False, kw_only=True):
    """The caller of an operation and the circumstances of its request. `admit` makes one per
    request."""

    tenant: str = ""
    principal: str = "anonymous"
    tenants: tuple[str, ...] = ("",)
    """All tenants that the principal belongs to; `tenant` is the one in which it acts."""
    scopes: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    """The security schemes that authenticated the principal; empty if none did."""
    dialect: str = ""
    extensions: tuple[str, ...] = ()
    tools: tuple[Tool | str, ...] = ()
    """The tools that the caller runs for the agent. A bare name is a tool without schemas."""
    cursor: int | None = None
    """The seq of the last event that the caller has; a stream continues after it."""
    idempotency_key: str = ""
    deadline: float | None = None
    """The seconds of work after which the caller does not want the result any more."""
    trace: str = ""
    """The W3C traceparent this call belongs to."""
    hops: int = 0
    """The number of agents that have called each other before this call."""
    base: str = ""
    """The address that the caller used, as far as it is known. Only the extended card needs it."""
    headers: Mapping[str, str] = NO_HEADERS
    """Those headers of the request that `server.caller_headers` chooses, by their names in lower
    case. They never hold credentials."""
    token: BearerToken | None = None
    """The verified token that the caller showed, where an agent elsewhere is called for it. It is
    exchanged for another one, and never sent to that agent."""
    bearer: BearerToken | None = None
    """The token that a client sends in place of its own credentials."""


AGENT = "dragoman-agent"
"""The gRPC metadata that names the agent, on a port that several agents share."""
IDENTITY = ("tenant", "principal", "tenants", "scopes", "schemes")
"""The fields that identify the caller, independently of what it requests."""


def identity_of(found: object) -> dict[str, Any]:
    """Returns the identity of a caller, taken from its context or from an object with the same
    fields."""
    return {name: getattr(found, name) for name in IDENTITY}


HOPS, DEADLINE = "dragoman-hops", "dragoman-deadline"
"""The headers, or gRPC metadata, that carry these two fields of a context. Other servers ignore
them."""
ANYONE = Context()
"""The context of every caller where no authentication is set up."""


class Tap:
    """Delivers live events to a reader directly, while it waits for its next batch.

    A reader that can take events without waiting sets `sink`. Events then go to `sink`, and the
    reader is not woken for each of them, which saves a switch of tasks per event. The reader still
    learns from its last batch how the stream ends.
    """

    __slots__ = ("after", "sink")

    def __init__(self, after: int = 0) -> None:
        self.after = after
        """The seq of the last event that the reader has."""
        self.sink: Callable[[Sequence[Stamped]], None] | None = None


class Batch(Struct, frozen=True):
    """The events of a stream that are ready. An empty batch says only that the stream is alive."""

    entries: Sequence[Stamped | Message]
    last: bool
    tap: Tap | None = None


Begun = tuple[Batch | None, AsyncGenerator[Batch, None]]
"""The first events of a stream, and the stream of all that follow, which has to be closed."""


async def _nothing() -> AsyncGenerator[Batch, None]:
    return
    yield


NO_MORE = _nothing()
"""What follows the last events of a stream. All streams share it, because to make a generator and
to close it costs as much as to read a few events."""
with suppress(StopAsyncIteration):
    anext(NO_MORE).__await__().send(None)  # it has ended, so it can be closed any number of times


async def begin_stream(steps: AsyncGenerator[Batch, None]) -> Begun:
    """Waits for the first events of a stream. A generator that raises has ended, so there is
    nothing to close then."""
    return await anext(steps, None), steps


async def batches_of(begun: Awaitable[Begun]) -> AsyncGenerator[Batch, None]:
    """Yields the events of a stream from the first on."""
    batch, steps = await begun
    try:
        while batch is not None:
            yield batch
            batch = await anext(steps, None)
    finally:
        await steps.aclose()


class Peer(Protocol):
    """Anything that answers operations: the local engine, a remote agent, a router or
    middleware."""

    async def call(self, op: Operation[R], ctx: Context, /) -> R:
        """Returns the answer to an operation, or raises a `DragomanError`."""

    def stream(self, op: Streamed, ctx: Context, /) -> AsyncGenerator[Batch, None]:
        """Yields every event from the first to the last. Raises a `DragomanError` before the first
        one if the operation cannot be executed."""
