"""gRPC as the client needs it. The only file of the client that imports grpc, an extra."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc

from dragoman.core.card import Interface
from dragoman.core.dialect import Dialect
from dragoman.core.errors import ConfigError, PeerUnreachable
from dragoman.core.operations import AnyOperation, CancelTask, Invoke, SendMessage, Streamed
from dragoman.core.peer import Batch, Context
from dragoman.core.session import Frame
from dragoman.dialects.a2a.grpc.caller import failed
from dragoman.net.http.addresses import web_url
from dragoman.security.outbound import guarded_http

from ..credentials import Credentials, Wallet
from .http import Address, Http
from .transport import Transport, answer_in, steps

_DETAILS = "grpc-status-details-bin"
_SLOW = (SendMessage, CancelTask, Invoke)
TRY = 2.0
"""Seconds for one of several addresses of a name."""
_NEVER_LEFT = ("failed to connect", "dns resolution failed", "name resolution failure")


async def _listens(host: str, port: int) -> bool:
    """Whether somebody is there: gRPC is given one address, and a name may have several."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), TRY)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


class GrpcTransport(Transport):
    """One service on one channel."""

    def __init__(
        self, http: Http, interface: Interface, dialect: Dialect, wallet: Wallet, ca: str = ""
    ) -> None:
        self._http = http
        self._address = http.address(web_url(interface.url, http.scheme))
        super().__init__(interface, dialect, wallet, self._address.origin)
        self._ca = ca
        self._channel: grpc.aio.Channel | None = None
        self._where = ""
        """The address that the channel leads to."""
        self._older: list[grpc.aio.Channel] = []
        """Channels to where the agent was before."""
        self._broken = False
        """Whether the connection broke, and the agent's name may lead elsewhere now."""
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
        """Makes a channel to where the agent is now, unless there is one already."""
        address, limits = self._address, self._http.limits
        where = await self._checked(address)
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
            # Its own subchannels: one client's broken connection is not another's.
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

    async def _checked(self, address: Address) -> str:
        """The address itself: gRPC would resolve the name again, and could be told another."""
        port = address.target.port
        try:
            async with asyncio.timeout(self._http.limits.connect):
                found = await self._http.addresses(address)
                while len(found) > 1 and not await _listens(found[0], port):
                    found.pop(0)
        except (TimeoutError, guarded_http.Unreachable) as exc:
            why = str(exc) or "it did not answer in time"
            raise PeerUnreachable(f"{self.origin} cannot be reached: {why}") from exc
        return f"[{found[0]}]:{port}" if ":" in found[0] else f"{found[0]}:{port}"

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
        headers = {**self._headers(frame, ctx), **who.headers}
        return tuple(headers.items())

    async def _call(self, op: AnyOperation, ctx: Context, who: Credentials) -> Any:
        session, frame = self._said(op, ctx, stream=False)
        channel = await self._open()
        limits = self._http.limits
        ask = channel.unary_unary(frame.target)
        seconds = limits.wait if isinstance(op, _SLOW) else limits.answer
        try:
            body = await ask(frame.body, metadata=self._metadata(frame, ctx, who), timeout=seconds)
        except grpc.aio.AioRpcError as exc:
            return answer_in(session.receive(self._failed(exc)))
        return answer_in(session.receive(Frame(body, "", {}, 0)))

    async def _stream(
        self, op: Streamed, ctx: Context, who: Credentials
    ) -> AsyncGenerator[Batch, None]:
        session, frame = self._said(op, ctx, stream=True)
        channel = await self._open()
        asked = channel.unary_stream(frame.target)(
            frame.body, metadata=self._metadata(frame, ctx, who)
        )
        try:
            while True:
                try:
                    async with asyncio.timeout(self._http.limits.idle):
                        body = await asked.read()
                except TimeoutError:
                    raise PeerUnreachable(f"{self.origin} fell silent", sent=True) from None
                except grpc.aio.AioRpcError as exc:
                    body, told = grpc.aio.EOF, self._failed(exc)
                else:
                    told = Frame(b"" if body is grpc.aio.EOF else body, "", {}, 0)
                entries, last, error = steps(session.receive(told))
                if entries or last:
                    yield Batch(entries, last)
                if error is not None:
                    raise error
                if last or body is grpc.aio.EOF:
                    return
        finally:
            asked.cancel()

    def _failed(self, exc: grpc.aio.AioRpcError) -> Frame:
        code, text = exc.code(), exc.details() or ""
        details = dict(exc.trailing_metadata() or ()).get(_DETAILS, b"")
        if code is grpc.StatusCode.UNAVAILABLE and not details:
            # Nobody there, or the connection broke: no server says it without details.
            self._broken = True
            sent = not any(words in text.lower() for words in _NEVER_LEFT)
            raise PeerUnreachable(f"{self.origin} cannot be reached: {text}", sent=sent) from exc
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and not details:
            raise PeerUnreachable(f"{self.origin} did not answer in time", sent=True) from exc
        return failed(code.value[0], text, details if isinstance(details, bytes) else b"")

    async def close(self) -> None:
        """Ends the channel."""
        channels = [*self._older, *([self._channel] if self._channel is not None else [])]
        self._older, self._channel = [], None
        for channel in channels:
            await channel.close(None)
