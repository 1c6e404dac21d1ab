"""Any dialect over HTTP: one exchange a call, streams as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any

from dragoman.core.errors import BadParams, PeerMisbehaved, PeerUnreachable
from dragoman.core.operations import Streamed
from dragoman.core.peer import ANYONE, Batch, Context
from dragoman.core.session import Call, Fault, Frame, Introduction, Result, Session, Signal
from dragoman.dialects import sse
from dragoman.security.outbound.failures import is_web_page

from ..credentials import Credentials
from .http import HttpReply, HttpRequest, HttpStream, read_all
from .transport import Asking, Destination, Transport, first_answer, new_id, repeated, steps

EVENTS = "text/event-stream"
_NOT_HERE = frozenset((404, 405))


class HttpTransport(Transport):
    """One address."""

    def __init__(
        self,
        to: Destination,
        *,
        introduces: Introduction | None = None,
        joins: bool = False,
        owns_http: bool = False,
    ) -> None:
        super().__init__(to, introduces=introduces, joins=joins)
        self._owns_http = owns_http
        dialect = to.dialect
        path, question, query = self._address.path.partition("?")
        self._query = question + query
        # Some cards name the address of REST with the prefix of its paths, most without.
        own = path.rstrip("/").removesuffix(dialect.prefix) if dialect.prefix else path
        self._paths = list(to.paths) or [own]
        """Where the dialect may be spoken: the next is tried where there is nothing."""
        self._http2 = dialect.http2
        self._settled = not dialect.http2 and len(self._paths) == 1
        """Whether it is known how and where to ask."""

    async def close(self) -> None:
        """Ends the connections, if nobody else uses them."""
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
        async with self._introducing:  # whoever comes meanwhile waits for it
            if self._introduced:
                return None
            return await self._welcome(self._greet(who))

    async def _greet(self, who: Credentials) -> Signal:
        """The answer to an introduction, over HTTP/1.1 where a server hangs up on HTTP/2."""
        while True:
            # Each time another one: what was signed is good once.
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
                return Result(signal.id, None)  # it was heard, and there is no more to say
            return first_answer(signals)

    async def _send(
        self, frame: Frame, signal: Asking, ctx: Context, who: Credentials
    ) -> HttpReply:
        headers = self._headers(frame, ctx) | self._proof(frame, who)
        while True:
            request = self._request(frame, headers, who)
            reply = await self._http.ask(
                request, seconds=self._seconds(signal), max_size=self.limits.answer_size
            )
            if not self._is_elsewhere(reply.status):
                return reply

    def _is_elsewhere(self, status: int) -> bool:
        """Whether to try the next path. Once it is known where to ask, nothing is tried twice."""
        if not self._settled and status in _NOT_HERE and len(self._paths) > 1:
            del self._paths[0]
            return True
        self._settled = True
        return False

    async def _stream(
        self, op: Streamed, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        await self._introduce(who)
        session = self._session(ctx, who)
        frames = self._frames(session, Call(self._new_id(), op, True))
        while frames:
            frame = frames[0]
            headers = self._headers(frame, ctx) | self._proof(frame, who)
            request = self._request(frame, headers, who)
            async with self._http.stream(request, idle=self.limits.idle) as stream:
                if self._is_elsewhere(stream.status):
                    continue
                if stream.headers.get("content-type", "").startswith(EVENTS):
                    async for batch in _events(session, stream, self.limits.event_size, frames):
                        yield batch
                    continue
                # A stream that failed at once, or a server that has none (a2a-wire §11.3).
                body = await read_all(stream, self.limits.answer_size)
                reply = HttpReply(stream.status, stream.headers, body)
                entries, _, error = steps(_read(session, reply))
                if error is not None:
                    raise error
                frames = repeated(session)
                if not frames:
                    yield Batch(entries, True)


async def _events(
    session: Session, stream: HttpStream, max_size: int, frames: list[Frame]
) -> AsyncGenerator[Batch, None]:
    """What a stream says; `frames` becomes what has to be said instead."""
    parser = sse.SseParser(max_size)
    async for chunk in stream.chunks:
        entries, last, error = steps(_parsed(session, parser.feed(chunk)))
        frames[:] = repeated(session)
        if entries or last:
            yield Batch(entries, last)
        if error is not None:
            raise error
        if last or frames:
            return
    entries, _, error = steps(_parsed(session, parser.close()))
    frames[:] = repeated(session)
    if not frames:
        yield Batch(entries, error is None)
    if error is not None:
        raise error


def _parsed(session: Session, events: Iterable[sse.SseEvent]) -> Iterable[Signal]:
    for event in events:
        yield from session.receive(Frame(event.data, "", {}, 200, event.mark, event.name))


_MORE = {"www-authenticate": "challenge", "retry-after": "retry_after"}
"""Headers that say more about a refusal."""


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
