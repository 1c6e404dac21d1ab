"""Puts together, from the settings of one agent, all that stands between the wires and its
engine."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, cast

from msgspec.structs import replace

from dragoman.agent import Agent
from dragoman.core.auth_schemes import ApiKeys, Certificates, Scheme
from dragoman.core.card import Card
from dragoman.core.errors import ConfigError, NoExtendedCard, Unauthenticated
from dragoman.core.operations import Operation
from dragoman.core.peer import ANYONE, Context, Peer
from dragoman.net.http.addresses import GRPC, chosen
from dragoman.net.http.asgi import Handler, Scope
from dragoman.settings import Settings

from . import tls
from .anonymous import Anonymous
from .authentication import Admit, Authenticator, Recognizer, anyone, told
from .authorization import AuthorizingPeer, may_use, with_requirements
from .call_policy import CallPolicy, permits
from .card_enforcement import held
from .jwks import JwksFetcher
from .rate_limits import Meter
from .route_policy import Access, Policy, Routes, check, policed


class AccessControl:
    """The authentication, rate limits and policies of one agent. The card declares what they
    enforce."""

    def __init__(
        self,
        agent: Agent,
        settings: Settings,
        meter: Meter | None = None,
        *,
        policies: Sequence[CallPolicy] = (),
        name: str = "",
    ) -> None:
        """`meter` counts what callers use, where several agents share what they may. `policies`
        know the agent by this `name`."""
        self._policies, self._name = policies, name or agent.name
        schemes = {**agent.auth, **settings.auth}  # the file beats the code
        needed = agent.scopes or any(skill.scopes for skill in agent.skills.values())
        if needed and not schemes:
            raise ConfigError(
                f"Agent '{agent.name}' asks for scopes, but nobody can have any: add auth."
            )
        if settings.tls.cert or settings.tls.key or settings.tls.client_ca:
            tls.check(settings.tls)
        for name, scheme in schemes.items():
            if isinstance(scheme, Certificates) and not settings.tls.client_ca:
                raise ConfigError(f"[auth.{name}] needs client_ca in [tls].")
        self.agent = agent
        self.meter = meter or Meter(settings.rates)
        self._fetch = JwksFetcher(allow_private=settings.server.allow_private)
        metered = self.meter if settings.rates.calls_per_minute else None
        self.authenticator = Authenticator(
            schemes,
            agent.name,
            meter=metered,
            fetch=self._fetch,
            scopes=agent.scopes,
            keeps_tokens=agent.acts_for_callers,
        )
        self.admit: Admit = self.authenticator.admit if schemes or metered else anyone
        self.locked = bool(schemes)
        self.anonymous = Anonymous(agent, settings.server.anonymous)
        self.admit_or_anyone: Admit = self.admit
        """Admits callers of A2A operations; what is not open to strangers is refused by the peer
        that `before` returns."""
        if self.locked and self.anonymous:
            self.admit_or_anyone = self.authenticator.admit_or_anyone
        if names := settings.server.caller_headers:
            self.admit_or_anyone = with_headers(self.admit_or_anyone, names, schemes)
        known_only = self.locked and not self.anonymous
        self.recognizes = Recognizer(self.authenticator if known_only else None)
        asks = Recognizer(self.authenticator)
        self.identifies_as = asks, bool(self.anonymous), agent.acts_for_callers
        """Agents for which this is equal give the same answer to `identify`."""
        self._access = _accesses(settings)
        if not schemes and any(each.authenticated for each in self._access.values()):
            raise ConfigError(
                "Access for authenticated callers needs [auth.NAME], or auth= in code."
            )

    @property
    def extended(self) -> bool:
        """Returns whether callers that are known see more than others."""
        hidden = any(skill.extended for skill in self.agent.skills.values())
        return self.agent.may_extend and self.locked and (hidden or self.agent.extended is not None)

    def before(self, peer: Peer, publish: Callable[[str, Card], Card]) -> Peer:
        """Returns the peer behind its guard and terms; itself when there is nothing to ask.

        `publish` makes a card of the agent's what the public one is, at the address given."""
        behind = held(self.agent, peer)
        rates, agent = self.meter.rates, self.agent
        asks = agent.authorizer or agent.scopes or any(s.scopes for s in agent.skills.values())
        anonymous = self.anonymous if self.locked and self.anonymous else None
        asks = bool(asks or self._policies)
        if not (asks or self.extended or anonymous or rates.streams or rates.live_tasks):
            return behind

        async def extended(caller: Context) -> Card:
            return publish(caller.base, await self._extended_card(caller))

        return AuthorizingPeer(
            agent,
            behind,
            self.meter,
            extended if self.extended else None,
            asked=peer,
            anonymous=anonymous,
            policies=self._policies,
            name=self._name,
        )

    async def _extended_card(self, caller: Context) -> Card:
        also = [each.id for each in self.agent.skills.values() if may_use(caller, each)]
        card = self.agent.card((), also)
        if self.agent.extended is None:
            return card
        written = self.agent.extended(caller)
        written = await written if inspect.isawaitable(written) else written
        if written is None:
            raise NoExtendedCard()
        # What the agent understands does not depend on whom it tells.
        named = {each.uri for each in written.extensions}
        more = tuple(each for each in card.extensions if each.uri not in named)
        return cast(Card, replace(written, extensions=(*written.extensions, *more)))

    def on_card(self, card: Card) -> Card:
        """Returns the card with the schemes in force and the requirements of each skill."""
        card = replace(self.authenticator.on_card(card), extended=self.extended)
        card = with_requirements(card, self.agent)
        return self.anonymous.on_card(card) if self.locked else card

    async def permits(self, op: Operation[Any], caller: Context, skill: str) -> bool:
        """Returns whether the policies of the server let a caller open a task with this skill."""
        return await permits(self._policies, caller, self._name, op, skill)

    async def close(self) -> None:
        """Closes the connections to issuers."""
        await self._fetch.close()

    async def identify(self, headers: Mapping[str, str], target: str, certificate: str) -> Context:
        """Returns the caller as this agent knows it, without counting a call: the request may be
        for several agents. Raises `Unauthenticated`."""
        caller = await self.authenticator.identify(headers, target, certificate)
        if caller is None and self.locked and not self.anonymous:
            raise Unauthenticated()
        return told(caller or ANYONE, headers)

    def shows_card(self, caller: Context, address: str) -> bool:
        """Returns whether a caller that was admitted, from this address, may read the card."""
        access = self._access[Policy.CARD]
        known = access.authenticated and bool(caller.schemes)
        return access.public or known or access.holds(address)

    async def check_card(self, scope: Scope) -> None:
        """Raises what a caller is told that may not read the card."""
        await check(scope, self.authenticator, self._access[Policy.CARD])

    def policed(self, routes: Mapping[str, Mapping[str, Handler]]) -> Routes:
        """Returns the routes, each guarded by its policy. A route without a policy is refused."""
        return policed(routes, self.authenticator, self._access)


_CREDENTIALS = re.compile(
    r"authorization|cookie|token|secret|password|api-?key|signature|credential", re.IGNORECASE
)
"""Headers that may hold credentials, by parts of their names."""


def with_headers(admit: Admit, names: Sequence[str], schemes: Mapping[str, Scheme]) -> Admit:
    """Returns an `Admit` whose callers have the headers of these names in their context. Raises
    `ConfigError` for a header that may hold credentials: those never reach an agent's code."""
    taken = {
        each.name.lower()
        for each in schemes.values()
        if isinstance(each, ApiKeys) and each.location == "header"
    }
    wanted = tuple(name.lower() for name in names)
    for name in wanted:
        if name in taken or _CREDENTIALS.search(name):
            raise ConfigError(f"server.caller_headers: '{name}' may hold credentials; remove it.")

    def seen(caller: Context, headers: Mapping[str, str]) -> Context:
        found = {name: headers[name] for name in wanted if name in headers}
        return replace(caller, headers=found) if found else caller

    async def later(caller: Awaitable[Context], headers: Mapping[str, str]) -> Context:
        return seen(await caller, headers)

    def admitted(
        headers: Mapping[str, str], target: str, certificate: str
    ) -> Context | Awaitable[Context]:
        caller = admit(headers, target, certificate)
        return seen(caller, headers) if isinstance(caller, Context) else later(caller, headers)

    return admitted


class ServerAccess:
    """The policies of the pages that belong to no agent, on a server with several of them: there
    the schemes in the settings count, and those in the code of an agent do not."""

    def __init__(self, settings: Settings, meter: Meter) -> None:
        self._fetch = JwksFetcher(allow_private=settings.server.allow_private)
        metered = meter if settings.rates.calls_per_minute else None
        self.authenticator = Authenticator(
            settings.auth, "agents", meter=metered, fetch=self._fetch
        )
        self._access = _accesses(settings)
        pages = {"metrics_access": Policy.METRICS, "status_access": Policy.STATUS}
        for key, which in pages.items():
            if self._access[which].authenticated and not settings.auth:
                raise ConfigError(
                    f"{key} for authenticated callers needs [auth.NAME]: with several agents, "
                    "auth= in the code of one of them is not enough."
                )

    async def check_card(self, scope: Scope) -> None:
        """Raises what a caller is told that may not read the card of an agent whose code has no
        schemes of its own."""
        await check(scope, self.authenticator, self._access[Policy.CARD])

    def policed(self, routes: Mapping[str, Mapping[str, Handler]]) -> Routes:
        """Returns the routes, each guarded by its policy. A route without a policy is refused."""
        return policed(routes, self.authenticator, self._access)

    async def close(self) -> None:
        """Closes the connections to issuers."""
        await self._fetch.close()


def _accesses(settings: Settings) -> dict[Policy, Access]:
    server = settings.server
    return {
        Policy.CARD: Access("card_access", server.card_access),
        Policy.METRICS: Access("metrics_access", server.metrics_access),
        Policy.STATUS: Access("status_access", server.status_access or server.metrics_access),
    }


def check_certificates(settings: Settings, agent: Agent) -> None:
    """Refuses to serve HTTP to callers known by certificates that our server cannot tell apart.

    Granian verifies a client's certificate and does not say whose it was. Other ASGI servers may
    say it, so this is asked only where ours listens."""
    if all(binding == GRPC for binding, _ in chosen(settings.server)):
        return
    for name, scheme in {**agent.auth, **settings.auth}.items():
        if isinstance(scheme, Certificates) and not scheme.shared:
            raise ConfigError(
                f"[auth.{name}]: over HTTP our server does not learn whose certificate it was, so "
                'callers would all be refused. Add shared = "NAME" for all holders together, or '
                'serve gRPC alone: interfaces = ["GRPC"].'
            )


def check_exposure(settings: Settings, agent: Agent) -> None:
    """Raises `ConfigError` for a server that listens to the network without authentication or
    without TLS."""
    server = settings.server
    try:
        loopback = server.host == "localhost" or ip_address(server.host).is_loopback
    except ValueError:
        loopback = False
    if loopback or server.insecure:
        return
    if not agent.auth and not settings.auth:
        raise ConfigError(
            f"Listening on {server.host} lets everyone in, since no authentication is set up. "
            "Keep to --host 127.0.0.1, add [auth.NAME], or --insecure if that is what you want."
        )
    if not settings.tls.cert and not server.public_url.startswith("https://"):
        raise ConfigError(
            f"Listening on {server.host} without TLS shows credentials to the network. "
            "Add [tls], or --public-url https://... if a proxy speaks TLS, or --insecure."
        )
