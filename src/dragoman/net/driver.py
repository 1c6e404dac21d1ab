"""The driver runs the callee session of any dialect, over any wire, in front of a peer.

A wire passes frames to the driver and writes the frames that it returns. Everything in between is
the same for all wires and happens here: the driver admits the caller, decodes the frame, calls the
peer and turns every failure into a fault of the caller's dialect.

Everything is called directly. There is no task group, queue or timeout object per request, since a
whole send may cost only about 80 us more than the bare server.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeGuard

from msgspec.structs import replace

from dragoman.core.errors import (
    AgentCrashed,
    BadParams,
    ContentTypeUnsupported,
    DragomanError,
    Malformed,
    TooMany,
    Unauthenticated,
    Unparseable,
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
    Posted,
    Result,
    Session,
    Signal,
)
from dragoman.security.authentication import in_tenant

from .question_stream import stream_until_final
from .server_context import OpenStream, ServerContext

Asked = Call | Introduction | Ping | Posted
"""The signals that a caller can send."""
NOTHING_MORE: Iterator[Signal] = iter(())


class Admitted:
    """The caller of one frame. An `Admission` may return a subclass with more for its
    `DialectRole`."""

    __slots__ = ("ctx",)

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx


class Admission(Protocol):
    """Authenticates a caller by the frame itself, for dialects whose body holds a token or a
    signature. In other dialects the headers are enough, and `ServerContext.admit` reads them before
    the body."""

    @property
    def admits_everyone(self) -> bool:
        """Whether nobody is refused. Messages of unknown callers then need no lower size limit."""

    async def admit(self, session: Session, frame: Frame, certificate: str) -> Admitted:
        """Returns the caller of the frame that the session received last, or raises
        `Unauthenticated`."""

    def has_credentials(self, frame: Frame) -> bool:
        """Returns whether the body of a frame seems to hold credentials, even if the frame cannot
        be decoded."""

    async def recognizes(self, headers: Mapping[str, str], target: str, certificate: str) -> bool:
        """Returns whether the headers alone authenticate a request or a WebSocket. If not, the body
        or the first frame has to, and until then the limits for unknown callers apply. Raises
        `Unauthenticated` if the headers hold wrong credentials."""


class DialectRole(Protocol):
    """Answers the signals of a dialect that are no operations: introductions, pings, and the events
    of our own calls."""

    async def welcome(self, met: Introduction, caller: Admitted, peer: Peer | None) -> Json:
        """Returns the answer to an introduction. `peer` calls the caller back, if the wire allows
        that."""

    async def alive(self, caller: Admitted) -> Json:
        """Returns the answer to a ping."""

    async def take_event(self, posted: Posted, caller: Admitted) -> Json:
        """Takes an event of a call of ours. Returns the answer to a question, when there is one."""


@dataclass(slots=True, eq=False)  # reading an attribute of a Struct takes longer
class Driver:
    """Runs the conversations at one address, in the dialects that `callee` recognises."""

    server: ServerContext
    callee: Callable[[], Session]
    served: Collection[str] | None = None
    """The dialects of `callee` that are served here; None means all of them."""
    admission: Admission | None = None
    role: DialectRole | None = None


class Exchange:
    """One frame of a caller, from its arrival to its answer.

    A wire calls `admit`, `receive` and `ask` (or `steps` for a stream) in this order. It passes the
    result to `answer`, or the exception that any of them raised to `fail`.
    """

    __slots__ = ("_driver", "_more", "_refusal", "caller", "ctx", "echo", "id", "method", "session")

    def __init__(self, driver: Driver, session: Session) -> None:
        self._driver = driver
        self.session = session
        self.ctx: Context = ANYONE
        """The context of the caller, on whose behalf the peer is called."""
        self.caller: Admitted | None = None
        self.id: Id = None
        self.method = "-"
        """The name of the operation, for logs and metrics."""
        self.echo = ""
        """The active extensions, which the answer names in the header that the session chooses."""
        self._refusal: BadParams | None = None
        self._more = NOTHING_MORE

    @property
    def server(self) -> ServerContext:
        """Returns the context of the agent that is called."""
        return self._driver.server

    def redirect(self, driver: Driver) -> None:
        """Continues with another driver and a new session of its dialect. This is called before the
        caller is admitted."""
        self._driver, self.session = driver, driver.callee()

    def admit(
        self, headers: Mapping[str, str], target: str, certificate: str
    ) -> Awaitable[None] | None:
        """Authenticates the caller by its headers; if that takes time, the result has to be
        awaited. If only the frame can tell, `receive` does it."""
        driver = self._driver
        if driver.admission is not None:
            return None
        try:
            admitted = driver.server.admit(headers, target, certificate)
        except BadParams as exc:
            self._refusal = exc
            return None
        if not isinstance(admitted, Context):
            return self._admitted(admitted)
        self.ctx = admitted
        return None

    async def _admitted(self, admitted: Awaitable[Context]) -> None:
        try:
            self.ctx = await admitted
        except BadParams as exc:
            # The caller is fine but one of its headers is not. `receive` raises this, so that the
            # answer can carry the id of the call.
            self._refusal = exc

    async def is_recognized(
        self, headers: Mapping[str, str], target: str, certificate: str, address: str
    ) -> bool:
        """Returns whether the caller is known before its frame has arrived, in a dialect whose
        frames authenticate: by the headers, or because a caller at its address was authenticated
        lately."""
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
        """Reads from the frame of a refused caller in which form to answer it, and under which id
        if the body has arrived."""
        self.id = next(iter(self.session.receive(frame))).id

    async def receive(self, frame: Frame, certificate: str = "") -> Asked:
        """Decodes the frame and authorizes its caller. Raises the error to answer with if either
        fails."""
        signal = self.decode(frame)
        admission = self._driver.admission
        if admission is not None:
            try:
                self.caller = await admission.admit(self.session, frame, certificate)
            except Unauthenticated:
                if is_unreadable(signal) and admission.has_credentials(frame):
                    # They may stand in the part that nobody could read.
                    raise signal.error from None
                raise
            self.ctx = self.caller.ctx
        return self.authorize(signal)

    def decode(self, frame: Frame) -> Signal:
        """Decodes the frame. This and `authorize` are `receive` for a caller that `admit` has
        authenticated."""
        self._more = signals = iter(self.session.receive(frame))
        signal = next(signals)
        self.id = signal.id
        return signal

    def authorize(self, signal: Signal) -> Asked:
        """Returns the signal if its caller may send it in this dialect; raises the error to answer
        with if not, or if the signal is one."""
        driver, session = self._driver, self.session
        server = driver.server
        # `type` is compared, since an `isinstance` that fails costs a search in the metaclass of a
        # Struct.
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
        elif isinstance(signal, Introduction | Ping | Posted):
            self.method = type(signal).__name__
        else:
            raise AssertionError(f"a callee heard {type(signal).__name__}")
        return signal

    async def ask(self, signal: Asked, peer: Peer | None = None) -> Any:
        """Returns the result of a signal. `peer` calls the caller back, if the wire allows that."""
        driver, ctx = self._driver, self.ctx
        asked = driver.server.peer
        value: Any
        if type(signal) is Call:
            op = signal.op
            if signal.silent and isinstance(op, SendMessage):
                op = replace(op, wait=False)  # a notification has no answer to wait for
            value = await asked.call(op, ctx)
        elif driver.role is None:
            raise Unsupported()
        else:
            caller = self.caller or Admitted(ctx)
            if isinstance(signal, Introduction):
                value = await driver.role.welcome(signal, caller, peer)
            elif isinstance(signal, Posted):
                value = await driver.role.take_event(signal, caller)
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
        """Encodes the answer."""
        (frame,) = self.session.send(Result(self.id, value))
        return frame

    def fail(self, exc: Exception) -> Fault:
        """Turns an exception into the fault for the caller. An unexpected one is logged with a
        number, and the caller sees only the number."""
        server, dialect = self._driver.server, self.session.dialect
        if isinstance(exc, DragomanError):
            error = exc
        else:
            crash = secrets.token_hex(6)
            server.log.error("crash", exc, error=crash, method=self.method, dialect=dialect)
            error = AgentCrashed(f"Internal error {crash}.", error=crash)
        server.metrics.failed(error.reason, dialect)
        if self.method == "-" and server.on_refusal is not None:
            server.on_refusal(self.ctx, dialect, error)
        return Fault(self.id, error)

    def count(self, began: float) -> None:
        """Counts the exchange as answered. A stream counts as answered with its first event."""
        metrics = self._driver.server.metrics
        metrics.answered(self.method, self.session.dialect, perf_counter() - began)

    # Streams

    def open_stream(self, task: asyncio.Task[Any]) -> OpenStream:
        """Registers an open stream, or raises `TooMany` if there are as many as the limit allows.
        The wire ends it with `ServerContext.streams.discard`."""
        server = self._driver.server
        if len(server.streams) >= server.limits.streams:
            raise TooMany("Too many streams are open; try again later.")
        self.method += "+stream"
        stream = OpenStream(task, server)
        server.streams.add(stream)
        return stream

    def steps(self, call: Call) -> AsyncGenerator[Batch, None]:
        """Yields the events of a stream."""
        peer = self._driver.server.peer
        if self.session.follows_questions:
            return stream_until_final(peer, call.op, self.ctx)  # type: ignore[arg-type]
        return peer.stream(call.op, self.ctx)  # type: ignore[arg-type]  # only these stream

    def count_stream(self, began: float) -> None:
        """Counts a stream whose first event is ready."""
        self._driver.server.metrics.streams_opened += 1
        self.count(began)

    def count_stall(self) -> None:
        """Counts a stream that was cut off because its reader was too slow."""
        server = self._driver.server
        server.metrics.streams_stalled += 1
        server.log.warning("A reader of a stream has stalled", dialect=self.session.dialect)


def is_unreadable(signal: Signal) -> TypeGuard[Fault]:
    """Returns whether a frame is no message at all."""
    # Their subclasses are about what a message says.
    kinds = Malformed, Unparseable, ContentTypeUnsupported
    return isinstance(signal, Fault) and signal.id is None and type(signal.error) in kinds


def speaking(caller: Context, dialect: str) -> Context:
    """Returns the caller's context with its dialect. That of an anonymous caller is built once for
    each dialect."""
    if caller is not ANYONE:
        return replace(caller, dialect=dialect)
    found = _ANYONE.get(dialect)
    if found is None:
        found = _ANYONE[dialect] = replace(caller, dialect=dialect)
    return found


_ANYONE: dict[str, Context] = {}
