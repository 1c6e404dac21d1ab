"""A bell on NATS, for many processes: messages of core NATS, which keeps nothing."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

from dragoman.core.errors import ConfigError

from .shared import ConnectedBell

PING = 5
"""Seconds between two checks of a connection that is silent."""
CONNECT = 5
"""Seconds that one attempt to connect may take."""


class NatsBell(ConnectedBell):
    """Implements `SharedBell`."""

    failures = (OSError, Error, asyncio.TimeoutError)

    def __init__(self, url: str, subject: str) -> None:
        """`url` is `nats://host:4222` or `tls://host:4222`, with several hosts if there are
        several; `?credentials=PATH` names a file of credentials, and `?ca=PATH` the authority that
        has signed the servers' certificates, if it is one of your own. `subject` is the same for
        all processes on one store, and no other's."""
        super().__init__()
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        self._credentials = given.pop("credentials", None)
        ca = given.pop("ca", None)
        if given or parts.path not in ("", "/") or not parts.netloc:
            raise ConfigError("Write the bell as 'nats://host:4222', several hosts with commas.")
        login, at, hosts = parts.netloc.rpartition("@")
        scheme = "tls" if parts.scheme == "tls" else "nats"
        self._servers = [f"{scheme}://{login}{at}{host}" for host in hosts.split(",")]
        if ca and scheme != "tls":
            raise ConfigError("The bell has a 'ca', so write it as 'tls://...'.")
        if self._credentials and not Path(self._credentials).is_file():
            raise ConfigError(f"There are no credentials for the bell in {self._credentials}.")
        self._tls = _trusting(ca) if scheme == "tls" else None
        self._subject = subject
        self._client: Client | None = None

    async def _connect(self) -> None:
        async def lost() -> None:
            self._wake.set()

        async def failed(error: Exception) -> None:
            """Errors end the connection, and then we connect again."""

        async def arrived(message: Msg) -> None:
            self._hear(message.data)

        # The client could connect again by itself, but our own way rings for everything then.
        client = self._client = await nats.connect(
            self._servers,
            name="dragoman",
            allow_reconnect=False,
            connect_timeout=CONNECT,
            ping_interval=PING,
            max_outstanding_pings=2,
            no_echo=True,
            tls=self._tls,
            user_credentials=self._credentials,
            closed_cb=lost,
            disconnected_cb=lost,
            error_cb=failed,
        )
        await client.subscribe(self._subject, cb=arrived)
        await client.flush(CONNECT)

    async def _send(self, message: bytes) -> None:
        if self._client is not None:
            await self._client.publish(self._subject, message)

    async def _check(self) -> None:
        if self._client is None or not self._client.is_connected:
            raise ConnectionError("the connection was lost")

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            await client.close()


def _trusting(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The bell's 'ca' {ca} cannot be read: {error}.") from error
