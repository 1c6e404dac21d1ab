"""One way to reach an agent: one address, one dialect, one wire. Nothing is tried twice but what
was refused for lack of credentials.

A transport is a `Peer`. It asks the pure caller session of its dialect what to write and what was
heard, moves the bytes, and adds what every dialect has in headers: the cursor, the idempotency key,
the trace, and who we are.

Some dialects begin with an introduction, whose answer holds a session token. The transport then
introduces us before the first call, and once more when the token is refused. A shared secret is
proved and never sent: whoever named the address may be anybody. What has no token is signed, and
says in `to` whom it is for. That name comes with the secret, never from an answer: an agent that
chose it could show what we signed to another one. Without a name nothing is signed.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec.structs import replace

from dragoman.agent.parts import parts_of
from dragoman.core.card import Card, Interface
from dragoman.core.dialect import CallerIdentity, Dialect
from dragoman.core.errors import (
    DragomanError,
    Malformed,
    PeerMisbehaved,
    PeerRefused,
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
from dragoman.core.peer import ANYONE, DEADLINE, HOPS, Batch, Context
from dragoman.core.questions import answer_value
from dragoman.core.session import (
    Call,
    CallerConversation,
    CallerSession,
    End,
    Fault,
    Frame,
    Introduction,
    Ping,
    Result,
    Session,
    Signal,
    Update,
)

from ..credentials import Credentials, Wallet
from .http import Http

T = TypeVar("T")
Asking = Call | Ping | Introduction
_SLOW = (SendMessage, CancelTask, Invoke, Resolve)
"""What somebody has to work for."""
_KNOWS_NO_INTRODUCTION = (PeerRefused, Malformed, Unsupported)
"""What an agent answers that does not know the word for an introduction, or not even the form."""
_numbers = count(1)


class Destination(NamedTuple):
    """Where and in which dialect an agent is called, and with whose credentials."""

    http: Http
    interface: Interface
    dialect: Dialect
    wallet: Wallet
    paths: Sequence[str] = ()
    """The paths to try; without any, it is the one in the interface's URL."""


class Transport(ABC):
    """A `Peer` over one interface."""

    def __init__(
        self,
        to: Destination,
        url: str = "",
        *,
        introduces: Introduction | None = None,
        joins: bool = False,
    ) -> None:
        """`url` is the address, where it is spelled otherwise in the interface."""
        self._http, self.interface, self.dialect, self.wallet, _ = to
        self._address = to.http.address(url or to.interface.url)
        self.origin, self.limits = self._address.origin, to.http.limits
        self.on_extensions: Callable[[Iterable[str]], None] | None = None
        """Told the extensions that the other side says are active, where no card declares them and
        the wire tells."""
        self._introduces = introduces
        """How we introduce ourselves; None: as a client that only asks."""
        self._joins = joins
        """Whether the other side is a host that shall ask us."""
        self._nameless = f"dragoman-{secrets.token_hex(4)}"
        """What we are called if the credentials have no name for us. Others call too, and a name
        that has a session is not given to another one."""
        self._conversation: CallerConversation | None = None
        self._names = ("", "")
        self._introduced = False
        self._era = 0
        """Counts the sessions that were given up."""
        self._introducing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<{self.dialect.name} at {self.interface.url}>"

    # What can be asked.

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer, or a `DragomanError`. Refused credentials are renewed once."""
        asked = cast(AnyOperation, op)
        try:
            found = await self._attempt(lambda who: self._answer(_Asked(asked), ctx, who))
        except Unsupported as exc:
            if not isinstance(op, Resolve) or exc.code:
                raise
            # A2A has no word for the answer to a question: it is a message to the task (DESIGN §1).
            said = _as_message(op)
            found = await self._attempt(lambda who: self._answer(_Asked(said), ctx, who))
        if not isinstance(found, Result):
            raise PeerMisbehaved("This is not an answer")
        return cast(R, found.value)

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Says something whose answer does not matter."""
        await self._attempt(lambda who: self._answer(_Asked(op), ctx, who))

    async def ping(self) -> None:
        """Returns when the other side answers; `Unsupported` if the dialect has no word for it."""
        await self._attempt(lambda who: self._answer(Ping, ANYONE, who))

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step of one connection; the last batch says whether it ended in good order."""

        async def begin(who: Credentials) -> tuple[AsyncGenerator[Batch, None], Batch | None]:
            steps = self._stream(op, ctx, who)
            try:
                return steps, await anext(steps, None)
            except BaseException:
                await steps.aclose()
                raise

        steps, batch = await self._attempt(begin)
        try:
            while batch is not None:
                yield batch
                batch = await anext(steps, None)
        finally:
            await steps.aclose()

    async def introduce(self) -> Signal | None:
        """Says who we are, and gives the answer. None from an agent that knows no introductions: it
        is spoken to all the same."""

        self._forget(self._era)
        return await self._attempt(self._introduce)

    async def meet(self) -> Introduction:
        """Who is there: what it says of itself, or no more than its name or address."""
        found = await self.introduce()
        if isinstance(found, Introduction):
            return found
        who = self._names[1] or urlsplit(self.interface.url).netloc
        if self._conversation is not None:
            self._conversation.name_peer(who)
        return Introduction(None, who, Card(name=who, description="", version=""))

    async def close(self) -> None:
        """Ends what is this transport's alone."""
        return

    # What each wire does.

    @abstractmethod
    async def _answer(
        self, make: Callable[[Any], Asking], ctx: Context, who: Credentials
    ) -> Signal:
        """The answer to what `make` makes of an id."""

    @abstractmethod
    def _stream(self, op: Streamed, ctx: Context, who: Credentials) -> AsyncGenerator[Batch, None]:
        """The steps."""

    async def _introduce(self, who: Credentials) -> Signal | None:
        """Says who we are, unless that is done; the answer, if there was one."""
        return None

    # Who we are.

    async def _attempt(self, work: Callable[[Credentials], Awaitable[T]]) -> T:
        """What `work` gives. A session that is refused is begun anew once, and refused credentials
        are renewed once."""
        who = self.wallet.kept(self.origin)
        if who is None:
            who = await self.wallet.ask(self.origin)
        renewed = fresh = False
        while True:
            era = self._era
            try:
                return await work(who)
            except Unauthenticated as exc:
                if self._introduced and not fresh:
                    fresh = True
                elif not renewed:
                    renewed = True
                    self._may_tell(exc)
                    refused, challenge = who, exc.public.get("challenge", "")
                    who = await self.wallet.ask(self.origin, refused=challenge)
                    if who == refused:
                        raise
                else:
                    raise
                self._forget(era)

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

    def _forget(self, era: int) -> None:
        """Gives up the session of this era, unless there is another one already."""
        if self._conversation is not None and era == self._era:
            self._conversation.forget()
            self._introduced = False
            self._era += 1

    def _talk(self, who: Credentials) -> CallerConversation | None:
        """The conversation, in a dialect that has one."""
        if self.dialect.conversation is None:
            return None
        me = self._introduces.who if self._introduces is not None else who.me or self._nameless
        if self._conversation is None or self._names != (me, who.to):
            self._names = me, who.to
            self._introduced = False
            self._conversation = self.dialect.conversation(
                CallerIdentity(me=me, to=who.to, joins=self._joins, now=_millis, new_id=new_id)
            )
        return self._conversation

    async def _welcome(self, answer: Awaitable[Signal]) -> Signal | None:
        """The answer to an introduction; None from an agent that knows none."""
        found: Signal | None = None
        try:
            found = await answer
        except PeerUnreachable as exc:
            exc.sent = False  # whatever we introduced ourselves for was not even asked
            raise
        except _KNOWS_NO_INTRODUCTION:
            if self._joins:
                raise
        self._introduced = True
        return found

    def _hello(self, id: str) -> Introduction:
        me = self._names[0]
        hello = self._introduces or Introduction(
            None, me, Card(name=me, description="", version=""), callable=False
        )
        return replace(hello, id=id)

    def _proof(self, frame: Frame, who: Credentials) -> dict[str, str]:
        """The headers that prove a shared secret, where nothing else shows who we are."""
        talk, proof = self._conversation, self.dialect.proof
        if proof is None or not who.secret or not who.to or (talk is not None and talk.recognized):
            return {}
        return dict(proof.headers(who.secret, frame.body, time.time()))

    # Frames.

    def _session(self, ctx: Context, who: Credentials) -> Session:
        """The caller side of one exchange."""
        talk = self._talk(who)
        if talk is None:
            return self.dialect.caller(ctx.extensions, self.interface.tenant)
        session = talk.begin()
        session.using(ctx)
        return session

    def _frames(self, session: Session, signal: Asking) -> list[Frame]:
        """How to say something; `Unsupported` if the dialect has no words for it."""
        frames = list(session.send(signal))
        if not frames:
            raise _without_words(self.dialect, signal)
        return frames

    def _new_id(self) -> str | int:
        """The name of a call. Agents of some dialects call tasks by it, so it is nobody else's."""
        return next(_numbers) if self.dialect.conversation is None else new_id()

    def _seconds(self, signal: Asking) -> float:
        slow = isinstance(signal, Call) and isinstance(signal.op, _SLOW)
        return self.limits.wait if slow else self.limits.answer

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


class _Asked:
    """Makes the call for an operation, once it has a name."""

    __slots__ = ("op",)

    def __init__(self, op: AnyOperation) -> None:
        self.op = op

    def __call__(self, id: Any) -> Call:
        return Call(id, self.op)


def _without_words(dialect: Dialect, signal: Asking) -> Unsupported:
    what = signal.op if isinstance(signal, Call) else signal
    return Unsupported(f"{dialect.name} has no words for {type(what).__name__}")


def _as_message(op: Resolve) -> SendMessage:
    message = Message(
        message_id=uuid4().hex,
        role=Role.USER,
        parts=parts_of(answer_value(op.value)),
        task_id=op.task_id,
    )
    # As elsewhere, an answer is not held back until the task rests: a caller that follows the task
    # hears in its stream what comes of it.
    return SendMessage(message=message, wait=False)


def first_answer(signals: Iterable[Signal]) -> Signal:
    """The answer among these signals, or its error."""
    for signal in signals:
        if isinstance(signal, Fault):
            raise signal.error
        if isinstance(signal, Result | Introduction):
            return signal
    raise PeerMisbehaved("The answer says nothing")


def repeated(session: Session) -> list[Frame]:
    """What has to be said once more, in another form."""
    return list(session.repeated()) if isinstance(session, CallerSession) else []


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


def with_extensions(ctx: Context, extensions: Iterable[str]) -> Context:
    """The context with these activated too."""
    missing = [uri for uri in extensions if uri not in ctx.extensions]
    return replace(ctx, extensions=(*ctx.extensions, *missing)) if missing else ctx


def new_id() -> str:
    """A name that nobody else has."""
    return secrets.token_hex(16)


def _millis() -> int:
    return time.time_ns() // 1_000_000
