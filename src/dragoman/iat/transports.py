"""The client's transports as hosts use them to reach agents, and agents to reach their host."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from urllib.parse import urlsplit

from dragoman.client.addresses import paths_at, web_form
from dragoman.client.credentials import Credentials, SharedSecret, Wallet
from dragoman.client.limits import ClientLimits
from dragoman.client.transports.http import Http
from dragoman.client.transports.http_transport import HttpTransport
from dragoman.client.transports.transport import Destination
from dragoman.client.transports.websocket import halves, open_websocket
from dragoman.core.card import Card, Interface
from dragoman.core.errors import PeerUnreachable
from dragoman.core.operations import AnyOperation, Resolve, SendMessage, Streamed
from dragoman.core.peer import Batch, Begun, Context, begin_stream
from dragoman.core.session import Call, Introduction
from dragoman.dialects import DIALECTS
from dragoman.dialects.iat.caller import IatCaller
from dragoman.net.http.asgi import Receive, Send

from .open_executes import OpenExecute, OpenExecutes

IAT, IAT_WEBSOCKET = DIALECTS["iat"], DIALECTS["iat-ws"]


class SubAgentTransport(HttpTransport):
    """Calls a sub-agent at its address. What the sub-agent posts to us about an `execute` is part
    of the stream of its events."""

    def __init__(
        self,
        to: Destination,
        executes: OpenExecutes,
        *,
        introduces: Introduction,
        token: str = "",
    ) -> None:
        """`token` is the session token that the sub-agent got from us."""
        super().__init__(to, introduces=introduces, token=token, owns_http=True)
        self._executes = executes
        self._own: set[OpenExecute] = set()
        """The executes that were sent here."""

    async def _begin(self, op: Streamed, ctx: Context, who: Credentials) -> Begun:
        if not isinstance(op, SendMessage):
            return await super()._begin(op, ctx, who)
        await self._introduce(who)
        return await begin_stream(self._execute(op, ctx, who))

    async def _execute(
        self, op: SendMessage, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        session = self._session(ctx, who)
        assert isinstance(session, IatCaller)  # noqa: S101  as the dialect makes it
        session.hears_posts = True
        id = str(self._new_id())
        frames = self._frames(session, Call(id, op, True))
        execute = self._executes.open(id, session)
        self._own.add(execute)
        try:
            answer = self._begin_with(session, frames, ctx, who)
            async with aclosing(execute.batches(answer)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._own.discard(execute)
            self._executes.close(execute)

    async def tell(self, op: AnyOperation, ctx: Context) -> None:
        """Calls an operation and ignores its result. A request that was posted has its answer in
        the response to its POST."""
        if isinstance(op, Resolve) and self._executes.answer(op):
            return
        await super().tell(op, ctx)

    async def close(self) -> None:
        """Ends the executes, because the sub-agent has left."""
        for each in tuple(self._own):
            self._executes.close(each, PeerUnreachable("The sub-agent has left", sent=True))
        await super().close()


def host_transport(url: str, me: str, host: str, *, secret: str, us: Introduction) -> HttpTransport:
    """Returns the transport of an agent to the host that it joins, for which our messages are
    signed. The operator typed its address, so it may be in any network."""
    to = _destination(url, me, host, secret=secret, typed=True)
    return HttpTransport(to, introduces=us, joins=True, owns_http=True)


def sub_agent_transport(
    url: str,
    me: str,
    to: str,
    executes: OpenExecutes,
    *,
    secret: str = "",
    token: str = "",
    typed: bool = False,
    allow_private: bool = False,
) -> SubAgentTransport:
    """Returns the transport of a host to a sub-agent at an address. Messages are signed for the
    name `to`, or not at all without one. An address that the operator `typed` may be in any
    network."""
    return SubAgentTransport(
        _destination(url, me, to, secret=secret, typed=typed, allow_private=allow_private),
        executes,
        introduces=Introduction(None, me, Card(name=me, description="", version="")),
        token=token,
    )


def _destination(
    url: str, me: str, to: str, *, secret: str, typed: bool, allow_private: bool = False
) -> Destination:
    return Destination(
        _http(url, typed=typed, allow_private=allow_private),
        Interface(url=url, binding=IAT.binding, version=""),
        IAT,
        Wallet(SharedSecret(secret, to=to, me=me), [url]),
        paths_at(url, IAT),
    )


@asynccontextmanager
async def websocket(
    url: str, max_size: int, headers: Mapping[str, str]
) -> AsyncIterator[tuple[Receive, Send]]:
    """Opens a WebSocket to the address of a host that the operator typed, and yields its `receive`
    and `send` as in ASGI."""
    web = web_form(f"{IAT_WEBSOCKET.scheme}+{url}")
    http = _http(web, typed=True)
    address = http.address(web)
    path = next(iter(paths_at(web, IAT_WEBSOCKET)), address.path)
    socket = await open_websocket(http, address, path, headers, max_size)
    try:
        yield halves(socket)
    finally:
        await socket.close()


def _http(url: str, *, typed: bool, allow_private: bool = False) -> Http:
    parts = urlsplit(url)
    host = (parts.hostname or "") if typed else ""
    return Http(ClientLimits(), host=host, scheme=parts.scheme, allow_private=allow_private)
