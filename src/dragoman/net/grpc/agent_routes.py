"""Routes the calls on a gRPC port to one of several agents (ADR 0015)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from dragoman.core.errors import BadParams, Unauthenticated
from dragoman.core.peer import AGENT
from dragoman.dialects.a2a.grpc.callee import RPCS, GrpcCallee
from dragoman.dialects.a2a.scalars import Wrong
from dragoman.security.authentication import Recognizer

from ..driver import Driver
from ..server_context import ServerContext
from .builtin_services import Servicer, client_in

FORWARDED = "x-forwarded-host"
AT_ONCE = 32
"""The number of different schemes that check a caller before the loop may run other tasks: about a
quarter of a millisecond."""


class AgentRoutes:
    """The agents of a port, by their names, hosts and tenants."""

    def __init__(self, nobody: Driver, *, is_agent: bool = False) -> None:
        """`nobody` answers the calls that name no agent. It may be the agent beside which the
        others are served, whose callers are known here too."""
        self._nobody = nobody
        self._own = [nobody.server.recognizes] if is_agent else []
        self._agents: dict[str, tuple[Driver, Driver]] = {}
        self._by_host: dict[str, str] = {}
        self._by_tenant: dict[str, str] = {}
        self._recognizers: list[Recognizer] | None = None

    def add(self, name: str, server: ServerContext, host: str, tenant: str) -> None:
        """Routes calls to this agent, from now on: by its name, `host` or `tenant`."""
        self.remove(name)
        self._agents[name] = Driver(server, GrpcCallee), Driver(server, TenantCallee)
        if host:
            self._by_host[host] = name
        if tenant:
            self._by_tenant[tenant] = name

    def remove(self, name: str) -> None:
        """Stops routing calls to this agent. Running calls continue."""
        self._agents.pop(name, None)
        self._recognizers = None
        for table in (self._by_host, self._by_tenant):
            for key in [key for key, agent in table.items() if agent == name]:
                del table[key]

    async def recognize(self, headers: Mapping[str, str], target: str, certificate: str) -> None:
        """Raises `Unauthenticated` unless at least one of the agents knows the caller."""
        if self._recognizers is None:
            # Agents with the same schemes are asked once, those that admit everyone first of all.
            others = (driver.server.recognizes for driver, _ in self._agents.values())
            kinds = dict.fromkeys((*self._own, *others))
            self._recognizers = sorted(kinds, key=lambda each: not each.everyone)
        for count, recognizes in enumerate(self._recognizers, 1):
            if await recognizes(headers, target, certificate):
                return
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)
        raise Unauthenticated()

    def named_in(self, headers: Mapping[str, str], servicer: Servicer) -> Driver | None:
        """Returns the driver of the agent that a call names in its metadata, or by the host that it
        was sent to, or None if only the message may name it. grpcio does not expose the authority
        of a call, so only a proxy of ours can report the host."""
        if AGENT in headers:
            name = headers[AGENT]
            if name not in self._agents:
                said = f"This server has no agent called {name[:64]} ({AGENT})."
                raise BadParams(said, field=AGENT)
            return self._agents[name][0]
        host, trusts = headers.get(FORWARDED, ""), self._nobody.server.trusts
        if host and trusts is not None and trusts(client_in(servicer.peer())[0]):
            found = self._by_host.get(host.lower().partition(":")[0])
            return self._agents[found][0] if found is not None else None
        return None

    def of_tenant(self, path: str, body: bytes) -> Driver:
        """Returns the driver of the agent that the tenant of a message names: the agent that has
        this tenant, which its callers then need the right to use, or the agent of this name, for
        which the tenant has no other meaning."""
        try:
            tenant = getattr(RPCS[path][1].read(body), "tenant", "")
        except Wrong:
            return self._nobody  # its codec reports what is wrong
        if (name := self._by_tenant.get(tenant)) is not None:
            return self._agents[name][0]
        return self._agents.get(tenant, (self._nobody, self._nobody))[1]


class TenantCallee(GrpcCallee):
    """One rpc for an agent that the caller named as the tenant. The name is used up by that, so the
    agent sees no tenant."""

    @property
    def tenant(self) -> str:
        """Returns no tenant."""
        return ""
