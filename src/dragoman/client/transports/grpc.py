"""The gRPC transport of the client. Only this module imports grpc, which is an optional extra."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

from dragoman.core.errors import ConfigError, PeerMisbehaved, PeerUnreachable
from dragoman.core.events import Stamped
from dragoman.core.extensions import CURSOR
from dragoman.core.operations import Streamed
from dragoman.core.peer import AGENT, Batch, Begun, Context, begin_stream
from dragoman.core.session import Call, Frame, Signal, steps
from dragoman.dialects.a2a.grpc.caller import failed
from dragoman.net.http.addresses import web_url
from dragoman.net.http.mount_point import AGENTS

from ..credentials import Credentials
from .answers import first_answer
from .transport import Asking, Destination, Transport

_DETAILS = "grpc-status-details-bin"
_EXTENSIONS = ("a2a-extensions", "x-a2a-extensions")
_TOO_LARGE = ("client: received message larger", "decompressed message larger")
_NEVER_LEFT = ("failed to connect", "dns resolution failed", "name resolution failure")


class GrpcTransport(Transport):
    """Calls one gRPC service over one channel."""

    def __init__(self, to: Destination, ca: str = "") -> None:
        super().__init__(to, web_url(to.interface.url, to.http.scheme))
        self._ca = ca
        path = urlsplit(web_url(to.interface.url, to.http.scheme)).path
        name = path.removeprefix(f"{AGENTS}/").strip("/") if path.startswith(AGENTS) else ""
        self._agent = {AGENT: name} if name else {}
        """The metadata that names the agent on a port that several agents share. The path of a
        gRPC call is fixed by its service, so it cannot carry the path of the agent's address."""
        self._channel: grpc.aio.Channel | None = None
        self._where = ""
        """The address that the channel connects to."""
        self._older: list[grpc.aio.Channel] = []
        """The channels to addresses that the agent had before."""
        self._broken = False
        """Whether the connection broke, in which case the agent's name is resolved again."""
        self._opening = asyncio.Lock()

    async def _open(self) -> grpc.aio.Channel:
        if self._channel is not None and not self._broken:
            return self._channel
        async with self._opening:
            if self._channel is None or self._broken:
                self._broken = False
                await self._connect()
            assert self._channel is not None  # noqa: S101  it was made just now
            return self._channel

    async def _connect(self) -> None:
        """Opens a channel to the agent's present address, unless there is one already."""
        address, limits = self._address, self.limits
        # gRPC is given the checked address, not the name: it would resolve the name again and could
        # get an address that the egress guard never saw.
        found, port = await self._http.reachable(address), address.target.port
        where = f"[{found}]:{port}" if ":" in found else f"{found}:{port}"
        if self._channel is not None:
            if where == self._where:
                return
            self._older.append(self._channel)  # streams may still run over it
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", limits.event_size),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # gRPC shares connections between channels by default; here one client's broken
            # connection must not break another client.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if not where.startswith((address.target.host, f"[{address.target.host}]")):
            options.append(("grpc.default_authority", address.target.authority))
            options.append(("grpc.ssl_target_name_override", address.target.host))
        self._where = where
        if address.target.scheme == "https":
            self._channel = grpc.aio.secure_channel(where, self._tls(), options=options)
        else:
            self._channel = grpc.aio.insecure_channel(where, options=options)

    def _tls(self) -> grpc.ChannelCredentials:
        certificate = self.wallet.certificate(self.origin)
        try:
            roots = Path(self._ca).read_bytes() if self._ca else None
            chain = Path(certificate.cert).read_bytes() if certificate else None
            key = Path(certificate.key or certificate.cert).read_bytes() if certificate else None
        except OSError as exc:
            raise ConfigError(f"The CA or the client certificate: {exc.strerror}") from None
        return grpc.ssl_channel_credentials(roots, key, chain)

    def _metadata(self, frame: Frame, ctx: Context, who: Credentials) -> tuple[Any, ...]:
        headers = {**self._headers(frame, ctx), **self._agent, **who.headers}
        return tuple(headers.items())

    async def _answer(
        self, make: Callable[[Any], Asking], ctx: Context, who: Credentials
    ) -> Signal:
        session, signal = self._session(ctx, who), make(self._new_id())
        (frame,) = self._frames(session, signal)
        channel = await self._open()
        asked = channel.unary_unary(frame.target)(
            frame.body,
            metadata=self._metadata(frame, ctx, who),
            timeout=self._seconds(signal),
        )
        try:
            body = await asked
            await self._learn(asked)
        except grpc.aio.AioRpcError as exc:
            return first_answer(session.receive(self._failed(exc)))
        return first_answer(session.receive(Frame(body, "", {}, 0)))

    def _begin(self, op: Streamed, ctx: Context, who: Credentials) -> Awaitable[Begun]:
        return begin_stream(self._stream(op, ctx, who))

    async def _stream(
        self, op: Streamed, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        session = self._session(ctx, who)
        (frame,) = self._frames(session, Call(self._new_id(), op, True))
        channel = await self._open()
        asked = channel.unary_stream(frame.target)(
            frame.body, metadata=self._metadata(frame, ctx, who)
        )
        try:
            while True:
                try:
                    async with asyncio.timeout(self.limits.idle):
                        body = await asked.read()
                except TimeoutError:
                    raise PeerUnreachable(f"{self.origin} fell silent", sent=True) from None
                except grpc.aio.AioRpcError as exc:
                    body, heard = grpc.aio.EOF, self._failed(exc)
                else:
                    heard = Frame(b"" if body is grpc.aio.EOF else body, "", {}, 0)
                entries, last, error = steps(session.receive(heard))
                if self.on_extensions is not None and any(_is_numbered(each) for each in entries):
                    self.on_extensions((CURSOR,))
                if entries or last:
                    yield Batch(entries, last)
                if error is not None:
                    self._hide_secrets(error, who)
                    raise error
                if last or body is grpc.aio.EOF:
                    return
        finally:
            asked.cancel()

    async def _learn(self, asked: Any) -> None:
        """Learns the agent's extensions from its answer, where no card declares them."""
        if self.on_extensions is None:
            return
        headers = dict(await asked.trailing_metadata() or ())
        listed = (str(headers.get(name, "")) for name in _EXTENSIONS)
        self.on_extensions(uri.strip() for each in listed for uri in each.split(","))

    def _failed(self, exc: grpc.aio.AioRpcError) -> Frame:
        code, text = exc.code(), exc.details() or ""
        details = dict(exc.trailing_metadata() or ()).get(_DETAILS, b"")
        if code is grpc.StatusCode.UNAVAILABLE and not details:
            # Nothing listens there, or the connection broke: the servers of A2A send details with
            # a status of their own, so this one comes from our side of the channel.
            self._broken = True
            sent = not any(words in text.lower() for words in _NEVER_LEFT)
            raise PeerUnreachable(f"{self.origin} cannot be reached: {text}", sent=sent) from None
        if any(words in text.lower() for words in _TOO_LARGE) and not details:
            # Our side of the channel says so. A server to which our request is too large sends
            # details.
            size = self.limits.event_size
            raise PeerMisbehaved(f"The answer is larger than {size} bytes") from None
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and not details:
            raise PeerUnreachable(f"{self.origin} did not answer in time", sent=True) from None
        return failed(code.value[0], text, details if isinstance(details, bytes) else b"")

    async def close(self) -> None:
        """Closes the channel, and the earlier ones over which streams may still run."""
        channels = [*self._older, *([self._channel] if self._channel is not None else [])]
        self._older, self._channel = [], None
        for channel in channels:
            await channel.close(None)


def _is_numbered(entry: object) -> bool:
    """Returns whether an event has a number, which in A2A only our extension gives it."""
    return isinstance(entry, Stamped) and entry.seq > 0
