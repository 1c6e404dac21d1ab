"""The line to whoever speaks IAT at an address: `POST`, with the answer as JSON or as a stream.

HTTP/2 is spoken first, without TLS too; who does not understand it is spoken to in HTTP/1.1. The
first thing said is `HELO` or `register` with the shared secret; all else carries the session token
that is the answer to it. A token that is refused is asked for once more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from ..card import Card
from ..client.credentials import Credentials
from ..client.http import Http, Reply, Stream, read_all
from ..client.limits import Limits
from ..dialects import sse
from ..dialects.iat.caller import IatCaller
from ..errors import PeerMisbehaved, PeerUnreachable, Unauthenticated, Unsupported
from ..ops import AnyOperation, Operation, R, Streamed
from ..peer import Batch, Context
from ..session import Answer, Call, End, Fault, Frame, Met, Ping, Signal, Update

NOBODY = Credentials()


class HttpLine:
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
        limits: Limits | None = None,
        introduces: Met | None = None,
    ) -> None:
        self._limits = limits or Limits()
        parts = urlsplit(url)
        host = (parts.hostname or "") if trusted else ""
        about = {"host": host, "scheme": parts.scheme, "allow_private": allow_private}
        self._ways = [
            Http(self._limits, **about, prior_knowledge=True),  # type: ignore[arg-type]
            Http(self._limits, **about),  # type: ignore[arg-type]
        ]
        self._address = self._ways[0].address(url)
        self.me, self.to = me, to
        self._secret, self._greeting = secret, greeting
        self._introduces = introduces or Met(None, me, Card(name=me, description="", version=""))
        self.token = ""

    async def hello(self) -> Signal:
        """Introduces us, and keeps the token that is given for it."""
        caller = self._caller(token=self._secret, greeting=self._greeting)
        told = await self._ask(caller, replace(self._introduces, id=secrets.token_hex(16)))
        self.token = caller.token if caller.token != self._secret else ""
        return told

    async def call(self, op: Operation[R], ctx: Context) -> R:
        """The answer."""
        told = await self._known(Call(secrets.token_hex(16), cast(AnyOperation, op)), ctx)
        if not isinstance(told, Answer):
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
        if not self.token:
            await self.hello()
        call = Call(secrets.token_hex(16), op, stream=True)
        try:
            steps = self._stream(call, ctx)
            first = await anext(steps, None)
        except Unauthenticated:
            await self.hello()
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

    def _caller(
        self, *, token: str, greeting: str = "HELO", ctx: Context | None = None
    ) -> IatCaller:
        caller = IatCaller(
            me=self.me,
            to=self.to,
            token=token,
            greeting=greeting,
            now=_millis,
            new_id=lambda: secrets.token_hex(16),
        )
        if ctx is not None:
            caller.using(ctx)
        return caller

    async def _known(self, signal: Call | Ping, ctx: Context) -> Signal:
        if not self.token:
            await self.hello()
        try:
            return await self._ask(self._caller(token=self.token, ctx=ctx), signal, ctx)
        except Unauthenticated:
            await self.hello()
            return await self._ask(self._caller(token=self.token, ctx=ctx), signal, ctx)

    async def _ask(
        self, caller: IatCaller, signal: Call | Ping | Met, ctx: Context | None = None
    ) -> Signal:
        frames = list(caller.send(signal))
        while frames:
            reply = await self._exchange(frames[0], ctx)
            heard = list(caller.receive(Frame(reply.body, "", reply.headers, reply.status)))
            again, caller.fell_back = caller.fell_back, ()
            if again:
                frames = list(again)
                continue
            for told in heard:
                if isinstance(told, Fault):
                    raise told.error
                return told
            return Answer(signal.id, None)
        raise Unsupported("IAT has no words for this")

    async def _exchange(self, frame: Frame, ctx: Context | None) -> Reply:
        headers = _headers(frame, ctx)
        while True:
            try:
                return await self._ways[0].ask(
                    *("POST", self._address, self._address.path, headers, frame.body, NOBODY),
                    seconds=self._limits.wait,
                    max_size=self._limits.answer_size,
                )
            except PeerUnreachable as exc:
                await self._older(exc)

    async def _older(self, exc: PeerUnreachable) -> None:
        """Who hangs up on HTTP/2 may know HTTP/1.1; what it did not understand it did not do."""
        if len(self._ways) == 1 or self._address.target.scheme == "https" or not exc.sent:
            raise exc
        await self._ways.pop(0).close()

    async def _stream(self, call: Call, ctx: Context) -> AsyncGenerator[Batch, None]:
        caller = self._caller(token=self.token, ctx=ctx)
        (frame,) = caller.send(call)
        headers = _headers(frame, ctx)
        if len(self._ways) > 1 and self._address.target.scheme != "https":
            await self._exchange_version()
        opening = self._ways[0].stream(
            *("POST", self._address, self._address.path, headers, frame.body, NOBODY),
            idle=self._limits.idle,
        )
        async with opening as stream:
            if not stream.headers.get("content-type", "").startswith("text/event-stream"):
                body = await read_all(stream, self._limits.answer_size)
                yield _batch(caller.receive(Frame(body, "", stream.headers, stream.status)), True)
                return
            async for batch in _events(caller, stream, self._limits.event_size):
                yield batch

    async def _exchange_version(self) -> None:
        """Finds out once, by a pulse, which HTTP is spoken: no stream must be asked for twice."""
        (frame,) = self._caller(token=self.token).send(Ping(secrets.token_hex(16)))
        before = len(self._ways)
        await self._exchange(frame, None)
        if len(self._ways) == before:
            await self._ways.pop().close()


async def _events(caller: IatCaller, stream: Stream, max_size: int) -> AsyncGenerator[Batch, None]:
    parser = sse.Parser(max_size)
    async for chunk in stream.chunks:
        signals: list[Signal] = []
        for event in parser.feed(chunk):
            signals += caller.receive(Frame(event.data, "", {}, 200, event.mark, event.name))
        batch = _batch(signals, False)
        if batch.entries or batch.last:
            yield batch
        if batch.last:
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


def _headers(frame: Frame, ctx: Context | None) -> dict[str, str]:
    headers = dict(frame.headers)
    if ctx is not None and ctx.cursor is not None:
        headers["last-event-id"] = str(ctx.cursor)
    return headers


def _millis() -> int:
    return time.time_ns() // 1_000_000
