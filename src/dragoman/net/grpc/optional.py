"""Whether there is a gRPC server, and where the card says it is.

The one place that imports `grpc_server`: the packages it needs are an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from dragoman.core.card import Interface
from dragoman.core.errors import ConfigError
from dragoman.security import tls
from dragoman.settings import Settings

from ..http.addresses import GRPC, chosen
from ..http.exchange import ServerContext

if TYPE_CHECKING:
    from .server import GrpcServer

INSTALL = "pip install 'dragoman[grpc]'"
PACKAGES = frozenset(("grpc", "grpc_health", "grpc_reflection", "google"))

FORMS = {
    ("host:port", False): "",
    ("host:port", True): "",
    ("grpc", False): "grpc://",
    ("grpc", True): "grpcs://",
    ("http", False): "http://",
    ("http", True): "https://",
}
"""What stands before an address, by `server.grpc_form` and whether there is TLS."""


class OptionalGrpc:
    """The gRPC side of an app, there or not. All its verbs are harmless when it is not."""

    def __init__(self, context: ServerContext, settings: Settings) -> None:
        """`ConfigError` if it is asked for and nobody could say where it is reached."""
        self._floor, self._settings = context, settings
        server = settings.server
        self._versions = tuple(v for binding, v in chosen(server) if binding == GRPC)
        if self._versions and not server.grpc_url and (server.public_url or server.trusted_proxies):
            raise ConfigError(
                "gRPC is asked for, but behind public_url or trusted_proxies only you know where "
                "it is reached: set grpc_url (--grpc-url HOST:PORT), or leave it out (--no-grpc)."
            )
        self.server: GrpcServer | None = None

    @property
    def port(self) -> int | None:
        """Where it listens."""
        return self.server.port if self.server is not None else None

    def open(self) -> None:
        """Takes its port if it is asked for; `ConfigError` if it cannot be had."""
        if self._versions:
            self.server = self._opened()

    def _opened(self) -> GrpcServer:
        try:
            from .server import GrpcServer
        except ModuleNotFoundError as exc:
            if (exc.name or "").partition(".")[0] not in PACKAGES:
                raise
            raise ConfigError(f"gRPC is not installed; add it with: {INSTALL}") from exc
        server, secured = self._settings.server, self._settings.tls
        if secured.cert and secured.minimum != "1.2":
            raise ConfigError(
                "gRPC cannot be held to TLS 1.3: set minimum = '1.2' in [tls], or --no-grpc."
            )
        return GrpcServer(
            self._floor, server.host, server.grpc_port, tls.pem(secured), self._versions
        )

    async def start(self) -> None:
        """Answers from now on."""
        if self.server is not None:
            await self.server.start()

    async def refuse(self, wait: float) -> None:
        """Takes no more calls; those that run have so many seconds."""
        if self.server is not None:
            await self.server.refuse(wait)

    async def end(self) -> None:
        """Returns when the last call is answered or cut."""
        if self.server is not None:
            await self.server.end()

    def interfaces(self, base: str) -> tuple[Interface, ...]:
        """Its entries on the card of an agent that is reached at `base`."""
        if self.server is None:
            return ()
        server = self._settings.server
        url = server.grpc_url
        if not url:
            host = urlsplit(base).hostname
            if not host:
                return ()
            url = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
            url = FORMS[server.grpc_form, bool(self._settings.tls.cert)] + url
        return tuple(Interface(url=url, binding=GRPC, version=v) for v in self._versions)
