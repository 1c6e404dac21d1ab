"""The line to whoever speaks IAT at an address: `POST`, with the answer as JSON or as a stream.

HTTP/2 is spoken first, without TLS too; who does not understand it is spoken to in HTTP/1.1. The
first thing said is `HELO` or `register`; all else carries the session token that is the answer to
it. A token that is refused is asked for once more. The shared secret itself is never sent: whoever
registered may have named any address. What has no token is signed, and says in `to` whom it is
for. That name comes from whoever makes the line, never from an answer: an agent that chose it could
show what we signed to another one. A line without a name signs nothing.

Real agents know no `HELO` and only the flat form (dialects §2.6): both is found out with the first
message, and remembered.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from dragoman.client.credentials import Credentials
from dragoman.client.limits import ClientLimits
from dragoman.client.transports.http import Http, HttpReply, HttpStream, read_all
from dragoman.core.card import Card
from dragoman.core.errors import (
    Malformed,
    PeerMisbehaved,
    PeerRefused,
    PeerUnreachable,
    Unauthenticated,
    Unsupported,
)
from dragoman.core.operations import AnyOperation, Operation, R, Streamed
from dragoman.core.peer import Batch, Context
from dragoman.core.session import (
    Call,
    End,
    Fault,
    Frame,
    Introduction,
    Ping,
    Result,
    Signal,
    Update,
)
from dragoman.dialects import sse
from dragoman.dialects.iat.caller import IatCaller
from dragoman.security.iat import signed

NOBODY = Credentials()
PATHS = ("/iat", "/a2a")
"""Where agents listen, if an address has no path: those of ours, and real ones."""
_NOT_HERE = frozenset((404, 405))
_NO_HELO = (PeerRefused, Malformed, Unsupported)
"""What an agent answers that does not know the action, or not even the form."""


class IatHttpLine:
    """Asks one IAT endpoint; implements `sub.Line`."""

    def __init__(
        self,
        url: str,
        me: str,
        to: str = "",
        *,
        secret: str = "",
        greeting: str = "HELO",
        trusted: bool = False,
        allow_private: bool = False,
        limits: ClientLimits | None = None,
        introduces: Introduction | None = None,
    ) -> None:
        self._limits = limits or ClientLimits()
        parts = urlsplit(url)
        host = (parts.hostname or "") if trusted else ""
        about = {"host": host, "scheme": parts.scheme, "allow_private": allow_private}
        self._ways = [
            Http(self._limits, **about, prior_knowledge=True),  # type: ignore[arg-type]
            Http(self._limits, **about),  # type: ignore[arg-type]
        ]
        self._address = self._ways[0].address(url)
        self._paths = [self._address.path] if parts.path.strip("/") else [*PATHS]
        self.me, self.to = me, to
        self._secret, self._greeting = secret if to else "", greeting
        self._introduces = introduces or Introduction(
            None, me, Card(name=me, description="", version="")
        )
        self.token = ""
        self._greeted = False
        self._greets = asyncio.Lock()
        self._flat = False

    async def meet(self) -> Introduction:
        """Who is there: what it says of itself, or no more than its address."""
        told = await self.hello()
        if not isinstance(told, Introduction):
            who = self.to or self._address.target.authority
            told = Introduction(None, who, Card(name=who, description="", version=""))
        self.to = self.to or told.who
        return told

    async def hello(self) -> Signal | None:
        """Introduces us, and keeps the token that is given for it. None from an agent that knows no
        `HELO`: it is spoken to all the same."""
        caller = self._caller(greeting=self._greeting)
        told: Signal | None
        try:
            told = await self._ask(caller, replace(self._introduces, id=secrets.token_hex(16)))
        except _NO_HELO:
            if self._greeting != "HELO":
                raise
            told = None
        self.token, self._greeted = caller.token, True
        return told

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer."""
        told = await self._known(Call(secrets.token_hex(16), cast(AnyOperation, op)), ctx)
        if not isinstance(told, Result):
            raise PeerMisbehaved("This is not an answer")
        return cast(R, told.value)

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Says something whose answer does not matter."""
        await self._known(Call(secrets.token_hex(16), op), ctx)

    async def ping(self) -> None:
        """Returns when it answers."""
        await self._known(Ping(secrets.token_hex(16)), Context())

    async def stream(self, op: Streamed, ctx: Context) -> AsyncGenerator[Batch, None]:
        """Every step, as it comes."""
        await self._introduce()
        call = Call(secrets.token_hex(16), op, stream=True)
        try:
            steps = self._stream(call, ctx)
            first = await anext(steps, None)
        except Unauthenticated:
            await self._introduce(again=True)
            steps = self._stream(call, ctx)
            first = await anext(steps, None)
        try:
            while first is not None:
                yield first
                first = await anext(steps, None)
        finally:
            await steps.aclose()

    async def close(self) -> None:
        """Ends the connections."""
        for way in self._ways:
            await way.close()

    def _caller(self, *, greeting: str = "HELO", ctx: Context | None = None) -> IatCaller:
        caller = IatCaller(
            me=self.me,
            to=self.to,
            token=self.token if ctx is not None else "",
            flat=self._flat,
            greeting=greeting,
            now=_millis,
            new_id=lambda: secrets.token_hex(16),
        )
        if ctx is not None:
            caller.using(ctx)
        return caller

    async def _introduce(self, *, again: bool = False) -> None:
        """Says hello, unless that was done. Whoever comes meanwhile waits for it."""
        async with self._greets:
            if again or not self._greeted:
                await self.hello()

    async def _known(self, signal: Call | Ping, ctx: Context) -> Signal:
        await self._introduce()
        try:
            return await self._ask(self._caller(ctx=ctx), signal, ctx)
        except Unauthenticated:
            await self._introduce(again=True)
            return await self._ask(self._caller(ctx=ctx), signal, ctx)

    async def _ask(
        self, caller: IatCaller, signal: Call | Ping | Introduction, ctx: Context | None = None
    ) -> Signal:
        frames = list(caller.send(signal))
        while frames:
            reply = await self._exchange(frames[0], caller, ctx)
            heard = list(caller.receive(Frame(reply.body, "", reply.headers, reply.status)))
            frames = self._again(caller)
            if frames:
                continue
            for told in heard:
                if isinstance(told, Fault):
                    raise told.error
                return told
            return Result(signal.id, None)
        raise Unsupported("IAT has no words for this")

    def _again(self, caller: IatCaller) -> list[Frame]:
        """What has to be said once more, since they know only the other form."""
        frames, caller.fell_back = [*caller.fell_back], ()
        self._flat = caller.flat
        return frames

    def _headers(self, frame: Frame, caller: IatCaller, ctx: Context | None) -> dict[str, str]:
        headers = dict(frame.headers)
        if ctx is not None and ctx.cursor is not None:
            headers["last-event-id"] = str(ctx.cursor)
        if self._secret and not caller.token:
            headers |= signed(self._secret, frame.body, time.time())
        return headers

    async def _exchange(self, frame: Frame, caller: IatCaller, ctx: Context | None) -> HttpReply:
        headers = self._headers(frame, caller, ctx)
        while True:
            try:
                reply = await self._ways[0].ask(
                    *("POST", self._address, self._paths[0], headers, frame.body, NOBODY),
                    seconds=self._limits.wait,
                    max_size=self._limits.answer_size,
                )
            except PeerUnreachable as exc:
                await self._older(exc)
                continue
            if reply.status in _NOT_HERE and len(self._paths) > 1:
                del self._paths[0]
                continue
            # Now it is known how to reach them: no stream must be asked for twice.
            del self._paths[1:]
            while len(self._ways) > 1:
                await self._ways.pop().close()
            return reply

    async def _older(self, exc: PeerUnreachable) -> None:
        """Who hangs up on HTTP/2 may know HTTP/1.1; what it did not understand it did not do."""
        if len(self._ways) == 1 or self._address.target.scheme == "https" or not exc.sent:
            raise exc
        await self._ways.pop(0).close()

    async def _stream(self, call: Call, ctx: Context) -> AsyncGenerator[Batch, None]:
        caller = self._caller(ctx=ctx)
        frames = list(caller.send(call))
        while frames:
            (frame,) = frames
            opening = self._ways[0].stream(
                *("POST", self._address, self._paths[0]),
                *(self._headers(frame, caller, ctx), frame.body, NOBODY),
                idle=self._limits.idle,
            )
            async with opening as stream:
                if stream.headers.get("content-type", "").startswith("text/event-stream"):
                    async for batch in _events(caller, stream, self._limits.event_size):
                        yield batch
                else:
                    body = await read_all(stream, self._limits.answer_size)
                    frame = Frame(body, "", stream.headers, stream.status)
                    batch = _batch(caller.receive(frame), True)
                    if not caller.fell_back:
                        yield batch
            frames = self._again(caller)


async def _events(
    caller: IatCaller, stream: HttpStream, max_size: int
) -> AsyncGenerator[Batch, None]:
    parser = sse.SseParser(max_size)
    async for chunk in stream.chunks:
        signals: list[Signal] = []
        for event in parser.feed(chunk):
            signals += caller.receive(Frame(event.data, "", {}, 200, event.mark, event.name))
        batch = _batch(signals, False)
        if batch.entries or batch.last:
            yield batch
        if batch.last or caller.fell_back:
            return


def _batch(signals: Any, last: bool) -> Batch:
    entries: list[Any] = []
    for signal in signals:
        if isinstance(signal, Fault):
            raise signal.error
        if isinstance(signal, Update):
            entries.append(signal.entry)
        elif isinstance(signal, End):
            last = True
    return Batch(entries, last)


def _millis() -> int:
    return time.time_ns() // 1_000_000
