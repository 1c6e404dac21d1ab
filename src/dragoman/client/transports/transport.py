"""A transport calls an agent at one address, in one dialect, over one wire. It repeats a request
only if the agent refused the credentials.

A transport is a `Peer`. The pure caller session of its dialect encodes requests and decodes
answers. The transport moves the bytes and adds the headers that all dialects share: the cursor, the
idempotency key, the trace and the credentials.

Some dialects begin with an introduction, whose answer holds a session token. The transport then
introduces us before the first call, and again when the token is refused. A shared secret is proved
and never sent, since the address may have been named by anybody. A frame without a token is signed
and says in `to` for whom it is. That name is configured with the secret and never taken from an
answer: an agent that chose it could pass our signed frame on to another agent. Without a configured
name nothing is signed.
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
    CallError,
    DragomanError,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    TooMany,
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
from dragoman.core.peer import (
    ANYONE,
    DEADLINE,
    HOPS,
    Batch,
    BearerToken,
    Begun,
    Context,
    batches_of,
)
from dragoman.core.questions import answer_value
from dragoman.core.session import (
    Call,
    CallerConversation,
    Frame,
    Introduction,
    Ping,
    Result,
    Session,
    Signal,
)

from ..credentials import Credentials, Wallet, acting, hide_secrets
from .http import Http

T = TypeVar("T")
Asking = Call | Ping | Introduction
_SLOW = (SendMessage, CancelTask, Invoke, Resolve)
"""The operations that an agent works on, which therefore have the longer time limit."""
_ANSWERS_OF_THE_AGENT = (CallError, PeerRefused, PeerMisbehaved)
"""The errors that show that somebody is there, who need not know introductions and heartbeats."""
_REFUSALS_OF_US = (Unauthenticated, Forbidden, TooMany)
"""Those that say something about us, and not about the method."""
_numbers = count(1)


class Destination(NamedTuple):
    """The interface of an agent, with the dialect, the connections and the credentials for it."""

    http: Http
    interface: Interface
    dialect: Dialect
    wallet: Wallet
    paths: Sequence[str] = ()
    """The paths to try; if there are none, the path of the interface's URL is used."""


class Transport(ABC):
    """A `Peer` that calls one interface of an agent."""

    def __init__(
        self,
        to: Destination,
        url: str = "",
        *,
        introduces: Introduction | None = None,
        joins: bool = False,
        token: str = "",
    ) -> None:
        """`url` is the address as a web URL, if the interface spells it in another way. `token` is
        a session token that the other side got from us."""
        self._http, self.interface, self.dialect, self.wallet, _ = to
        self._address = to.http.address(url or to.interface.url)
        self.origin, self.limits = self._address.origin, to.http.limits
        self.source = ""
        """The address of the agent whose card names this one, if its origin is another."""
        self.on_extensions: Callable[[Iterable[str]], None] | None = None
        """A function that is called with the extensions that the other side names as active, on
        wires that transmit them. It is set where no card declares them."""
        self._introduces = introduces
        """Our introduction; None means that we introduce ourselves as a client that cannot be
        called."""
        self._token = token
        self._joins = joins
        """Whether the other side is a host that will call us."""
        self._nameless = f"dragoman-{secrets.token_hex(4)}"
        """Our name if nobody has given us one. It is random, since a host gives a name
        that has a session to nobody else."""
        self._conversation: CallerConversation | None = None
        self._names = ("", "")
        self._introduced = False
        self._era = 0
        """The number of sessions that were given up."""
        self._introducing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<{self.dialect.name} at {self.interface.url}>"

    # The operations of a `Peer`.

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """Returns the answer or raises a `DragomanError`. Refused credentials are renewed once."""
        asked = cast(AnyOperation, op)
        try:
            found = await self._attempt(
                lambda who: self._answer(_Asked(asked), ctx, who), ctx.bearer
            )
        except Unsupported as exc:
            if not isinstance(op, Resolve) or exc.code:
                raise
            # A2A has no method for the answer to a question: a message to the task is the answer.
            said = _as_message(op)
            found = await self._attempt(
                lambda who: self._answer(_Asked(said), ctx, who), ctx.bearer
            )
        if not isinstance(found, Result):
            raise PeerMisbehaved("This is not an answer")
        return cast(R, found.value)

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Calls an operation and ignores its result."""
        await self._attempt(lambda who: self._answer(_Asked(op), ctx, who))

    async def ping(self) -> None:
        """Returns when the other side answers, even if it knows no heartbeats. Raises `Unsupported`
        if the dialect has no ping."""
        try:
            await self._attempt(lambda who: self._answer(Ping, ANYONE, who))
        except _REFUSALS_OF_US:
            raise
        except _ANSWERS_OF_THE_AGENT:
            if self.dialect.conversation is None:
                raise

    def begin(self, op: Streamed, ctx: Context) -> Awaitable[Begun]:
        """Returns the first events of one connection, and the stream of all that follow.
        `Batch.last` is set if the stream came to its end and was not cut off."""
        return self._attempt(lambda who: self._begin(op, ctx, who), ctx.bearer)

    def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Yields the events of one connection, as `begin` does."""
        return batches_of(self.begin(op, ctx))

    async def introduce(self) -> Signal | None:
        """Introduces us and returns the answer, or None if the agent knows no introductions; it can
        be called all the same."""
        self._forget(self._era)
        return await self._attempt(self._introduce)

    async def meet(self) -> Introduction:
        """Introduces us and returns the agent's introduction. One that sends none is described by
        its name or address alone."""
        found = await self.introduce()
        if isinstance(found, Introduction):
            return found
        who = self._names[1] or urlsplit(self.interface.url).netloc
        if self._conversation is not None:
            self._conversation.name_peer(who)
        return Introduction(None, who, Card(name=who, description="", version=""))

    async def close(self) -> None:
        """Closes the connections that this transport owns."""
        return

    # The methods that each wire implements.

    @abstractmethod
    async def _answer(
        self, make: Callable[[Any], Asking], ctx: Context, who: Credentials
    ) -> Signal:
        """Sends the request that `make` builds for an id, and returns its answer."""

    @abstractmethod
    def _begin(self, op: Streamed, ctx: Context, who: Credentials) -> Awaitable[Begun]:
        """Returns the first events of one stream, and the stream of all that follow."""

    async def _introduce(self, who: Credentials) -> Signal | None:
        """Introduces us, unless that was done, and returns the answer if there was one."""
        return None

    # Our identity: credentials, introductions and proofs.

    async def _attempt(
        self, work: Callable[[Credentials], Awaitable[T]], bearer: BearerToken | None = None
    ) -> T:
        """Returns the result of `work`. A session that is refused is started again once, and
        refused credentials are renewed once, unless the caller gave its own."""
        who = self.wallet.kept(self.origin)
        if who is None:
            who = await self.wallet.ask(self.origin)
        if bearer is not None and self.wallet.allows(self.origin):
            who = acting(who, bearer)
            try:
                return await work(who)
            except DragomanError as exc:
                self._amend(exc, who)
                raise
        renewed = fresh = False
        while True:
            era = self._era
            try:
                return await work(who)
            except Unauthenticated as exc:
                self._amend(exc, who)
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
            except DragomanError as exc:
                self._amend(exc, who)
                raise

    def _amend(self, error: DragomanError, who: Credentials) -> None:
        """Hides our secrets, and says where an address comes from that nobody typed and that cannot
        be reached."""
        self._hide_secrets(error, who)
        if self.source and isinstance(error, PeerUnreachable):
            message = error.message.rstrip(".")
            error.reword(f"{message}. The address comes from the card of {self.source}")

    def _hide_secrets(self, error: DragomanError, who: Credentials) -> None:
        """Removes our credentials, and the token of our session, from what the agent said."""
        token = self._conversation.token if self._conversation is not None else ""
        hide_secrets(error, [*who.secrets, token] if token else who.secrets)

    def _may_tell(self, refusal: Unauthenticated) -> None:
        """Raises the refusal if this origin may not have our credentials, and explains that if
        there are any."""
        if self.wallet.allows(self.origin):
            return
        if self.wallet.holds:
            refusal.reword(
                f"{self.origin} wants to know who is calling, and is not the origin you typed. "
                f"If it may learn that, allow it: --origin {self.origin}, or origins= in Python."
            )
        raise refusal

    def _forget(self, era: int) -> None:
        """Gives up the session of this era, unless a concurrent call has replaced it already."""
        if self._conversation is not None and era == self._era:
            self._conversation.forget()
            self._introduced = False
            self._era += 1

    def _talk(self, who: Credentials) -> CallerConversation | None:
        """Returns the conversation, or None in a dialect without conversations."""
        if self.dialect.conversation is None:
            return None
        me = who.me or self.wallet.me or self._nameless
        if self._introduces is not None:
            me = self._introduces.who
        if self._conversation is None or self._names != (me, who.to):
            self._names = me, who.to
            self._introduced = False
            self._conversation = self.dialect.conversation(
                CallerIdentity(
                    me=me,
                    to=who.to,
                    joins=self._joins,
                    token=self._token,
                    now=_millis,
                    new_id=new_id,
                )
            )
        return self._conversation

    async def _welcome(self, answer: Awaitable[Signal]) -> Signal | None:
        """Returns the answer to an introduction, or None if the agent knows no introductions."""
        found: Signal | None = None
        try:
            found = await answer
        except PeerUnreachable as exc:
            exc.sent = False  # the request behind the introduction was never sent
            raise
        except _REFUSALS_OF_US:
            raise
        except _ANSWERS_OF_THE_AGENT:
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
        """Returns the headers that prove a shared secret, or none if a session token does."""
        talk, proof = self._conversation, self.dialect.proof
        if proof is None or not who.secret or not who.to or (talk is not None and talk.recognized):
            return {}
        return dict(proof.headers(who.secret, frame.body, time.time()))

    # Encoding.

    def _session(self, ctx: Context, who: Credentials) -> Session:
        """Returns the caller session of one exchange."""
        talk = self._talk(who)
        if talk is None:
            return self.dialect.caller(ctx.extensions, self.interface.tenant)
        session = talk.begin()
        session.using(ctx)
        return session

    def _frames(self, session: Session, signal: Asking) -> list[Frame]:
        """Encodes a request. Raises `Unsupported` if the dialect has no method for it."""
        frames = list(session.send(signal))
        if not frames:
            raise _without_words(self.dialect, signal)
        return frames

    def _new_id(self) -> str | int:
        """Returns the id of a call. It is globally unique in dialects with conversations, whose
        agents use it as the id of the task."""
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
    """Builds the call of an operation when its id is known."""

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
        parts=op.parts or parts_of(answer_value(op.value)),
        task_id=op.task_id,
        context_id=op.context_id,
    )
    # `Resolve` returns before the task comes to rest in every dialect, so the message does not wait
    # either: a caller that follows the task sees the outcome in its stream.
    return SendMessage(message=message, wait=False)


def with_extensions(ctx: Context, extensions: Iterable[str]) -> Context:
    """Returns the context with these extensions activated too."""
    missing = [uri for uri in extensions if uri not in ctx.extensions]
    return replace(ctx, extensions=(*ctx.extensions, *missing)) if missing else ctx


def new_id() -> str:
    """Returns a random UUID, as dialects with conversations ask for it."""
    return str(uuid4())


def _millis() -> int:
    return time.time_ns() // 1_000_000
