"""The service that runs the gRPC server and announces it on the card.

Only this module imports `server`, since the packages that it needs are an optional extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.core.card import Interface
from dragoman.core.errors import ConfigError
from dragoman.security import tls
from dragoman.settings import Settings

from ..http.addresses import GRPC, chosen
from ..server_context import ServerContext
from ..service import Service

if TYPE_CHECKING:
    from .server import GrpcServer

INSTALL = "pip install 'dragoman[grpc]'"
PACKAGES = frozenset(("grpc", "grpc_health", "grpc_reflection", "google"))

WITH_TENANTS = frozenset(("1.0",))
"""The versions whose requests name a tenant."""
FORMS = {
    ("host:port", False): "",
    ("host:port", True): "",
    ("grpc", False): "grpc://",
    ("grpc", True): "grpcs://",
    ("http", False): "http://",
    ("http", True): "https://",
}
"""The prefix of an address, by `server.grpc_form` and whether there is TLS."""


class OwnPort(Struct, frozen=True, kw_only=True):
    """The port that one of several agents has for itself."""

    agent: str
    port: int
    url: str = ""
    """Its address on the card; empty if it is the host's."""


class GrpcService(Service):
    """Runs the gRPC server of an app, or of one of its agents, on its own port."""

    name = "grpc"

    def __init__(
        self,
        context: ServerContext,
        settings: Settings,
        grace: float,
        *,
        several: bool = False,
        own: OwnPort | None = None,
    ) -> None:
        """Calls that run when the app stops have `grace` seconds to end. The agents of a server for
        `several` are added with `add_agent`, except one with its `own` port. Raises `ConfigError`
        if the address for the card is not known."""
        self._context, self._settings, self._grace = context, settings, grace
        self._several, self._own = several, own
        self._agents: dict[str, tuple[ServerContext, str, str]] = {}
        server = settings.server
        self._where = server.grpc_url if own is None else own.url
        key, flag = "grpc_url", " (--grpc-url HOST:PORT)"
        if own is not None:
            self.name, key, flag = f"grpc_{own.agent}", f"[agents.{own.agent}] grpc_url", ""
        unknown = not self._where and (server.public_url or server.trusted_proxies)
        if unknown and server.grpc_listed:
            raise ConfigError(
                "gRPC is enabled, but its public address cannot be derived from public_url or "
                f"trusted_proxies: set {key}{flag}, take it off the card (grpc_listed = false), or "
                "disable it (--no-grpc)."
            )
        if not server.grpc_listed and all(binding == GRPC for binding, _ in chosen(server)):
            raise ConfigError(
                "grpc_listed = false leaves nothing on the card: only gRPC is served."
            )
        self._server: GrpcServer | None = None

    @property
    def _versions(self) -> tuple[str, ...]:
        return tuple(v for binding, v in chosen(self._settings.server) if binding == GRPC)

    def open(self) -> None:
        """Binds the port, or raises `ConfigError` if that fails."""
        try:
            from .server import GrpcServer
        except ModuleNotFoundError as exc:
            if (exc.name or "").partition(".")[0] not in PACKAGES:
                raise
            raise ConfigError(f"gRPC is not installed; add it with: {INSTALL}") from exc
        server, secured = self._settings.server, self._settings.tls
        if secured.cert and secured.minimum != "1.2":
            raise ConfigError(
                "gRPC cannot require TLS 1.3: set minimum = '1.2' in [tls], or use --no-grpc."
            )
        own = self._own
        self._server = GrpcServer(
            self._context,
            server.host,
            server.grpc_port if own is None else own.port,
            tls.pem(secured),
            self._versions,
            several=self._several,
            # When an agent is replaced, its successor listens before it has ended.
            shared=server.workers > 1 or own is not None,
        )
        for name, agent in self._agents.items():
            self._server.routes.add(name, *agent)
        self.port = self._server.port

    async def start(self) -> None:
        """Starts to serve."""
        if self._server is not None:
            await self._server.start()

    async def drain(self) -> None:
        """Refuses new calls."""
        if self._server is not None:
            await self._server.refuse(self._grace)

    async def stop(self) -> None:
        """Returns when the last call has been answered or cut off."""
        if self._server is not None:
            await self._server.end()

    def add_agent(self, name: str, server: ServerContext, host: str = "", tenant: str = "") -> None:
        """Answers calls that name this agent, from now on."""
        self._agents[name] = server, host, tenant
        if self._server is not None:
            self._server.routes.add(name, server, host, tenant)

    def remove_agent(self, name: str) -> None:
        """Answers no more calls that name this agent."""
        self._agents.pop(name, None)
        if self._server is not None and self._server.agents is not None:
            self._server.agents.remove(name)

    def interfaces(self, url: str, agent: str = "") -> tuple[Interface, ...]:
        """Returns the interfaces for the card, once the port is bound. One of several agents is
        named by the tenant, which 0.3 has no field for, unless it has its own port (ADR 0015)."""
        server = self._settings.server
        if self._server is None or not server.grpc_listed:
            return ()
        if self._own is not None:
            agent = ""
        where = self._where
        if not where:
            host = urlsplit(url).hostname
            if not host:
                return ()
            where = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
            where = FORMS[server.grpc_form, bool(self._settings.tls.cert)] + where
        return tuple(
            Interface(url=where, binding=GRPC, version=version, tenant=agent)
            for version in self._versions
            if not agent or version in WITH_TENANTS
        )


def asked_for(settings: Settings) -> bool:
    """Returns whether the settings enable gRPC."""
    return any(binding == GRPC for binding, _ in chosen(settings.server))
