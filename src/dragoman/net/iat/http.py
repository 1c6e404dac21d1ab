"""IAT over HTTP: `POST /iat` with JSON or SSE, and the addresses that real hosts know."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from time import perf_counter

from msgspec.structs import replace

from dragoman.core.model import Json
from dragoman.core.operations import SendMessage
from dragoman.core.peer import Batch, Context
from dragoman.core.session import Call, Fault, Frame, Id, Introduction, Ping, Result, Signal
from dragoman.dialects.iat.callee import IatCallee
from dragoman.dialects.iat.plain_endpoints import PlainCallee
from dragoman.security.authentication import certificate_in
from dragoman.security.iat import IatSession

from ..http.asgi import Receive, Scope, Send, headers_in
from ..http.exchange import Exchange, send_frame, target_in
from .endpoint_context import IatContext
from .question_stream import stream_until_final


class IatExchange(Exchange):
    """Answers the envelopes at one address."""

    def __init__(self, desk: IatContext, kind: type[IatCallee], target: str) -> None:
        super().__init__(desk.server, lambda: desk.session(kind), target)
        self._desk, self._kind = desk, kind
        self._plain = issubclass(kind, PlainCallee)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The whole exchange."""
        began = perf_counter()
        server, desk = self.server, self._desk
        session = desk.session(self._kind)
        headers = headers_in(scope["headers"])
        target = target_in(scope, self.target)
        ident: Id = None
        method = "-"
        try:
            # A token may stand in the body, so unlike elsewhere it is read first, within limits.
            asked = scope["method"] == "POST"
            body = await self._body(scope, receive, headers) if asked else b""
            first, *others = session.receive(Frame(body, target, headers))
            ident = first.id
            found = await desk.guard.who(
                *(session.heard, headers, target, certificate_in(scope)),
                body if asked else scope["query_string"],
                plain=self._plain,
            )
            if isinstance(first, Fault):
                raise first.error
            method = _name(first)
            ctx = desk.context(session, found)
            if isinstance(first, Call) and first.stream:
                await self._stream(session, first, ctx, scope, receive, send, (), began)
                return
            value = await self._value(first, ctx, session, found, headers)
            for each in others:
                if isinstance(each, Call):
                    await server.peer.call(each.op, ctx)
            (frame,) = session.send(Result(ident, value))
            await send_frame(server, send, frame, ())
        except Exception as exc:  # the driver's border: whatever went wrong becomes a fault
            error = self._error(exc, method, session.dialect)
            (frame,) = session.send(Fault(ident, error))
            await send_frame(server, send, frame, server.refusal_headers(error))
        server.metrics.answered(method, session.dialect, perf_counter() - began)

    def _steps(self, call: Call, ctx: Context) -> AsyncGenerator[Batch, None]:
        if self._plain:  # nobody there who could answer
            return super()._steps(call, ctx)
        return stream_until_final(self.server.peer, call.op, ctx)  # type: ignore[arg-type]  # only these

    async def _value(
        self,
        signal: Signal,
        ctx: Context,
        session: IatCallee,
        found: IatSession,
        headers: Mapping[str, str],
    ) -> Json:
        match signal:
            case Call(silent=True) if isinstance(signal.op, SendMessage):
                return await self.server.peer.call(replace(signal.op, wait=False), ctx)
            case Call():
                return await self.server.peer.call(signal.op, ctx)
            case Introduction():
                welcome = self._desk.welcome(signal, found, None)
                # The next message may reach another process, which asks the store.
                await self._desk.guard.sessions.landed()
                return welcome
            case Ping():
                return self._desk.alive(session, headers)
            case _:
                raise AssertionError(f"a callee heard {type(signal).__name__}")


def _name(signal: Signal) -> str:
    return type(signal.op if isinstance(signal, Call) else signal).__name__
