"""The HTTP transport, for every dialect: a call is one request, a stream is server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any

from dragoman.core.errors import (
    BadParams,
    CallError,
    DragomanError,
    Forbidden,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    Unauthenticated,
)
from dragoman.core.operations import Streamed
from dragoman.core.peer import ANYONE, NO_MORE, Batch, Begun, Context
from dragoman.core.session import (
    Call,
    Fault,
    Frame,
    Introduction,
    Result,
    Session,
    Signal,
    Steps,
    steps,
)
from dragoman.dialects import sse
from dragoman.dialects.jsonrpc import is_jsonrpc
from dragoman.security.outbound.failures import is_web_page

from ..credentials import Credentials
from .answers import first_answer, repeated
from .http import HttpReply, HttpRequest, HttpStream, Unreachable, not_reached, read_all
from .transport import Asking, Destination, Transport, new_id

EVENTS = "text/event-stream"
_NOT_HERE = frozenset((404, 405))


class _NotHere(PeerMisbehaved):
    """The agent is not at this path."""


class HttpTransport(Transport):
    """Calls one address over HTTP."""

    def __init__(
        self,
        to: Destination,
        *,
        introduces: Introduction | None = None,
        joins: bool = False,
        token: str = "",
        owns_http: bool = False,
    ) -> None:
        super().__init__(to, introduces=introduces, joins=joins, token=token)
        self._owns_http = owns_http
        dialect = to.dialect
        path, question, query = self._address.path.partition("?")
        self._query = question + query
        # Some cards include the prefix of the REST paths in the interface's URL, most do not.
        own = path.rstrip("/").removesuffix(dialect.prefix) if dialect.prefix else path
        self._paths = list(to.paths) or [own]
        """The paths at which the agent may serve the dialect. The next one is tried if the agent
        serves nothing at the first."""
        self._http2 = dialect.http2
        self._settled = not dialect.http2 and len(self._paths) == 1
        """Whether the path and the version of HTTP are known to work."""

    async def close(self) -> None:
        """Closes the connections, if this transport owns them."""
        if self._owns_http:
            await self._http.close()

    def _request(self, frame: Frame, headers: Mapping[str, str], who: Credentials) -> HttpRequest:
        base = self._paths[0]
        verb, _, path = frame.target.partition(" ")
        path = base.rstrip("/") + path if path else base + self._query
        return HttpRequest(verb, self._address, path, headers, frame.body, who, self._http2)

    async def _answer(
        self, make: Callable[[Any], Asking], ctx: Context, who: Credentials
    ) -> Signal:
        await self._introduce(who)
        signal = make(self._new_id())
        try:
            return await self._exchange(self._session(ctx, who), signal, ctx, who)
        except BadParams:
            other = self.dialect.fallback
            if other is None:
                raise
            session = other(ctx.extensions, self.interface.tenant)
            frames = list(session.send(signal))
            if not frames:
                raise
        reply = await self._send(frames[0], signal, ctx, who)
        return first_answer(_read(session, reply))

    async def _introduce(self, who: Credentials) -> Signal | None:
        if self._talk(who) is None or self._introduced:
            return None
        async with self._introducing:  # calls that are made meanwhile wait for it
            if self._introduced:
                return None
            return await self._welcome(self._greet(who))

    async def _greet(self, who: Credentials) -> Signal:
        """Introduces us and returns the answer. This also finds out at which of the paths the agent
        is, since no other message may be sent to several. An answer that is not of the dialect, or
        a refusal, counts if no other path has a better one."""
        if self._settled:
            return await self._greet_at(who)
        paths = self._paths
        doubtful: tuple[str, Signal | DragomanError] | None = None
        try:
            for path in paths:
                self._paths = [path]
                found: Signal | DragomanError
                try:
                    found = await self._greet_at(who)
                except _NotHere:
                    continue
                except (PeerMisbehaved, Unauthenticated, Forbidden) as exc:
                    found = exc
                except (PeerRefused, CallError):
                    self._settled = True
                    raise
                if not isinstance(found, DragomanError) and _is_of_the_dialect(found):
                    self._settled = True
                    return found
                doubtful = doubtful or (path, found)
            if doubtful is None:
                raise PeerUnreachable(f"{self._address.origin} does not serve {self.dialect.name}")
            paths, found = [doubtful[0]], doubtful[1]
            self._settled = not isinstance(found, Unauthenticated | Forbidden)
            if isinstance(found, DragomanError):
                raise found
            return found
        finally:
            if not self._settled or doubtful is not None:
                self._paths = paths

    async def _greet_at(self, who: Credentials) -> Signal:
        """Introduces us at one path. Falls back to HTTP/1.1 if the server closes the connection on
        HTTP/2."""
        while True:
            # Every attempt has an id of its own: a signed frame is accepted once.
            hello, session = self._hello(new_id()), self._session(ANYONE, who)
            try:
                return await self._exchange(session, hello, ANYONE, who)
            except PeerUnreachable as exc:
                tls = self._address.target.scheme == "https"
                if self._settled or not self._http2 or tls or not exc.sent:
                    raise
                self._http2 = False

    async def _exchange(
        self, session: Session, signal: Asking, ctx: Context, who: Credentials
    ) -> Signal:
        frames = self._frames(session, signal)
        while True:
            reply = await self._send(frames[0], signal, ctx, who)
            signals = list(_read(session, reply))
            frames = repeated(session)
            if frames:
                continue
            if not signals and self.dialect.conversation is not None:
                return Result(signal.id, None)  # an accepted notification has no answer
            return first_answer(signals)

    async def _send(
        self, frame: Frame, signal: Asking, ctx: Context, who: Credentials
    ) -> HttpReply:
        headers = self._all_headers(frame, ctx, who)
        while True:
            request = self._request(frame, headers, who)
            reply = await self._http.ask(
                request, seconds=self._seconds(signal), max_size=self.limits.answer_size
            )
            if self.dialect.conversation is not None and not self._settled:
                if reply.status in _NOT_HERE or is_jsonrpc(reply.body):
                    raise _NotHere(f"There is no {self.dialect.name} at this path")
                return reply
            if not self._is_elsewhere(reply.status):
                return reply

    def _all_headers(self, frame: Frame, ctx: Context, who: Credentials) -> dict[str, str]:
        headers = self._headers(frame, ctx)
        if self.dialect.proof is not None:
            headers |= self._proof(frame, who)
        return headers

    def _is_elsewhere(self, status: int) -> bool:
        """Returns whether to repeat the request at the next path. Once a path has worked, a 404 is
        the agent's own answer and nothing is repeated."""
        if not self._settled and status in _NOT_HERE and len(self._paths) > 1:
            del self._paths[0]
            return True
        self._settled = True
        return False

    async def _begin(self, op: Streamed, ctx: Context, who: Credentials) -> Begun:
        if self.dialect.conversation is not None:
            await self._introduce(who)
        session = self._session(ctx, who)
        frames = self._frames(session, Call(self._new_id(), op, True))
        return await self._begin_with(session, frames, ctx, who)

    async def _begin_with(
        self, session: Session, frames: list[Frame], ctx: Context, who: Credentials
    ) -> Begun:
        """Sends the request of a stream, and returns its first events and the rest."""
        try:
            events = await self._open(session, frames, ctx, who)
        except Unreachable as exc:
            raise not_reached(exc, self._address) from None
        entries, last, error = events.first
        if last and error is None:  # as most streams do: they cost no generator
            await events.close()
            return Batch(entries, True), NO_MORE
        rest = self._rest(session, events, ctx, who)
        return await anext(rest, None), rest

    async def _open(
        self, session: Session, frames: list[Frame], ctx: Context, who: Credentials
    ) -> _Events:
        """Sends a request, again if the session asks for that, and reads the first events."""
        while True:
            frame = frames[0]
            request = self._request(frame, self._all_headers(frame, ctx, who), who)
            stream = await self._http.begin(request, idle=self.limits.idle)
            try:
                if self._settled or not self._is_elsewhere(stream.status):
                    if stream.headers.get("content-type", "").startswith(EVENTS):
                        events = _Events(stream, sse.SseParser(self.limits.event_size))
                        events.first = await events.read(session)
                        return events
                    events = _Events(stream, None)
                    events.first = await self._unstreamed(session, stream), True, None
                    frames = repeated(session)
                    if not frames:
                        return events
            except BaseException:
                await stream.close()
                raise
            await stream.close()

    async def _rest(
        self, session: Session, events: _Events, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        """Yields the events of a stream, from those that were read first."""
        try:
            while True:
                entries, last, error = events.first
                try:
                    while True:
                        if entries or last:
                            yield Batch(entries, last)
                        if error is not None:
                            self._hide_secrets(error, who)
                            raise error
                        if last:
                            return
                        if events.again:
                            break
                        entries, last, error = await events.read(session)
                finally:
                    await events.close()
                events = await self._open(session, events.again, ctx, who)
        except Unreachable as exc:
            raise not_reached(exc, self._address) from None

    async def _unstreamed(self, session: Session, stream: HttpStream) -> list[Any]:
        """Returns what an answer says that is no stream: the stream failed at once, or the server
        does not stream (a2a-wire §11.3)."""
        body = await read_all(stream, self.limits.answer_size)
        entries, _, error = steps(_read(session, HttpReply(stream.status, stream.headers, body)))
        if error is not None:
            raise error
        return entries


class _Events:
    """The response to the request of a stream, and its first events."""

    first: Steps

    def __init__(self, stream: HttpStream, parser: sse.SseParser | None) -> None:
        """`parser` is None for a response that is no stream."""
        self._chunks, self.close = stream.chunks, stream.close
        self._parser = parser
        self.again: list[Frame] = []
        """The request to repeat in another form, if the session asks for that."""

    async def read(self, session: Session) -> Steps:
        """Returns the next events, whether the stream ended with them, and the error after them."""
        parser = self._parser
        assert parser is not None  # noqa: S101  nothing follows where there is no stream
        chunk = await anext(self._chunks, b"")
        arrived = parser.feed(chunk) if chunk else parser.close()
        entries, last, error = session.receive_events(arrived)
        if session.repeats:
            self.again = repeated(session)
        return entries, last or not (chunk or self.again or error), error


def _is_of_the_dialect(found: Signal) -> bool:
    """Returns whether this answers an introduction, and is no mere success of whoever is there."""
    return not isinstance(found, Result) or found.value is not None


_MORE = {"www-authenticate": "challenge", "retry-after": "retry_after"}
"""The headers that explain a refusal, and the names of their values in `DragomanError.public`."""


def _read(session: Session, reply: HttpReply) -> Iterable[Signal]:
    frame = Frame(reply.body, "", reply.headers, reply.status)
    if reply.status < 300:
        if is_web_page(reply.body):
            raise PeerMisbehaved("A web page came back, and no answer of an agent")
        return session.receive(frame)
    if 300 <= reply.status < 400:
        where = reply.headers.get("location", "")
        raise PeerUnreachable(f"This address has moved to {where[:200]}: use that one")
    more = {word: reply.headers[name] for name, word in _MORE.items() if name in reply.headers}
    return (_with(signal, more) for signal in session.receive(frame))


def _with(signal: Signal, more: Mapping[str, str]) -> Signal:
    if isinstance(signal, Fault) and more:
        signal.error.public = {**signal.error.public, **more}
    return signal
