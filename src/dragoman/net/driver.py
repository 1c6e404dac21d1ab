"""The one driver: runs the callee of any dialect, over any wire, in front of a peer.

Wires give it frames and write frames. What lies between is the same for all of them and is done
here: the caller is admitted, the frame is read, the peer is asked, and whatever goes wrong becomes
a fault in the caller's own dialect.

Everything is called directly. There is no task group, queue or timeout object per request: the
budget of a whole send above the bare server is about 80 us.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from msgspec.structs import replace

from dragoman.core.errors import (
    AgentCrashed,
    BadParams,
    DragomanError,
    TooMany,
    Unauthenticated,
    Unsupported,
    VersionUnsupported,
)
from dragoman.core.model import Json, Task
from dragoman.core.operations import SendMessage
from dragoman.core.peer import ANYONE, Batch, Context, Peer
from dragoman.core.session import (
    Call,
    Fault,
    Frame,
    Id,
    Introduction,
    Ping,
    Result,
    Session,
    Signal,
)
from dragoman.security.authentication import in_tenant

from .question_stream import stream_until_final
from .server_context import OpenStream, ServerContext

Asked = Call | Introduction | Ping
"""What a caller can say."""
NOTHING_MORE: Iterator[Signal] = iter(())


class Admitted:
    """The caller of one frame. An `Admission` adds what its `DialectRole` wants to know of it."""

    __slots__ = ("ctx",)

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx


class Admission(Protocol):
    """Finds the caller of a frame in the frame itself: in some dialects a token or a signature
    stands in the body. Elsewhere headers are enough, and `ServerContext.admit` reads them before
    the body."""

    @property
    def admits_everyone(self) -> bool:
        """Whether nobody is refused, so that a message need not be small before it is read."""

    async def admit(self, session: Session, frame: Frame, certificate: str) -> Admitted:
        """The caller of the frame that the session has received last, or `Unauthenticated`."""

    async def recognizes(self, headers: Mapping[str, str], target: str, certificate: str) -> bool:
        """Whether the headers alone say whose a request or a WebSocket is. If not, the body or the
        first frame has to, and until then it has the limits of a stranger. Raises
        `Unauthenticated` if what the headers say is wrong."""


class DialectRole(Protocol):
    """What a dialect needs on a server beyond its codec: someone to answer what is no operation."""

    async def welcome(self, met: Introduction, caller: Admitted, peer: Peer | None) -> Json:
        """The answer to a caller that introduces itself. `peer` asks it back, where the channel
        allows that."""

    async def alive(self, caller: Admitted) -> Json:
        """The answer to a ping."""


@dataclass(slots=True, eq=False)  # a Struct's attributes are read more slowly
class Driver:
    """Runs the conversations at one address, in the dialects that `callee` tells apart."""

    server: ServerContext
    callee: Callable[[], Session]
    served: Collection[str] | None = None
    """The dialects of `callee` that are served here; None: all of them."""
    admission: Admission | None = None
    role: DialectRole | None = None


class Exchange:
    """One frame of a caller's, from its arrival to its answer.

    A wire calls `admit`, `receive` and `ask` (or `steps`, for a stream) in this order, sends what
    the session says to `answer`, and to `fail` whatever any of them raised.
    """

    __slots__ = ("_driver", "_more", "_refusal", "caller", "ctx", "echo", "id", "method", "session")

    def __init__(self, driver: Driver, session: Session) -> None:
        self._driver = driver
        self.session = session
        self.ctx: Context = ANYONE
        """On whose behalf the peer is asked."""
        self.caller: Admitted | None = None
        self.id: Id = None
        self.method = "-"
        """The name of the operation, for logs and metrics."""
        self.echo = ""
        """The extensions that are active, to be told under the session's name for the header."""
        self._refusal: BadParams | None = None
        self._more = NOTHING_MORE

    @property
    def server(self) -> ServerContext:
        """What the agent that is asked is served with."""
        return self._driver.server

    def redirect(self, driver: Driver) -> None:
        """Goes on with another driver, in a session of its own, before the caller is admitted."""
        self._driver, self.session = driver, driver.callee()

    async def admit(self, headers: Mapping[str, str], target: str, certificate: str) -> None:
        """Finds the caller as far as headers tell. What only the frame tells, `receive` finds."""
        driver = self._driver
        if driver.admission is not None:
            return
        try:
            admitted = driver.server.admit(headers, target, certificate)
            self.ctx = admitted if isinstance(admitted, Context) else await admitted
        except BadParams as exc:
            # A header is wrong, not the caller: `receive` says so, under the id of the call.
            self._refusal = exc

    async def is_recognized(
        self, headers: Mapping[str, str], target: str, certificate: str, address: str
    ) -> bool:
        """Whether the caller is known before its frame is here, where only that says whose it is:
        by the headers, or since somebody was known at its address lately."""
        admission, server = self._driver.admission, self._driver.server
        assert admission is not None  # noqa: S101  else `admit` has found the caller already
        try:
            return (
                await admission.recognizes(headers, target, certificate)
                or address in server.recognized
            )
        except Unauthenticated:
            return False

    def identify(self, frame: Frame) -> None:
        """Learns from the frame of a caller that is refused in which form, and if the body came
        under which id, it can be told so."""
        self.id = next(iter(self.session.receive(frame))).id

    async def receive(self, frame: Frame, certificate: str = "") -> Asked:
        """What the frame asks, if its caller may ask it here; raises what is to be told
        otherwise."""
        driver, session = self._driver, self.session
        server = driver.server
        self._more = signals = iter(session.receive(frame))
        signal = next(signals)
        self.id = signal.id
        if driver.admission is not None:
            self.caller = await driver.admission.admit(session, frame, certificate)
            self.ctx = self.caller.ctx
        # Not isinstance: where it is false, it costs a Struct's metaclass a search.
        if type(signal) is Fault:
            raise signal.error
        if self._refusal is not None:
            raise self._refusal
        dialect = session.dialect
        if driver.served is not None and dialect not in driver.served:
            raise VersionUnsupported(supported=", ".join(driver.served))
        ctx = self.ctx
        if session.tenant:
            ctx = in_tenant(ctx, session.tenant)
        if ctx.dialect != dialect:
            ctx = speaking(ctx, dialect)
        self.ctx = ctx
        server.log.details("read", session.notes)
        if ctx.extensions and session.extensions_header:
            self.echo = ", ".join(uri for uri in ctx.extensions if uri in server.extensions)
        if type(signal) is Call:
            self.method = type(signal.op).__name__
        elif isinstance(signal, Introduction | Ping):
            self.method = type(signal).__name__
        else:
            raise AssertionError(f"a callee heard {type(signal).__name__}")
        return signal

    async def ask(self, signal: Asked, peer: Peer | None = None) -> Any:
        """The answer to what was asked; `peer` asks the caller back, where the wire allows it."""
        driver, ctx = self._driver, self.ctx
        asked = driver.server.peer
        value: Any
        if type(signal) is Call:
            op = signal.op
            if signal.silent and isinstance(op, SendMessage):
                op = replace(op, wait=False)  # nobody waits for it
            value = await asked.call(op, ctx)
        elif driver.role is None:
            raise Unsupported()
        else:
            caller = self.caller or Admitted(ctx)
            if isinstance(signal, Introduction):
                value = await driver.role.welcome(signal, caller, peer)
            else:
                value = await driver.role.alive(caller)
        for each in self._more:  # one frame may end several tasks
            if isinstance(each, Call):
                await asked.call(each.op, ctx)
        if ctx.trace:
            task = value.id if isinstance(value, Task) else ""
            driver.server.log.info("call", method=self.method, task=task, trace=ctx.trace)
        return value

    def answer(self, value: Any) -> Frame:
        """The frame that answers."""
        (frame,) = self.session.send(Result(self.id, value))
        return frame

    def fail(self, exc: Exception) -> Fault:
        """What the caller is told of a failure. One that nobody foresaw goes to the log, and only
        its number to the caller."""
        server, dialect = self._driver.server, self.session.dialect
        if isinstance(exc, DragomanError):
            error = exc
        else:
            crash = secrets.token_hex(6)
            server.log.error("crash", exc, error=crash, method=self.method, dialect=dialect)
            error = AgentCrashed(f"Internal error {crash}.", error=crash)
        server.metrics.failed(error.reason, dialect)
        return Fault(self.id, error)

    def count(self, began: float) -> None:
        """Counts the exchange as answered. A stream is answered when its first event is out."""
        metrics = self._driver.server.metrics
        metrics.answered(self.method, self.session.dialect, perf_counter() - began)

    # Streams

    def open_stream(self, task: asyncio.Task[Any]) -> OpenStream:
        """Takes a place among the open streams; `TooMany` if there is none. It is given back with
        `ServerContext.streams.discard`."""
        server = self._driver.server
        if len(server.streams) >= server.limits.streams:
            raise TooMany("Too many streams are open; try again later.")
        self.method += "+stream"
        stream = OpenStream(task)
        server.streams.add(stream)
        return stream

    def steps(self, call: Call) -> AsyncGenerator[Batch, None]:
        """What a stream tells."""
        peer = self._driver.server.peer
        if self.session.follows_questions:
            return stream_until_final(peer, call.op, self.ctx)  # type: ignore[arg-type]
        return peer.stream(call.op, self.ctx)  # type: ignore[arg-type]  # only these stream

    def count_stream(self, began: float) -> None:
        """Counts a stream whose first event is ready."""
        self._driver.server.metrics.streams_opened += 1
        self.count(began)

    def count_stall(self) -> None:
        """Counts a stream that was cut because nobody read it."""
        server = self._driver.server
        server.metrics.streams_stalled += 1
        server.log.warning("stream_stalled", dialect=self.session.dialect)


def speaking(caller: Context, dialect: str) -> Context:
    """The caller, with the dialect it speaks. What nobody in particular says in a dialect is always
    the same, and made once."""
    if caller is not ANYONE:
        return replace(caller, dialect=dialect)
    found = _ANYONE.get(dialect)
    if found is None:
        found = _ANYONE[dialect] = replace(caller, dialect=dialect)
    return found


_ANYONE: dict[str, Context] = {}
