"""One way to reach an agent: one address, one version, one binding. No second tries, no memory.

A line is a `Peer`. It asks the pure caller session of its dialect what to write and what was heard,
moves the bytes, and adds what every dialect says in headers: the cursor, the idempotency key, the
trace, and who we are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from itertools import count
from typing import Any, cast
from uuid import uuid4

from msgspec.structs import replace

from dragoman.agent.parts import parts_of
from dragoman.core.card import Interface
from dragoman.core.dialect import Dialect
from dragoman.core.errors import (
    BadParams,
    DragomanError,
    PeerMisbehaved,
    PeerUnreachable,
    Unauthenticated,
    Unsupported,
)
from dragoman.core.model import Message, Role
from dragoman.core.operations import (
    AnyOperation,
    CancelTask,
    Invoke,
    Operation,
    R,
    Resolve,
    SendMessage,
    Streamed,
)
from dragoman.core.peer import DEADLINE, HOPS, Batch, Context
from dragoman.core.questions import answer_value
from dragoman.core.session import Call, End, Fault, Frame, Result, Session, Signal, Update
from dragoman.dialects import sse
from dragoman.security.outbound.failures import is_web_page

from ..credentials import Credentials, Wallet
from .http import Http, HttpReply, HttpStream, read_all

EVENTS = "text/event-stream"
_SLOW = (SendMessage, CancelTask, Invoke, Resolve)
"""What somebody has to work for."""
_numbers = count(1)


class Transport(ABC):
    """A `Peer` over one interface."""

    def __init__(self, interface: Interface, dialect: Dialect, wallet: Wallet, origin: str) -> None:
        self.interface = interface
        self.dialect = dialect
        self.wallet = wallet
        self.origin = origin

    def __repr__(self) -> str:
        return f"<{self.dialect.name} at {self.interface.url}>"

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer, or a `DragomanError`. Refused credentials are renewed once."""
        asked = _spoken(cast(AnyOperation, op))
        who = self.wallet.kept(self.origin)
        if who is None:
            who = await self.wallet.ask(self.origin)
        try:
            return cast(R, await self._call(asked, ctx, who))
        except Unauthenticated as exc:
            self._may_tell(exc)
            who = await self.wallet.ask(self.origin, refused=exc.public.get("challenge", ""))
        return cast(R, await self._call(asked, ctx, who))

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step of one connection; the last batch says whether it ended in good order."""
        who = self.wallet.kept(self.origin)
        if who is None:
            who = await self.wallet.ask(self.origin)
        steps = self._stream(op, ctx, who)
        try:
            try:
                batch = await anext(steps, None)
            except Unauthenticated as exc:
                self._may_tell(exc)
                who = await self.wallet.ask(self.origin, refused=exc.public.get("challenge", ""))
                steps = self._stream(op, ctx, who)
                batch = await anext(steps, None)
            while batch is not None:
                yield batch
                batch = await anext(steps, None)
        finally:
            await steps.aclose()

    def _may_tell(self, refusal: Unauthenticated) -> None:
        """Raises it if this origin may not learn who we are, and says so if others may."""
        if self.wallet.allows(self.origin):
            return
        if self.wallet.holds:
            refusal.message = (
                f"{self.origin} wants to know who is calling, and is not the origin you typed. "
                f"If it may learn that, allow it: --origin {self.origin}, or origins= in Python."
            )
        raise refusal

    @abstractmethod
    async def _call(self, op: AnyOperation, ctx: Context, who: Credentials) -> Any:
        """The answer."""

    @abstractmethod
    def _stream(self, op: Streamed, ctx: Context, who: Credentials) -> AsyncGenerator[Batch, None]:
        """The steps."""

    def _said(self, op: AnyOperation, ctx: Context, *, stream: bool) -> tuple[Session, Frame]:
        session = self.dialect.caller(ctx.extensions, self.interface.tenant)
        for frame in session.send(Call(next(_numbers), op, stream)):
            return session, frame
        raise Unsupported(f"{self.dialect.name} has no words for {type(op).__name__}")

    def _said_otherwise(self, op: AnyOperation, ctx: Context) -> tuple[Session, Frame] | None:
        """The same in the other spelling of the dialect, if it has one for this."""
        if self.dialect.fallback is None:
            return None
        session = self.dialect.fallback(ctx.extensions, self.interface.tenant)
        for frame in session.send(Call(next(_numbers), op, False)):
            return session, frame
        return None

    def _headers(self, frame: Frame, ctx: Context) -> dict[str, str]:
        headers = dict(frame.headers)
        if ctx.idempotency_key:
            headers["idempotency-key"] = ctx.idempotency_key
        if ctx.cursor is not None:
            headers["last-event-id"] = str(ctx.cursor)
        if ctx.trace:
            headers["traceparent"] = ctx.trace
        if ctx.hops:
            headers[HOPS] = str(ctx.hops)
        if ctx.deadline is not None:
            headers[DEADLINE] = f"{ctx.deadline:.3f}"
        return headers

    async def close(self) -> None:
        """Ends what is this line's alone."""
        return


def _spoken(op: AnyOperation) -> AnyOperation:
    """A2A has no word for the answer to a question: it is a message to the task (DESIGN §1)."""
    if not isinstance(op, Resolve):
        return op
    message = Message(
        message_id=uuid4().hex,
        role=Role.USER,
        parts=parts_of(answer_value(op.value)),
        task_id=op.task_id,
    )
    return SendMessage(message=message)


def answer_in(signals: Iterable[Signal]) -> Any:
    """The value in what was heard, or the error."""
    for signal in signals:
        if isinstance(signal, Result):
            return signal.value
        if isinstance(signal, Fault):
            raise signal.error
    raise PeerMisbehaved("The answer says nothing")


class HttpTransport(Transport):
    """JSON-RPC and REST, with streams as server-sent events."""

    def __init__(self, http: Http, interface: Interface, dialect: Dialect, wallet: Wallet) -> None:
        self._http = http
        self._address = http.address(interface.url)
        super().__init__(interface, dialect, wallet, self._address.origin)
        path, question, query = self._address.path.partition("?")
        # Some cards name the address of REST with the prefix of its paths, most without.
        self._base = path.rstrip("/").removesuffix(dialect.prefix) if dialect.prefix else path
        self._query = question + query

    def _where(self, frame: Frame) -> tuple[str, str]:
        verb, _, path = frame.target.partition(" ")
        if not path:
            return verb, self._base + self._query
        return verb, self._base.rstrip("/") + path

    async def _call(self, op: AnyOperation, ctx: Context, who: Credentials) -> Any:
        session, frame = self._said(op, ctx, stream=False)
        try:
            return answer_in(_heard(session, await self._ask(frame, op, ctx, who)))
        except BadParams:
            again = self._said_otherwise(op, ctx)
            if again is None:
                raise
        session, frame = again
        return answer_in(_heard(session, await self._ask(frame, op, ctx, who)))

    async def _ask(
        self, frame: Frame, op: AnyOperation, ctx: Context, who: Credentials
    ) -> HttpReply:
        verb, path = self._where(frame)
        limits = self._http.limits
        return await self._http.ask(
            verb,
            self._address,
            path,
            self._headers(frame, ctx),
            frame.body,
            who,
            seconds=limits.wait if isinstance(op, _SLOW) else limits.answer,
            max_size=limits.answer_size,
        )

    async def _stream(
        self, op: Streamed, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        session, frame = self._said(op, ctx, stream=True)
        verb, path = self._where(frame)
        limits = self._http.limits
        opening = self._http.stream(
            verb,
            self._address,
            path,
            self._headers(frame, ctx),
            frame.body,
            who,
            idle=limits.idle,
        )
        async with opening as stream:
            if not stream.headers.get("content-type", "").startswith(EVENTS):
                # A stream that failed at once, or a server that has none (a2a-wire §11.3).
                body = await read_all(stream, limits.answer_size)
                reply = HttpReply(stream.status, stream.headers, body)
                entries, _, error = steps(_heard(session, reply))
                if error is not None:
                    raise error
                yield Batch(entries, True)
                return
            async for batch in _events(session, stream, limits.event_size):
                yield batch


async def _events(
    session: Session, stream: HttpStream, max_size: int
) -> AsyncGenerator[Batch, None]:
    parser = sse.SseParser(max_size)
    async for chunk in stream.chunks:
        entries, last, error = steps(_parsed(session, parser.feed(chunk)))
        if entries or last:
            yield Batch(entries, last)
        if error is not None:
            raise error
        if last:
            return
    entries, _, error = steps(_parsed(session, parser.close()))
    yield Batch(entries, error is None)
    if error is not None:
        raise error


def _parsed(session: Session, events: Iterable[sse.SseEvent]) -> Iterable[Signal]:
    for event in events:
        yield from session.receive(Frame(event.data, "", {}, 200, event.mark, event.name))


def steps(signals: Iterable[Signal]) -> tuple[list[Any], bool, DragomanError | None]:
    """What happened, whether that is all, and what went wrong behind it."""
    entries: list[Any] = []
    for signal in signals:
        if isinstance(signal, Update):
            entries.append(signal.entry)
        elif isinstance(signal, Fault):
            return entries, False, signal.error
        elif isinstance(signal, End):
            return entries, True, None
    return entries, False, None


_TELLING = {"www-authenticate": "challenge", "retry-after": "retry_after"}
"""Headers that say more about a refusal."""


def _heard(session: Session, reply: HttpReply) -> Iterable[Signal]:
    frame = Frame(reply.body, "", reply.headers, reply.status)
    if reply.status < 300:
        if is_web_page(reply.body):
            raise PeerMisbehaved("A web page came back, and no answer of an agent")
        return session.receive(frame)
    if 300 <= reply.status < 400:
        where = reply.headers.get("location", "")
        raise PeerUnreachable(f"This address has moved to {where[:200]}: use that one")
    more = {word: reply.headers[name] for name, word in _TELLING.items() if name in reply.headers}
    return (_with(signal, more) for signal in session.receive(frame))


def _with(signal: Signal, more: Mapping[str, str]) -> Signal:
    if isinstance(signal, Fault) and more:
        signal.error.public = {**signal.error.public, **more}
    return signal


def with_extensions(ctx: Context, extensions: Iterable[str]) -> Context:
    """The context with these activated too."""
    missing = [uri for uri in extensions if uri not in ctx.extensions]
    return replace(ctx, extensions=(*ctx.extensions, *missing)) if missing else ctx
